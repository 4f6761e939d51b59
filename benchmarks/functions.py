"""Python functions end to end: ours beside Celery, RQ, Dramatiq, Huey and procrastinate.

Each queue is used as its own documentation recommends; the column on durability says what that means. An
empty function shows what a queue costs, one that waits 10 ms what its slots do. A queue that is not
installed is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
from peer_servers import Missing, PostgresServer, RedisServer
from results import table, write_machine, write_section
from served import Served, stop

HERE = Path(__file__).parent
LOAD_S_MAX = 120.0
"""Time one row may take with one function."""
FUNCTIONS = ("empty", "wait")
SLOTS = (4, 16)
ASYNC_SLOTS = 100

EARLY = "Redis log synced each second; a message is acknowledged before its run, which a crash loses"
LATE = "Redis log synced each second; acknowledged after the run"


class EverySecondRedis(RedisServer):
    """Redis with the settings that its documentation recommends for data that matters."""

    def command(self) -> list[str]:
        """Return what starts it."""
        return [each if each != "always" else "everysec" for each in super().command()]


@dataclass(frozen=True)
class Queue:
    """One queue, and how its documentation runs its workers."""

    title: str
    package: str
    server: str
    durability: str
    worker: Callable[[Path, int, int], list[str]]
    """Returns the command from the interpreter, the slots and the port."""


def _script(python: Path, name: str) -> str:
    return str(python.with_name(name))


def _ours(python: Path, slots: int, port: int, *options: str) -> list[str]:
    command = [str(python), "-m", "bedrock_worker", "--server", f"127.0.0.1:{port}", "--as-root"]
    command += ["--module", "function_apps", "--concurrency", str(slots), "--env", "FUNCTIONS_QUEUE"]
    return [*command, "--env", "FUNCTIONS_PORT", "--env", "FUNCTIONS_PIPE", *options]


SYNCED = "every enqueue and every end on the disk when it is answered; a lost run is noticed and repeated"

QUEUES = {
    "ours": Queue("bedrockjobs, the default", "bedrock_worker", "ours", SYNCED, _ours),
    "ours-async": Queue(
        "bedrockjobs, async functions",
        "bedrock_worker",
        "ours",
        SYNCED,
        lambda python, slots, port: _ours(python, 1, port, "--async-slots", str(slots)),
    ),
    "celery": Queue(
        "Celery, prefork",
        "celery",
        "redis",
        EARLY,
        lambda python, slots, _: [
            *(_script(python, "celery"), "-A", "function_apps", "worker"),
            *("--concurrency", str(slots), "--loglevel", "WARNING"),
        ],
    ),
    "rq": Queue(
        "RQ, `worker-pool`",
        "rq",
        "redis",
        "Redis log synced each second; a lost run is moved to the failed ones",
        lambda python, slots, port: [
            *(_script(python, "rq"), "worker-pool", "-n", str(slots), "-q"),
            *("--url", f"redis://127.0.0.1:{port}/0"),
        ],
    ),
    "dramatiq": Queue(
        "Dramatiq, 2 processes",
        "dramatiq",
        "redis",
        LATE,
        lambda python, slots, _: [
            *(_script(python, "dramatiq"), "function_apps", "-p", "2", "-t", str(slots // 2))
        ],
    ),
    "huey": Queue(
        "Huey, processes",
        "huey",
        "redis",
        "Redis log synced each second; a task is popped before its run, which a crash loses",
        lambda python, slots, _: [
            *(_script(python, "huey_consumer"), "function_apps.huey", "-w", str(slots), "-k", "process", "-q")
        ],
    ),
    "procrastinate": Queue(
        "procrastinate",
        "procrastinate",
        "postgresql",
        "every step on the disk; a lost run stays until an operator or a task of yours retries it",
        lambda python, slots, _: [
            *(_script(python, "procrastinate"), "--app", "function_apps.app", "worker"),
            *("--concurrency", str(slots)),
        ],
    ),
}


@dataclass(frozen=True)
class Row:
    """The figures of one queue with so many slots: for each function."""

    key: str
    slots: int
    version: str
    figures: dict[str, dict[str, Any]]

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        empty, wait = (self.figures[name] for name in FUNCTIONS)
        queue = QUEUES[self.key]
        returned = empty["returned_ms"]
        return (
            f"{queue.title} ({self.version})",
            queue.durability,
            str(self.slots),
            f"{empty['enqueue']:,.0f}",
            f"{empty['rate']:,.0f}",
            f"{wait['rate']:,.0f}",
            f"{empty['ran_ms']:.1f}",
            "keeps none" if returned is None else f"{returned:.1f}",
        )


HEAD = (
    *("queue", "what is durable", "slots", "enqueue /s", "empty /s", "10 ms /s"),
    *("p50 ms until it ran", "p50 ms until its result"),
)

NOTE = """\
*Enqueue* is one producer that enqueues one job after the other, while the workers run. *Empty* and *10 ms*
are functions a second, from the first enqueue to the last run, of one that does nothing and one that sleeps
10 ms; here the producer enqueues 500 at once if the queue can. Then one job at a time: until it has run, and
until the producer has what it returned, by the queue's own means. A function counts when it has written a
byte into a pipe."""


def version_of(python: Path, package: str) -> str:
    """Return the version of a package in an interpreter; raises Missing if it is not installed there."""
    name = "bedrockjobs" if package == "bedrock_worker" else package
    code = f"import importlib.metadata as m; import {package}; print(m.version({name!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode:
        raise Missing(f"{package} is not installed in that interpreter")
    return f"{name} {done.stdout.strip()}"


def measure(key: str, slots: int, python: Path, port: int, folder: Path, seconds: float) -> dict[str, Any]:
    """Run the workers of a queue, load it with each function, and return the figures."""
    pipe = Path(tempfile.mkdtemp(dir=folder)) / "pipe"
    os.mkfifo(pipe)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BEDROCK")},
        "FUNCTIONS_QUEUE": key,
        "FUNCTIONS_PORT": str(port),
        "FUNCTIONS_PIPE": str(pipe),
        "PYTHONPATH": str(HERE),
        "BEDROCKJOBS_SERVER": f"127.0.0.1:{port}",
        "PYTHONWARNINGS": "ignore",
    }
    command = QUEUES[key].worker(python, slots, port)
    figures = {}
    with (folder / f"{key}-{slots}.log").open("w+") as log:
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # a worker may open it before the load does
        worker = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
        )
        try:
            for name in FUNCTIONS:
                done = subprocess.run(
                    [str(python), str(HERE / "function_load.py"), name, str(seconds)],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LOAD_S_MAX,
                )
                if done.returncode:
                    log.seek(0)
                    raise RuntimeError(f"{key}: {done.stderr[-2_000:]}\n{log.read()[-2_000:]}")
                figures[name] = json.loads(done.stdout)
        finally:
            stop(worker)
            os.close(reader)
    return figures


def start(server: str, directory: Path) -> Served | EverySecondRedis | PostgresServer:
    """Return a server that is to be started; raises Missing."""
    if server == "ours":
        return Served(directory)
    return EverySecondRedis(directory) if server == "redis" else PostgresServer(directory)


def prepare(key: str, python: Path, port: int) -> None:
    """Make the tables of a queue that needs some."""
    if key == "procrastinate":
        environment = {**os.environ, "FUNCTIONS_QUEUE": key, "FUNCTIONS_PORT": str(port)}
        environment["PYTHONPATH"] = str(HERE)
        command = [_script(python, key), "--app", "function_apps.app", "schema", "--apply"]
        subprocess.run(command, env=environment, check=True, capture_output=True)


def main() -> None:
    """Measure, print, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--directory", type=Path, help="where the data goes; must be on a disk")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path(sys.executable),
        help="Python in which the other queues are installed",
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="measured time of one function in one row")
    parser.add_argument("--queues", nargs="+", choices=QUEUES, help="only these; nothing is written")
    parser.add_argument("--quick", action="store_true", help="a look: short runs; nothing is written")
    parser.add_argument("--note", default="", help="a sentence about the machine, for the page")
    options = parser.parse_args()
    seconds = 0.2 if options.quick else options.seconds
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the servers are to end too
    directory, before = machine.real_directory(options.directory), machine.moment()
    rows: list[Row] = []
    left_out: list[str] = []
    begun = time.perf_counter()
    for key, queue in QUEUES.items():
        if options.queues is not None and key not in options.queues:
            continue
        python = Path(sys.executable) if queue.server == "ours" else options.peers.absolute()
        try:
            version, server = version_of(python, queue.package), start(queue.server, directory)
        except Missing as missing:
            left_out.append(f"{queue.title}: {missing}")
            continue
        for slots in (ASYNC_SLOTS,) if key == "ours-async" else SLOTS:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
                port = stack.enter_context(server).port
                prepare(key, python, port)
                row = Row(key, slots, version, measure(key, slots, python, port, folder, seconds))
            rows.append(row)
            print(
                f"  {time.perf_counter() - begun:4.0f} s: {', '.join(row.cells[2:])}: {row.cells[0]}",
                flush=True,
            )
    text = f"{before}; rows in turn, {seconds:g} s a function.{options.note and f' {options.note}'}\n\n"
    text += table(HEAD, (row.cells for row in rows))
    text += "".join(f"\n\n**Left out:** {each}." for each in left_out) + f"\n\n{NOTE}"
    print(f"\n{text}\n")
    if not options.quick and options.queues is None:
        write_machine(machine.describe(directory))
        write_section("Functions", text)


if __name__ == "__main__":
    main()
