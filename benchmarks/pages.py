"""How long the server takes for the first paint of each page, with 1,000, 100,000 and 1,000,000 jobs.

A server in this process, one client on one connection; the time is that of the whole request, from its
first byte to the page's last. The jobs are of a thousand names and as many single ones; up to 10,000 of them
are schedules, one has up to 10,000 children, and there is a run for each five of them. One job in 40 has
failed and one run in 50, with 50 kinds of errors each: with 1,000,000 jobs, 500 jobs have each of them.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import machine
from results import table, verdict, write_machine, write_section

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import fingerprint_of
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from bedrockjobs.store import schema

BAR_MS = 100.0
"""The time of one page, median."""
ASKS = 21
"""Requests of one figure."""
DUE = "2026-01-02 03:04:05"
SCHEDULES_MAX = 10_000
CHILDREN_MAX = 10_000
ERRORS = [
    f"{what}Error: {where} does not answer"
    for what in ("Connection", "Address", "Timeout", "Protocol", "Certificate")
    for where in ("stock", "mail", "billing", "search", "ledger", "maps", "fax", "shop", "depot", "vault")
]
FORM = {
    "command": "CreateJob",
    "schedule": True,
    "fields": {"name": "report/9", "expression": "30 2 * * *", "zone": "Europe/Berlin", "data": "{}"},
    "changed": ["name", "expression", "zone", "data"],
}
"""What the page of a new schedule sends while one types."""

PAGES = (
    ("overview", "ui/"),
    ("overview: what runs", "ui/jobs?state=RUNNING&rows=5"),
    ("overview: what failed", "ui/runs?status=failed&rows=5"),
    ("overview: names", "ui/queues?rows=5"),
    ("charts of 7 d", "ui/chart?range=7d"),
    ("jobs", "ui/jobs"),
    ("jobs that failed", "ui/jobs?state=FAILED"),
    ("jobs that are queued", "ui/jobs?state=QUEUED"),
    ("jobs that run: few among all", "ui/jobs?state=RUNNING"),
    ("jobs that wait for children", "ui/jobs?state=PAUSED"),
    ("jobs that finished", "ui/jobs?state=FINISHED"),
    ("jobs that are cancelled", "ui/jobs?state=CANCELLED"),
    ("jobs of one name", "ui/jobs?name=report/5"),
    ("jobs by a beginning", "ui/jobs?name=mail/9*"),
    ("jobs by an end", "ui/jobs?name=*77"),
    ("a text that is nowhere", "ui/jobs?text=nowhere"),
    ("names that complete", "ui/jobs/names?name=re"),
    ("one job", "ui/jobs/500"),
    ("a job with children", "ui/jobs/2"),
    ("form: new job", "ui/jobs/new"),
    ("form: one like another", "ui/jobs/new?like=500"),
    ("form: edit a job", "ui/jobs/500/edit"),
    ("form: edit a schedule", "ui/schedules/1/edit"),
    ("form: looked at", "ui/check"),
    ("queues", "ui/queues"),
    ("queues of a fold", "ui/queues?under=report/"),
    ("queues of a pattern", "ui/queues?name=*7"),
    ("runs", "ui/runs"),
    ("runs that failed", "ui/runs?status=failed"),
    ("runs of one name", "ui/runs?name=report/5"),
    ("runs by an end", "ui/runs?name=*77"),
    ("runs with a text that is nowhere", "ui/runs?text=nowhere"),
    ("schedules", "ui/schedules"),
    ("one schedule", "ui/schedules/1"),
    ("upcoming", "ui/upcoming"),
    ("workers", "ui/workers"),
    ("failures", "ui/failures"),
    ("failures, half of them seen", "ui/failures?name=report/*"),
    ("limits", "ui/limits"),
    ("what is kept", "ui/kept"),
    ("notification rules", "ui/notifications"),
    ("tokens and audit", "ui/access"),
    ("events", "ui/events"),
)
"""Each page with a label."""


def error_of(number: int) -> str:
    """Return one of the errors, a traceback."""
    error = ERRORS[number % len(ERRORS)]
    frames = "".join(f'  File "shop/{step}.py", line 7, in {step}\n    go()\n' for step in ("main", "send"))
    return f"Traceback (most recent call last):\n{frames}{error}"


def jobs(count: int) -> Iterator[tuple[str, int, str, str, str, str, str, int, str, str]]:
    """Yield rows of the table."""
    for number in range(1, count + 1):
        state = "FAILED" if number % 40 == 0 else "RUNNING" if number % 99_999 == 0 else "QUEUED"
        name = f"report/{number % 1_000}" if number % 10 else f"mail/{number}"
        repeat = "CRON 0 9 * * *" if number % max(count // SCHEDULES_MAX, 10) == 1 else ""
        data = f'{{"number":{number},"note":"{"x" * 60}"}}'
        is_child = not repeat and 2 < number <= min(CHILDREN_MAX + 2, count // 10)
        error = error_of(number // 40) if state == "FAILED" else ""
        notes = jsontext.dump({"error": error}) if error else "{}"
        alike = fingerprint_of(error) if error else ""
        yield DUE, number, state, name, DUE, repeat, data, 2 if is_child else 0, notes, alike


def runs(count: int) -> Iterator[tuple[int, int, str, str, str, str, str, str, str]]:
    """Yield rows of the table of runs."""
    for number in range(1, count // 5 + 1):
        status = "fail" if number % 50 == 0 else "success"
        error = error_of(number // 50) if status == "fail" else ""
        name = f"report/{number % 1_000}"
        alike = fingerprint_of(error) if error else ""
        yield number, number, name, DUE, DUE, f"w{number % 9}", status, error, alike


def fill(path: Path, count: int) -> None:
    """Make a database with so many jobs."""
    db = sqlite3.connect(path, isolation_level=None)
    schema.apply(db)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO jobs (created, jobID, state, name, nextRun, repeat, data, parentJobID, memory,"
        " fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        jobs(count),
    )
    db.executemany(
        "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, ended, worker, status,"
        " error, fingerprint) VALUES (?, ?, ?, 1, 'schedule', ?, ?, '2026-01-02 03:05:00', ?, ?, ?, ?)",
        runs(count),
    )
    db.execute(
        "INSERT INTO seen (kind, number, at) SELECT 'run', runID, ended FROM runs"
        " WHERE status = 'fail' AND runID % 100 = 0"
    )
    db.execute("UPDATE meta SET value = ? WHERE key = 'nextJobID'", (count + 1,))
    db.execute("UPDATE meta SET value = ? WHERE key = 'nextRunID'", (count // 5 + 1,))
    db.execute("COMMIT")
    db.close()


async def ask(root: str, asks: int) -> list[tuple[float, float]]:
    """Return for each page the first and the median time in ms."""
    clock, found = SystemClock(), []
    async with aiohttp.ClientSession() as session:
        for _, path in PAGES:
            times = []
            for _ in range(asks):
                begun = clock.monotonic()
                asked = session.post if path == "ui/check" else session.get
                given = {"json": FORM} if path == "ui/check" else {}
                async with asked(f"{root}/{path}", **given) as answer:
                    await answer.read()
                    assert answer.status == 200, f"{path}: {answer.status}"
                times.append((clock.monotonic() - begun) * 1000)
            found.append((times[0], statistics.median(times)))
    return found


async def measure(path: Path, count: int, asks: int) -> list[tuple[float, float]]:
    """Return the times of all pages on a table of so many jobs."""
    fill(path, count)
    server = Server(Settings(port=0, database=str(path)))
    await server.start()
    try:
        return await ask(f"http://127.0.0.1:{server.port}", asks)
    finally:
        await server.stop()


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000], help="jobs")
    parser.add_argument("--asks", type=int, default=ASKS, help="requests of one figure")
    parser.add_argument("--quick", action="store_true", help="a look: up to 100,000 jobs; nothing is written")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    sizes = [1_000, 100_000] if options.quick else options.sizes
    before = machine.moment()
    folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-benchmark-", dir=directory))
    columns = []
    try:
        for size in sizes:
            columns.append(asyncio.run(measure(folder / f"{size}.db", size, options.asks)))
    finally:
        shutil.rmtree(folder)
    head = ["page", *(f"{size:,}: first, ms" for size in sizes), *(f"{size:,}: median, ms" for size in sizes)]
    rows = [
        [
            label,
            *(f"{column[at][0]:.1f}" for column in columns),
            *(f"{column[at][1]:.1f}" for column in columns),
        ]
        for at, (label, _) in enumerate(PAGES)
    ]
    slowest = max(column[at][1] for column in columns for at in range(len(PAGES)))
    text = f"{before}; {options.asks} requests a figure.\n\n{table(head, rows)}\n\n" + verdict(
        "the slowest page, median", slowest, BAR_MS, unit=" ms", at_most=True
    )
    print(text)
    if not options.quick:
        write_machine(machine.describe(directory))
        write_section("Pages", text)


if __name__ == "__main__":
    main()
