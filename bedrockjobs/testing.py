"""A server for other people's tests: in this process, on a clock that stands still until it is moved.

    with ServerUnderTest("2030-01-01 00:00") as server:
        server.client.call(CreateJob(name="nightly", repeat="CRON 0 3 * * *"))
        server.next()
        job = server.client.call(GetJob(name="nightly"))

``pytest_plugin`` offers it as a fixture. Nothing here needs pytest.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from bedrockjobs.base.clock import WORDS, StandingClock, seconds_of
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import moment_of, timestamp_ms
from bedrockjobs.client import Client
from bedrockjobs.commands import AdvanceClock
from bedrockjobs.server import Server

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Where the clock stands at first, if nobody says so: a Tuesday, so that a test goes the same every day."""

STOP_S = 30.0
"""Time the server may take to stop: more than it gives its connections."""


class ServerUnderTest:
    """A server of its own, on a free port of loopback and a database that goes with it; use it with ``with``.

    Its leases last real time, whatever the clock says.
    """

    def __init__(self, start: datetime | str = START) -> None:
        """Let the clock stand at ``start``; without a time zone that is UTC. Raises ValueError."""
        self._start = _moment(start)
        self._running: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="bedrockjobs server", daemon=True)
        self.address = ""
        """Where it listens: ``127.0.0.1:PORT``."""
        self.client: Client
        """A client of it."""

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
        self._thread.join(STOP_S)
        self._folder.cleanup()

    @property
    def url(self) -> str:
        """Return its address for HTTP: ``http://127.0.0.1:PORT``."""
        return f"http://{self.address}"

    @property
    def now(self) -> datetime:
        """Return the moment at which the clock stands, in UTC."""
        return self._running.result()[0].clock.now()

    def advance(self, by: str | float | timedelta) -> datetime:
        """Move the clock by seconds, or a duration like ``1h30m``; return where it stands then.

        It stops at each moment at which something becomes due, so that whoever waits is served in time.
        Raises ValueError.
        """
        seconds = seconds_of(by) if isinstance(by, str) else by
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds is None or seconds < 0:
            raise ValueError(f"by: expected {WORDS}, got {by!r}")
        return self._move(self.now + timedelta(seconds=seconds))

    def advance_to(self, moment: datetime | str) -> datetime:
        """Move the clock to a moment as ``advance`` does; without a zone it is UTC. Raises ValueError."""
        target = _moment(moment)
        if target < self.now:
            raise ValueError(f"moment: expected one from {timestamp_ms(self.now)} on, got {moment!r}")
        return self._move(target)

    def next(self) -> datetime | None:
        """Move the clock to the next moment at which something becomes due; None where nothing is to come."""
        before = self.now
        after = moment_of(self.client.call(AdvanceClock()).now)
        return after if self.now > before else None

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


def _moment(given: datetime | str) -> datetime:
    """Return a moment in UTC, in whole milliseconds as the server counts."""
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f"expected a moment like 2030-01-01 03:00, got {given!r}") from None
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
