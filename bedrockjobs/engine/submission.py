"""Submissions: commands on their way through the dispatcher, and internal work in the same queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from bedrockjobs.base.errors import CommandError, ServerFault, Unavailable
from bedrockjobs.base.principal import Principal
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer, Context, Taken
from bedrockjobs.engine.handlers.plain import Prepared
from bedrockjobs.engine.waiters import Waiter
from bedrockjobs.store.base import StoreError

log = logging.getLogger(__name__)

Outcome = Answer | CommandError
Deliver = Callable[[Outcome], bool]
"""Receives an outcome; returns False only if the client certainly did not get it."""


async def outcome_of(submit: Callable[[Deliver], object]) -> Outcome:
    """Submit a command of the server itself, and return its outcome."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def deliver(outcome: Outcome) -> bool:
        if not done.done():
            done.set_result(outcome)
        return True

    submit(deliver)
    return await done


RETRIES_AT_ONCE = 2
"""Number of retries of a take before the first pause."""

RETRY_S = 0.00025
"""Base of the backoff in seconds: the first pause is 2 ms, and each further pause twice as long. Retries
without pauses would all fail within milliseconds, while the server that locked a job may get no CPU for
longer."""

RETRY_S_MAX = 0.25
"""Maximum pause in seconds: little compared with the time for which the jobs have been locked by then."""


class Submission:
    """A command on its way through the dispatcher; ``deliver`` receives its outcome."""

    # Defaults are class attributes, since setting them all would take as long as executing a command.
    internal = False
    """Whether it is work of the server itself, without a command."""
    prepared: Prepared | None = None
    """The prepared request that this submission shares with similar ones; None if the request is not
    cached."""
    value: Any = None
    """The value of the prepared request's open field, in which this submission differs from similar ones."""
    caller: Principal | None = None
    """The principal that sent the command, if its execution depends on that."""
    by = ""
    """The name of the client's token; empty without one."""
    waiter: Waiter | None = None
    gone = False
    """Whether the client has disconnected or cancelled its wait."""
    alone = False
    """Whether its client awaits no earlier reply and has sent nothing after it, so that a read may overtake
    commands of other clients."""
    overtakes = False
    """Whether it is read outside of the writer's transactions; later commands of its client wait for the
    reply."""
    tries = 0
    """Number of attempts that failed so far."""
    paused_s = 0.0
    """Sum of the pauses between the attempts, in seconds."""
    many = 0
    """Number of names that the command asks for, if more than NAMES_AT_ONCE: it is then in a separate queue.
    Else 0."""
    template: Command[Any]
    """The command, perhaps without the value of its open field; not set for internal work."""
    _command: Command[Any] | None = None

    @property
    def command(self) -> Command[Any] | None:
        """Return the command; for a prepared request, create it on first use."""
        if self._command is None and self.prepared is not None:
            self._command = self.prepared.with_value(self.value)
        return self._command

    @command.setter
    def command(self, command: Command[Any]) -> None:
        self._command, self.prepared, self.template = command, None, command

    def deliver(self, outcome: Outcome) -> bool:
        """Receive the outcome; return False only if the client certainly did not get it."""
        return True

    def parked(self) -> None:
        """Take notice that the command now waits for a job: it was executed, but its reply is outstanding."""

    def may_retry(self, limit_s: float) -> bool:
        """Count a take that found only locked rows; return True unless the pauses exceed ``limit_s``."""
        self.tries += 1
        self.paused_s += self.pause_s
        return self.paused_s <= limit_s and not self.gone

    @property
    def pause_s(self) -> float:
        """Return the backoff before the next attempt: zero at first, then doubling up to a limit."""
        return min(RETRY_S * 2**self.tries, RETRY_S_MAX) if self.tries > RETRIES_AT_ONCE else 0.0

    @property
    def matters(self) -> bool:
        """Return True if the command must be executed even if its client is gone, as all but reads must."""
        return self.command is None or not self.command.reads


class CallbackSubmission(Submission):
    """A command whose outcome goes to a function."""

    def __init__(
        self, command: Command[Any] | None, deliver: Deliver, caller: Principal | None = None, by: str = ""
    ) -> None:
        """Hold a command; ``deliver`` receives its outcome."""
        self._deliver, self.caller, self.by = deliver, caller, by
        if command is not None:
            self._command = self.template = command

    def deliver(self, outcome: Outcome) -> bool:
        """Call the function with the outcome."""
        return self._deliver(outcome)


class DelayedTakes:
    """Delayed retry queue for takes whose jobs are locked by other servers."""

    def __init__(self, send: Callable[[Submission], object]) -> None:
        """Pass each take to ``send`` after its pause."""
        self._send = send
        self._some: dict[Submission, asyncio.TimerHandle] = {}

    def __bool__(self) -> bool:
        """Return True if any take waits for its retry."""
        return bool(self._some)

    def add(self, some: Sequence[Submission]) -> None:
        """Schedule the retry of each of these takes, after its pause."""
        for one in some:
            self._some[one] = asyncio.get_running_loop().call_later(one.pause_s, self._resend, one)

    def end_pauses(self) -> None:
        """Retry all takes now."""
        for one in [*self._some]:
            self._resend(one)

    def _resend(self, one: Submission) -> None:
        self._some.pop(one).cancel()
        self._send(one)


class RequeueUndelivered(Submission):
    """Returns taken jobs to the queue because their reply could not be delivered."""

    internal = True

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.taken = taken
        self.tries = 0

    def may_try_again(self) -> bool:
        """Count a failed attempt; return True if another one should be made."""
        self.tries += 1
        # Maximum number of attempts, ``busy_s`` apart, to requeue a job while the database refuses writes
        if self.tries < 1_000:
            return True
        ids = ", ".join(str(taken.before.job_id) for taken in self.taken)
        log.error("jobs %s stay RUNNING: they could not be requeued", ids)
        return False


class InternalCommand(CallbackSubmission):
    """A write of the server itself; no client waits for it or learns of its failure."""

    internal = True

    def __init__(self, act: Callable[[Context], object], done: Callable[[Outcome], bool]) -> None:
        """Hold the function to execute; ``done`` is called after the commit."""
        super().__init__(None, done)
        self.act = act


class CancelWait(Submission):
    """Cancels the wait of another submission."""

    internal = True

    def __init__(self, left: Submission) -> None:
        self.left = left
        self.many = left.many  # removing many names takes time too, and must come after the take itself


def refusal_of(error: Exception) -> CommandError:
    """Return the error sent to a client whose transaction was rolled back."""
    if isinstance(error, StoreError):
        return Unavailable(error.reason, error.detail)
    return ServerFault(detail="nothing was done; see the server's log")
