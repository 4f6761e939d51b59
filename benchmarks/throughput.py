"""How many jobs a second: create, get and finish, raw and HTTP, and the requests that save round trips.

The load is a process of its own. Rates are given as ratios to the same server's ``Ping``, which costs a
request and no commit, and to a server that commits each request by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import machine
from results import table, verdict, write_machine, write_section
from served import Served

RAW_BAR, HTTP_BAR, COMMIT_BAR = 45.0, 50.0, 10.0
"""Lifecycles at 64 connections: % of a third of the Ping rate, and multiple of one commit a request."""
BAR_CONNECTIONS = 64
LOAD_S_MAX = 60.0
"""Time a load process may take beyond what it was told."""


@dataclass
class Cell:
    """One figure: the median of some rounds."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of the server for each request."""
    load_cpu: float
    """How much of one core the load used: near 100 % it is the load that is measured."""
    per_commit: float
    """Commands in one commit; 0 without commits."""
    requests: int


class Bench:
    """The runs of one invocation."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Run with ``options``."""
        self._directory: Path = options.directory
        self._seconds: float = options.seconds
        self.rounds: int = options.rounds
        self.failed = 0

    def load(
        self,
        server: Served,
        scenario: str,
        protocol: str,
        connections: int,
        size: int = 1,
        *,
        token: str = "",
        once: bool = False,
    ) -> Cell:
        """Load a server once; with a ``token`` in each request, or ``once`` a connection."""
        before, cpu = server.status(), server.cpu_s()
        command = [sys.executable, str(Path(__file__).with_name("load.py")), scenario]
        command += ["--port", str(server.port), "--protocol", protocol, "--size", str(size)]
        command += ["--connections", str(connections), "--seconds", str(self._seconds)]
        done = subprocess.run(
            [*command, *(["--once"] if once else [])],
            check=True,
            capture_output=True,
            text=True,
            timeout=self._seconds + LOAD_S_MAX,
            env={**os.environ, "BENCHMARK_TOKEN": token},
        )
        found: dict[str, Any] = json.loads(done.stdout)
        cpu, after = server.cpu_s() - cpu, server.status()
        if found["failed"]:
            self.failed += found["failed"]
            print(f"  {found['failed']} refused, the first: {found['refusal']}")
        commits = after["commits"] - before["commits"]
        return Cell(
            found["done_per_s"],
            found["p50_ms"],
            found["p99_ms"],
            cpu / max(found["requests"], 1) * 1e6,
            found["load_cpu"],
            (after["commands"] - before["commands"]) / commits if commits else 0.0,
            max(found["requests"], 1),
        )

    def alternate(self, server: Served, runs: list[tuple[str, str, int, int]]) -> list[Cell]:
        """Load a server with several runs in turn, so that noise hits the compared ones alike."""
        rounds = [[self.load(server, *run) for run in runs] for _ in range(self.rounds)]
        cells = [middle([each[place] for each in rounds]) for place in range(len(runs))]
        for run, cell in zip(runs, cells, strict=True):
            print(f"  {run}: {cell.rate:,.0f}/s, {cell.cpu_us:.0f} µs of server CPU a request")
        return cells

    def serve(self, *options: str) -> Served:
        """Return a server to be started."""
        return Served(self._directory, *options)


def middle(cells: list[Cell]) -> Cell:
    """Return the medians of each figure."""
    return Cell(
        *(statistics.median(values) for values in zip(*(vars(c).values() for c in cells), strict=True))
    )


def basics(bench: Bench, counts: list[int]) -> str:
    """Lifecycles against Ping, raw and HTTP."""
    rows, verdicts = [], []
    for protocol, bar in (("raw", RAW_BAR), ("http", HTTP_BAR)):
        with bench.serve() as server:
            for count in counts:
                ping, life = bench.alternate(
                    server, [(scenario, protocol, count, 1) for scenario in ("ping", "lifecycle")]
                )
                share = life.rate / (ping.rate / 3) * 100
                rows.append(
                    (
                        protocol,
                        str(count),
                        f"{ping.rate:,.0f}",
                        f"{life.rate:,.0f}",
                        f"**{share:.0f} %**",
                        f"{life.p50_ms:.2f} / {life.p99_ms:.2f}",
                        f"{life.per_commit:.1f}",
                        f"{ping.cpu_us:.0f} / {life.cpu_us:.0f}",
                        f"{ping.load_cpu * 100:.0f} / {life.load_cpu * 100:.0f} %",
                    )
                )
                if count == BAR_CONNECTIONS:
                    verdicts.append(
                        verdict(f"{protocol} lifecycles of a third of Ping at {count}", share, bar, unit=" %")
                    )
    head = ("protocol", "connections", "Ping/s", "lifecycles/s", "of a third of Ping", "request p50 / p99 ms")
    more = ("commands a commit", "server CPU µs a request, Ping / lifecycle", "load CPU, Ping / lifecycle")
    text = "### Lifecycles (CreateJob, GetJob, FinishJob: three requests)\n\n" + table(head + more, rows)
    return text + "\n\n" + "\n".join(verdicts)


def grouping(bench: Bench) -> str:
    """Group commit against one commit a request."""
    rows, verdicts = [], []
    for protocol in ("raw", "http"):
        with bench.serve() as grouped, bench.serve("--batch-max", "1") as single:
            many, one = [], []
            for _ in range(bench.rounds):
                many.append(bench.load(grouped, "lifecycle", protocol, BAR_CONNECTIONS))
                one.append(bench.load(single, "lifecycle", protocol, BAR_CONNECTIONS))
        group, alone = middle(many), middle(one)
        ratio = group.rate / alone.rate
        rows.append(
            (
                protocol,
                f"{group.rate:,.0f}",
                f"{group.per_commit:.1f}",
                f"{alone.rate:,.0f}",
                f"{alone.per_commit:.1f}",
                f"**{ratio:.1f}**",
            )
        )
        print(f"  {protocol}: grouped {group.rate:,.0f}/s, alone {alone.rate:,.0f}/s")
        if protocol == "raw":
            verdicts.append(verdict("raw lifecycles, times one commit a request", ratio, COMMIT_BAR))
    head = (
        "protocol",
        "lifecycles/s",
        "commands a commit",
        "with `--batch-max 1`",
        "commands a commit",
        "ratio",
    )
    text = f"### Group commit, {BAR_CONNECTIONS} connections\n\n" + table(head, rows)
    return text + "\n\n" + "\n".join(verdicts)


def kept(bench: Bench) -> str:
    """What it costs to keep each finished job, on connections that give no worker's name."""
    rows = []
    for protocol in ("raw", "http"):
        with bench.serve() as plain, bench.serve("--keep-finished", "1d") as keeping:
            without, with_it = [], []
            for _ in range(bench.rounds):
                without.append(bench.load(plain, "lifecycle", protocol, BAR_CONNECTIONS))
                with_it.append(bench.load(keeping, "lifecycle", protocol, BAR_CONNECTIONS))
        gone, stays = middle(without), middle(with_it)
        rows.append(
            (
                protocol,
                f"{gone.rate:,.0f}",
                f"{stays.rate:,.0f}",
                f"**{stays.rate / gone.rate:.2f}**",
                f"{gone.cpu_us:.0f} / {stays.cpu_us:.0f}",
            )
        )
        print(f"  {protocol}: {gone.rate:,.0f}/s, {stays.rate:,.0f}/s where finished jobs are kept")
    head = (
        "protocol",
        "lifecycles/s",
        "with `--keep-finished 1d`",
        "ratio",
        "server CPU µs a request, without / with",
    )
    return f"### Finished jobs kept, {BAR_CONNECTIONS} connections\n\n" + table(head, rows)


def savings(bench: Bench) -> str:
    """The requests that save round trips."""
    count = 16
    runs = [("lifecycle", "three requests", 1), ("then_get", "CreateJob; FinishJob with thenGet", 1)]
    runs += [("batch", f"CreateJobs, GetJobs, FinishJobs of {size}", size) for size in (10, 100)]
    rows = []
    for protocol in ("raw", "http"):
        with bench.serve() as server:
            cells = bench.alternate(server, [(scenario, protocol, count, size) for scenario, _, size in runs])
        rows += [
            (f"{protocol}: {label}", f"{cell.rate:,.0f}", f"{cell.rate / cells[0].rate:.1f}")
            for (_, label, _), cell in zip(runs, cells, strict=True)
        ]
    head = ("requests", "jobs/s", "times three requests")
    return f"### Fewer round trips, {count} connections\n\n" + table(head, rows)


def peers(bench: Bench) -> str:
    """The figures by which queues compare."""
    rows = []
    for protocol in ("raw", "http"):
        with bench.serve() as server:
            put = bench.load(server, "enqueue", protocol, 16)
            out = bench.load(server, "drain", protocol, 16)
        with bench.serve() as server:
            runs = [("produce_consume", protocol, count, 1) for count in (1, 4, 16)]
            lives = bench.alternate(server, [*runs, ("paced", protocol, 1, 1)])
        row = [f"{cell.rate:,.0f}" for cell in (put, out, *lives[:3])]
        rows.append((protocol, *row, f"{lives[3].p50_ms:.2f} / {lives[3].p99_ms:.2f}"))
    head = (
        "protocol",
        "enqueue/s",
        "drain/s",
        "1 + 1",
        "4 + 4",
        "16 + 16",
        "ms to a waiting consumer at 100/s",
    )
    note = (
        "Enqueue is CreateJob on 16 connections; drain is GetJob and FinishJob on 16 connections. n + n are"
        " jobs a second through n producers (CreateJob) and n consumers (waiting GetJob on a prefix,"
        " FinishJob). The last column is the time from sending CreateJob until a waiting consumer has the"
        " job, p50 / p99."
    )
    return "### As queues compare (jobs a second)\n\n" + table(head, rows) + "\n\n" + note


def bench_parser(words: str, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what a ``Bench`` is told."""
    parser = argparse.ArgumentParser(description=words.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the databases go; must be on a disk")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of one run")
    parser.add_argument("--rounds", type=int, default=rounds, help="runs or pairs of which the median counts")
    return parser


def main() -> None:
    """Measure and write the section."""
    parser = bench_parser(__doc__ or "", rounds=3)
    parser.add_argument("--quick", action="store_true", help="a look, not a measurement")
    options = parser.parse_args()
    options.directory = machine.real_directory(options.directory)
    counts = [1, 16, 64, 256]
    if options.quick:
        options.seconds, options.rounds, counts = 0.3, 1, [1, 64]
    bench, before = Bench(options), machine.moment()
    write_machine(machine.describe(options.directory))
    parts = []
    for part in (partial(basics, counts=counts), grouping, savings, kept, peers):
        parts.append(part(bench))
        print(f"\n{parts[-1]}\n")
    text = f"{before}; medians of {bench.rounds} runs of {options.seconds:g} s each."
    if bench.failed:
        text += f" **{bench.failed} requests were refused.**"
    write_section("Throughput", "\n\n".join([text, *parts]))


if __name__ == "__main__":
    main()
