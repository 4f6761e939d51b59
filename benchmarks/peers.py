"""How we stand among other queues: Redis, beanstalkd and pgqueuer beside ours, the same load on each in turn.

Every server is tuned fairly and keeps its data on the same file system; each row says what is on the disk
when it answers. A peer that is not installed is named and left out. What we lose is in the same tables as
what we win.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import machine
from peer_servers import BareServer, BeanstalkdServer, Missing, PgqueuerServer, RedisServer
from results import table, write_machine, write_section
from served import Served

RATES = ("enqueue", "drain", "1x1", "4x4", "16x16")
"""What is measured in jobs a second; last in each table comes the time to a waiting consumer."""
COLUMNS = ("enqueue, 4 producers", "drain, 4 consumers", "1x1", "4x4", "16x16", "p50 ms")
LOAD_S_MAX = 400.0
"""Time the phases of one row may take."""

STEPS = "one request a step"
ONE_WRITE = "finish and next take in one write"
GATHERED = "takes 10 at a time, gathers finishes"
BY_TENS = "takes and finishes up to 10 at a time, with `thenGet`"
ALL = "all"
NO_TAKE = "create and finish; a take is in memory only, the job may run again"
LATE_FINISH = "create and take; a finish at most 0.1 s or 10 jobs later"


@dataclass(frozen=True)
class Row:
    """One way to use one server."""

    key: str
    server: str
    wire: str
    """What ``peer_load.py`` calls the way to speak to it."""
    way: str
    synced: str
    """Which of create, take and finish are on the disk when they are answered."""
    together: bool = False
    """Whether a job is finished and the next one taken in one write."""


ROWS = (
    Row("redis", "redis", "redis", STEPS, ALL),
    Row("redis-one-write", "redis", "redis", ONE_WRITE, ALL, together=True),
    Row("beanstalkd", "beanstalkd", "beanstalkd", STEPS, NO_TAKE),
    Row("beanstalkd-one-write", "beanstalkd", "beanstalkd", ONE_WRITE, NO_TAKE, together=True),
    Row("pgqueuer", "pgqueuer", "pgqueuer", GATHERED, LATE_FINISH),
    Row("bare-step", "bare", "bare", "one request a step; it checks nothing", ALL),
    Row("bare", "bare", "bare", "`thenGet`; it checks nothing", ALL, together=True),
    Row("raw", "full", "raw", STEPS, ALL),
    Row("raw-then", "full", "raw", "`thenGet`", ALL, together=True),
    Row("raw-tens", "full", "raw-tens", BY_TENS, ALL, together=True),
    Row("http", "full", "http", STEPS, ALL),
)
NAMES = {
    "redis": "Redis, `appendfsync always`",
    "beanstalkd": "beanstalkd `-f 0`",
    "pgqueuer": "pgqueuer, `synchronous_commit=on`",
    "bare": "a bare loop in Python, no queue to use",
    "full": "ours",
}
PROTOCOLS = {"raw": ", raw", "raw-tens": ", raw", "http": ", HTTP"}


class Running(Protocol):
    """A server that has been started."""

    port: int

    @property
    def pid(self) -> int:
        """Return the process id."""


@dataclass(frozen=True)
class Result:
    """The figures of one row: of one round, or the medians of several."""

    rates: tuple[float, ...]
    p50_ms: float
    cpu_us: tuple[float, ...]
    """Processor time of the server for each job, for each of the rates."""
    load_cpu: float
    """How much of a core the load used where it used most."""

    @property
    def columns(self) -> tuple[float, ...]:
        """Return the figures that are compared."""
        return (*self.rates, self.p50_ms)


def median(results: list[Result]) -> Result:
    """Return the median of each figure."""
    return Result(
        tuple(map(statistics.median, zip(*(each.rates for each in results), strict=True))),
        statistics.median(each.p50_ms for each in results),
        tuple(map(statistics.median, zip(*(each.cpu_us for each in results), strict=True))),
        statistics.median(each.load_cpu for each in results),
    )


def load(row: Row, server: Running, seconds: float) -> Result:
    """Load a server in all phases once; raises RuntimeError if anything was refused."""
    command = [sys.executable, str(Path(__file__).with_name("peer_load.py")), row.wire]
    command += ["--port", str(server.port), "--pid", str(server.pid), "--seconds", str(seconds)]
    command += ["--together"] if row.together else []
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LOAD_S_MAX)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"failed": 1}
    if found["failed"]:
        raise RuntimeError(f"{row.key}: {found.get('refusal') or done.stderr or done.stdout}")
    rates, cpu_us, load_cpu = zip(*(found["phases"][name] for name in RATES), strict=True)
    return Result(rates, found["p50_ms"], cpu_us, max(load_cpu))


# --- what is compared ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One of our rows against the best of some peers, in each column."""

    title: str
    ours: str
    against: tuple[str, ...]
    goals: tuple[float, ...] = ()
    """What the ratio is to reach in each column; in the last one, a time, at most."""


STEP_PEERS = ("redis", "beanstalkd", "pgqueuer")
ALL_PEERS = (*STEP_PEERS, "redis-one-write", "beanstalkd-one-write")
TOP = (1.0, 1.3, 0.8, 1.0, 0.9, 1.3)
LEAST = (0.6, 0.6, 0.6, 0.6, 0.6, 1 / 0.6)

COMPARISONS = (
    Comparison("raw, one request a step / peers without one write", "raw", STEP_PEERS, LEAST),
    Comparison("raw, `thenGet` / peers without one write", "raw-then", STEP_PEERS, TOP),
    Comparison("raw, `thenGet` / all peers", "raw-then", ALL_PEERS, TOP),
    Comparison("raw, by tens / pgqueuer, which takes by tens too", "raw-tens", ("pgqueuer",), TOP),
    Comparison("raw, `thenGet` / the bare loop", "raw-then", ("bare",)),
    Comparison("the bare loop, one request a step / peers without one write", "bare-step", STEP_PEERS),
    Comparison("the bare loop, `thenGet` / peers without one write", "bare", STEP_PEERS),
    Comparison("HTTP, one request a step / peers without one write", "http", STEP_PEERS),
)


def compare(comparison: Comparison, results: dict[str, Result]) -> list[str]:
    """Return the cells of one comparison: ratio, the peer that is best there, and the goal."""
    peers = [key for key in comparison.against if key in results]
    cells = []
    for place in range(len(COLUMNS)):
        is_time = place == len(RATES)
        best = (min if is_time else max)(peers, key=lambda key: results[key].columns[place])
        ratio = results[comparison.ours].columns[place] / results[best].columns[place]
        cell = f"{ratio:.2f} ({best})"
        if comparison.goals:
            goal = comparison.goals[place]
            reached = ratio <= goal if is_time else ratio >= goal
            cell += f", {'reached' if reached else '**missed**'} ({'≤' if is_time else '≥'} {goal:.3g})"
        cells.append(cell)
    return cells


def figures(results: dict[str, Result], versions: dict[str, str]) -> str:
    """Return the first table: what each row reaches."""
    rows = []
    for row in ROWS:
        if row.key not in results:
            continue
        found = results[row.key]
        rows.append(
            (
                f"{NAMES[row.server]}{PROTOCOLS.get(row.wire, '')}: {row.way} ({versions[row.server]})",
                row.synced,
                *(f"{rate:,.0f}" for rate in found.rates),
                f"{found.p50_ms:.2f}",
                " / ".join(f"{each:.0f}" for each in found.cpu_us[2:]),
                f"{found.load_cpu * 100:.0f} %",
            )
        )
    head = ("queue", "synced when answered: create, take, finish", *COLUMNS)
    return table((*head, "server CPU µs a job, 1x1 / 4x4 / 16x16", "load CPU"), rows)


def ratios(results: dict[str, Result]) -> str:
    """Return the second table: ours against the best peer, with the goals; nothing if there is no peer."""
    rows = [
        (comparison.title, *compare(comparison, results))
        for comparison in COMPARISONS
        if comparison.ours in results and any(key in results for key in comparison.against)
    ]
    return table(("ours to the best peer", *COLUMNS), rows) if rows else ""


NOTE = """\
Jobs a second, all over loopback connections of one load process. Enqueue is 4 producers alone, drain 4
consumers alone on what those left. 1x1, 4x4 and 16x16 are as many producers and waiting consumers at once,
with at most 200 jobs between them. p50 is the time from sending a create until a waiting consumer has the
job, at 100 a second. A job counts when its finish is answered, with pgqueuer when it was run. Server CPU is
that of the server and its child processes. *Load CPU* is the load's share of a core in the phase where it
was highest: near 100 % the load was the limit; with pgqueuer it includes its library, which runs there.
With *one write* the finish and the next take are sent to Redis or beanstalkd together, which is two steps
on the server; `thenGet` is one request and one commit. The *bare loop* (`peer_bare.py`) is no queue anybody
could use: it shows what Python and SQLite leave room for, and is none of the peers."""


def section(results: dict[str, Result], versions: dict[str, str], left_out: Iterable[str]) -> str:
    """Return what is printed and written of all rounds."""
    missing = "".join(f"\n\n**Left out:** {each}." for each in left_out)
    compared = ratios(results)
    text = f"{figures(results, versions)}{missing}\n\n{NOTE}"
    if not compared:
        return text
    return (
        f"{text}\n\n### Ours to the best peer\n\n{compared}\n\n"
        "In brackets are the best peer of the column, and the goal. Less is better of p50, more of the rest."
    )


# --- running -------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """The servers that run."""

    running: dict[str, Running]
    versions: dict[str, str]
    left_out: list[str]
    """The others: what is missing, and how to install it."""


def start(stack: ExitStack, directory: Path, wanted: set[str]) -> Started:
    """Start the servers that are wanted and installed."""
    makers: dict[str, Callable[[Path], RedisServer | BeanstalkdServer | PgqueuerServer | BareServer]] = {
        "redis": RedisServer,
        "beanstalkd": BeanstalkdServer,
        "pgqueuer": PgqueuerServer,
        "bare": BareServer,
    }
    running: dict[str, Running] = {}
    versions, left_out = {}, []
    for key in (each for each in NAMES if each in wanted):
        print(f"  starting {key}", flush=True)
        if key == "full":
            running[key] = stack.enter_context(Served(directory))
            versions[key] = f"bedrockjobs {version('bedrockjobs')}"
            continue
        try:
            server = makers[key](directory)
        except Missing as missing:
            left_out.append(f"{key}: {missing}")
            print(f"  {left_out[-1]}", flush=True)
        else:
            running[key] = stack.enter_context(server)
            versions[key] = server.version
    return Started(running, versions, left_out)


def rounds(rows: list[Row], running: dict[str, Running], seconds: float, count: int) -> dict[str, Result]:
    """Load each row in turn, as often as told and every other time backwards; return the medians."""
    found: dict[str, list[Result]] = {row.key: [] for row in rows}
    begun = time.perf_counter()
    for number in range(count):
        for row in reversed(rows) if number % 2 else rows:
            result = load(row, running[row.server], seconds)
            found[row.key].append(result)
            shown = " ".join(f"{rate:,.0f}" for rate in result.rates)
            print(
                f"  {time.perf_counter() - begun:4.0f} s, round {number + 1} of {count}, {row.key}:"
                f" {shown} jobs/s, {result.p50_ms:.2f} ms, {result.cpu_us[-1]:.0f} µs of CPU a job",
                flush=True,
            )
    return {key: median(results) for key, results in found.items()}


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the data goes; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one phase of one row")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the median counts")
    keys = [row.key for row in ROWS]
    parser.add_argument("--rows", nargs="+", choices=keys, help="only these; nothing is written")
    parser.add_argument("--quick", action="store_true", help="a look: one short round; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 0.2, 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the servers are to end too
    directory, before = machine.real_directory(options.directory), machine.moment()
    rows = [row for row in ROWS if options.rows is None or row.key in options.rows]
    with ExitStack() as stack:
        running, versions, left_out = start(stack, directory, {row.server for row in rows})
        rows = [row for row in rows if row.server in running]
        results = rounds(rows, running, options.seconds, options.rounds)
    text = f"{before}; rows in turn, {options.seconds:g} s a phase; medians of {options.rounds} rounds."
    text += f"\n\n{section(results, versions, left_out)}"
    print(f"\n{text}\n")
    if not options.quick and options.rows is None:
        write_machine(machine.describe(directory))
        write_section("Peers", text)


if __name__ == "__main__":
    main()
