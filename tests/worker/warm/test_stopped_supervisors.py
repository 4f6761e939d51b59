"""A run that stops the processes above it: its time limit holds, its slot goes on, nothing outlives it.

It does so while its worker lives: after that, nothing can resume the guard and the watchdog.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from itertools import chain, combinations
from pathlib import Path

import pytest

from tests.effort import crossed, examples
from tests.worker.conftest import gone, until
from tests.worker.fake_server import FakeServer
from tests.worker.test_command_line import program

MODULE = """
import json, os, subprocess, sys, time

def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def above(pid):
    while True:
        pid = parent_of(pid)
        yield pid

def work(data):
    if "stop" not in data:
        return
    names = ["template", "guard", "watchdog"] if data["forked"] else ["guard", "watchdog"]
    pids = dict(zip(names, above(os.getpid())))
    child = subprocess.Popen(["setsid", "sleep", "1000"])
    path = os.path.join(os.environ["MADE"], data["name"])
    with open(path + ".0", "w") as file:
        file.write(" ".join(map(str, [os.getpid(), child.pid, *pids.values()])))
    begun = False
    while True:
        for name, number in data["stop"]:
            try:
                os.kill(pids[name], number)
            except (KeyError, OSError):
                pass
        if not begun:
            os.rename(path + ".0", path)
            begun = True
        if not data["ever"]:
            break
    time.sleep(1000)

if __name__ == "__main__":
    work(json.load(sys.stdin)["data"])
else:
    from bedrock_worker import job

    @job("Foo*")
    def f(job):
        work(job.data)
"""

WAYS = {
    "command": ["--", "sh", "-c", f'exec {sys.executable} "$MADE/../stopping.py"'],
    "spawn": ["--module=stopping", "--isolation=spawn"],
    "fork": ["--module=stopping", "--isolation=fork"],
    "reuse": ["--module=stopping", "--isolation=reuse"],
    "reused": ["--module=stopping", "--isolation=reuse"],
}
"""How a run gets its process; ``reused``: it is not the first run of that process."""

FORKED = ("fork", "reuse", "reused")

ABOVE = ("template", "guard", "watchdog")
SETS = [*chain.from_iterable(combinations(ABOVE, size) for size in range(1, len(ABOVE) + 1))]
FOR_EVER = SETS[:: -examples(2, night=1)]
"""Those that a run stops again and again, which keeps a core busy: by day every second one, and all three."""
STOPS = {
    **{" and ".join(names): [(name, signal.SIGSTOP) for name in names] for names in SETS},
    **{f"{' and '.join(names)} for ever": [(name, signal.SIGSTOP) for name in names] for names in FOR_EVER},
    "all, from above": [(name, signal.SIGSTOP) for name in reversed(ABOVE)],
    "by the signals of a terminal": [
        ("template", signal.SIGTSTP),
        ("guard", signal.SIGTTIN),
        ("watchdog", signal.SIGTTIN),
        ("guard", signal.SIGTTOU),
    ],
}
"""Whom a run stops with which signals."""


def beyond_help(stop):
    """Return whether only a living worker can end the run: nothing else that is not stopped knows of it."""
    return stop.endswith("for ever") and {"guard", "watchdog"} <= {name for name, _ in STOPS[stop]}


LIMITS_S = (1, 5, 25)
"""Time limits of a run: a longer one if the run was over before it could stop anybody, on a busy machine."""


@pytest.fixture
def made(tmp_path):
    """Return a folder with the module, in which each run writes its processes."""
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "stopping.py").write_text(MODULE)
    return folder


def described(pid):
    """Return the state and the command of a process and of those above it."""
    lines = []
    with suppress(OSError):
        while pid > 1:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[-60:].decode()
            lines.append(f"{pid} {stat[0]} {command}")
            pid = int(stat[1])
    return lines


@asynccontextmanager
async def killed_at_the_end(folder):
    """Kill the processes of runs and their supervisors, which keep the log open."""
    try:
        yield
    finally:
        for path in folder.glob("l*"):
            for pid in path.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


async def stops_in_one_way(made, way, stops):
    """Let a worker do runs with time limits, one after the other, then others without, and kill it."""
    folder = made / way
    folder.mkdir()

    async def begin(server, stop, name, **limits):
        data = {"stop": STOPS[stop], "ever": stop.endswith("for ever"), "forked": way in FORKED, "name": name}
        await server.add(data=json.dumps(data), **limits)

    def pids(name):
        return [int(pid) for pid in (folder / name).read_text().split()[:2]]

    program_of = (
        ["--", sys.executable, str(made / "stopping.py")] if way == "command" else ["--module=stopping"]
    )
    argv = ["--env=MADE", f"--concurrency={len(stops)}", *WAYS[way], *program_of]
    async with (
        FakeServer() as server,
        program(server, *argv, path=made, MADE=str(folder)) as worker,
        killed_at_the_end(folder),
    ):
        number = 0
        for stop in stops:
            if way == "reused":
                await server.add()
                await server.report(number := number + 1)
            for limit_s in LIMITS_S:
                await begin(server, stop, f"limited {stop}", runTimeout=limit_s, grace=0)
                report = await server.report(number := number + 1)
                assert report.given["error"].startswith(("timed out", "SIGKILL")), (way, stop, report.given)
                if (folder / f"limited {stop}").exists():
                    break
            assert gone(*pids(f"limited {stop}")), (way, stop)
            await server.add()
            report = await server.report(number := number + 1)
            assert report.verb == "FinishJob", (way, stop, report.given)
        assert worker.returncode is None
        left = [stop for stop in stops if not beyond_help(stop)]
        # One after the other, as none can begin while another one stops the watchdog again and again.
        for count, stop in enumerate(sorted(left, key=lambda stop: stop.endswith("for ever")), 1):
            await begin(server, stop, f"left {stop}")
            # Some are killed at once: their guard, or the watchdog, had been resumed before.
            await until(
                lambda count=count: len([*folder.glob("left *[a-z]")]) + len(server.reports) - number >= count
            )
        found = {path.name: pids(path.name) for path in folder.glob("left *[a-z]")}
        worker.kill()
        with suppress(TimeoutError):
            await until(lambda: all(gone(*each) for each in found.values()))
        left = {
            (way, name): [described(pid) for pid in each] for name, each in found.items() if not gone(*each)
        }
        assert not left


@pytest.mark.parametrize("part", [0, 1])
async def test_whoever_is_stopped_time_limits_hold_and_nobody_outlives_the_worker(made, part):
    """At the report of a run it is gone, so that its successor is not beside it."""
    given = crossed(WAYS, STOPS)
    ways = {way: [stop for of, stop in given if of == way] for way in [*WAYS][part::2]}
    done = [asyncio.ensure_future(stops_in_one_way(made, way, stops)) for way, stops in ways.items()]
    try:
        await asyncio.gather(*done)
    finally:
        for each in done:
            each.cancel()
        await asyncio.gather(*done, return_exceptions=True)
