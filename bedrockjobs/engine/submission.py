"""Submissions: commands on their way through the dispatcher, and internal work in the same queue."""

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
"""Receives an outcome; returns False only if the client certainly did not get it."""

LOOKS_AT_ONCE = 2
"""How often a take is retried without a pause."""

LOOK_AGAIN_S = 0.00025
"""Base of the backoff: the first pause is 2 ms and each next one twice as long, half a second in total. The
server that locked a job may get no CPU for a while; ten transactions of another take milliseconds."""

PUT_BACK_TRIES_MAX = 1_000
"""Max attempts, ``busy_s`` apart, to requeue a job while the database refuses writes."""


class Submission:
    """A command together with the function that receives its outcome."""

    __slots__ = ("by", "caller", "command", "deliver", "gone", "looks", "many", "waiter")

    def __init__(
        self, command: Command[Any] | None, deliver: Deliver, caller: Principal | None = None, by: str = ""
    ) -> None:
        """Hold a command; ``deliver`` receives the outcome.

        ``caller`` is the principal, if the command depends on it; ``by`` is the name of the token.
        """
        self.command = command
        self.caller = caller
        self.by = by
        self.deliver = deliver
        self.waiter: Waiter | None = None
        self.gone = False
        """Whether the client has disconnected or cancelled its wait."""
        self.looks = 0
        self.many = 0
        """Number of names asked for if it is large enough for the separate queue, else 0."""

    def may_look_again(self) -> bool:
        """Count a take that found only locked rows; return True if it should be retried."""
        self.looks += 1
        return self.looks <= LOOKS_AGAIN_MAX and not self.gone

    @property
    def pause_s(self) -> float:
        """Return the backoff before the next attempt: zero at first, then doubling."""
        return LOOK_AGAIN_S * 2**self.looks if self.looks > LOOKS_AT_ONCE else 0.0

    @property
    def matters(self) -> bool:
        """Return True if it must be executed even if its client is gone; reads need not."""
        return self.command is None or not self.command.reads


class DelayedTakes:
    """Delayed retry queue for takes whose jobs are locked by other servers."""

    def __init__(self, send: Callable[[Submission], object]) -> None:
        """Pass each take to ``send`` after its pause."""
        self._send = send
        self._some: set[Submission] = set()

    def __bool__(self) -> bool:
        """Return True if any take is pausing."""
        return bool(self._some)

    def add(self, some: Sequence[Submission]) -> None:
        """Schedule the retry of some takes."""
        self._some |= {*some}
        for one in some:
            asyncio.get_running_loop().call_later(one.pause_s, self._go_on, one)

    def _go_on(self, one: Submission) -> None:
        self._some.discard(one)
        self._send(one)


class RequeueUndelivered(Submission):
    """Returns taken jobs to the queue because their reply could not be delivered."""

    __slots__ = ("taken", "tries")

    def __init__(self, taken: Sequence[Taken]) -> None:
        """Hold the taken jobs."""
        super().__init__(None, lambda _: True)
        self.taken = taken
        self.tries = 0

    def may_try_again(self) -> bool:
        """Count a failed attempt; return True if another one should be made."""
        self.tries += 1
        if self.tries < PUT_BACK_TRIES_MAX:
            return True
        ids = ", ".join(str(taken.before.job_id) for taken in self.taken)
        log.error("jobs %s stay RUNNING: they could not be put back", ids)
        return False


class InternalCommand(Submission):
    """A write of the server itself; no client waits for it, and a failure is not reported."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[Context], object], done: Callable[[Outcome], bool]) -> None:
        """Hold the function to execute; ``done`` is called after the commit."""
        super().__init__(None, done)
        self.act = act


class CancelWait(Submission):
    """Cancels the wait of another submission."""

    __slots__ = ("left",)

    def __init__(self, left: Submission) -> None:
        """Hold the submission whose wait is cancelled."""
        super().__init__(None, lambda _: True)
        self.left = left
        self.many = left.many  # removing many names takes time too, and must come after the take itself


def refusal_of(error: Exception) -> CommandError:
    """Return the error sent to a client whose transaction was rolled back."""
    if isinstance(error, StoreError):
        return Unavailable(error.reason, error.detail)
    return ServerFault(detail="nothing was done; the server's log tells more")
