"""A fork for each run: it begins with the fork, reports its end, and receives earlier signals."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from bedrock_worker.run.job_run import JobRun

from tests.worker.conftest import ended, until
from tests.worker.warm.conftest import WAYS

MODULE = """
import os, signal, sys, time
from bedrock_worker import job

with open("template", "w") as file:
    file.write(str(os.getpid()))

def stand_still():
    if os.path.exists("stop"):
        open("stands", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.005)

program = sys.modules["__main__"].__spec__
if program is not None and program.name == "bedrock_worker.run.template":  # and not the worker
    os.register_at_fork(before=stand_still)

def dead_brothers():
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getppid():
            found.append(int(name))
    return found

@job("Foo*")
def f(job):
    return eval(job.data["do"])
"""


@pytest.fixture
def forking(working, tmp_path, monkeypatch):
    """Return what makes a worker of one slot that forks for each run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("forked_functions.py").write_text(MODULE)

    @asynccontextmanager
    async def start(**more):
        async with working(module="forked_functions", isolation="fork", process_jobs_max=1, **more) as worker:
            yield worker

    yield start
    sys.modules.pop("forked_functions", None)


async def do(server, what):
    await server.add(data=json.dumps({"do": what}))


@asynccontextmanager
async def template_stopped(server, forking, monkeypatch, **options):
    """Yield a worker whose run waits for a template that stands still, its signals, and the template."""
    signals = []
    end = JobRun.end

    def noted(run, number):
        end(run, number)
        signals.append(number)

    monkeypatch.setattr(JobRun, "end", noted)
    Path("stop").touch()
    async with forking(**options) as worker:
        await do(server, "time.sleep(60)")
        await until(lambda: Path("stands").exists())
        template = int(Path("template").read_text())
        try:
            yield worker, signals, template
        finally:
            Path("go").touch()


async def test_a_process_that_ended_is_reaped_with_the_next_fork(server, forking):
    async with forking():
        for number in range(1, 6):
            await do(server, '{"pid": os.getpid(), "dead": dead_brothers()}')
            await server.report(number)
    found = [report.given["data"] for report in server.reports]
    for before, after in pairwise(found):
        assert set(after["dead"]) <= {before["pid"]}


async def test_a_run_that_closed_its_way_to_the_guard_ends_as_it_ended(server, forking):
    async with forking():
        await do(server, "os.closerange(3, 64)")
        await do(server, "None")
        await server.report(2)
    assert [(report.verb, report.given["exitCode"]) for report in server.reports] == [("FinishJob", 0)] * 2


async def test_what_is_signalled_before_the_fork_is_for_the_process(server, forking, monkeypatch, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    async with template_stopped(server, forking, monkeypatch, grace_s=0.05) as (worker, signals, _):
        worker.agent.stop()
        await until(lambda: signals == [signal.SIGTERM])
        Path("go").touch()
        assert await worker.ended() == 0
    assert "how=SIGTERM" in caplog.text  # with its template it would have been killed
    assert server.reports[0].given["returned"] is True


async def test_a_kill_does_not_wait_for_the_fork(server, forking, monkeypatch):
    monkeypatch.setattr("bedrock_worker.agent.TERM_TO_KILL_S", 0.05)
    async with template_stopped(server, forking, monkeypatch, grace_s=0.05) as (worker, signals, template):
        worker.agent.stop()
        assert await worker.ended() == 0
        assert signals == [signal.SIGTERM, signal.SIGKILL]
        assert ended(template)
    assert server.reports[0].verb == "RetryJob"


@pytest.mark.parametrize(
    ("say", "status"),
    [
        (lambda run: run.stop(signal.SIGTERM), 143),
        (lambda run: run._child.signal(signal.SIGKILL), 137),
        (lambda run: run._child.until(1.0), 137),
    ],
)
async def test_what_is_said_of_a_run_is_kept_while_the_process_before_it_is_ended(
    server, working, write, say, status
):
    """Its template stands still, so that this takes a while."""
    async with working("sleep", "1000", module=write(), names=("Foo*", "Bar"), **WAYS["reused"]) as worker:
        await server.add(data=json.dumps({"do": '({"ppid": os.getppid()})'}))
        template = (await server.report()).given["data"]["ppid"]
        await until(lambda: not worker.agent._runs)
        os.kill(template, signal.SIGSTOP)
        try:
            await server.add("Bar")
            await until(lambda: any(run._child for run in worker.agent._runs))
            say(*worker.agent._runs)
            await asyncio.sleep(0.1)
        finally:
            with suppress(ProcessLookupError):  # a kill does not wait for it
                os.kill(template, signal.SIGCONT)
        assert (await server.report(2)).given["exitCode"] == status


@pytest.mark.parametrize("way", ["fork", "reused"])
async def test_a_function_that_stops_its_template_stops_nobody_else(server, working, write, way):
    """Its guard lets it go on; the second time it is replaced, with the run that waits for it."""
    stops = "os.kill(os.getppid(), signal.SIGSTOP)"
    async with working(module=write(), **WAYS[way]):
        for number, do in enumerate(("pass", stops, "1 / 0", stops, "1 / 0", "pass"), 1):
            await server.add(data=json.dumps({"do": do}))
            await server.report(number)
    found = [report.verb for report in server.reports]
    assert found[:3] == ["FinishJob", "FinishJob", "FailJob"]
    assert found[-1] == "FinishJob"
