"""Servers on PostgreSQL beside one on SQLite, a bare SKIP LOCKED loop and pgqueuer, in turn.

All share one machine with the load, which speaks the raw protocol. Takes from a large backlog are units of
their own, opened in this process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import load
import machine
import peers
import postgresql_steady
import psycopg
from peer_servers import Missing, PgqueuerServer, PostgresServer
from postgresql_steady import part
from results import table, verdict, write_machine, write_section
from served import Served

from bedrockjobs.commands import GetJob
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.unit import perform
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine

CLIENTS = (64, 256)
NAMES, UNITS = 10_000, 50
TAKES = (
    ("exact name", "queue/{}", 1),
    ("exact name", "queue/{}", 64),
    ("absent name", "absent", 1),
    ("`*`", "*", 1),
    ("`*`", "*", 64),
    ("prefix, all names", "queue/*", 64),
    ("wide GLOB", "*e/0?0[0-4]?", 64),
    ("prefix behind all others", "rare/*", 64),
    ("GLOB behind all others", "*are/*", 64),
)
"""What is taken from a large backlog, and how many takes share a unit."""
TAKES_BARS = {1: 1.0, 64: 5.0}
"""Milliseconds, p50, of a unit of so many takes with its commit."""
TAKES_HEAD = ("asked for", "takes in a unit", "ms, p50", "p99")
SERVERS = (1, 2, 4)
SERVERS_BAR = 1.0
"""Two servers, of what one does."""
HELD = ("no old state", "old state")
HELD_BAR = 0.8
"""With an old state of the database that somebody looks at, of the lifecycles without."""
BARS = {64: 0.5, 256: 0.6}
"""Of SQLite's lifecycles, at so many clients."""
LOOP_BAR = 0.3
"""PostgreSQL's time for a lifecycle, of what the SKIP LOCKED loop takes."""
DRAIN_BAR = 1.5
"""Jobs a second that 64 clients take and finish by tens, of what pgqueuer drains with its 4 consumers."""
DRAINS = {4: 40_000, 64: 100_000}
"""Clients that drain, and how many jobs there are for them: as many as pgqueuer has, and as above."""
TENS = 10
JOBS_A_REQUEST = {"lifecycle": 1 / 3, "batch": TENS / 3, "drain_batch": TENS}
LOAD_S_MAX = 60.0
"""Time a load process may take beyond what it was told."""


class Figure(NamedTuple):
    """What one load showed."""

    rate: float
    """Lifecycles a second."""
    server_us: float
    """Processor time of our server for each."""
    database_us: float
    """Processor time of PostgreSQL for each."""
    p99_ms: float = 0.0
    """Time that one of a hundred requests takes longer than, where that was measured."""


class Bench:
    """The servers of one run, and the loads on them."""

    def __init__(self, stack: ExitStack, directory: Path, seconds: float) -> None:
        """Start them."""
        self._stack = stack
        self._directory = directory
        self._seconds = seconds
        self.database = stack.enter_context(PostgresServer(directory))
        self._served = {"SQLite": [stack.enter_context(Served(directory))], "PostgreSQL": [self._another()]}

    def _another(self) -> Served:
        return self._stack.enter_context(Served(self._directory, url=self.database.url))

    def lifecycles(self, engine: str, clients: int, scenario: str = "lifecycle", servers: int = 1) -> Figure:
        """Load some of our servers of one engine, each with its part of the clients."""
        there = self._served[engine]
        while len(there) < servers:
            there.append(self._another())
        served = there[:servers]
        pids = [one.pid for one in served]
        used = [machine.cpu_s(pids), machine.cpu_s(machine.family(self.database.pid))]
        options = (scenario, "--protocol", "raw", "--size", str(TENS))
        each = clients // servers
        loads = [self._load("load.py", *options, port=one.port, clients=each) for one in served]
        found = [self._loaded(one) for one in loads]
        jobs = max(sum(one["requests"] for one in found) * JOBS_A_REQUEST[scenario], 1)
        ours = machine.cpu_s(pids) - used[0]
        theirs = machine.cpu_s(machine.family(self.database.pid)) - used[1]
        rate = sum(one["done_per_s"] for one in found)
        p99_ms = max(one["p99_ms"] for one in found)
        return Figure(rate, ours / jobs * 1e6, theirs / jobs * 1e6, p99_ms)

    def drained(self, clients: int) -> Figure:
        """Queue jobs, and let some clients take and finish them by tens."""
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO bedrockjobs.jobs (created, jobID, state, name, nextRun) SELECT timestamp,"
                " nextval('bedrockjobs.jobIDs'), 'QUEUED', 'queue/' || n %% %s, timestamp FROM"
                " generate_series(1, %s) AS n, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')"
                " AS timestamp",
                (min(clients, load.NAMES), DRAINS[clients]),
            )
            figure = self.lifecycles("PostgreSQL", clients, "drain_batch")
            connection.execute("DELETE FROM bedrockjobs.jobs")
        return figure

    def steady(self) -> str:
        """Load for minutes; return what that shows."""
        seconds, self._seconds = self._seconds, postgresql_steady.PART_S
        minutes = postgresql_steady.steady(
            lambda: self.lifecycles("PostgreSQL", CLIENTS[0]), self.database.url
        )
        self._seconds = seconds
        return postgresql_steady.report(minutes, CLIENTS[0])

    def bare(self, clients: int) -> Figure:
        """Load PostgreSQL with the SKIP LOCKED loop."""
        used = machine.cpu_s(machine.family(self.database.pid))
        found = self._loaded(self._load("peer_skip_locked.py", port=self.database.port, clients=clients))
        used = machine.cpu_s(machine.family(self.database.pid)) - used
        return Figure(found["done_per_s"], 0.0, used / max(found["done"], 1) * 1e6)

    def _load(self, script: str, *options: str, port: int, clients: int) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name(script)), *options, "--port", str(port)]
        command += ["--connections", str(clients), "--seconds", str(self._seconds)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _loaded(self, load: subprocess.Popen[str]) -> dict[str, Any]:
        printed, _ = load.communicate(timeout=self._seconds + LOAD_S_MAX)
        if load.returncode:
            raise RuntimeError("a load failed")
        found: dict[str, Any] = json.loads(printed)
        if found.get("failed"):
            print(f"  {found['failed']} refused, the first: {found['refusal']}")
        return found


def rounds(bench: Bench, count: int, *, only: bool) -> dict[str, list[Figure]]:
    """Load all in turn; ``only`` our two engines."""
    found: dict[str, list[Figure]] = {}
    for _ in range(count):
        for clients in CLIENTS:
            for engine in ("SQLite", "PostgreSQL"):
                found.setdefault(f"{engine}, {clients}", []).append(bench.lifecycles(engine, clients))
        if not only:
            found.setdefault("SKIP LOCKED, 64", []).append(bench.bare(64))
            for engine in ("SQLite", "PostgreSQL"):
                by_tens = bench.lifecycles(engine, 16, "batch")
                found.setdefault(f"{engine}, by tens", []).append(by_tens)
            for clients in DRAINS:
                found.setdefault(f"PostgreSQL, drain by tens, {clients}", []).append(bench.drained(clients))
    return found


def several(bench: Bench, count: int) -> dict[str, list[Figure]]:
    """Load one, two and four servers in turn; all four are there all the time."""
    clients, found = CLIENTS[-1], dict[str, list[Figure]]()
    bench.lifecycles("PostgreSQL", clients, servers=SERVERS[-1])
    for _ in range(count):
        for servers in SERVERS:
            figure = bench.lifecycles("PostgreSQL", clients, servers=servers)
            found.setdefault(f"{servers} servers, {clients}", []).append(figure)
    return found


def held(bench: Bench, count: int, seconds: float) -> dict[str, list[Figure]]:
    """Load before somebody looks at an old state of the database, and when that has lasted for a while."""
    clients = CLIENTS[0]

    def loaded() -> list[Figure]:
        return [bench.lifecycles("PostgreSQL", clients) for _ in range(count)]

    before = loaded()
    with psycopg.connect(bench.database.url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            bench.lifecycles("PostgreSQL", clients)
        return {HELD[0]: before, HELD[1]: loaded()}


def pgqueuer(directory: Path, seconds: float, count: int) -> list[Figure]:
    """Return what pgqueuer drains with 4 consumers, round by round; nothing where it is not installed."""
    row = next(one for one in peers.ROWS if one.key == "pgqueuer")
    try:
        server = PgqueuerServer(directory)
    except Missing as missing:
        print(f"  {missing}")
        return []
    with server:
        results = [peers.load(row, server, seconds) for _ in range(count)]
    drain = peers.RATES.index("drain")
    return [Figure(one.rates[drain], 0.0, one.cpu_us[drain]) for one in results]


def fill(url: str, rows: int) -> None:
    """Queue jobs of 10,000 names, all due, and a few of names that lie behind all of them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = bedrockjobs")
        add = (
            "INSERT INTO jobs (created, jobID, state, name, nextRun) SELECT '2020-01-01 00:00:00', %s + n,"
            " 'QUEUED', %s || lpad((n %% %s)::text, 5, '0'), %s || lpad((n %% 60)::text, 2, '0') || '.000'"
            " FROM generate_series(1, %s) AS n"
        )
        connection.execute(add, [0, "queue/", NAMES, "2020-01-01 00:00:", rows])
        connection.execute(add, [rows, "rare/", 100, "2020-01-02 00:00:", 10_000])
        connection.execute("SELECT setval('jobIDs', %s)", [rows + 20_000])
        connection.execute("VACUUM ANALYZE jobs")


def backlog(directory: Path, rows: int) -> str:
    """Return how long units of takes from a large backlog need, and whether that reaches the bars."""
    lines, verdicts = [], []
    with PostgresServer(directory) as server:
        engine = PostgreSQLEngine(server.url)
        fill(server.url, rows)
        for what, names, count in TAKES:
            took = []
            for number in range(UNITS):
                commands = [GetJob(name=names.format(f"{number * 7919 % NAMES:05d}"))] * count
                begun = time.perf_counter()
                context = Context(engine.begin(map(plan_of, commands)), "document", NoWorkers())
                outcomes = [perform(context, command) for command in commands]
                engine.commit()
                took.append((time.perf_counter() - begun) * 1000)
                assert all(isinstance(one, Answer) for one in outcomes) == (what != "absent name")
            took.sort()
            figures = f"{statistics.median(took):.2f}", f"{took[len(took) * 99 // 100]:.2f}"
            lines.append((what, str(count), *figures))
            name, bar = f"{what}, {count} in a unit,", TAKES_BARS[count]
            verdicts.append(verdict(name, statistics.median(took), bar, unit=" ms", at_most=True))
        engine.close()
    return table(TAKES_HEAD, lines) + "\n\n" + "\n".join(verdicts)


def middle(figures: list[Figure]) -> Figure:
    """Return the medians."""
    return Figure(*map(statistics.median, zip(*figures, strict=True)))


def ratio(some: list[Figure], others: list[Figure]) -> float:
    """Return the median of the ratios of the rates, pair by pair."""
    return statistics.median(part(one.rate, other.rate) for one, other in zip(some, others, strict=True))


def report(found: dict[str, list[Figure]]) -> str:
    """Return the tables and the bars."""
    rows = []
    for name, figures in found.items():
        one, rates = middle(figures), sorted(figure.rate for figure in figures)
        rows.append(
            (
                name,
                f"{one.rate:,.0f}",
                f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
                f"{one.server_us:.0f}",
                f"{one.database_us:.0f}",
            )
        )
    lines = [
        verdict(
            f"lifecycles of SQLite's at {clients} clients",
            ratio(found[f"PostgreSQL, {clients}"], found[f"SQLite, {clients}"]),
            bar,
        )
        for clients, bar in BARS.items()
    ]
    if "SKIP LOCKED, 64" in found:
        ours, bare = middle(found["PostgreSQL, 64"]), middle(found["SKIP LOCKED, 64"])
        name = "PostgreSQL's time for a lifecycle at 64 clients, of the SKIP LOCKED loop's"
        lines.append(verdict(name, part(ours.database_us, bare.database_us), LOOP_BAR, at_most=True))
    if HELD[1] in found:
        name = "lifecycles while somebody looks at an old state, of those before"
        lines.append(verdict(name, part(middle(found[HELD[1]]).rate, middle(found[HELD[0]]).rate), HELD_BAR))
    one, two = (found.get(f"{servers} servers, {CLIENTS[-1]}") for servers in SERVERS[:2])
    if one and two:
        lines.append(verdict(f"two servers, of one, at {CLIENTS[-1]} clients", ratio(two, one), SERVERS_BAR))
    if found.get("pgqueuer, drain"):
        drained = middle(found["pgqueuer, drain"]).rate
        few, many = (
            part(middle(found[f"PostgreSQL, drain by tens, {clients}"]).rate, drained) for clients in DRAINS
        )
        name = "jobs that 64 clients take and finish by tens, of what pgqueuer drains"
        lines.append(verdict(name, many, DRAIN_BAR))
        lines.append(f"* {min(DRAINS)} clients: {few:.2f}")
    head = ("engine, clients", "lifecycles/s", "from, to", "our CPU µs each", "PostgreSQL's CPU µs each")
    return table(head, rows) + "\n\n" + "\n".join(lines)


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one load")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the medians count")
    parser.add_argument("--rows", type=int, default=1_000_000, help="queued jobs of the large backlog")
    parser.add_argument("--held", type=float, default=60.0, help="seconds that an old state is looked at")
    parser.add_argument("--takes", action="store_true", help="only takes from the backlog; writes nothing")
    parser.add_argument("--steady", action="store_true", help="only steady lifecycles; writes nothing")
    parser.add_argument("--quick", action="store_true", help="a look: our two engines only; writes nothing")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    before = machine.moment()
    if options.takes:
        print(backlog(directory, options.rows))
        return
    with ExitStack() as stack:
        bench = Bench(stack, directory, options.seconds)
        if options.steady:
            print(bench.steady())
            return
        found = rounds(bench, options.rounds, only=options.quick)
        if not options.quick:
            steady = bench.steady()  # first of those that leave ended rows
            found |= several(bench, options.rounds) | held(bench, options.rounds, options.held)
    if not options.quick and (drained := pgqueuer(directory, options.seconds, 1)):
        found["pgqueuer, drain"] = drained
    text = f"{before}; {options.rounds} rounds of {options.seconds:g} s.\n\n" + report(found)
    if not options.quick:
        text += f"\n\n### Units of takes with their commit; {options.rows:,} jobs of {NAMES:,} names\n\n"
        text += f"{backlog(directory, options.rows)}\n\n{steady}"
    print(text)
    if not options.quick:
        write_machine(machine.describe(directory))
        write_section("PostgreSQL", text)


if __name__ == "__main__":
    main()
