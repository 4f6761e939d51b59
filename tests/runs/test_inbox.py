"""The inbox of a file: jobs that a copy of a shared database had not taken in yet."""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path
from time import monotonic

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import Live, begin

pytestmark = pytest.mark.sqlite_only("about a file")


async def test_a_server_takes_in_what_its_file_has_in_the_inbox(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    settings = Settings(port=0, database=str(path))
    server = Server(settings)
    await begin(server)
    await server.stop()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO inbox (jobID, at, name, data, options, by) VALUES"
            " (7, '2026-11-21 03:00:00', 'n', '{\"a\":1}', '{\"firstRun\":\"+1h\"}', 'shop'),"
            " (8, '2026-11-21 03:00:00', 'n', '{}', '{\"repeat\":\"CRON x\"}', 'shop')"
        )
        connection.commit()
    async with AsyncExitStack() as stack:
        server = Server(settings)
        await begin(server)
        stack.push_async_callback(server.stop)
        live = Live(server, stack)
        deadline = monotonic() + 20
        while (shown := (await live.http("QueryJob", {"jobID": 8})).json)["state"] == "QUEUED":
            assert monotonic() < deadline
        assert (shown["state"], shown["name"]) == ("FAILED", "n")
        job = (await live.http("QueryJob", {"jobID": 7})).json
        assert (job["state"], job["data"], job["nextRun"]) == ("QUEUED", {"a": 1}, "2026-11-21 04:00:00")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM inbox").fetchone() == (0,)
