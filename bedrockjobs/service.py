"""The service behind both protocols: executes commands and returns their outcomes in the event loop.

It authorizes each command and routes it to the writer, the reader or a function of its own. It knows nothing
about connections.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bedrockjobs import views as reading
from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, timestamp
from bedrockjobs.base.config import READS_DRAINED_S
from bedrockjobs.base.errors import CommandError, ServerFault, Unauthenticated, Unavailable
from bedrockjobs.base.principal import READING_TOKEN, Principal, Scope
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import ALL, Command, CreateJob, CreateJobs, Heartbeat, Ping, Status
from bedrockjobs.engine.access import Access
from bedrockjobs.engine.authorization import admit
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Notifier
from bedrockjobs.engine.handlers.context import HANDLERS, Answer, Context, load
from bedrockjobs.engine.row_access import is_kept, watched_jobs
from bedrockjobs.engine.submission import (
    CallbackSubmission,
    InternalCommand,
    Outcome,
    RequeueUndelivered,
    Submission,
    refusal_of,
)
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.notify.channels import Channels
from bedrockjobs.notify.dispatcher import NotificationDispatcher
from bedrockjobs.store.base import StoreError
from bedrockjobs.views import Views
from bedrockjobs.views.problems import free_bytes
from bedrockjobs.views.queues import QueueSnapshot

log = logging.getLogger(__name__)

VERSION = version("bedrockjobs")

HOLD_UNKNOWN = "the server is checking whether the queue is held"
"""The reason that ``hold`` gives until the hold has been read from the database."""

SETTLE_S = 0.01
"""Seconds between two checks whether the work that a moved test clock made due is done. The work takes a few
transactions of milliseconds."""

SETTLES_MAX = 100
"""Maximum number of checks after which AdvanceClock stops waiting: work that fails is retried later."""

NO_COUNTS = {"connections": 0, "waiting": 0, "commits": 0, "commands": 0, "database": ""}
"""Values in the reply to Status for principals that may not see everything, instead of the real ones."""

load(reading)


class Service:
    """Executes the commands of one server."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        views: Views,
        presence: WorkerRegistry,
        notifier: Notifier,
        clock: Clock,
        settings: Settings,
        move_clock: Callable[[datetime], Awaitable[None]],
        access: Access,
    ) -> None:
        """Execute commands through ``dispatcher``, ``views`` and ``presence``, authenticated by ``access``.

        ``move_clock`` moves a test clock; it raises Unavailable if that is impossible now.
        """
        self._dispatcher = dispatcher
        self.enqueue = dispatcher.put
        """Queue a command for the writer without authorization; raises Unavailable."""
        self.views = views
        self.presence = presence
        self._notifier = notifier
        self.clock = clock
        self.settings = settings
        self._move_clock = move_clock
        self.access = access
        self.messenger = NotificationDispatcher(
            self,
            _channels(settings),
            clock,
            name=settings.resolved_server_name(),
            url=settings.public_url.rstrip("/"),
            alone=not settings.on_postgresql,
        )
        """Sends notifications."""
        access.on_first, access.write = self._end_waits, self._write
        self._started = timestamp(clock.now())
        self._reading: dict[Submission, asyncio.Task[None]] = {}
        self.connections = 0
        """Open connections of both protocols."""
        self.draining = False
        """Whether the server is shutting down and refuses new commands."""

    def renew_messages(self) -> None:
        """Apply changed settings to notifications."""
        self.messenger.renew(_channels(self.settings), self.settings.public_url.rstrip("/"))

    @property
    def problem(self) -> str:
        """Return why the server accepts no commands, as text for people; empty if it accepts them."""
        return "stopping" if self.draining else self._dispatcher.health.problem

    @property
    def begins(self) -> bool:
        """Return whether a transaction is about to begin; long work should then yield to the event loop."""
        return self._dispatcher.begins

    @property
    def hold(self) -> str:
        """Return why the queue is on hold after a restore; empty if it is not.

        Until the first transaction has read the hold, the queue counts as being on hold.
        """
        hold = self._dispatcher.health.hold
        return HOLD_UNKNOWN if hold is None else hold

    @property
    def free_bytes(self) -> int | None:
        """Return the bytes free on the disk of the database; None if it is on another machine or unknown."""
        return free_bytes(self.settings)

    async def snapshot(self) -> QueueSnapshot:
        """Return a snapshot of the queue; raises CommandError."""
        return await self.views.queues.snapshot()

    async def options_of_run(self, run_id: int) -> str:
        """Return the options of a run as JSON; raises CommandError."""
        return (await self.views.adjacent_runs(run_id))[2]

    async def seen(self, kind: str, numbers: Collection[int]) -> dict[int, str]:
        """Return when each failed ``job`` or ``run`` was acknowledged; raises CommandError."""
        return await self.views.find.seen(kind, numbers)

    def submit(
        self, command: Command[Any], deliver: Callable[[Outcome], bool], caller: Principal | None = None
    ) -> Submission | None:
        """Execute a command; ``deliver`` gets its outcome, perhaps before this method returns.

        ``deliver`` returns False if the client cannot receive the outcome; jobs that the command took are
        then requeued. Returns a Submission if the command may wait; ``leave`` cancels it. Raises CommandError
        if the command is not accepted. Without a ``caller`` everything is allowed.
        """
        submission = CallbackSubmission(command, deliver, caller)
        submission.alone = True
        return self.put(submission)

    def put(self, submission: Submission) -> Submission | None:
        """Authorize the command of a submission for its caller, and execute it as ``submit`` does."""
        caller = submission.caller
        if caller is None:
            if submission.template.where == "writer":
                self._dispatcher.put(submission)  # the common case
                return submission
            return self.do(submission)
        assert submission.command is not None
        command = admit(caller, submission.command)
        if command is not submission.command:
            submission.command = command
        if command.waiting and caller.grant.name:
            return Waits(self, caller).submit(submission)
        return self.do(submission)

    def do(self, submission: Submission) -> Submission | None:
        """Execute a command that is already authorized, as ``submit`` does."""
        command, caller = submission.command, submission.caller
        assert command is not None
        if command.where == "writer":
            if caller is not None:
                submission.by = caller.name
                if not _matters(caller, command):
                    submission.caller = None  # the writer need not know the principal
            self._dispatcher.put(submission)
            return submission
        if command.where == "at once":
            answer = HANDLERS[type(command)](self, command)
            if caller is not None and isinstance(command, Status) and not caller.sees_all:
                answer = Answer(jsontext.dump({**self.status(), **NO_COUNTS}))
            submission.deliver(answer)
            return None
        if type(command) is Heartbeat and (caller is None or caller.scope is None):
            beat = self.presence.heartbeat_at_once(command, "" if caller is None else caller.name)
            if beat is not None:
                submission.deliver(Answer(beat))
                return None
        task = self._reading[submission] = asyncio.ensure_future(self._read(submission))
        task.add_done_callback(lambda _: self._reading.pop(submission, None))
        return submission if command.waiting else None

    def leave(self, submission: Submission) -> None:
        """Cancel a waiting command, because its client is gone or has closed its sending side."""
        task = self._reading.get(submission)
        if task is None:
            self._dispatcher.leave(submission)
        elif not submission.gone and submission.command is not None and submission.command.waits:
            submission.gone = True
            asyncio.get_running_loop().call_soon(task.cancel)  # only after the task has started

    def _write(self, act: Callable[[Context], object], done: Callable[[Outcome], bool]) -> None:
        """Submit a write of the server; ``done`` gets an Answer once the write is on disk, or the error."""
        if self.draining:
            done(Unavailable(detail="stopping"))
        else:
            self._dispatcher.send(InternalCommand(act, done))

    def _end_waits(self) -> None:
        """Cancel all waits, because clients without a token no longer have every permission."""
        self._dispatcher.leave_all()
        for submission in list(self._reading):
            self.leave(submission)

    async def call(self, command: Command[Any], caller: Principal | None = None) -> Answer:
        """Execute a command and return its answer; raises CommandError.

        If the calling task is cancelled, a job that the command took is requeued.
        """
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            if done.cancelled():
                return False
            done.set_result(outcome)
            return True

        submission = self.submit(command, deliver, caller)
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
        """Requeue the jobs of an answer that could not be delivered."""
        if isinstance(outcome, Answer) and outcome.taken:
            self._dispatcher.send(RequeueUndelivered(outcome.taken))

    def now(self) -> datetime:
        """Return the server's time, which a test clock may have moved."""
        return self.clock.now()

    async def drain(self) -> None:
        """Answer waiters, finish commands in progress, and refuse new commands; connections stay open."""
        self.draining = True
        await self.messenger.close()
        self._notifier.end()
        self.presence.end()
        await self._dispatcher.drain()
        if self._reading:
            await asyncio.wait(self._reading.values(), timeout=READS_DRAINED_S)

    async def _read(self, submission: Submission) -> None:
        command = submission.command
        assert command is not None
        READING_TOKEN.set("" if submission.caller is None else submission.caller.name)
        outcome: Outcome
        try:
            try:
                outcome = await self._answer(command, submission.caller)
            except asyncio.CancelledError:
                if not submission.gone:
                    raise
                if not self._may_go_on(submission.caller):
                    raise Unauthenticated(detail="the token is no longer valid") from None
                alone = command.model_copy(update={"connection": None})
                outcome = await self._answer(alone, submission.caller)
        except CommandError as error:
            outcome = error
        except StoreError as error:  # can occur when a test clock is moved
            outcome = refusal_of(error)
        except Exception as error:  # the client must get a reply in any case
            log.exception("a read failed")
            outcome = ServerFault(detail=f"the reader failed: {type(error).__name__}")
        submission.deliver(outcome)

    def _may_go_on(self, caller: Principal | None) -> bool:
        return not self.access.on if caller is None else self.access.is_still_allowed(caller)

    async def _answer(self, command: Command[Any], caller: Principal | None) -> Answer:
        if command.where == "reader":
            return await self.views.seen_by(caller).answer(command)
        if isinstance(command, Heartbeat) and caller is not None and caller.scope is not None:
            return await self._beat_of_seen(command, caller.scope, caller.name)
        answer: Answer
        if isinstance(command, Heartbeat) and caller is not None:
            answer = await HANDLERS[Heartbeat](self, command, caller.name)
        else:
            answer = await HANDLERS[type(command)](self, command)
        return answer

    async def _beat_of_seen(self, command: Heartbeat, scope: Scope, by: str) -> Answer:
        """Execute a heartbeat for the runs within the scope; report the runs outside of it as lost."""
        foreign = []
        for run_id in command.run_ids:
            rows = (await self.views.rows("name_of_run", {"runID": run_id})).rows
            if rows and not scope.covers(rows[0][0]):
                foreign.append(run_id)
        if not foreign:
            answer: Answer = await HANDLERS[Heartbeat](self, command, by)
            return answer
        seen = [run_id for run_id in command.run_ids if run_id not in foreign]
        at_once = command.with_value("run_ids", seen).with_value("connection", None)
        reply = jsontext.parse((await HANDLERS[Heartbeat](self, at_once, by)).body)
        signals = {stop["runID"]: stop["signal"] for stop in reply["stop"]} | dict.fromkeys(foreign, "LOST")
        stops = [{"runID": one, "signal": signals[one]} for one in command.run_ids if one in signals]
        return Answer(jsontext.dump({**reply, "stop": stops}))

    async def next_moment(self) -> datetime | None:
        """Return the time at which something becomes due next, or None if nothing will."""
        return await self._dispatcher.next_moment()

    async def move_clock(self, moment: datetime) -> None:
        """Move a test clock and wait until all work due by then is done. Raises Unavailable."""
        await self._move_clock(moment)
        self.messenger.check_rules()
        for _ in range(SETTLES_MAX):
            if await self._dispatcher.settle():
                break
            await asyncio.sleep(SETTLE_S)

    def status(self) -> dict[str, Any]:
        """Return the contents of the reply to Status."""
        return {
            "version": VERSION,
            "state": "draining" if self.draining else "serving",
            "durability": self.settings.durability,
            "compatibility": self.settings.compatibility,
            "database": self.settings.shown_database,
            "pid": os.getpid(),
            "started": self._started,
            "now": timestamp(self.clock.now()),
            "connections": self.connections,
            "waiting": self._dispatcher.waiting,
            "commits": self._dispatcher.commits,
            "commands": self._dispatcher.commands,
        }


_WITH_TOKENS_OF_RUNS = frozenset(kind for kind in ALL if "run_token" in kind.model_fields)
"""Commands that have the parameter ``runToken``."""


def _matters(caller: Principal, command: Command[Any]) -> bool:
    """Return whether the writer needs the principal of a command, to check the scope or for the audit."""
    grant, kind = caller.grant, type(command)
    if caller.run is not None or (not grant.is_unrestricted and not _is_seen_whole(command)):
        return True
    if "operate" not in grant.roles and _is_unique(command):
        return True
    if watched_jobs(caller, command):
        return True
    return is_kept(caller, command) or (kind in _WITH_TOKENS_OF_RUNS and getattr(command, "run_token"))  # noqa: B009


def _is_seen_whole(command: Command[Any]) -> bool:
    """Return whether a command touches only one new job: authorizing it has already checked the scope."""
    return type(command) is CreateJob and not command.unique and not command.parent_job_id


def _is_unique(command: Command[Any]) -> bool:
    """Return whether a command may change an existing job of its name, perhaps a protected schedule."""
    if type(command) is CreateJob:
        return command.unique or command.on_conflict == "replace"
    return type(command) is CreateJobs and any(
        spec.unique or spec.on_conflict == "replace" for spec in command.jobs
    )


class Waits:
    """Submits a waiting command of an authenticated principal; cancels it when the token becomes invalid."""

    def __init__(self, service: Service, caller: Principal) -> None:
        """Submit on behalf of ``caller``."""
        self._service, self._caller = service, caller
        self._deliver: Callable[[Outcome], bool] = lambda _: False
        self._submission: Submission | None = None

    def submit(self, submission: Submission) -> Submission | None:
        """Submit the command, as ``Service.put`` does."""
        self._deliver = submission.deliver
        ends = self._caller.grant.ends
        ends.add(self._end)
        alone = CallbackSubmission(submission.command, self._delivered, self._caller)
        try:
            self._submission = self._service.do(alone)
        except CommandError:
            ends.discard(self._end)
            raise
        return self._submission

    def _end(self) -> None:
        if self._submission is not None:
            self._service.leave(self._submission)

    def _delivered(self, outcome: Outcome) -> bool:
        self._caller.grant.ends.discard(self._end)
        self._submission = None
        if self._service.access.is_still_allowed(self._caller):
            return self._deliver(outcome)
        self._deliver(Unauthenticated(detail="the token is no longer valid"))
        return False


class WaitingService(Service):
    """Refuses all commands but Ping while no database is open."""

    def __init__(self, clock: Clock, settings: Settings) -> None:
        """Prepare; requests can be answered only after ``refuse`` has been called."""
        self.clock, self.settings = clock, settings
        self.access = Access(clock, settings, reachable=True)
        self.enqueue = self.put
        self.views: Any = None  # every request is refused before it reaches them
        self.connections = 0
        self.draining = False
        self._problem = ""

    def refuse(self, problem: str, error: StoreError | Unavailable) -> None:
        """From now on, refuse requests because of ``error``; health checks report ``problem``."""
        refusal = refusal_of(error) if isinstance(error, StoreError) else error
        self._problem, self.access.unread = problem, (refusal.reason, refusal.detail)

    @property
    def problem(self) -> str:
        """Return why the server accepts no commands."""
        return self._problem

    @property
    def hold(self) -> str:
        """Return an empty string: whether the queue is held is not known."""
        return ""

    def put(self, submission: Submission) -> None:
        """Answer a Ping; raise the Unavailable of ``refuse`` for any other command."""
        if type(submission.template) is not Ping:
            assert self.access.unread is not None
            raise Unavailable(*self.access.unread)
        submission.deliver(Answer())

    def leave(self, submission: Submission) -> None:
        """Do nothing: no command waits."""

    def undelivered(self, outcome: Outcome) -> None:
        """Do nothing: no job was taken."""


def _channels(settings: Settings) -> Channels:
    if settings.notify_commands and not Path(settings.notify_commands).is_dir():
        log.warning(
            "notify_commands: there is no folder %s; messages to its programs fail", settings.notify_commands
        )
    return Channels(
        smtp=settings.smtp,
        mail_from=settings.mail_from,
        url=settings.public_url,
        commands=settings.notify_commands,
    )
