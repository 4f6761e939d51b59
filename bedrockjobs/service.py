"""What stands behind both protocols: a command goes in, its outcome comes back on the event loop.

It sends each command to who does it, the writer, the reader or itself, and knows nothing of connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from importlib.metadata import version
from typing import Any

from bedrockjobs import views as reading
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import READS_DRAINED_S
from bedrockjobs.base.errors import CommandError, ServerFault
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import stamp
from bedrockjobs.commands import Command
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import HANDLERS, load
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.submission import Outcome, Submission, refusal_of
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.faults import StoreError
from bedrockjobs.views import Views

log = logging.getLogger(__name__)

VERSION = version("bedrockjobs")

SETTLE_S = 0.01
"""Time in which another server does what a moved clock asks for: some units, of a few milliseconds each."""

SETTLES_MAX = 100
"""How often that is waited for: what fails is tried again later, and nobody waits for that."""

load(reading)


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
        move_clock: Callable[[datetime], Awaitable[None]],
    ) -> None:
        """Serve commands from ``dispatcher``, ``views`` and ``presence``.

        ``move_clock`` moves a clock that stands; it raises Unavailable where that cannot be done now.
        """
        self._dispatcher = dispatcher
        self.views = views
        self.presence = presence
        self._notifier = notifier
        self.clock = clock
        self.settings = settings
        self._move_clock = move_clock
        self._started = stamp(clock.now())
        self._reading: dict[Submission, asyncio.Task[None]] = {}
        self.connections = 0
        """Open connections, of both protocols."""
        self.draining = False
        """Whether the server stops: nothing new is begun."""

    @property
    def trouble(self) -> str:
        """Return why the server is not ready for commands, as a person reads it; empty where it is."""
        return "stopping" if self.draining else self._dispatcher.health.trouble

    @property
    def hold(self) -> str:
        """Return what a person reads while the queue is held after a restore; empty where it is not."""
        return self._dispatcher.health.hold

    def submit(self, command: Command[Any], deliver: Callable[[Outcome], bool]) -> Submission | None:
        """Do a command; ``deliver`` gets its outcome, perhaps before this returns.

        It returns False where the outcome went nowhere: a taken job then goes back. Raises CommandError
        where the command cannot be accepted. A Submission comes back for a command that may
        wait, see ``leave``.
        """
        if command.where == "writer":
            return self._dispatcher.submit(command, deliver)
        if command.where == "at once":
            deliver(HANDLERS[type(command)](self, command))
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
        elif not submission.gone and submission.command is not None and submission.command.waits:
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
        return self.clock.now()

    async def drain(self) -> None:
        """Answer who waits, finish what was begun, and refuse what comes."""
        self.draining = True
        self._notifier.end()
        self.presence.end()
        await self._dispatcher.drain()
        if self._reading:
            await asyncio.wait(self._reading.values(), timeout=READS_DRAINED_S)

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
                outcome = await self._answer(command.model_copy(update={"connection": None}))
        except CommandError as error:
            outcome = error
        except StoreError as error:  # met by a clock that is moved
            outcome = refusal_of(error)
        except Exception as error:  # the connection must get an answer whatever failed
            log.exception("a read failed")
            outcome = ServerFault(detail=f"the reader failed: {type(error).__name__}")
        submission.deliver(outcome)

    async def _answer(self, command: Command[Any]) -> Answer:
        if command.where == "reader":
            return await self.views.answer(command)
        answer: Answer = await HANDLERS[type(command)](self, command)
        return answer

    async def next_moment(self) -> datetime | None:
        """Return when time asks for something next, None where for nothing."""
        return await self._dispatcher.next_moment()

    async def move_clock(self, moment: datetime) -> None:
        """Move a test clock; return once all that time asks for then is done. Raises Unavailable."""
        await self._move_clock(moment)
        for _ in range(SETTLES_MAX):
            if await self._dispatcher.settle():
                break
            await asyncio.sleep(SETTLE_S)

    def status(self) -> dict[str, Any]:
        """Return what Status shows."""
        return {
            "version": VERSION,
            "state": "draining" if self.draining else "serving",
            "durability": self.settings.durability,
            "compatibility": self.settings.compatibility,
            "database": self.settings.shown_database,
            "pid": os.getpid(),
            "started": self._started,
            "now": stamp(self.clock.now()),
            "connections": self.connections,
            "waiting": self._dispatcher.waiting,
            "commits": self._dispatcher.commits,
            "commands": self._dispatcher.commands,
        }
