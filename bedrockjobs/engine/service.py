"""What stands behind both protocols: a command goes in, its outcome comes back on the event loop.

It sends each command to who does it, the writer, the reader or itself, and knows nothing of connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, StandingClock
from bedrockjobs.base.config import MOMENTS_PER_ADVANCE_MAX, Settings
from bedrockjobs.base.errors import BadArguments, CommandError, ServerFault, WrongState
from bedrockjobs.base.wire import moment_of, stamp
from bedrockjobs.commands import (
    ALL,
    AdvanceClock,
    Command,
    Heartbeat,
    Help,
    ListWorkers,
    Ping,
    Status,
    ValidateSchedule,
)
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.views import Views

log = logging.getLogger(__name__)

VERSION = version("bedrockjobs")


class Service:
    """The commands of one server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        views: Views,
        presence: WorkerRegistry,
        notifier: Notifier,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """Serve commands from ``dispatcher``, ``views`` and ``desk``."""
        self._dispatcher = dispatcher
        self._views = views
        self._presence = presence
        self._notifier = notifier
        self._clock = clock
        self._settings = settings
        self._started = stamp(clock.now())
        self._reading: dict[Submission, asyncio.Task[None]] = {}
        self.connections = 0
        """Open connections, of both protocols."""
        self.views = views
        self.draining = False
        """Whether the server stops: nothing new is begun."""

    def submit(self, command: Command[Any], deliver: Callable[[Outcome], bool]) -> Submission | None:
        """Do a command; ``deliver`` gets its outcome, perhaps before this returns.

        It returns False where the outcome went nowhere: a taken job then goes back. Raises CommandError
        where the command cannot be accepted. A Submission comes back for a command that may
        wait, see ``leave``.
        """
        if command.where == "writer":
            return self._dispatcher.submit(command, deliver)
        if command.where == "at once":
            deliver(self._at_once(command))
            return None
        submission = Submission(command, deliver)
        task = self._reading[submission] = asyncio.ensure_future(self._read(submission))
        task.add_done_callback(lambda _: self._reading.pop(submission, None))
        return submission if command.waiting else None

    def leave(self, submission: Submission) -> None:
        """Let a waiting command end now: its client is gone or has said all it had to say."""
        task = self._reading.get(submission)
        if task is None:
            self._dispatcher.leave(submission)
        elif not submission.gone and not isinstance(submission.command, AdvanceClock):
            submission.gone = True
            asyncio.get_running_loop().call_soon(task.cancel)  # not before it has begun

    async def call(self, command: Command[Any]) -> Answer:
        """Do a command and return its answer; raises CommandError. When cancelled, a taken job goes back."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            if done.cancelled():
                return False
            done.set_result(outcome)
            return True

        submission = self.submit(command, deliver)
        try:
            outcome = await done
        except asyncio.CancelledError:
            if submission is not None:
                self.leave(submission)
            if done.done() and not done.cancelled():
                self.undelivered(done.result())
            raise
        if isinstance(outcome, CommandError):
            raise outcome
        return outcome

    def undelivered(self, outcome: Outcome) -> None:
        """Put back the jobs of an answer that could not be written."""
        if isinstance(outcome, Answer) and outcome.taken:
            self._dispatcher.put_back(outcome.taken)

    def now(self) -> datetime:
        """Return the server's time, which a test clock may have moved."""
        return self._clock.now()

    async def drain(self) -> None:
        """Answer who waits, finish what was begun, and refuse what comes."""
        self.draining = True
        self._notifier.end()
        self._presence.end()
        await self._dispatcher.drain()
        if self._reading:
            await asyncio.wait(self._reading.values(), timeout=self._settings.query_s + 1)

    async def _read(self, submission: Submission) -> None:
        command = submission.command
        assert command is not None
        outcome: Outcome
        try:
            try:
                outcome = await self._answer(command)
            except asyncio.CancelledError:
                if not submission.gone:
                    raise
                if isinstance(command, Heartbeat):  # done again, it would renew what nobody holds
                    outcome = Answer(self._presence.standing(command))
                else:
                    outcome = await self._answer(command.model_copy(update={"connection": None}))
        except CommandError as error:
            outcome = error
        except Exception as error:  # the connection must get an answer whatever failed
            log.exception("a read failed")
            outcome = ServerFault(detail=f"the reader failed: {type(error).__name__}")
        submission.deliver(outcome)

    async def _answer(self, command: Command[Any]) -> Answer:
        if command.where == "reader":
            return await self._views.answer(command)
        if isinstance(command, Heartbeat):
            return Answer(await self._presence.heartbeat(command))
        if isinstance(command, ListWorkers):
            return Answer(self._presence.listing())
        assert isinstance(command, AdvanceClock)
        return Answer(await self._advance(command))

    async def _advance(self, command: AdvanceClock) -> str:
        """Move a test clock from one moment that counts to the next."""
        if not isinstance(self._clock, StandingClock):
            raise WrongState("Not a test clock", "expected a server that was started with --test-clock")
        clock = self._clock
        if command.to is not None and command.seconds is not None:
            raise BadArguments("Malformed to", "to: expected nothing together with seconds")
        if command.to is not None:
            target = moment_of(command.to)
        elif command.seconds is not None:
            target = clock.now() + timedelta(seconds=command.seconds)
        else:
            target = self._dispatcher.next_moment() or clock.now()
        for _ in range(MOMENTS_PER_ADVANCE_MAX):
            if clock.now() >= target:
                break
            found = self._dispatcher.next_moment()
            clock.move_to(target if found is None else min(found, target))
            await self._dispatcher.settle()
        else:
            clock.move_to(target)
            await self._dispatcher.settle()
        return jsontext.dump({"now": stamp(clock.now())})

    def _at_once(self, command: Command[Any]) -> Outcome:
        if isinstance(command, Ping):
            return Answer()
        if isinstance(command, Help):
            sentences = {kind.__name__: (kind.__doc__ or "").strip().splitlines()[0] for kind in ALL}
            return Answer(jsontext.dump({"commands": sentences}))
        if isinstance(command, ValidateSchedule):
            return self._views.validate(command)
        assert isinstance(command, Status)
        return Answer(jsontext.dump(self.status()))

    def status(self) -> dict[str, Any]:
        """Return what Status shows."""
        return {
            "version": VERSION,
            "state": "draining" if self.draining else "serving",
            "durability": self._settings.durability,
            "compatibility": self._settings.compatibility,
            "database": self._settings.database,
            "pid": os.getpid(),
            "started": self._started,
            "now": stamp(self._clock.now()),
            "connections": self.connections,
            "waiting": self._dispatcher.waiting,
            "commits": self._dispatcher.commits,
            "commands": self._dispatcher.commands,
        }
