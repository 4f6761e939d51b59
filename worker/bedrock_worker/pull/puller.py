"""Requests jobs from the server, one request at a time."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from bedrock_worker.log import event
from bedrock_worker.options import WorkerOptions
from bedrock_worker.pull.job import TakenJob, job_after, jobs_of
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import PATTERN_CHARS_MAX, PATTERNS_MAX
from bedrockjobs.base.errors import CommandError, Forbidden, NotFound, ServerFault, TimedOut
from bedrockjobs.base.glob import is_plain
from bedrockjobs.client import AsyncClient, backoff_s
from bedrockjobs.commands import Command, Reply
from bedrockjobs.commands.jobs import RunEnd

# ``thenGet``: a report of a run also asks for the next job of its slot, and for jobs to prefetch.
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


# Server availability: tracks whether the server responds, and retries commands until it does.


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


EARLY_S = 1.0
"""Seconds. If an empty answer comes earlier, the server did not wait; the worker then pauses for as long."""


class Puller:
    """Pulls jobs for the free slots of one worker."""

    def __init__(self, server: ServerLink, options: WorkerOptions, *, changed: asyncio.Event) -> None:
        """Request jobs from a server; setting ``changed`` ends a wait at the server and a pause."""
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


# ``--version-watch``: checks whether a file was replaced since the worker started.


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


# ``--max-load``: checks the load average, and reduces the number of slots while the machine is busy.


GROW_S = 5.0
"""Seconds after which one more slot may be used while the load is not above the limit."""

SHRINK_S = 20.0
"""Minimum seconds between two halvings of the slots: the load is a one-minute average and reacts late."""

SLOTS_MIN = 1
"""Minimum slots under any load; otherwise load from other programs could stop the work entirely."""


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
        self._slots = min(SLOTS_MIN, slots_max)
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
                self._slots, self._shrunk_at = max(SLOTS_MIN, self._slots // 2), now
        else:
            steps = int((now - self._grown_at) // GROW_S)
            self._slots = min(self._slots_max, self._slots + steps)
            self._grown_at += steps * GROW_S
        return self._slots

    def next_s(self) -> float:
        """Return the seconds until the number of slots may change."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())
