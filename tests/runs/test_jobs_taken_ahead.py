"""No job is lost that a worker has taken ahead: the worker ends, or the job is cancelled or paused.

The worker has one slot, assumes that each run is short, and holds the jobs ahead until the test is over.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bedrockjobs.base.errors import NotFound
from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import (
    CancelJob,
    CreateJob,
    CreateJobs,
    DrainWorker,
    ListRuns,
    PauseJobs,
    QueryJob,
    ResumeJobs,
    TerminateRun,
)
from tests.cli import warm
from tests.conftest import Live
from tests.worker.conftest import until
from tests.worker.fake_server import DEADLINE_S
from tests.worker.test_command_line import Forked, exit_status, module_path, program
from tests.worker.test_taken_ahead import SCRIPT, SHORT_S, begun

CODE = f"""
import sys
from bedrock_worker import agent
agent.RUN_S_FIRST, agent.WEIGHT, agent.HELD_S_MAX = {SHORT_S}, 0.0, float(sys.argv.pop(1))
from bedrock_worker.cli import main
main()
"""

LONG = 1
"""Number of the job that blocks the only slot of a worker, after the first one has ended."""

JOBS = 12
LEASE_S = 3


@asynccontextmanager
async def _worker(live: Live, folder: Path, held_s: float) -> AsyncIterator[Forked]:
    """Run a worker with one slot that takes ahead from its first run on."""
    code = folder / "worker.py"
    code.write_text(CODE)
    command = (warm.program("python"), str(code), str(held_s), "--server", f"127.0.0.1:{live.port}")
    stand_in = await asyncio.create_subprocess_exec(
        *(*command, "--name", "Foo", "--worker-name", "ahead", "--", "sh", "-c", SCRIPT, str(folder)),
        env={"PYTHONPATH": module_path(), "BEDROCKJOBS_WORKER_AS_ROOT": "1", "HOME": str(folder)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    process = Forked(stand_in)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _create(client: AsyncClient) -> list[int]:
    """Create jobs of which one blocks its slot; return their ids."""
    spec = {"name": "Foo", "lease": LEASE_S, "keep": 3600}
    jobs = [{**spec, "data": {"block": True} if number == LONG else {}} for number in range(JOBS)]
    return (await client.call(CreateJobs(jobs=jobs))).job_ids


async def _ended(client: AsyncClient, ids: list[int]) -> dict[int, str]:
    """Wait until all jobs have ended; return their states, ``GONE`` for one that is kept no longer."""
    states: dict[int, str] = {}
    async with asyncio.timeout(DEADLINE_S):
        while len(states) < len(ids):
            for job_id in ids:
                try:
                    state = (await client.call(QueryJob(job_id=job_id))).state
                except NotFound:
                    state = "GONE"
                if state not in ("QUEUED", "RUNNING", None):
                    states[job_id] = state
            await asyncio.sleep(0.05)
    return states


async def _held(client: AsyncClient, folder: Path) -> list[int]:
    """Wait until the worker's only slot is blocked and jobs wait for it; return their ids."""
    await until(lambda: len(begun(folder)) == 2)
    held: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while not held:
            runs = (await client.call(ListRuns(status="running", worker="ahead"))).runs
            held = sorted({run.job_id for run in runs} - set(begun(folder)))
            await asyncio.sleep(0.01)
    return held


@pytest.mark.parametrize("how", ["killed", "stopped", "drained", "long run"])
async def test_each_job_of_a_worker_that_took_ahead_runs_once(live: Live, tmp_path: Path, how: str) -> None:
    """Another worker runs those that it held; only the run that it had begun is repeated."""
    async with AsyncClient(f"127.0.0.1:{live.port}") as client:
        ids = await _create(client)
        async with _worker(live, tmp_path, 0.3 if how == "long run" else 1_000) as worker:
            await until(lambda: len(begun(tmp_path)) == 2)
            if how != "long run":
                assert len(await _held(client, tmp_path)) == JOBS - 2
            if how == "killed":
                worker.send_signal(signal.SIGKILL)
                await worker.wait()
                (tmp_path / "go").touch()
            elif how == "stopped":
                worker.send_signal(signal.SIGTERM)
            elif how == "drained":
                await client.call(DrainWorker(worker="ahead"))
                (tmp_path / "go").touch()
            address = f"127.0.0.1:{live.port}"
            async with program(address, "--name", "Foo", "--", "sh", "-c", SCRIPT, str(tmp_path)):
                if how in ("stopped", "long run"):
                    others = [job_id for job_id in ids if job_id != ids[LONG]]
                    assert set((await _ended(client, others)).values()) == {"FINISHED"}
                    (tmp_path / "go").touch()
                assert set((await _ended(client, ids)).values()) == {"FINISHED"}
            if how == "stopped":
                assert await exit_status(worker) == 0
        found = begun(tmp_path)
        assert set(found) == set(ids)
        assert len(found) == JOBS + (how == "killed")
        assert found.count(ids[LONG]) == 1 + (how == "killed")


async def test_cancelled_stopped_and_paused_jobs_that_were_taken_ahead(live: Live, tmp_path: Path) -> None:
    """A pause keeps none of them, since they are taken; those that were to stop never begin."""
    async with AsyncClient(f"127.0.0.1:{live.port}") as client:
        ids = await _create(client)
        async with _worker(live, tmp_path, 1_000):
            held = await _held(client, tmp_path)
            assert held == sorted(ids)[2:]
            cancelled, stopped, *others = held
            await client.call(CancelJob(job_id=cancelled, any=True))
            (run,) = (await client.call(ListRuns(job_id=stopped))).runs
            await client.call(TerminateRun(run_id=run.run_id))
            states = await _ended(client, [cancelled, stopped])
            assert states == {cancelled: "GONE", stopped: "FAILED"}
            (run,) = (await client.call(ListRuns(job_id=cancelled))).runs
            assert (run.status, run.error) == ("terminated", "stopped before it began (SIGTERM)")
            await client.call(PauseJobs(name="Foo"))
            later = (await client.call(CreateJob(name="Foo", keep=3600))).job_id
            (tmp_path / "go").touch()
            assert set((await _ended(client, others)).values()) == {"FINISHED"}
            assert (await client.call(QueryJob(job_id=later))).state == "QUEUED"
            await client.call(ResumeJobs(name="Foo"))
            assert await _ended(client, [later]) == {later: "FINISHED"}
        assert sorted(begun(tmp_path)) == sorted([*ids[:2], *others, later])
