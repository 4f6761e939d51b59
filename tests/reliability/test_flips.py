"""Single flipped bits in the file: damaged data is never served; undetected flips elsewhere are counted."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.effort import examples
from tests.reliability.servers import Launcher
from tests.reliability.wire import Wire

pytestmark = pytest.mark.reliability

FLIPS = examples(200, night=1_000)
SOUND = 200
"""Undamaged jobs, which must be handed out unchanged."""
ELSEWHERE = int(os.environ.get("RELIABILITY_FLIPS", examples(150, night=4000)))
TABLES = ("jobs", "runs", "events", "meta")
UNSEEN_MAX = 0.3
"""Maximum share of flips that change data without being detected: twice the measured share."""


def text_of(number: int) -> str:
    """Return data that occurs once in the file."""
    return f"{number:06d} to somebody@example.org, größer than nothing"


async def filled(launcher: Launcher, database: Path, count: int) -> None:
    """Create jobs, and stop the server cleanly."""
    pid, port = await launcher.start({"database": str(database)})
    wire = await Wire.connect(port)
    for first in range(0, count, 400):
        jobs = [{"name": "a", "data": {"text": text_of(number)}} for number in range(first, first + 400)]
        assert (await wire.ask("CreateJobs", jobs=jobs)).code == 200
    assert await launcher.terminate(pid) == 0


def flip_data(database: Path, count: int, rng: random.Random) -> None:
    """Flip one bit in the data of each of the first jobs."""
    content = bytearray(database.read_bytes())
    for number in range(count):
        text = json.dumps({"text": text_of(number)}, ensure_ascii=False, separators=(",", ":"))
        found = 0
        for spelled in sorted({text, json.dumps({"text": text_of(number)}), text.replace('":', '": ')}):
            at = content.find(spelled.encode())
            while at >= 0:  # a page that was split still has copies of rows that went to the other half
                found += 1
                content[at + rng.randrange(len(spelled.encode()))] ^= 1 << rng.randrange(8)
                at = content.find(spelled.encode(), at + 1)
        assert found, f"the data of job {number} is not in the file"
    database.write_bytes(content)


async def test_of_many_flips_in_data_none_is_served_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "jobs.db"
    async with Launcher(tmp_path / "log") as launcher:
        await filled(launcher, database, FLIPS + SOUND)
        flip_data(database, FLIPS, random.Random(11))
        pid, port = await launcher.start({"database": str(database)})
        wire = await Wire.connect(port)
        for job_id in range(1, 11):
            answer = await wire.ask("QueryJob", jobID=job_id)
            assert (answer.code, answer.reason) == (500, "Damaged data")
        served: list[dict[str, Any]] = []
        while (answer := await wire.ask("GetJobs", name="a", numResults=100)).code == 200:
            served += answer.reply["jobs"]
        wrong = [job for job in served if job["data"] != {"text": text_of(job["jobID"] - 1)}]
        failed = await wire.ask("Query", query="SELECT count(*) FROM jobs WHERE state = 'FAILED';")
        shown = (await wire.ask("QueryJob", jobID=FLIPS)).reply
        assert await launcher.terminate(pid) == 0
    with capsys.disabled():
        print(f"\n{FLIPS} flips in data: {len(served)} jobs served, {len(wrong)} of them wrong")
    assert not wrong
    assert len(served) == SOUND
    assert str(FLIPS) in json.dumps(failed.reply)
    assert list(shown["data"]) == ["damagedData"]


def stored(path: Path) -> list[Any] | None:
    """Return all that a database holds; None if it cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as db:
            return [db.execute(f"SELECT * FROM {table} NOT INDEXED").fetchall() for table in TABLES]
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def is_seen(path: Path, check: str) -> bool:
    """Return whether SQLite's integrity check or a checksum finds a fault."""
    try:
        with closing(sqlite3.connect(path)) as db:
            if db.execute(f"PRAGMA {check}").fetchall() != [("ok",)]:
                return True
            rows = db.execute("SELECT CAST(data AS BLOB), checksum FROM jobs").fetchall()
            return any(known is not None and crc32(data) != known for data, known in rows)
    except (sqlite3.Error, UnicodeDecodeError):
        return True


async def test_the_share_of_flips_elsewhere_that_stay_unseen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, damaged = tmp_path / "jobs.db", tmp_path / "damaged.db"
    async with Launcher(tmp_path / "log") as launcher:
        await filled(launcher, database, 400)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("VACUUM")
    before, content, rng = stored(database), database.read_bytes(), random.Random(7)
    changed = quick = full = 0
    for _ in range(ELSEWHERE):
        flipped = bytearray(content)
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        await asyncio.to_thread(damaged.write_bytes, flipped)
        if stored(damaged) == before:
            continue  # an index, or a place that nothing uses
        changed += 1
        quick += is_seen(damaged, "quick_check")
        full += is_seen(damaged, "integrity_check")
    with capsys.disabled():
        print(
            f"\n{ELSEWHERE} flips: {changed} change what is stored; unseen by checksums and quick_check"
            f" {1 - quick / changed:.1%}, and integrity_check {1 - full / changed:.1%}"
        )
    assert changed > ELSEWHERE / 10
    assert 1 - full / changed < UNSEEN_MAX
