"""Runs whose reused process was dead before it began them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from bedrock_worker.run.watchdog_client import NeverBegan

from tests.worker.conftest import until
from tests.worker.warm.conftest import WAYS, outcomes

REUSED = WAYS["reused"]


async def test_a_run_whose_process_dies_before_it_reads_it_is_done_by_another(server, working, write):
    """It stands still when it is given the run, so that nobody can know of its end."""
    async with working(module=write(), **REUSED):
        await server.add(data=json.dumps({"do": '({"pid": os.getpid()})'}))
        pid = (await server.report()).given["data"]["pid"]
        os.kill(pid, signal.SIGSTOP)
        await server.add(data=json.dumps({"do": '({"runs": runs})'}))
        await server.until(lambda: server._running)
        os.kill(pid, signal.SIGKILL)
        assert (await server.report(2)).given["data"] == {"runs": 1}
    assert [report.verb for report in server.reports] == ["FinishJob"] * 2


class Dead:
    """A run in a process that was dead already; something may happen just before that is known."""

    def __init__(self, folder, meanwhile):
        self.folder, self._meanwhile = str(folder), meanwhile
        self.running, self.folder_left, self.was_signalled = True, True, False
        self.survivors = self.closed = 0

    async def started(self):
        return 1

    async def wait(self):
        self.running = False
        self._meanwhile()
        raise NeverBegan

    def until(self, moment):
        pass

    def release(self):
        self.closed += 1


@pytest.fixture
def dead(monkeypatch, tmp_path):
    """Let each process that is used again be dead; return what has been begun in one, and what happens."""
    found = SimpleNamespace(runs=[], meanwhile=lambda: None)

    def begin(*_, **__):
        found.runs.append(Dead(tmp_path / "dead", lambda: found.meanwhile()))
        return found.runs[-1]

    monkeypatch.setattr("bedrock_worker.run.job_run.pooled_run", begin)
    return found


async def test_a_run_that_never_began_is_done_by_a_new_process(ran, dead):
    """Another that is used again may be dead too."""
    assert outcomes(await ran(REUSED, '({"runs": runs})')) == [("FinishJob", 0, {"runs": 1})]
    assert [run.closed for run in dead.runs] == [1]


async def test_a_run_that_never_began_does_not_when_the_worker_stops(server, working, write, dead):
    async with working(module=write(), grace_s=0.0, **REUSED) as worker:
        dead.meanwhile = lambda: (worker.agent.stop(), worker.agent._end_runs(signal.SIGTERM))
        await server.add(data=json.dumps({"do": "pass"}))
        assert await worker.ended() == 0
    (report,) = server.reports
    assert report.given["returned"] is True
    assert [run.closed for run in dead.runs] == [1]


async def test_a_run_that_never_began_does_not_when_it_is_another_s(server, working, write, dead):
    async with working(module=write(), **REUSED) as worker:
        dead.meanwhile = lambda: [run.abandon_run() for run in worker.agent._runs]
        await server.add(data=json.dumps({"do": "open('began', 'w')"}))
        await until(lambda: dead.runs and dead.runs[0].closed)
        await until(lambda: not worker.agent._runs)
    assert not server.reports
    assert not Path("began").exists()


async def test_a_process_is_let_go_of_once_where_no_other_can_be_had(ran, dead, monkeypatch):
    def full(*_, **__):
        raise OSError(24, "too many")

    monkeypatch.setattr("bedrock_worker.run.job_run.ChildProcess", full)
    assert [verb for verb, _ in await ran(REUSED, "pass")] == ["RetryJob"]
    assert [run.closed for run in dead.runs] == [1]
