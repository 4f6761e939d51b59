"""A key that ends a view: read without an Enter, and never longer than a frame lasts."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END_KEYS = frozenset(b"qQ\x1b\x04")
"""What ends a view: q, Escape, or the end of the input (Ctrl-D)."""


@contextmanager
def waiting_for_the_end() -> Iterator[Callable[[float], bool]]:
    """Give a function that waits some seconds, and tells whether somebody wants to end meanwhile.

    Where stdin is no terminal nobody can, and it only waits.
    """
    if not sys.stdin.isatty():
        yield _asleep
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda seconds: _pressed(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _asleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _pressed(terminal: int, seconds: float) -> bool:
    """Wait for a key; one that means nothing only makes the next frame come sooner."""
    ready, _, _ = select.select([terminal], [], [], seconds)
    if not ready:
        return False
    pressed = os.read(terminal, 1)
    return not pressed or pressed[0] in END_KEYS
