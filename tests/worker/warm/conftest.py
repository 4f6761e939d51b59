"""Functions in each way of getting a process: a new interpreter, a fork, a process for several runs."""

from __future__ import annotations

import gc
import json
import sys
from itertools import cycle
from pathlib import Path

import pytest

from tests.effort import PROFILE

HEAD = """
import json, os, signal, subprocess, sys, threading, time
from bedrock_worker import Fail, Job, Retry, Snooze, job

with open("imports", "a") as file:
    file.write(f"{os.getpid()}\\n")

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)

runs = 0

@job("Foo*", **OPTIONS)
def f(job):
    global runs
    runs += 1
    do = job.data.get("do", "pass")
    exec(f"def called(job):\\n {'return ' if do.startswith('(') else ''}{do}", globals())
    return called(job)
"""

LATE_S = 2.5
LATE = f"""
@job("Late", timeout={LATE_S})
def late(job):
    return f(job)
"""
"""A function whose runs have little time: those of the others have enough on a busy machine too."""

WAYS = {
    "spawn": {"isolation": "spawn"},
    "fork": {"isolation": "fork", "process_jobs_max": 1},
    "reused": {"isolation": "reuse"},
}

_made = 0


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return what writes the module under a new name; it is the current folder's."""
    known = set(sys.modules)
    folder = tmp_path / "module"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def module(text=HEAD, **options):
        global _made
        _made += 1
        name = f"warm_{_made}"
        (folder / f"{name}.py").write_text(text.replace("**OPTIONS", f"**{options!r}"))
        return name

    recursion, collects = sys.getrecursionlimit(), gc.isenabled()
    yield module
    # The worker is in this process and imports the modules, whose changes in memory it does not revert.
    sys.setrecursionlimit(recursion)
    (gc.enable if collects else gc.disable)()
    for name in set(sys.modules) - known:
        if name.startswith("warm_"):
            del sys.modules[name]


_turns = cycle(["reused", "fork", "reused", "spawn"])


def pytest_generate_tests(metafunc):
    """Run a test in each way at night; by day in one of them in turn, most often in the usual one."""
    marks = metafunc.definition.iter_markers("parametrize")
    if "way" in metafunc.fixturenames and not any("way" in mark.args[0] for mark in marks):
        names = WAYS if PROFILE == "random" else [next(_turns)]
        metafunc.parametrize("way", [WAYS[name] for name in names], ids=names)


@pytest.fixture
def ran(server, working, write):
    """Return what runs functions one after the other in one slot, and returns their reports.

    The one of number ``late`` is ``LATE``.
    """

    async def run(way, *dos, module=None, then=None, first=1, late=None, **more):
        names = ("Foo*", "Late")
        async with working(module=module or write(HEAD + LATE), names=names, **way, **more) as worker:
            for number, do in enumerate(dos, first):
                await server.add("Late" if number == late else "Foo", json.dumps({"do": do}))
                await server.report(number)
                if then is not None:
                    await then(worker, number)
        return [(report.verb, report.given) for report in server.reports]

    return run


def outcomes(reports):
    return [(verb, given.get("exitCode"), given.get("data")) for verb, given in reports]


FORKED = [WAYS["fork"], WAYS["reused"]]


def imports():
    return len(set(Path("imports").read_text().split())) - 1  # the worker's own is the first
