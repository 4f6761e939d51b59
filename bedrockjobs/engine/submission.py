"""A command on its way through the dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bedrockjobs.base.errors import CommandError, ServerFault, Unavailable
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer, Taken
from bedrockjobs.engine.waiting import Waiter
from bedrockjobs.store.faults import StoreError

Outcome = Answer | CommandError


class Submission:
    """A command, and who gets its outcome."""

    __slots__ = ("command", "deliver", "gone", "waiter")

    def __init__(self, command: Command[Any] | None, deliver: Callable[[Outcome], bool]) -> None:
        """Hold a command; ``deliver`` gets the outcome, and returns False if it went nowhere."""
        self.command = command
        self.deliver = deliver
        self.waiter: Waiter | None = None
        self.gone = False
        """Whether its client no longer waits."""


class ReturnJobs(Submission):
    """Jobs whose answer went nowhere, on their way back."""

    __slots__ = ("taken", "tries")

    def __init__(self, taken: Sequence[Taken]) -> None:
        """Hold the jobs."""
        super().__init__(None, lambda _: True)
        self.taken = taken
        self.tries = 0


class CancelWait(Submission):
    """A waiter that waits no longer."""

    __slots__ = ("left",)

    def __init__(self, left: Submission) -> None:
        """Hold the submission that may be waiting."""
        super().__init__(None, lambda _: True)
        self.left = left


def refusal_of(error: Exception) -> CommandError:
    """Return what a client is told when its transaction failed; nothing of it was committed."""
    if isinstance(error, StoreError):
        return Unavailable(error.reason, error.detail)
    return ServerFault(detail="nothing was done; the server's log tells more")
