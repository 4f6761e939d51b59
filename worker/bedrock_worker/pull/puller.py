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

# ``thenGet``: fetching the next job of a slot with the report of the previous one, and jobs ahead.
#
# It saves the slot a request, and the server a commit.


E = TypeVar("E", bound=RunEnd)


class ThenGet:
    """The fetch of the next job."""

    def __init__(
        self,
        options: WorkerOptions,
        names: Callable[[], tuple[str, ...]],
        is_wanted: Callable[[], bool],
        on_loop: bool = False,
        ahead: Callable[[ThenGet], int] = lambda _: 0,
        start: Callable[[TakenJob], None] = lambda _: None,
    ) -> None:
        """Request jobs for the patterns that ``names`` returns, if ``is_wanted`` then returns true.

        ``on_loop``: the slot is one for async functions. ``ahead`` returns how many jobs to take in addition,
        each of which is passed to ``start``.
        """
        self.on_loop = on_loop
        self._options, self._names, self._wanted = options, names, is_wanted
        self._wanted_ahead, self._start = ahead, start
        self.has_requested = False
        """True while an answer with a job may be in flight."""
        self.requested_ahead = 0
        """How many more may be in flight."""
        self.job: TakenJob | None = None
        """The fetched job."""

    @property
    def expects(self) -> int:
        """Return how many jobs may arrive, or have arrived and are not started."""
        return (self.has_requested or self.job is not None) + self.requested_ahead

    def fetch_ahead(self) -> int:
        """Decide how many jobs to request in addition to those of the slots."""
        self.requested_ahead = 0 if pattern_of(self._names()) is None else self._wanted_ahead(self)
        return self.requested_ahead

    def fetched_ahead(self, jobs: Iterable[TakenJob]) -> None:
        """Start the jobs that came in addition."""
        self.requested_ahead = 0
        for job in jobs:
            self._start(job)

    def should_fetch(self) -> bool:
        """Decide whether the report about to be sent requests a job.

        A second request would lose a job that has already arrived, as with an answer that refused the report.
        """
        self.has_requested = self.job is None and self._wanted() and pattern_of(self._names()) is not None
        return self.has_requested

    @property
    def question(self) -> dict[str, Any]:
        """Return the parameters of the request."""
        return {"then_get": pattern_of(self._names()), **self._options.taker}

    def added_to(self, report: E) -> E:
        """Return the report, with the request added if there is one."""
        return report.model_copy(update=self.question) if self.should_fetch() else report

    def answered(self, body: bytes) -> None:
        """Read the job from an answer; raises ValueError."""
        if self.has_requested:
            self.has_requested = False
            self.job = job_after(body)

    def unanswered(self) -> None:
        """Record that no job will come: the report was refused or its reply was lost."""
        self.has_requested = False
        self.requested_ahead = 0


@lru_cache(maxsize=8)
def pattern_of(names: tuple[str, ...]) -> str | None:
    """Return the name patterns as one ``thenGet`` text, or None if that is not possible."""
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
"""Maximum attempts of a command that the server fails at, within about 10 s."""


class ServerLink:
    """The server of a worker: whether it answers and which address is in use; logs changes."""

    def __init__(self, client: AsyncClient) -> None:
        """Reach it through a client, and assume that it answers."""
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

        Raises errors that ``is_final``, and after ``FAULTS_MAX`` in a row those that ``is_fault``.
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
    """Pause for some seconds, but only until an event."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def is_fault(error: Exception) -> bool:
    """Return whether the server responds but fails at this command, possibly permanently."""
    return isinstance(error, (ServerFault, TimedOut))


def is_final(error: Exception) -> TypeGuard[CommandError]:
    """Return whether the server refused the command, so that a retry would not help."""
    return isinstance(error, CommandError) and not error.retryable


EARLY_S = 1.0
"""An empty answer within this time did not wait; the next request is then delayed."""


class Puller:
    """Pulls jobs for the free slots of one worker."""

    def __init__(self, server: ServerLink, options: WorkerOptions, *, changed: asyncio.Event) -> None:
        """Request jobs from a server; ``changed`` ends a wait or a pause."""
        self._server, self._options, self._changed = server, options, changed
        self.failures = 0
        """Requests in a row without a usable answer."""

    async def pull(self, free: int, names: tuple[str, ...]) -> list[TakenJob]:
        """Request jobs by name patterns.

        Without jobs or an answer, return an empty list after a suitable pause.
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


# ``--version-watch``: polls for a file that was replaced since the worker started.


FileState = tuple[int, int, int]
"""Inode, size and ctime in ns: a cheap sign that a file may have changed."""


RELEASE_BYTES_MAX = 60
"""Length of a release in a file: with the worker's version it fits into 100 characters of a heartbeat."""


class VersionWatch:
    """Detects changed content; touching a file or copying the same content is no change."""

    def __init__(self, path: Path) -> None:
        """Watch a file; symbolic links are followed on every check."""
        self._path = path
        self._mark, self._digest = mark_of(path), digest_of(path)
        self._changed = False
        self.release = release_of(path)
        """What the file said at the start, in a few characters: the release of this worker's code."""

    def changed(self) -> bool:
        """Return whether the file has changed; stays True. A missing file does not count as changed."""
        mark = None if self._changed else mark_of(self._path)
        if mark is not None and mark != self._mark:
            digest = digest_of(self._path)
            if digest is not None:
                self._changed = digest != self._digest
                self._mark = mark
        return self._changed


def mark_of(path: Path) -> FileState | None:
    """Return a file's mark, or None if there is no file."""
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


# ``--max-load``: polls the load, and reduces the number of slots while the machine is busy.


GROW_S = 5.0
"""Interval after which one more slot is allowed while the load is below the limit."""

SHRINK_S = 20.0
"""Minimum interval of halvings: the load is a one-minute average and reacts late."""

SLOTS_MIN = 1
"""Slots allowed under any load; otherwise foreign load could stop the work entirely."""


def load_per_cpu() -> float:
    """Return the one-minute load average per CPU available to us."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


class Throttle:
    """The number of usable slots: one more every few seconds below the limit, half of them above it.

    It starts with one slot, so that many workers starting on a busy machine do not fill up at once.
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
        """Return the number of usable slots; cheap."""
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
        """Return the seconds until ``slots`` may change."""
        return max(0.0, self._grown_at + GROW_S - self._clock.monotonic())
