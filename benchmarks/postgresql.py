"""The engine on PostgreSQL beside SQLite, a bare SKIP LOCKED loop and pgqueuer, in turn.

All share one machine with the load. A server of each engine speaks the raw protocol (`engine_served.py`).
Takes from a large backlog are units of their own, opened in this process.
"""

from __future__ import annotations

import argparse
import json
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import machine
import peers
import psycopg
from peer_servers import Missing, PgqueuerServer, PostgresServer
from results import table, verdict, write_machine, write_section
from served import START_S, stop

from bedrockjobs.commands import GetJob
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import plan_of
from bedrockjobs.engine.presence import Nobody
from bedrockjobs.engine.unit import perform
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
TAKES_HEAD = ("asked for", "takes in a unit", "ms, p50", "p99")
BARS = {64: 0.5, 256: 0.6}
"""Of SQLite's lifecycles, at so many clients."""
LOOP_BAR = 0.3
"""PostgreSQL's time for a lifecycle, of what the SKIP LOCKED loop takes."""
DRAIN_BAR = 1.5
"""Jobs a second, created, taken and finished by tens, of what pgqueuer drains."""
TENS = 10
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


class EngineServed:
    """A server of one engine; use it with ``with``."""

    def __init__(self, database: str) -> None:
        """Prepare a server of a file or a URL."""
        self._database = database
        self._process: subprocess.Popen[str]
        self.port = 0

    def __enter__(self) -> Self:
        """Start it and wait until it listens."""
        command = [sys.executable, str(Path(__file__).with_name("engine_served.py")), self._database]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        printed = select.select([self._process.stdout], [], [], START_S)[0]
        found = self._process.stdout.readline() if printed else ""
        if not found:
            stop(self._process)
            raise RuntimeError(f"the server of {self._database} did not start")
        self.port = int(found.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        stop(self._process)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid


class Bench:
    """The servers of one run, and the loads on them."""

    def __init__(self, stack: ExitStack, directory: Path, seconds: float) -> None:
        """Start them."""
        self._seconds = seconds
        self.database = stack.enter_context(PostgresServer(directory))
        folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-benchmark-", dir=directory))
        stack.callback(shutil.rmtree, folder)
        self._served = {
            "SQLite": stack.enter_context(EngineServed(str(folder / "jobs.db"))),
            "PostgreSQL": stack.enter_context(EngineServed(self.database.url)),
        }

    def lifecycles(self, engine: str, clients: int, scenario: str = "lifecycle") -> Figure:
        """Load our server of one engine."""
        server = self._served[engine]
        used = [machine.cpu_s([server.pid]), machine.cpu_s(machine.family(self.database.pid))]
        found = self._load(
            "load.py", scenario, "--protocol", "raw", "--size", str(TENS),
            port=server.port, clients=clients,
        )  # fmt: skip
        jobs = max(found["requests"] / 3 * (TENS if scenario == "batch" else 1), 1)
        ours = machine.cpu_s([server.pid]) - used[0]
        theirs = machine.cpu_s(machine.family(self.database.pid)) - used[1]
        return Figure(found["done_per_s"], ours / jobs * 1e6, theirs / jobs * 1e6)

    def bare(self, clients: int) -> Figure:
        """Load PostgreSQL with the SKIP LOCKED loop."""
        used = machine.cpu_s(machine.family(self.database.pid))
        found = self._load("peer_skip_locked.py", port=self.database.port, clients=clients)
        used = machine.cpu_s(machine.family(self.database.pid)) - used
        return Figure(found["done_per_s"], 0.0, used / max(found["done"], 1) * 1e6)

    def _load(self, script: str, *options: str, port: int, clients: int) -> dict[str, Any]:
        command = [sys.executable, str(Path(__file__).with_name(script)), *options, "--port", str(port)]
        command += ["--connections", str(clients), "--seconds", str(self._seconds)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=self._seconds + LOAD_S_MAX
        )
        found: dict[str, Any] = json.loads(done.stdout)
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
    return found


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


def backlog(directory: Path, rows: int) -> list[tuple[str, str, str, str]]:
    """Return what is asked for at a large backlog, how often in a unit, and its time in ms: p50 and p99."""
    lines = []
    with PostgresServer(directory) as server:
        engine = PostgreSQLEngine(server.url)
        fill(server.url, rows)
        for what, names, count in TAKES:
            took = []
            for number in range(UNITS):
                commands = [GetJob(name=names.format(f"{number * 7919 % NAMES:05d}"))] * count
                begun = time.perf_counter()
                context = Context(engine.begin(map(plan_of, commands)), "document", Nobody())
                outcomes = [perform(context, command) for command in commands]
                engine.commit()
                took.append((time.perf_counter() - begun) * 1000)
                assert all(isinstance(one, Answer) for one in outcomes) == (what != "absent name")
            took.sort()
            figures = f"{statistics.median(took):.2f}", f"{took[len(took) * 99 // 100]:.2f}"
            lines.append((what, str(count), *figures))
        engine.close()
    return lines


def middle(figures: list[Figure]) -> Figure:
    """Return the medians."""
    return Figure(*map(statistics.median, zip(*figures, strict=True)))


def ratio(some: list[Figure], others: list[Figure]) -> float:
    """Return the median of the ratios of the rates, pair by pair."""
    return statistics.median(one.rate / other.rate for one, other in zip(some, others, strict=True))


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
        lines.append(verdict(name, ours.database_us / bare.database_us, LOOP_BAR, at_most=True))
    if found.get("pgqueuer, drain"):
        drained = middle(found["pgqueuer, drain"]).rate
        name = "jobs created, taken and finished by tens, of what pgqueuer drains"
        lines.append(verdict(name, middle(found["PostgreSQL, by tens"]).rate / drained, DRAIN_BAR))
    head = ("engine, clients", "lifecycles/s", "from, to", "our CPU µs each", "PostgreSQL's CPU µs each")
    return table(head, rows) + "\n\n" + "\n".join(lines)


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one load")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the medians count")
    parser.add_argument("--rows", type=int, default=1_000_000, help="queued jobs of the large backlog")
    parser.add_argument("--takes", action="store_true", help="only takes from the backlog; writes nothing")
    parser.add_argument("--quick", action="store_true", help="a look: our two engines only; writes nothing")
    options = parser.parse_args()
    directory = machine.real_directory(options.directory)
    before = machine.moment()
    if options.takes:
        print(table(TAKES_HEAD, backlog(directory, options.rows)))
        return
    with ExitStack() as stack:
        bench = Bench(stack, directory, options.seconds)
        found = rounds(bench, options.rounds, only=options.quick)
    if not options.quick:
        found["pgqueuer, drain"] = pgqueuer(directory, options.seconds, 1)
    text = f"{before}; {options.rounds} rounds of {options.seconds:g} s.\n\n" + report(found)
    if not options.quick:
        text += f"\n\n### Units of takes with their commit; {options.rows:,} jobs of {NAMES:,} names\n\n"
        text += table(TAKES_HEAD, backlog(directory, options.rows))
    print(text)
    if not options.quick:
        write_machine(machine.describe(directory))
        write_section("PostgreSQL", text)


if __name__ == "__main__":
    main()
