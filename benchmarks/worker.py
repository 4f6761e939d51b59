"""What a job costs in `bedrock-worker`: a command, and a Python function in each way of running it.

The bar is a bare loop of `subprocess.run` in this process: what starting a program costs on this machine,
without any queue. Jobs a second are counted in the worker's own log, from the first start to the last report;
processor time is that of the worker with all below it, without what it costs to start a worker that finds
nothing to do.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import machine
from results import table, verdict, write_machine, write_section
from served import Served

from bedrockjobs.client import Client
from bedrockjobs.commands import CreateJobs

SLOTS = 4
"""Jobs that run at once."""
MANY_SLOTS = 16
"""As many in a row of its own: of what takes no time, more ends go to the server together."""
PER_CREATE = 1_000
"""Jobs of one CreateJobs."""
COMMAND_SHARE = 0.5
"""Bar: this part of the bare loop."""
FORKED_BAR, POOLED_BAR = 500.0, 3_000.0
"""Bars: empty functions a second, with a process each and with processes that are used again."""

MODULE = """
from bedrock_worker import job

@job("Foo")
def empty(job):
    pass
"""

_STAMP = re.compile(r"^(\d\S+[T ]\d\S+?)Z? INFO (started|reported) ", re.MULTILINE)
"""A line of the worker's log; one of an older version has no ``T`` and no ``Z``."""


@dataclass(frozen=True)
class Way:
    """One way of running a job."""

    title: str
    arguments: tuple[str, ...]
    jobs: int
    slots: int = SLOTS


DEFAULT = ("--module", "benchmarked")
POOLED = (*DEFAULT, "--max-jobs-per-process", "1000")

WAYS = (
    Way("`bedrock-worker -- true`", ("--name", "Foo", "--", "true"), 2_000),
    Way("function, the default (100 jobs a process)", DEFAULT, 10_000),
    Way("function, a new interpreter each", (*DEFAULT, "--isolation", "spawn"), 200),
    Way("function, a fork each", (*DEFAULT, "--isolation", "fork"), 2_000),
    Way("function, 1,000 jobs a process", POOLED, 10_000),
    # So many that each slot's process is replaced once: it is no rate of the first processes alone.
    Way(f"function, 1,000 jobs a process, {MANY_SLOTS} slots", POOLED, 30_000, MANY_SLOTS),
)


@dataclass(frozen=True)
class Outcome:
    """What one round of one way did."""

    rate: float
    worker_ms: float
    """Processor time of the worker, its helpers and its commands, for each job."""
    server_ms: float


def bare(runs: int) -> float:
    """Return how often a second `subprocess.run` runs `true`."""
    begun = time.perf_counter()
    for _ in range(runs):
        subprocess.run(["true"], check=True)
    return runs / (time.perf_counter() - begun)


def run_worker(folder: Path, port: int, way: Way, checkout: Path | None) -> tuple[float, str]:
    """Let a worker do what there is; return the processor time of all its processes, and its log."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BEDROCKJOBS_")}
    if checkout is not None:
        environment["PYTHONPATH"] = f"{checkout}:{checkout / 'worker'}"
    command = [
        sys.executable,
        "-m",
        "bedrock_worker",
        "--server",
        f"127.0.0.1:{port}",
        "--burst",
        "--as-root",
    ]
    command += ["--concurrency", str(way.slots), "--spool", str(folder / "spool"), *way.arguments]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(command, stderr=log, cwd=folder, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        text = log.read()
    if process.returncode:
        raise RuntimeError(f"the worker ended with {process.returncode}:\n{text[-2_000:]}")
    return used.ru_utime + used.ru_stime, text


def measure(directory: Path, way: Way, jobs: int, checkout: Path | None = None) -> Outcome:
    """Run so many jobs in one way, on a new database."""
    with (
        Served(directory, checkout=checkout) as server,
        tempfile.TemporaryDirectory() as made,
        Client(f"127.0.0.1:{server.port}") as client,
    ):
        folder = Path(made)
        (folder / "benchmarked.py").write_text(MODULE)
        start_s, _ = run_worker(folder, server.port, way, checkout)
        for _ in range(0, jobs, PER_CREATE):
            client.call(CreateJobs(jobs=[{"name": "Foo"}] * min(jobs, PER_CREATE)))
        before_s = server.cpu_s()
        worker_s, log = run_worker(folder, server.port, way, checkout)
        server_s = server.cpu_s() - before_s
    found = _STAMP.findall(log)
    timestamps = [(what, datetime.fromisoformat(timestamp.replace(",", "."))) for timestamp, what in found]
    done = sum(what == "reported" for what, _ in timestamps)
    took_s = (timestamps[-1][1] - timestamps[0][1]).total_seconds()
    return Outcome(done / took_s, (worker_s - start_s) * 1e3 / done, server_s * 1e3 / done)


def main() -> None:
    """Measure each way in turn, several rounds, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round of few jobs; writes nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where databases go; on a real disk")
    parser.add_argument("--beside", type=Path, help="another checkout: its commands, in turn; writes nothing")
    given = parser.parse_args()
    directory = machine.real_directory(given.directory)
    moment = machine.moment()
    rounds, share = (1, 0.2) if given.quick else (given.rounds, 1.0)
    loops: list[float] = []
    found: dict[tuple[str, str], list[Outcome]] = {}
    for number in range(rounds):
        loops.append(bare(round(1_000 * share)))
        for way in WAYS:
            for which, checkout in (("here", None), ("beside", given.beside)):
                if which == "beside" and (checkout is None or "--isolation" in way.arguments):
                    continue
                outcome = measure(directory, way, round(way.jobs * share), checkout)
                found.setdefault((way.title, which), []).append(outcome)
                print(f"round {number + 1}, {way.title}, {which}: {outcome}", flush=True)
    bare_rate = statistics.median(loops)
    rows = [["bare loop of `subprocess.run`", f"{bare_rate:,.0f}", "", ""]]
    rates = {}
    for (title, which), outcomes in found.items():
        rates[title, which] = statistics.median(each.rate for each in outcomes)
        rows.append(
            [
                title if which == "here" else f"{title}, beside",
                f"{rates[title, which]:,.0f}",
                f"{statistics.median(each.worker_ms for each in outcomes):.2f}",
                f"{statistics.median(each.server_ms for each in outcomes):.2f}",
            ]
        )
    command, _, _, forked, pooled, many = (rates[way.title, "here"] for way in WAYS)
    text = "\n".join(
        [
            f"{moment}; {SLOTS} slots where a row does not say others, medians of {rounds} rounds that take"
            " turns.\n",
            table(
                ("a job that does nothing", "jobs/s", "worker CPU, ms a job", "server CPU, ms a job"), rows
            ),
            "",
            verdict("commands, beside the bare loop,", command / bare_rate, COMMAND_SHARE),
            verdict("functions with a fork each", forked, FORKED_BAR, unit="/s"),
            verdict("functions with 1,000 jobs a process", pooled, POOLED_BAR, unit="/s"),
            verdict(f"the same with {MANY_SLOTS} slots", many, POOLED_BAR, unit="/s"),
        ]
    )
    print(text)
    if not given.quick and given.beside is None:
        write_machine(machine.describe(directory))
        write_section("Worker", text)


if __name__ == "__main__":
    main()
