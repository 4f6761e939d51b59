"""Long work in slices: it stops where it is now and then, and the event loop serves others in between.

What a transaction does is one stack of calls, and none of them has to know that it is stopped: whoever may go
through more than a few hundred rows does so ``in_turns``. The transaction stays open meanwhile: others are
heard, and answered where they do not need the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from bedrockjobs.base.config import SLICE

T = TypeVar("T")


class Slices(greenlet):
    """Work that may be stopped; ``switch`` begins it, or goes on with it, until it stops or is ``dead``."""

    def __init__(self, work: Callable[[], Any]) -> None:
        """Prepare some work, which sees the context variables of who prepares it."""
        super().__init__(work)
        self.gr_context = getcurrent().gr_context


def give_turn() -> None:
    """Let others have a turn, where this is called within work that may be stopped; else do nothing."""
    current = getcurrent()
    if isinstance(current, Slices) and current.parent is not None:
        current.parent.switch()


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and let others have a turn after each slice of them."""
    for count, item in enumerate(items, 1):
        yield item
        if not count % SLICE:
            give_turn()
