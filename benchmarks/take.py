"""How long the statements of one take are: for every kind of name pattern, at every kind of backlog.

It opens the store itself, without a server: ``first_due`` and ``claim`` in an open transaction, which is
rolled back at the end. Ratios are to the cheapest take there could be, of a job whose jobID is known.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import machine
from results import table, verdict, write_machine, write_section

from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.sqlite import SQLiteEngine

BAR_US = 50.0
"""The statement time of one take, median."""
NOW, PAST, FUTURE = "2030-01-02 00:00:00.000", "2030-01-01", "2030-06-01"
TAKES = 400
"""Takes of one figure."""
SOUGHT_PER_NAME = 50
"""Jobs of each name that is sought behind a backlog of others."""
TIME_TO_BUILD_S = 150.0
"""After this the largest backlogs are left out, so that the benchmark ends in time."""


@dataclass(frozen=True)
class Backlog:
    """A table full of jobs."""

    label: str
    names: int
    """How many names are sought."""
    behind: str = ""
    """What lies before them: jobs of another name, ``future`` or ``mock`` ones; nothing: they are all."""
    priorities: tuple[int, ...] = (500,)


BACKLOGS = (
    Backlog("one name", 1),
    Backlog("10,000 names", 10_000),
    Backlog("behind another name", 20, "other"),
    Backlog("behind future jobs", 20, "future"),
    Backlog("behind mocked jobs", 20, "mock"),
    Backlog("10,000 names in 6 priorities", 10_000, priorities=PRIORITIES),
    Backlog("the same behind another name", 10_000, "other", PRIORITIES),
)
"""In those with something before them, that has the higher priority and the earlier time."""

Row = tuple[str, str, str, int, str]


def name_of(number: int) -> str:
    """Return a job name."""
    return f"queue/{number:05d}"


def rows_of(backlog: Backlog, size: int, past: str = PAST) -> Iterator[Row]:
    """Yield nextRun, name, lane, priority and data of each job; those sought are due on the day ``past``."""
    names = min(backlog.names, size)
    sought = size if not backlog.behind else names * (SOUGHT_PER_NAME if names < size else 1)
    if backlog.behind and backlog.names > 1_000:
        sought = min(len(backlog.priorities) * names, size)
    day = FUTURE if backlog.behind == "future" else "2029-12-31"
    lane = "mock" if backlog.behind == "mock" else ""
    for number in range(size if backlog.behind else 0):
        name = "other/1" if backlog.behind == "other" else name_of(number % names)
        yield f"{day} {_time(number)}", name, lane, 1000, '{"value":1}'
    for number in range(sought):
        priority = backlog.priorities[number // names % len(backlog.priorities)]
        yield f"{past} {_time(number)}", name_of(number % names), "", priority, '{"value":1}'


def _time(number: int) -> str:
    # Spread over the day in another order than that of the jobIDs, as it comes to be in a used table.
    ms = number * 7_919_317 % 86_400_000
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


def build(path: Path, backlog: Backlog, size: int, past: str = PAST) -> None:
    """Make the database, its indexes last, which is quicker."""
    SQLiteEngine(path, Settings()).close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    indexes = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql <> ''").fetchall()
    db.execute("BEGIN")
    for name, _ in indexes:
        db.execute(f'DROP INDEX "{name}"')
    db.executemany(
        "INSERT INTO jobs (created, state, nextRun, name, lane, priority, data)"
        " VALUES ('2029-12-31 00:00:00', 'QUEUED', ?, ?, ?, ?, ?)",
        rows_of(backlog, size, past),
    )
    for _, sql in indexes:
        db.execute(sql)
    db.execute("UPDATE meta SET value = (SELECT max(jobID) + 1 FROM jobs) WHERE key = 'nextJobID'")
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    db.close()
    os.sync()  # else the server's first checkpoint would write all of it


def patterns_of(backlog: Backlog, size: int) -> dict[str, list[str]]:
    """Return the patterns of each kind; several of one kind are used in turn."""
    count = min(backlog.names, size)
    some = [name_of(number * 7 % count) for number in range(min(count, 100))]
    return {
        "exact name": some,
        "comma list": [",".join([*some[:9], "none"])],
        "prefix, all names": ["queue/*"],
        "prefix, some names": ["queue/000*"],
        "other GLOB": ["*e/0?0[0-4]?"],
        "`*`": ["*"],
        "exact, no such job": ["nothing"],
    }


@dataclass
class Figure:
    """What one kind of pattern took."""

    median_us: float
    p99_us: float
    first_ms: float
    """The first use, in which the writer builds what it remembers of the pattern."""


def measure(store: SQLiteEngine, patterns: list[str], takes: int) -> Figure:
    """Take jobs by the patterns in turn; what was taken is put back when there is no more."""
    asked = [
        TakeRequest(names, mocked=False, priority=None)
        for pattern in patterns
        if (names := names_from(pattern, None)) is not None
    ]
    store.begin()
    begun = time.perf_counter()
    store.unit.first_due(asked[0], NOW)
    first_ms = (time.perf_counter() - begun) * 1000
    took: list[float] = []
    taken: list[Job] = []
    # A pattern that is far beyond the bar is not asked a second longer.
    until = time.perf_counter() + 2.0
    for request in islice(cycle(asked), takes):
        us = _take(store, request, taken)
        if us is None and taken:
            for row in taken:
                store.unit.save(row)
            taken.clear()
            us = _take(store, request, taken)
        took.append(us if us is not None else _miss(store, request))
        if time.perf_counter() > until:
            break
    store.rollback()
    took.sort()
    return Figure(statistics.median(took), took[len(took) * 99 // 100], first_ms)


def _take(store: SQLiteEngine, request: TakeRequest, taken: list[Job]) -> float | None:
    begun = time.perf_counter()
    row = store.unit.first_due(request, NOW)
    if row is None:
        return None
    store.unit.claim(row._replace(state="RUNNING", last_run=NOW, attempt=row.attempt + 1))
    ended = time.perf_counter()
    taken.append(row)
    return (ended - begun) * 1e6


def _miss(store: SQLiteEngine, request: TakeRequest) -> float:
    begun = time.perf_counter()
    store.unit.first_due(request, NOW)
    return (time.perf_counter() - begun) * 1e6


def cheapest(store: SQLiteEngine, takes: int, size: int) -> float:
    """Return the median microseconds of a take whose jobID is known."""
    took = []
    store.begin()
    for number in range(takes):
        job_id = 1 + number * 7_919 % size
        begun = time.perf_counter()
        row = store.unit.job(job_id)
        assert row is not None
        store.unit.claim(row._replace(state="RUNNING", last_run=NOW, attempt=row.attempt + 1))
        took.append((time.perf_counter() - begun) * 1e6)
    store.rollback()
    return statistics.median(took)


Line = tuple[str, ...]


def lines_of(folder: Path, backlog: Backlog, size: int, takes: int) -> tuple[Line, Line, dict[str, float]]:
    """Measure one backlog; return its lines of both tables, and the medians by kind of pattern."""
    path = folder / "jobs.db"
    build(path, backlog, size)
    store = SQLiteEngine(path, Settings())
    base = cheapest(store, min(takes, size), size)
    figures = {kind: measure(store, some, takes) for kind, some in patterns_of(backlog, size).items()}
    store.close()
    for file in folder.glob(f"{path.name}*"):
        file.unlink()
    times = [f"{each.median_us:,.0f} / {each.p99_us:,.0f}" for each in figures.values()]
    worst = max(each.median_us for each in figures.values())
    label = (f"{size:,}: {backlog.label}", f"{base:.0f}")
    first = (label[0], *(f"{each.first_ms:,.2f}" for each in figures.values()))
    print(f"  {' | '.join((*label, *times))}", flush=True)
    return (*label, *times, f"{worst / base:,.1f}"), first, {k: f.median_us for k, f in figures.items()}


def report(lines: Iterable[tuple[Line, Line, dict[str, float]]], kinds: Iterable[str]) -> str:
    """Return the section."""
    times, firsts, medians = zip(*lines, strict=True)
    head = ("rows: backlog", "by jobID", *kinds, "worst to by jobID")
    above = [
        f"{line[0]}, {kind}"
        for line, found in zip(times, medians, strict=True)
        for kind, us in found.items()
        if us > BAR_US
    ]
    worst = max(us for found in medians for us in found.values())
    parts = [
        "### Statement time of one take in µs, median / p99",
        table(head, times),
        verdict("the largest median", worst, BAR_US, unit=" µs", at_most=True),
        f"{sum(map(len, medians)) - len(above)} of {sum(map(len, medians))} medians are within the bar."
        + (f" Above it: {'; '.join(above)}." if above else ""),
        "### First use of a pattern in ms, when the writer builds what it remembers of it",
        table(("rows: backlog", *kinds), firsts),
    ]
    return "\n\n".join(parts)


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--takes", type=int, default=TAKES, help="takes of one figure")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="rows")
    parser.add_argument("--quick", action="store_true", help="a look: up to 100,000 rows")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    sizes, takes = options.sizes, options.takes
    if options.quick:
        sizes, takes = [1_000, 100_000], 100
    before = machine.moment()
    write_machine(machine.describe(directory))
    folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-benchmark-", dir=directory))
    left_out = []
    lines = []
    begun = time.monotonic()
    try:
        for size in sizes:
            for backlog in BACKLOGS:
                if time.monotonic() - begun > TIME_TO_BUILD_S:
                    left_out.append(f"{size:,}: {backlog.label}")
                    continue
                lines.append(lines_of(folder, backlog, size, takes))
    finally:
        shutil.rmtree(folder)
    text = f"{before}; {takes} takes a figure.\n\n" + report(lines, patterns_of(BACKLOGS[0], 1))
    if left_out:
        text += f"\n\nLeft out for want of time: {', '.join(left_out)}."
    print(text)
    write_section("Take", text)


if __name__ == "__main__":
    main()
