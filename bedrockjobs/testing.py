"""Helpers for an application's tests: ``eager`` and ``capture`` need no server; ServerUnderTest runs one.

    with eager():
        assert square.enqueue(3).wait() == 9

    with capture() as jobs:
        order("book")
    jobs.assert_enqueued(send_mail, to="ann@example.com")

The server runs in the test's process, with a clock that moves only on command:

    with ServerUnderTest("2030-01-01 00:00") as server:
        server.client.call(CreateJob(name="nightly", repeat="CRON 0 3 * * *"))
        server.next()
        job = server.client.call(GetJob(name="nightly"))

``pytest_plugin`` provides the server as a fixture; this module does not need pytest.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bedrock_worker.run.in_test import Enqueued, Jobs, capture, eager, run_due_jobs

from bedrockjobs.base.clock import WORDS, StandingClock, moment_of, seconds_of, timestamp_ms
from bedrockjobs.base.settings import Settings
from bedrockjobs.client import Client
from bedrockjobs.commands import AdvanceClock

if TYPE_CHECKING:
    from bedrockjobs.server import Server

__all__ = ["START", "Enqueued", "Jobs", "ServerUnderTest", "capture", "eager"]

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Default start time of the clock: a fixed Tuesday, so that tests are reproducible."""


class ServerUnderTest:
    """A context manager with a server on a free loopback port and a temporary database.

    Leases expire in real time, whatever the test clock says.
    """

    def __init__(self, start: datetime | str = START) -> None:
        """Start the test clock at ``start``, which is in UTC unless it has a time zone. Raises ValueError."""
        self._start = _moment(start)
        self._running: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="bedrockjobs server", daemon=True)
        self.address = ""
        """The address of the server: ``127.0.0.1:PORT``."""
        self.client: Client
        """A client connected to the server."""

    def __enter__(self) -> Self:
        """Start the server; raises StartError."""
        self._folder = tempfile.TemporaryDirectory(prefix="bedrockjobs-test-")
        self._thread.start()
        try:
            server = self._running.result()[0]
        except BaseException:
            self._folder.cleanup()
            raise
        self.address = f"127.0.0.1:{server.port}"
        self.client = Client(self.address)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server and remove its database."""
        loop, stopped = self._running.result()[1:]
        self.client.close()
        loop.call_soon_threadsafe(stopped.set)
        self._thread.join(30.0)  # longer than the server's own timeout for connections
        self._folder.cleanup()

    @property
    def url(self) -> str:
        """Return the URL of the server: ``http://127.0.0.1:PORT``."""
        return f"http://{self.address}"

    @property
    def now(self) -> datetime:
        """Return the time of the test clock, in UTC."""
        return self._running.result()[0].clock.now()

    def advance(self, by: str | float | timedelta) -> datetime:
        """Advance the clock by seconds or a duration such as ``1h30m``; return the new time.

        The clock stops at each time at which something becomes due, so that waiters get their jobs on time.
        Raises ValueError.
        """
        seconds = seconds_of(by) if isinstance(by, str) else by
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds is None or seconds < 0:
            raise ValueError(f"by: expected {WORDS}, got {by!r}")
        return self._move(self.now + timedelta(seconds=seconds))

    def advance_to(self, moment: datetime | str) -> datetime:
        """Advance the clock to a time, which is in UTC unless it has a time zone. Raises ValueError."""
        target = _moment(moment)
        if target < self.now:
            raise ValueError(f"moment: expected one from {timestamp_ms(self.now)} on, got {moment!r}")
        return self._move(target)

    def next(self) -> datetime | None:
        """Advance the clock to the next time at which something is due, and return it; None if nothing is."""
        before = self.now
        after = moment_of(self.client.call(AdvanceClock()).now)
        return after if self.now > before else None

    def run_jobs(self, module: str, *, until_empty: bool = True) -> int:
        """Run the due jobs of a module's functions in this process; return how many were run.

        With ``until_empty``, also run jobs that become due meanwhile, such as jobs that these jobs enqueue;
        otherwise run at most one job. The clock stands still: a retry with a delay waits until the clock is
        advanced. Raises BadModule.
        """
        runs = run_due_jobs(module, self.client)
        return sum(1 for _ in (runs if until_empty else islice(runs, 1)))

    def _move(self, target: datetime) -> datetime:
        self.client.call(AdvanceClock(to=timestamp_ms(target)))
        return self.now

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._running.done():
                raise
            self._running.set_exception(error)

    async def _serve(self) -> None:
        from bedrockjobs.server import Server  # most tests need no server

        settings = Settings(
            port=0,
            database=str(Path(self._folder.name) / "jobs.db"),
            test_clock=True,
            wal_bytes=0,
            ballast_bytes=0,
            durability="relaxed",
        )
        server, stopped = Server(settings, StandingClock(self._start)), asyncio.Event()
        await server.start()
        self._running.set_result((server, asyncio.get_running_loop(), stopped))
        await stopped.wait()
        await server.stop()


def _moment(value: datetime | str) -> datetime:
    """Return a time in UTC, rounded down to milliseconds like the server's times."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"expected a moment like 2030-01-01 03:00, got {value!r}") from None
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
