"""Pulling: requests jobs from the server, one request at a time, and renews the leases of their runs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

from pydantic import ValidationError

from bedrock_worker.log import event
from bedrock_worker.options import VERSION, WorkerOptions
from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import HEARTBEAT_S, PATTERN_CHARS_MAX, PATTERNS_MAX
from bedrockjobs.base.errors import CommandError, Forbidden, NotFound, ServerFault, TimedOut, UnknownCommand
from bedrockjobs.base.glob import is_plain
from bedrockjobs.client import AsyncClient, backoff_s
from bedrockjobs.commands import Command, Heartbeat, JobReply, Reply
from bedrockjobs.commands.jobs import RunEnd
from bedrockjobs.commands.runs import HeartbeatReply

# --- jobs as received ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TakenJob:
    """One job that was taken, for one run."""

    text: str
    """The job's JSON as received, with numbers and key order in ``data`` as the author wrote them."""
    reply: JobReply

    @property
    def job_id(self) -> int:
        """Return the job's id."""
        return self.reply.job_id

    @property
    def run_id(self) -> int | None:
        """Return the id of this run, by which the server refuses reports of an earlier run."""
        return self.reply.run_id

    @property
    def before(self) -> tuple[int, int] | None:
        """Return where in the encoded text the results of earlier jobs begin and end, or None."""
        if self.reply.before is None:
            return None
        results = jsontext.members(self.text)["before"]
        begin = len(self.text[: self.text.index(results)].encode())
        return begin, begin + len(results.encode())


def jobs_of(body: bytes) -> list[TakenJob]:
    """Return the jobs in a reply to GetJobs; raises ValueError."""
    return _jobs_in(body, None, "GetJobs")


def jobs_after(body: bytes) -> list[TakenJob]:
    """Return the jobs in a reply to FinishJobs with ``thenGet``; raises ValueError.

    An older server sends no jobs.
    """
    return _jobs_in(body, "[]", "thenGet")


def job_after(body: bytes) -> TakenJob | None:
    """Return the job in a reply to a report with ``thenGet``, or None; raises ValueError.

    An older server sends no body.
    """
    try:
        text = jsontext.members(body.decode()).get("job", "null") if body else "null"
        return None if text == "null" else _job_of(text)
    except (ValidationError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to thenGet: {error}") from error


def _jobs_in(body: bytes, missing: str | None, verb: str) -> list[TakenJob]:
    try:
        members = jsontext.members(body.decode())
        text = members["jobs"] if missing is None else members.get("jobs", missing)
        return [_job_of(each) for each in jsontext.elements(text)]
    except (ValidationError, LookupError, StopIteration, TypeError) as error:
        raise ValueError(f"not an answer to {verb}: {error}") from error


def _job_of(text: str) -> TakenJob:
    """Parse a job; its run token is removed from the text, since the command gets the token in a variable."""
    reply = JobReply.model_validate_json(text)
    return TakenJob(
        text if reply.run_token is None else jsontext.with_members(text, {"runToken": None}), reply
    )


# --- the server: whether it answers; retries until it does -----------------------------------------------

R = TypeVar("R", bound=Reply)

FAULTS_MAX = 8
"""Maximum attempts of a command that makes the server fail; they take about 10 s."""


class ServerLink:
    """The server of a worker: whether it answers and which address is in use; logs changes."""

    def __init__(self, client: AsyncClient) -> None:
        """Reach the server through a client, and assume at first that it answers."""
        self.client = client
        self._there = True
        self._last = client.server

    def down(self, error: Exception) -> None:
        """Record that the server did not answer or refused this worker."""
        if self._there:
            message = "not authorised" if isinstance(error, Forbidden) else "server away"
            event(logging.WARNING, message, error=error)
        self._there = False

    def up(self) -> None:
        """Record that the server answered."""
        if not self._there:
            event(logging.WARNING, "server back")
        self._there = True
        address = self.client.server
        if address != self._last:
            event(logging.WARNING, "server changed", server=address, before=self._last)
            self._last = address

    async def send_until_answered(self, command: Command[R]) -> R:
        """Send an idempotent command until it is answered.

        Raises a final refusal (``is_final``), and the last of ``FAULTS_MAX`` internal errors of the server in
        a row (``is_fault``).
        """
        failures = faults = 0
        while True:
            try:
                reply = await self.client.call(command)
            except (ConnectionError, CommandError) as error:
                faults = faults + 1 if is_fault(error) else 0
                if is_final(error) or faults >= FAULTS_MAX:
                    self.up()
                    raise
                failures += 1
                self.down(error)
                await asyncio.sleep(backoff_s(failures))
            else:
                self.up()
                return reply


async def pause(seconds: float, event: asyncio.Event) -> None:
    """Wait for some seconds, or until an event is set if that is earlier."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def is_fault(error: Exception) -> bool:
    """Return whether the server answered, but failed to execute the command, possibly each time."""
    return isinstance(error, (ServerFault, TimedOut))


def is_final(error: Exception) -> TypeGuard[CommandError]:
    """Return whether the server refused the command, so that a retry would not help."""
    return isinstance(error, CommandError) and not error.retryable


# --- requests for jobs -----------------------------------------------------------------------------------

EARLY_S = 1.0
"""Seconds. If an empty answer comes earlier, the server did not wait; the worker then pauses for as long."""


class Puller:
    """Pulls jobs for the free slots of one worker."""

    def __init__(self, server: ServerLink, options: WorkerOptions, *, changed: asyncio.Event) -> None:
        """Request jobs from a server.

        Setting ``changed`` ends a wait for jobs at the server, and the pause after a request without jobs.
        """
        self._server, self._options, self._changed = server, options, changed
        self.failures = 0
        """Requests in a row without a usable answer."""

    async def pull(self, free: int, names: tuple[str, ...]) -> list[TakenJob]:
        """Request jobs by name patterns, as many as slots are ``free``.

        Without jobs or an answer, returns an empty list after a pause: the caller may ask again at once.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            take = self._options.take(free, names)
            answer = await self._server.client.exchange(take, hurry=self._changed)
            jobs = jobs_of(answer.body)
        except NotFound:
            self._server.up()
            self.failures = 0
            if not self._options.burst and loop.time() - asked_at < EARLY_S:
                await pause(EARLY_S, self._changed)
            return []
        except (CommandError, ConnectionError, ValueError) as error:
            self._server.down(error)
            self.failures += 1
            await pause(backoff_s(self.failures), self._changed)
            return []
        self._server.up()
        self.failures = 0
        return jobs


# --- ``thenGet``: a report also asks for the next job of its slot, and for jobs to prefetch --------------
#
# This saves the slot a request, and the server a commit.

E = TypeVar("E", bound=RunEnd)


class ThenGet:
    """The request for the next job of one slot, sent with the report of its last run."""

    def __init__(
        self,
        options: WorkerOptions,
        names: Callable[[], tuple[str, ...]],
        is_wanted: Callable[[], bool],
        on_loop: bool = False,
        ahead: Callable[[ThenGet], int] = lambda _: 0,
        start: Callable[[TakenJob], None] = lambda _: None,
    ) -> None:
        """Request a job by the patterns of ``names``, if ``is_wanted`` is true when the report is sent.

        ``on_loop``: the slot is one for async functions. ``ahead`` returns how many further jobs to prefetch;
        each of them is passed to ``start``.
        """
        self.on_loop = on_loop
        self._options, self._names, self._wanted = options, names, is_wanted
        self._wanted_ahead, self._start = ahead, start
        self.has_requested = False
        """True while an answer with the next job may be in flight."""
        self.requested_ahead = 0
        """How many prefetched jobs may be in flight, in addition to the next job."""
        self.job: TakenJob | None = None
        """The next job, once it has arrived."""

    @property
    def expects(self) -> int:
        """Return how many jobs may still arrive, or have arrived and are not started yet."""
        return (self.has_requested or self.job is not None) + self.requested_ahead

    def fetch_ahead(self) -> int:
        """Decide and return how many jobs to prefetch, in addition to the next jobs of the slots."""
        self.requested_ahead = 0 if pattern_of(self._names()) is None else self._wanted_ahead(self)
        return self.requested_ahead

    def fetched_ahead(self, jobs: Iterable[TakenJob]) -> None:
        """Start the prefetched jobs."""
        self.requested_ahead = 0
        for job in jobs:
            self._start(job)

    def should_fetch(self) -> bool:
        """Decide whether the report that is about to be sent requests a job.

        Returns False if a job has arrived already, for example with an answer that refused the report: that
        job would be lost.
        """
        self.has_requested = self.job is None and self._wanted() and pattern_of(self._names()) is not None
        return self.has_requested

    @property
    def question(self) -> dict[str, Any]:
        """Return the parameters that request the job, to be added to a report."""
        return {"then_get": pattern_of(self._names()), **self._options.taker}

    def added_to(self, report: E) -> E:
        """Return the report, with the request for a job added if one is wanted."""
        return report.model_copy(update=self.question) if self.should_fetch() else report

    def answered(self, body: bytes) -> None:
        """Read the requested job from an answer; raises ValueError."""
        if self.has_requested:
            self.has_requested = False
            self.job = job_after(body)

    def unanswered(self) -> None:
        """Record that no job will come: the report was refused or its reply was lost."""
        self.has_requested = False
        self.requested_ahead = 0


@lru_cache(maxsize=8)
def pattern_of(names: tuple[str, ...]) -> str | None:
    """Return name patterns as the value of ``thenGet``, joined by commas; None if that is not possible."""
    if not names or any("," in name for name in names):
        return None
    if len(names) == 1:
        return names[0]
    listed = ",".join(names)
    plain = all(is_plain(name) and name == name.strip() for name in names)
    return listed if plain and len(names) <= PATTERNS_MAX and len(listed) <= PATTERN_CHARS_MAX else None


# --- heartbeats: renew leases, and receive the server's requests to stop runs ----------------------------
#
# One Heartbeat waits at the server at any time.

RETRY_S = 2.0
"""Seconds from a heartbeat without an answer until the next one."""

ANSWER_S = 3.0
"""Maximum seconds for an answer after the wait that the heartbeat asked for: a dead connection must not cost
a lease."""

GAP_S = 1.0
"""Minimum seconds between heartbeats, however often something changes."""


class LeasedRun(Protocol):
    """A run whose lease is renewed."""

    @property
    def leased_id(self) -> int | None:
        """Return the runID, or None if there is no lease to renew."""

    @property
    def beat_s(self) -> float:
        """Return the interval of heartbeats, in seconds, that keeps the lease."""

    def renew(self, sent_at: float) -> None:
        """Restart the lease at ``sent_at``, a time of the event loop's clock."""

    def suspend(self) -> None:
        """Stop the lease from expiring: the server does not use leases."""

    def stop(self, number: signal.Signals) -> None:
        """Signal the command of the run on the server's request."""

    def abandon_run(self) -> None:
        """Kill the command of the run and report nothing: the run is no longer ours."""


class Heartbeats:
    """The heartbeats of one worker."""

    def __init__(
        self,
        server: ServerLink,
        options: WorkerOptions,
        *,
        names: Callable[[], tuple[str, ...]],
        on_quiet: Callable[[bool], None],
        on_left: Callable[[], None] = lambda: None,
        slots: int | None = None,
        release: str = "",
    ) -> None:
        """Configure the heartbeats to a server; ``start_sending`` starts them.

        ``names`` returns the worker's name patterns; ``on_quiet`` is called with whether the server drains
        the worker, ``on_left`` when the client moves from a silent server to another. ``slots`` is the number
        of jobs that the worker runs at a time, by default its concurrency; ``release`` is the release of its
        code, if known.
        """
        self._version = f"{VERSION} {release}".strip()
        self._slots = options.concurrency if slots is None else slots
        self._client, self._server, self._options = server.client, server, options
        self._names, self._on_quiet, self._on_left = names, on_quiet, on_left
        self._runs: set[LeasedRun] = set()
        self._last_sent: object = None
        self._sent_at = float("-inf")
        self._requested_again = asyncio.Event()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._known = True
        self.quiet = False
        """True if the worker itself decided to take no more jobs."""

    def add(self, run: LeasedRun, taken_at: float) -> None:
        """Renew from now on the lease of a run, taken at ``taken_at`` of the event loop's clock."""
        self._runs.add(run)
        if self._known:
            run.renew(taken_at)
        self.send_soon()

    def discard(self, run: LeasedRun) -> None:
        """Stop renewing the lease of a run."""
        self._runs.discard(run)
        run.suspend()
        self.send_soon()

    def send_soon(self) -> None:
        """Send a heartbeat soon if there is something new to report."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + GAP_S), self._request_if_changed)

    def start_sending(self) -> None:
        """Start sending heartbeats."""
        self._task = asyncio.get_running_loop().create_task(self._beat())

    async def send_last(self) -> None:
        """Stop, and send a last heartbeat, with which the worker leaves.

        It is sent after the heartbeat in flight has ended: in the other order, the worker would seem to come
        back.
        """
        self._leaving.set()
        self._requested_again.set()
        with suppress(ConnectionError, CommandError, TimeoutError):
            # Maximum seconds for the heartbeat in flight and the last one together.
            async with asyncio.timeout(2.0):
                if self._task is not None:
                    await self._task
                await self._client.call(self._command((), leaving=True))

    async def _beat(self) -> None:
        """Send heartbeats until the worker leaves."""
        loop = asyncio.get_running_loop()
        wait = False  # the server is to answer the first heartbeat, and the first after a failure, at once
        while not self._leaving.is_set():
            self._requested_again.clear()
            runs = {run.leased_id: run for run in self._runs if run.leased_id is not None}
            self._sent_at = loop.time()
            reply = await self._exchange(runs, wait)
            wait = reply is not None
            if reply is None:
                await pause(RETRY_S if self._known else HEARTBEAT_S, self._leaving)
                continue
            for run in runs.values():
                run.renew(self._sent_at)
            self._apply_reply(reply, runs)
            await pause(self._sent_at + GAP_S - loop.time(), self._leaving)

    async def _exchange(self, runs: dict[int, LeasedRun], wait: bool) -> HeartbeatReply | None:
        """Send one heartbeat; return the answer, or None if there is no usable one."""
        wait_s = min((run.beat_s for run in runs.values()), default=float(HEARTBEAT_S))
        self._last_sent = self._state_to_report()
        command = self._command(runs, wait_s=wait_s if wait else 0.0)
        address = self._client.server
        try:
            async with asyncio.timeout((wait_s if wait else 0.0) + ANSWER_S):
                reply = await self._client.call(command, hurry=self._requested_again)
        except UnknownCommand:  # older servers have no leases
            if self._known:
                event(logging.WARNING, "no leases", reason="the server does not support Heartbeat")
            self._known = False
            for run in self._runs:
                run.suspend()
            return None
        except TimeoutError:
            self._server.down(TimeoutError(f"no answer to Heartbeat from {address} in time"))
            if self._client.leave_server(address):
                self._on_left()
            return None
        except (ConnectionError, CommandError) as error:
            self._server.down(error)
            return None
        self._server.up()
        self._known = True
        return reply

    def _command(self, run_ids: Iterable[int], *, wait_s: float = 0.0, leaving: bool = False) -> Heartbeat:
        options = self._options
        parameters: dict[str, object] = {
            "worker": options.worker,
            "runIDs": sorted(run_ids),
            "host": options.host,
            "pid": options.pid,
            "version": self._version,
            "names": list(self._names()),
            "slots": self._slots,
        }
        if self.quiet:
            parameters["quiet"] = True
        if leaving:
            parameters["leaving"] = True
        if wait_s:
            parameters |= {"connection": "wait", "timeout": int(wait_s * 1_000)}
        return Heartbeat.read(parameters)

    def _apply_reply(self, reply: HeartbeatReply, runs: dict[int, LeasedRun]) -> None:
        self._on_quiet(reply.quiet)
        for stop in reply.stop:
            run = runs.get(stop.run_id)
            if run is None:
                continue
            if stop.signal == "LOST":
                run.abandon_run()
            else:
                run.stop(signal.Signals[f"SIG{stop.signal}"])

    def _request_if_changed(self) -> None:
        """Request another heartbeat if the state differs from the last one sent."""
        self._timer = None
        if self._state_to_report() != self._last_sent:
            self._requested_again.set()

    def _state_to_report(self) -> object:
        return {run.leased_id for run in self._runs} - {None}, self.quiet, self._names()


# --- ``--version-watch``: whether a file was replaced since the worker started ---------------------------

FileState = tuple[int, int, int]
"""Inode, size in bytes and time of modification in ns: if all are the same, the content is not read again."""


RELEASE_BYTES_MAX = 60
"""Maximum bytes of a release in a file: with our version, it fits into 100 characters of a heartbeat."""


class VersionWatch:
    """Detects whether the content of a file has changed; a new file with the same content is no change."""

    def __init__(self, path: Path) -> None:
        """Watch a file; symbolic links are followed on every check."""
        self._path = path
        self._mark, self._digest = mark_of(path), digest_of(path)
        self._changed = False
        self.release = release_of(path)
        """The release of this worker's code, as ``release_of`` read it from the file at the start."""

    def changed(self) -> bool:
        """Return whether the file has ever changed since the start. A missing file is not a changed one."""
        mark = None if self._changed else mark_of(self._path)
        if mark is not None and mark != self._mark:
            digest = digest_of(self._path)
            if digest is not None:
                self._changed = digest != self._digest
                self._mark = mark
        return self._changed


def mark_of(path: Path) -> FileState | None:
    """Return the ``FileState`` of a file, or None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def release_of(path: Path) -> str:
    """Return the only line of a file if it is short, else the beginning of its hash; empty if unreadable."""
    with suppress(OSError, UnicodeDecodeError), path.open("rb") as file:
        text = file.read(RELEASE_BYTES_MAX + 1).decode("ascii").strip()
        if len(text) <= RELEASE_BYTES_MAX and text.isprintable():
            return text
    digest = digest_of(path)
    return "" if digest is None else digest.hex()[:12]


def digest_of(path: Path) -> bytes | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None


# --- ``--max-load``: fewer slots while the machine is busy -----------------------------------------------

GROW_S = 5.0
"""Seconds after which one more slot may be used while the load is not above the limit."""

SHRINK_S = 20.0
"""Minimum seconds between two halvings of the slots: the load is a one-minute average and reacts late."""


def load_per_cpu() -> float:
    """Return the one-minute load average per CPU available to us."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Throttle:
    """The number of usable slots: grows by one while the load is within the limit, else is halved.

    It starts at one, so that many workers that start on a busy machine do not take many jobs at once.
    """

    def __init__(
        self,
        slots_max: int,
        load_max: float,
        *,
        load: Callable[[], float] = load_per_cpu,
        clock: Clock | None = None,
    ) -> None:
        """Allow up to ``slots_max`` slots while the load per CPU is at most ``load_max``."""
        self._slots_max = slots_max
        self._load_max = load_max
        self._load = load
        self._clock = clock or SystemClock()
        self._slots = min(1, slots_max)  # at least one: the load of other programs must not stop the work
        self._grown_at = self._clock.monotonic()
        self._shrunk_at = -SHRINK_S + self._grown_at

    def slots(self) -> int:
        """Return the number of usable slots; may be called often, since it rarely reads the load."""
        now = self._clock.monotonic()
        if now - self._grown_at < GROW_S:
            return self._slots
        if self._load() > self._load_max:
            self._grown_at = now
            if now - self._shrunk_at >= SHRINK_S:
                self._slots, self._shrunk_at = max(1, self._slots // 2), now
        else:
            steps = int((now - self._grown_at) // GROW_S)
            self._slots = min(self._slots_max, self._slots + steps)
            self._grown_at += steps * GROW_S
        return self._slots

    def next_s(self) -> float:
        """Return the seconds until the number of slots may change."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())
