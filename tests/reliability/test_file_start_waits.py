"""A starting server waits for a locked file and for space on the disk, as a running one does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from bedrockjobs.base.config import DATABASE_RETRY_S_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.postgresql.cluster import quiet_port
from tests.protocol.talk import DEADLINE_S, Reply, Talk
from tests.reliability.test_disk_full import small_disk

__all__ = ["small_disk"]

pytestmark = pytest.mark.reliability

WAITS = "waiting for the database: database: "


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Let another connection write meanwhile."""
    with closing(sqlite3.connect(database, isolation_level=None)) as outsider:
        outsider.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def full(database: Path) -> Iterator[None]:
    """Let another file take the whole disk meanwhile."""
    room = database.with_name("room")
    with room.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))
    yield
    room.unlink()


CAUSES = {"locked": (locked, "another process keeps it locked"), "full": (full, "the disk is full")}


async def http(port: int, path: str) -> Reply:
    """Return the answer to a request for a page."""
    async with await Talk.open(port) as talk:
        talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await talk.reply()


async def created(port: int) -> Reply:
    """Try to create a job."""
    async with await Talk.open(port) as talk:
        return await talk.ask("CreateJob", name="a")


@pytest.fixture(params=[False, True], ids=["new", "old"])
async def database(request: pytest.FixtureRequest, small_disk: Path) -> Path:
    """Return where a database is to be, or one that a server has used."""
    path = small_disk / "jobs.db"
    if request.param:
        server = Server(settings_of(path))
        await server.start()
        await created(server.port)
        await server.stop()
    return path


def settings_of(database: Path) -> Settings:
    return Settings(
        database=str(database), port=quiet_port(), busy_s=0.1, wal_bytes=65_536, ballast_bytes=65_536
    )


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_start_waits_until_the_file_can_be_used(
    database: Path, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    caplog.set_level("INFO", "bedrockjobs")
    holds, words = CAUSES[cause]
    settings = settings_of(database)
    server = Server(settings)
    async with asyncio.timeout(DEADLINE_S):
        with holds(database):
            start = asyncio.ensure_future(server.start())
            while not any("meanwhile are refused" in text for text in caplog.messages):
                assert not start.done(), start.result()
                await asyncio.sleep(0.01)
            probe = await http(settings.port, "/readyz")
            assert (probe.code, words in probe.body) == (503, True), probe
            assert (await created(settings.port)).code == 503
            for _ in range(3):
                await asyncio.sleep(DATABASE_RETRY_S_MAX / 4)
                assert (await http(settings.port, "/livez")).code == 200
            assert not start.done()
        await start
    try:
        said = [text for text in caplog.messages if text.startswith(WAITS)]
        assert said == [f"{WAITS}{database.resolve()}: {words}"], "it is said once"
        assert "the database can be used" in caplog.messages
        assert (await created(settings.port)).code == 200
        assert (await http(settings.port, "/readyz")).code == 200
    finally:
        await server.stop()
