"""A client that waits for the end of a job: told at once while it runs, and of each way it can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bedrockjobs import (
    AsyncClient,
    CancelJob,
    Client,
    CreateJob,
    FailJob,
    FinishJob,
    Forbidden,
    GetJob,
    JobFailed,
    JobNotEnded,
    JobReply,
    NoResult,
    NotFound,
)
from bedrockjobs.base.config import WAIT_MS_MAX, WHOLE_MAX
from bedrockjobs.client.ending import LOOK_S_MAX, LOOKS_FOR_RUN_MAX, WAIT_MS, end_of_job
from bedrockjobs.commands import ListRuns, OutputReply, QueryJob, ReadOutput, RunReply, RunsReply
from tests.conftest import Live

DEADLINE_S = 30


@pytest.fixture
async def client(live: Live) -> AsyncIterator[AsyncClient]:
    async with asyncio.timeout(DEADLINE_S), AsyncClient(f"127.0.0.1:{live.port}") as found:
        yield found


async def created(client: AsyncClient, **more: int) -> int:
    return (await client.call(CreateJob(name="foo", data={"a": 1}, **more))).job_id


async def taken(client: AsyncClient) -> JobReply:
    return await client.call(GetJob(name="foo", worker="w"))


async def test_the_result_of_a_job_that_runs_is_told_at_its_end(client: AsyncClient) -> None:
    job_id = await created(client)
    with pytest.raises(JobNotEnded, match=f"job {job_id} has not ended within 0 s: QUEUED"):
        await client.wait_for_job(job_id, timeout=0)
    job = await taken(client)
    waiting = asyncio.create_task(client.wait_for_job(job_id))
    with pytest.raises(JobNotEnded, match=r"within 0\.05 s: RUNNING"):
        await client.wait_for_job(job_id, timeout=0.05)
    await client.call(FinishJob(job_id=job_id, run_id=job.run_id, data={"b": 2}))
    run = await waiting
    assert (run.run_id, run.status, run.result) == (job.run_id, "success", {"b": 2})
    assert (await client.wait_for_job(job_id, timeout=0)).run_id == job.run_id


async def test_a_job_with_retries_has_failed_with_its_last_run(client: AsyncClient) -> None:
    job_id = await created(client, retries=1, backoff=0)
    first = await taken(client)
    await client.call(FailJob(job_id=job_id, run_id=first.run_id, error="first"))
    with pytest.raises(JobNotEnded):
        await client.wait_for_job(job_id, timeout=0)
    second = await taken(client)
    await client.call(FailJob(job_id=job_id, run_id=second.run_id, error="second", timed_out=True))
    with pytest.raises(JobFailed, match="second") as failed:
        await client.wait_for_job(job_id, timeout=0)
    found = failed.value
    assert (found.job_id, found.run_id, found.status, found.error) == (
        job_id,
        second.run_id,
        "timeout",
        "second",
    )


async def test_a_child_that_was_cancelled_has_failed(client: AsyncClient) -> None:
    parent = await created(client)
    await client.call(GetJob(name="foo"))
    child = (await client.call(CreateJob(name="child", parent_job_id=parent))).job_id
    await client.call(FinishJob(job_id=parent))
    await client.call(CancelJob(job_id=child))
    with pytest.raises(JobFailed, match=f"job {child}: cancelled"):
        await client.wait_for_job(child, timeout=0)


async def test_a_job_that_nobody_knows_is_told_so(live: Live, client: AsyncClient) -> None:
    with pytest.raises(NoResult, match="job 4711: it is gone"):
        await client.wait_for_job(4711)
    with pytest.raises(NoResult, match="job 4711"):
        await client.wait_for_job(4711, timeout=0)
    with Client(f"127.0.0.1:{live.port}") as blocking, pytest.raises(NoResult, match="job 4711"):
        await asyncio.to_thread(blocking.wait_for_job, 4711)


def test_what_is_asked_while_time_passes() -> None:
    """A look, then a run's end; a refusal that is no 404 is told; all ends with the time given."""
    asking = end_of_job(5, 100.0)
    assert next(asking) == QueryJob(job_id=5)
    queued = JobReply.model_construct(state="QUEUED")
    assert asking.send((queued, 0.0)) == ListRuns(job_id=5, limit=1)
    pauses = []
    for _ in range(8):
        pause = asking.send((RunsReply(runs=[]), 1.0))
        assert isinstance(pause, float)
        pauses.append(pause)
        assert asking.send((pause, 1.0)) == QueryJob(job_id=5)
        asking.send((queued, 1.0))
    assert pauses[0] < pauses[-1] <= LOOK_S_MAX
    run = RunReply.model_construct(run_id=9, status="running")
    runs = RunsReply.model_construct(runs=[run])
    wait = asking.send((runs, 1.0))
    assert wait == ReadOutput(run_id=9, after=WHOLE_MAX, connection="wait", timeout=WAIT_MS)
    assert WAIT_MS <= WAIT_MS_MAX
    assert asking.send((OutputReply(lines=[], status="running", ended=False), 98.0)) <= 1.0  # type: ignore[operator]
    asking.send((0.0, 99.5))
    asking.send((queued, 99.5))
    last = asking.send((runs, 99.5))
    assert isinstance(last, ReadOutput)
    assert last.timeout == 501
    assert asking.send((OutputReply(lines=[], status="success", ended=True), 99.6)) == QueryJob(job_id=5)
    with pytest.raises(Forbidden):
        asking.send((Forbidden(), 99.6))


def test_a_run_that_a_standby_does_not_know_yet_is_looked_for_again() -> None:
    asking = end_of_job(5, None)
    next(asking)
    for _ in range(LOOKS_FOR_RUN_MAX - 1):
        asking.send((NotFound(), 0.0))
        assert isinstance(asking.send((RunsReply(runs=[]), 0.0)), float)
        asking.send((0.0, 0.0))
    asking.send((NotFound(), 0.0))
    with pytest.raises(NoResult):
        asking.send((RunsReply(runs=[]), 0.0))
