"""The restore drill: ``bedrockjobs restore`` replaces the database by a backup made under load."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli import warm
from tests.effort import examples
from tests.history import Ledger
from tests.reliability.load import Load
from tests.reliability.servers import TOP, Forked
from tests.reliability.wire import Wire

pytestmark = pytest.mark.reliability

RESTORES = int(os.environ.get("RELIABILITY_RESTORES", examples(1, night=20)))
KEPT = 40
"""Jobs that were created and answered before the backup began: each must be in it."""

LOAD_S = 0.5
FAR = "2999-01-01 00:00:00"
COUNTS = "SELECT state, count(*) FROM jobs GROUP BY state ORDER BY state;"
HIGHEST = "SELECT max(jobID) FROM jobs;"


async def far_away(wire: Wire, name: str) -> int:
    """Create a job that is due far in the future; return its jobID."""
    answer = await wire.ask("CreateJob", name=name, firstRun=FAR)
    assert answer.code == 200, answer
    return int(answer.reply["jobID"])


async def rows_over(wire: Wire, query: str) -> list[list[Any]]:
    """Return the rows of a Query."""
    answer = await wire.ask("Query", query=query, format="json")
    assert answer.code == 200, answer
    return list(answer.reply["rows"])


def rows_in(file: Path, query: str) -> list[list[Any]]:
    """Return the rows of a SELECT on a file that no server has open."""
    with closing(sqlite3.connect(file)) as database:
        return [list(row) for row in database.execute(query)]


async def run(*arguments: str) -> None:
    """Run ``bedrockjobs``, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        warm.program("bedrockjobs"),
        *arguments,
        cwd=TOP,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()


def put_in_place(copy: Path, database: Path) -> None:
    """Restore a copy by hand: move the old files away, and set the copy's mode."""
    away = database.parent / "away"
    away.mkdir(exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        file = Path(f"{database}{suffix}")
        if file.exists():
            file.replace(away / file.name)
    copy.replace(database)
    database.chmod(0o600)


async def missing_after_restore(port: int, kept: list[int]) -> list[int]:
    """Return the jobs that are missing after a restore."""
    wire = await Wire.connect(port)
    return [job for job in kept if (await wire.ask("QueryJob", jobID=job)).code != 200]


async def test_what_was_answered_before_a_backup_is_there_after_its_restore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    load = Load(Ledger(), seed=3)
    for _ in range(RESTORES):
        async with Forked(database) as server:
            load.server_is_at(await server.listening())
            load.start()
            await asyncio.sleep(LOAD_S)
            wire = await Wire.connect(load.port)
            kept = [await far_away(wire, "kept") for _ in range(KEPT)]
            backup = asyncio.create_task(run("backup", str(copy), "--force", "--database", str(database)))
            meanwhile = []
            while not backup.done():
                meanwhile.append(await far_away(wire, "meanwhile"))
            await backup
            load.fail_if_a_client_did()
            await load.stop()
            server.send(signal.SIGTERM)
            assert (await server.ended())[0] == 0
            load.server_is_gone()
        counts, highest = rows_in(copy, COUNTS), rows_in(copy, HIGHEST)
        await run("restore", str(copy), "--force", "--database", str(database))
        async with Forked(database) as server:
            port = await server.listening()
            wire = await Wire.connect(port)
            assert await rows_over(wire, COUNTS) == counts
            assert await rows_over(wire, HIGHEST) == highest
            assert (await wire.ask("GetJob", name="*")).code == 404, "it is held"
            await run("--server", f"127.0.0.1:{port}", "restore", "--release")
            assert await missing_after_restore(port, kept) == []
            there = [job for job in meanwhile if not await missing_after_restore(port, [job])]
            assert there == meanwhile[: len(there)], "a snapshot holds a beginning of what was done"
            assert await far_away(wire, "after") > highest[0][0], "a jobID that is in use is not given again"
            server.send(signal.SIGTERM)
            assert (await server.ended())[0] == 0
        with closing(sqlite3.connect(database)) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with capsys.disabled():
            told = ", ".join(f"{count} {state}" for state, count in counts)
            print(f"\nrestored {told}; {len(there)} of {len(meanwhile)} jobs of its time are in the backup")


async def test_a_plain_copy_of_the_file_is_found_to_miss_jobs(tmp_path: Path) -> None:
    database, copy = tmp_path / "jobs.db", tmp_path / "copy.db"
    async with Forked(database) as server:
        wire = await Wire.connect(await server.listening())
        kept = [await far_away(wire, "kept") for _ in range(KEPT)]
        copy.write_bytes(database.read_bytes())
        server.send(signal.SIGTERM)
        assert (await server.ended())[0] == 0
    put_in_place(copy, database)
    async with Forked(database) as server:
        assert await missing_after_restore(await server.listening(), kept) == kept
