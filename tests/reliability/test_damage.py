"""A damaged file: the server ends with advice, and no later server serves rows that fail a check."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.damage import spoil, spoil_head
from tests.reliability.servers import Launcher
from tests.reliability.wire import Cut, Wire

pytestmark = pytest.mark.reliability

EXIT_DISK = 74
JOBS = [{"name": f"job{n}", "data": {"x": "x" * 1_000}} for n in range(1_000)]
ADVICE = "Restore a backup"


class Site:
    """A database, and the servers that a launcher starts for it."""

    def __init__(self, database: Path, launcher: Launcher) -> None:
        """Remember the folder of the database."""
        self.database = database
        self._launcher = launcher
        self._log = database.with_name("log")
        self._pid = 0

    async def start(self, **settings: Any) -> Wire:
        """Start a server and connect to it."""
        self._log.write_text("")
        self._pid, port = await self._launcher.start({"database": str(self.database), **settings})
        return await Wire.connect(port)

    async def ended(self, by: signal.Signals | None = None) -> tuple[int, str]:
        """Return the exit status (or signal) and the log of the last server."""
        if by is not None:
            os.kill(self._pid, by)
        return await self._launcher.ended(self._pid), self._log.read_text()

    async def filled(self, end: signal.Signals) -> None:
        """Create a database of a few megabytes, most of it in the main file, and stop its server."""
        wire = await self.start(wal_bytes=0)
        for _ in range(4):
            assert (await wire.ask("CreateJobs", jobs=JOBS)).code == 200
        await self.ended(end)

    async def refused(self) -> None:
        """Start a server, which must exit at once with advice."""
        self._log.write_text("")
        self._pid = await self._launcher.order({"database": str(self.database)})
        status, log = await self.ended()
        assert status == EXIT_DISK, log
        assert f"{self.database} is damaged" in log
        assert ADVICE in log


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Return a folder for a database and the servers on it."""
    async with Launcher(tmp_path / "log") as launcher:
        yield Site(tmp_path / "jobs.db", launcher)


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("GetJobs", {"name": "*", "numResults": 1_000}),
        ("ListJobs", {"limit": 1_000, "after": 1_500}),
        ("Query", {"query": "SELECT count(data) FROM jobs WHERE length(data) > 5;"}),
    ],
)
async def test_damage_that_is_seen_ends_the_server_for_good(
    site: Site, command: str, asked: dict[str, Any]
) -> None:
    await site.filled(signal.SIGTERM)
    spoil(site.database)
    wire = await site.start()
    with suppress(Cut):
        assert (await wire.ask(command, **asked)).code == 503
    status, log = await site.ended()
    assert status == EXIT_DISK, log
    assert "CRITICAL" in log
    assert f"{site.database} is damaged" in log
    assert ADVICE in log
    for _ in range(2):
        await site.refused()


async def test_after_a_kill_the_file_is_checked(site: Site) -> None:
    await site.filled(signal.SIGKILL)
    wire = await site.start()  # the control: intact data is served
    assert (await wire.ask("GetJob", name="job7")).code == 200
    _, log = await site.ended(signal.SIGKILL)
    assert "the database was checked" in log
    spoil(site.database)
    for _ in range(2):
        await site.refused()


async def test_what_is_no_database_is_refused(site: Site) -> None:
    await site.filled(signal.SIGTERM)
    spoil_head(site.database)
    await site.refused()


async def test_after_a_stop_the_file_is_not_checked(site: Site) -> None:
    await site.filled(signal.SIGTERM)
    await site.start()
    _, log = await site.ended(signal.SIGTERM)
    assert "checked" not in log
