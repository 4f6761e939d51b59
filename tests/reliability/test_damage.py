"""A damaged file: the server ends and says what to do, and no server after it serves what fails a check."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.damage import spoil, spoil_head
from tests.reliability.servers import Server
from tests.reliability.wire import Cut, Wire

pytestmark = pytest.mark.reliability

EXIT_DISK = 74
JOBS = [{"name": f"job{n}", "data": {"x": "x" * 1_000}} for n in range(1_000)]
ADVICE = "Restore a backup"


async def filled(database: Path, end: signal.Signals) -> None:
    """Make a database of a few megabytes, most of which is not in the log alone, and end its server."""
    async with Server(database, "--wal-bytes", "0") as server:
        wire = await Wire.connect(await server.listening())
        for _ in range(4):
            assert (await wire.ask("CreateJobs", jobs=JOBS)).code == 200
        server.send(end)
        await server.ended()


async def refused(database: Path) -> None:
    """Start a server that must end at once, and say what to do."""
    async with Server(database) as server:
        status, log = await server.ended()
    assert status == EXIT_DISK, log
    assert f"{database} is damaged" in log
    assert ADVICE in log


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("GetJobs", {"name": "*", "numResults": 1_000}),
        ("ListJobs", {"limit": 1_000, "after": 1_500}),
        ("Query", {"query": "SELECT count(data) FROM jobs WHERE length(data) > 5;"}),
    ],
)
async def test_damage_that_is_seen_ends_the_server_for_good(
    tmp_path: Path, command: str, asked: dict[str, Any]
) -> None:
    database = tmp_path / "jobs.db"
    await filled(database, signal.SIGTERM)
    spoil(database)
    async with Server(database) as server:
        wire = await Wire.connect(await server.listening())
        with suppress(Cut):
            assert (await wire.ask(command, **asked)).code == 503
        status, log = await server.ended()
    assert status == EXIT_DISK, log
    assert "CRITICAL" in log
    assert f"{database} is damaged" in log
    assert ADVICE in log
    for _ in range(2):
        await refused(database)


async def test_after_a_kill_the_file_is_checked(tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    await filled(database, signal.SIGKILL)
    async with Server(database) as server:  # the control: what is sound is served
        wire = await Wire.connect(await server.listening())
        assert (await wire.ask("GetJob", name="job7")).code == 200
        server.send(signal.SIGKILL)
        _, log = await server.ended()
    assert "the database was checked" in log
    spoil(database)
    for _ in range(2):
        await refused(database)


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "jobs.db", signal.SIGTERM)
    spoil_head(tmp_path / "jobs.db")
    await refused(tmp_path / "jobs.db")


async def test_after_a_stop_the_file_is_not_checked(tmp_path: Path) -> None:
    await filled(tmp_path / "jobs.db", signal.SIGTERM)
    async with Server(tmp_path / "jobs.db") as server:
        await server.listening()
        server.send(signal.SIGTERM)
        _, log = await server.ended()
    assert "checked" not in log
