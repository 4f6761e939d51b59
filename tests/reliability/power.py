"""Power cuts: what a server wrote and synced is recorded, and the disk is rebuilt as a cut could leave it.

After a cut a file holds all that was synced, and of what was written since any sectors at all: all, none, a
prefix, or a random choice. Each rebuilt disk is opened by SQLite and compared with what clients had been told
by then. The record is kept by ``shim.c``; it grows before an answer can be read, so its size tells the time.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.reliability.servers import Launcher
from tests.reliability.shim import built
from tests.reliability.wire import Wire

RECORD = struct.Struct("=cbxxIQ")
SECTOR = 512
"""What a disk writes whole or not at all."""

COMMITS = 400
"""Requests of one recorded session: enough for the log to be checkpointed and begun again twice."""

STATES_OF_A_TRACE = 500
"""Cuts that one recorded session is rebuilt at."""

NEVER = 1 << 62

BROKEN = ("lost", "untaken", "unfinished", "jobID free again")
"""Promises that a cut can break: of a creation, a take, an end, and of a jobID that is used once."""


@dataclass(slots=True)
class Promise:
    """The requests and replies about one job, each with the size of the record at that time."""

    created: int = NEVER
    taken: int = NEVER
    ending: int = NEVER
    """From here on the job may be gone, as its end was asked for."""
    ended: int = NEVER


@dataclass
class Trace:
    """A recorded session: the initial disk, the record, and when each promise was made."""

    before: bytes
    record: bytes
    promises: dict[int, Promise] = field(default_factory=dict)


async def recorded_session(folder: Path, durability: str, seed: int) -> Trace:
    """Run a server on a recorded disk, with a client that records each promise."""
    database, record = folder / "jobs.db", folder / "record"
    settings = {"database": str(database), "wal_bytes": 131_072, "durability": durability}
    async with Launcher(folder / "log", LD_PRELOAD=str(built())) as launcher:
        pid, port = await launcher.start(settings)
        assert await launcher.terminate(pid) == 0
        trace = Trace(database.read_bytes(), b"")
        shim = {"SHIM_DATABASE": str(database), "SHIM_RECORD": str(record)}
        pid, port = await launcher.start(settings, environment=shim)
        await _work(await Wire.connect(port), record, trace, random.Random(seed))
        await launcher.kill(pid)
    trace.record = record.read_bytes()
    return trace


async def _work(wire: Wire, record: Path, trace: Trace, dice: random.Random) -> None:
    def now() -> int:
        return record.stat().st_size

    promises = trace.promises
    for number in range(COMMITS):
        if dice.random() < 0.5:
            jobs = [
                {"name": "job", "data": {"number": number, "x": "x" * dice.randrange(3_000)}}
                for _ in range(dice.randint(1, 4))
            ]
            answer = await wire.ask("CreateJobs", jobs=jobs)
            for job_id in answer.reply["jobIDs"]:
                promises[job_id] = Promise(created=now())
            continue
        taken = await wire.ask("GetJob", name="*")
        if taken.code == 200:
            promise = promises[taken.reply["jobID"]]
            promise.taken = now()
            if dice.random() < 0.2:
                continue  # stays with its worker
            promise.ending = now()
            answer = await wire.ask("FinishJob", jobID=taken.reply["jobID"])
            assert answer.code == 200
            promise.ended = now()
    wire.close()


class DiskFile:
    """One file of the rebuilt disk: its synced content, and later writes."""

    def __init__(self, content: bytes) -> None:
        self.synced = bytearray(content)
        self.since: list[tuple[bytes, int, bytes]] = []

    def sync(self) -> None:
        for change in self.since:
            _apply(self.synced, change)
        self.since.clear()

    def after_a_cut(self, dice: random.Random, how: str) -> bytes:
        content = bytearray(self.synced)
        changes = self.since
        if how == "prefix":
            changes = changes[: dice.randint(0, len(changes))]
        elif how == "none":
            changes = []
        for change in changes:
            if how != "some":
                _apply(content, change)
            else:
                for part in _sectors(change):
                    if dice.random() < 0.5:
                        _apply(content, part)
        return bytes(content)


def _apply(content: bytearray, change: tuple[bytes, int, bytes]) -> None:
    kind, offset, data = change
    if kind == b"t":
        del content[offset:]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if kind == b"w":
        content[offset : offset + len(data)] = data


def _sectors(change: tuple[bytes, int, bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    kind, offset, data = change
    if kind == b"t":
        yield change
        return
    at = 0
    while at < len(data):
        end = min(at + SECTOR - (offset + at) % SECTOR, len(data))
        yield kind, offset + at, data[at:end]
        at = end


def disks(trace: Trace, states: int, seed: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield times of a session, in order, and the two files as a power cut at that time may leave them."""
    dice = random.Random(seed)
    records = list(records_of(trace.record))
    cuts = sorted(dice.choices(range(len(records)), k=states))
    files = (DiskFile(trace.before), DiskFile(b""))
    done = 0
    for cut in cuts:
        while done <= cut:
            kind, file, offset, data, _ = records[done]
            if kind == b"s":
                files[file].sync()
            else:
                files[file].since.append((kind, offset, data))
            done += 1
        how = dice.choice(("all", "none", "prefix", "some"))
        yield records[cut][4], files[0].after_a_cut(dice, how), files[1].after_a_cut(dice, how)


def records_of(record: bytes) -> Iterator[tuple[bytes, int, int, bytes, int]]:
    """Yield kind, file, offset and data of each record, and the size of the record up to its end."""
    at = 0
    while at + RECORD.size <= len(record):
        kind, file, length, offset = RECORD.unpack_from(record, at)
        at += RECORD.size
        data = record[at : at + length]
        at += length
        yield kind, file, offset, data, at


def check(trace: Trace, states: int, seed: int, folder: Path) -> Counter[str]:
    """Rebuild disks and count their faults."""
    found: Counter[str] = Counter({"states": states, "damaged": 0, **dict.fromkeys(BROKEN, 0)})
    database = folder / "rebuilt.db"
    for moment, content, log in disks(trace, states, seed):
        database.write_bytes(content)
        database.with_name("rebuilt.db-wal").write_bytes(log)
        database.with_name("rebuilt.db-shm").unlink(missing_ok=True)
        _check_one(database, trace.promises, moment, found)
    return found


def _check_one(database: Path, promises: dict[int, Promise], moment: int, found: Counter[str]) -> None:
    try:
        with closing(sqlite3.connect(database)) as connection:
            states: dict[int, str] = dict(connection.execute("SELECT jobID, state FROM jobs"))
            following = connection.execute("SELECT value FROM meta WHERE key = 'nextJobID'").fetchone()[0]
            sound = connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        sound, states, following = False, {}, 0
    found["damaged"] += not sound
    if not sound:
        return
    broken = set()
    # A promise was kept by the time its answer was read, so the record was at least as long as it is noted.
    for job_id, promise in promises.items():
        if promise.created <= moment < promise.ending and job_id not in states:
            broken.add("lost")
        if promise.taken <= moment < promise.ending and states.get(job_id) == "QUEUED":
            broken.add("untaken")
        if promise.ended <= moment and job_id in states:
            broken.add("unfinished")
        if promise.created <= moment and job_id >= following:
            broken.add("jobID free again")
    found.update(broken)


def nightly(states: int, seed: int) -> int:
    """Check that many power cuts over many sessions; print the counts and return the exit status."""
    total: Counter[str] = Counter()
    for number in range(-(-states // STATES_OF_A_TRACE)):
        with tempfile.TemporaryDirectory(prefix="bedrockjobs-power-") as name:
            folder = Path(name)
            trace = asyncio.run(recorded_session(folder, "full", seed + number))
            total.update(check(trace, STATES_OF_A_TRACE, seed + number, folder))
    print(f"seed {seed}: {dict(total)}")
    return 1 if any(total[kind] for kind in ("damaged", *BROKEN)) else 0


if __name__ == "__main__":
    sys.exit(nightly(STATES_OF_A_TRACE, 1))
