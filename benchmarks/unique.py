"""What a create with a unique key costs beside a million keys, compared with a plain one.

Plain creates and creates with a key, both with data that differ, load the same server in turn; what counts is
the ratio of the processor time, pair by pair. Keys arrive in ascending order, as from a loop over customers,
or in no order, so that each of them belongs on another page of the index. With ``--postgresql`` the time of
PostgreSQL counts too.
"""

from __future__ import annotations

import random
import sqlite3
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import load
import machine
import psycopg
from pairs import alternate, medians, pairs_parser
from peer_servers import PostgresServer
from results import table, verdict, write_section
from served import Served
from throughput import Bench

from bedrockjobs.commands import CreateJob
from bedrockjobs.store import schema

CELLS = ("raw:64", "raw:16", "http:16")
"""Protocol and connections of each kind of load."""
KEYS = 1_000_000
RATIO_BAR = 1.15
ORDERS = {"ascending": "enqueue_keys", "in no order": "enqueue_random_keys"}
"""The scenario of ``load.py`` for each order of the keys."""
MADE = "2026-01-02 03:04:05"
COLUMNS = {
    "jobs": ("created", "jobID", "state", "name", "nextRun", "data"),
    "keys": ("key", "jobID", "created", "name", "holds"),
}


def jobs_and_keys(count: int) -> dict[str, Iterator[tuple[Any, ...]]]:
    """Return the rows of queued jobs with a unique key each, by table; the keys are in order."""
    dice = random.Random(1)
    numbers = [dice.getrandbits(63) for _ in range(count)]
    names = [load.name_of(number).decode().strip('"') for number in range(load.NAMES)]
    prefixes = [CreateJob(name=name, unique_key="customer-").held_key for name in names]
    keys = sorted((f"{prefixes[at % load.NAMES]}{number:020d}", at + 1) for at, number in enumerate(numbers))
    jobs = (
        (MADE, at + 1, "QUEUED", names[at % load.NAMES], f"{MADE}.000", f'{{"customer":{number}}}')
        for at, number in enumerate(numbers)
    )
    return {"jobs": jobs, "keys": ((key, job_id, f"{MADE}.000", "", "finished") for key, job_id in keys)}


def fill_file(path: Path, count: int) -> None:
    """Make a database with so many jobs and keys."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        schema.apply(database)
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        for name, rows in jobs_and_keys(count).items():
            columns = COLUMNS[name]
            marks = ", ".join("?" * len(columns))
            database.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
        database.execute("UPDATE meta SET value = ? WHERE key = 'nextJobID'", (count + 1,))
        database.execute("COMMIT")


def fill_postgresql(url: str, count: int) -> None:
    """Add so many jobs and keys to the database of a server that is running."""
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET search_path = bedrockjobs")
        cursor.execute("SELECT setval('jobIDs', %s)", [2 * count])
        for name, rows in jobs_and_keys(count).items():
            with cursor.copy(f"COPY {name} ({', '.join(COLUMNS[name])}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        cursor.execute("VACUUM ANALYZE jobs, keys")
        cursor.execute("CHECKPOINT")


def main() -> None:
    """Measure, print, and write the table into the results."""
    parser = pairs_parser(__doc__ or "", CELLS)
    parser.add_argument("--postgresql", action="store_true", help="a server on PostgreSQL instead of a file")
    parser.add_argument("--keys", type=int, default=KEYS, help="keys that are there before")
    parser.add_argument("--print-only", action="store_true", help="do not write the results")
    options = parser.parse_args()
    options.directory = machine.real_directory(options.directory)
    bench, before, rows, ratios = Bench(options), machine.moment(), [], []
    with ExitStack() as stack:
        if options.postgresql:
            database = stack.enter_context(PostgresServer(options.directory))
            server = stack.enter_context(Served(options.directory, url=database.url))
            fill_postgresql(database.url, options.keys)
        else:
            server = stack.enter_context(
                Served(options.directory, prepare=partial(fill_file, count=options.keys))
            )

        def cpu_us(cell: str, scenario: str) -> float:
            protocol, _, count = cell.partition(":")
            theirs = machine.cpu_s(machine.family(database.pid)) if options.postgresql else 0.0
            found = bench.load(server, scenario, protocol, int(count))
            if options.postgresql:
                theirs = machine.cpu_s(machine.family(database.pid)) - theirs
            return found.cpu_us + theirs / found.requests * 1e6

        for cell in options.cells:
            for order, scenario in ORDERS.items():
                keyed, plain = partial(cpu_us, cell, scenario), partial(cpu_us, cell, "enqueue_differing")
                found = alternate(bench.rounds, keyed, plain)
                rows.append((cell, order, *medians(found)))
                ratios.append(statistics.median(ours / other for ours, other in found))
                print(f"  {' | '.join(rows[-1])}", flush=True)
    text = f"{before}; medians of {bench.rounds} pairs of {options.seconds:g} s each.\n\n"
    text += table(("load", "keys", "with a key, CPU µs a create", "plain", "ratio"), rows)
    text += "\n\n" + verdict("greatest ratio", max(ratios), RATIO_BAR, at_most=True)
    print(text)
    if not options.print_only:
        write_section(f"Unique keys, {'PostgreSQL' if options.postgresql else 'SQLite'}", text)


if __name__ == "__main__":
    main()
