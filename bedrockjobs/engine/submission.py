"""A command on its way through the dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from bedrockjobs.base.config import LOOKS_AGAIN_MAX
from bedrockjobs.base.errors import CommandError, ServerFault, Unavailable
from bedrockjobs.base.principal import Principal
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer, Context, Taken
from bedrockjobs.engine.waiters import Waiter
from bedrockjobs.store.base import StoreError

log = logging.getLogger(__name__)

Outcome = Answer | CommandError
Deliver = Callable[[Outcome], bool]
"""Gets an outcome, and returns False if it is certain that its client cannot have got it."""

LOOKS_AT_ONCE = 2
"""How often a take is done again without a pause."""

LOOK_AGAIN_S = 0.00025
"""Then it pauses for 2 ms, and each time for twice as long, for half a second in all: the server that has
locked a job may be without a processor for some time, while ten units of another take milliseconds."""

PUT_BACK_TRIES_MAX = 1_000
"""How often it is tried to put a job back while the database refuses, ``busy_s`` apart."""


class Submission:
    """A command, and who gets its outcome."""

    __slots__ = ("by", "caller", "command", "deliver", "gone", "looks", "many", "waiter")

    def __init__(
        self, command: Command[Any] | None, deliver: Deliver, caller: Principal | None = None, by: str = ""
    ) -> None:
        """Hold a command; ``deliver`` gets the outcome.

        ``caller`` is who asks, if it matters for what is done or noted; ``by`` is the name of their token.
        """
        self.command = command
        self.caller = caller
        self.by = by
        self.deliver = deliver
        self.waiter: Waiter | None = None
        self.gone = False
        """Whether its client no longer waits."""
        self.looks = 0
        self.many = 0
        """How many names it asks for, if they are so many that others go first."""

    def may_look_again(self) -> bool:
        """Count a take that was passed over; return whether it is to be done again."""
        self.looks += 1
        return self.looks <= LOOKS_AGAIN_MAX and not self.gone

    @property
    def pause_s(self) -> float:
        """Return the time until it is done again: each time twice as long, but the first times none."""
        return LOOK_AGAIN_S * 2**self.looks if self.looks > LOOKS_AT_ONCE else 0.0

    @property
    def matters(self) -> bool:
        """Tell whether it has to be done where its client is gone: a look need not."""
        return self.command is None or not self.command.reads


class DelayedTakes:
    """Takes that are done again after a pause: what they asked for is locked by units of other servers."""

    def __init__(self, send: Callable[[Submission], object]) -> None:
        """Give them to ``send`` then."""
        self._send = send
        self._some: set[Submission] = set()

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._some)

    def add(self, some: Sequence[Submission]) -> None:
        """Let some pause."""
        self._some |= {*some}
        for one in some:
            asyncio.get_running_loop().call_later(one.pause_s, self._go_on, one)

    def _go_on(self, one: Submission) -> None:
        self._some.discard(one)
        self._send(one)


class RequeueUndelivered(Submission):
    """Jobs whose answer went nowhere, on their way back."""

    __slots__ = ("taken", "tries")

    def __init__(self, taken: Sequence[Taken]) -> None:
        """Hold the jobs."""
        super().__init__(None, lambda _: True)
        self.taken = taken
        self.tries = 0

    def may_try_again(self) -> bool:
        """Count a try that failed; return whether there is to be another one."""
        self.tries += 1
        if self.tries < PUT_BACK_TRIES_MAX:
            return True
        ids = ", ".join(str(taken.before.job_id) for taken in self.taken)
        log.error("jobs %s stay RUNNING: they could not be put back", ids)
        return False


class InternalCommand(Submission):
    """Something that the server itself writes: nobody waits for it, and nothing is said where it fails."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[Context], object], done: Callable[[Outcome], bool]) -> None:
        """Hold what is written; ``done`` is called behind the commit."""
        super().__init__(None, done)
        self.act = act


class CancelWait(Submission):
    """A waiter that waits no longer."""

    __slots__ = ("left",)

    def __init__(self, left: Submission) -> None:
        """Hold the submission that may be waiting."""
        super().__init__(None, lambda _: True)
        self.left = left
        self.many = left.many  # to forget them takes time too, and is done after they were asked for


def refusal_of(error: Exception) -> CommandError:
    """Return what a client is told when its transaction failed; nothing of it was committed."""
    if isinstance(error, StoreError):
        return Unavailable(error.reason, error.detail)
    return ServerFault(detail="nothing was done; the server's log tells more")
