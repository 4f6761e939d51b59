"""A client that waits for the end of a job is notified at once, in each way it can end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from bedrock_worker import chain, group, job

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
    NoWorkerTakes,
    WaitNeverEnds,
)
from bedrockjobs.base.config import HISTORY_DEFAULT, RESULT_KEPT_S, WAIT_MS_MAX, WHOLE_MAX
from bedrockjobs.client.base import POLL_S_MAX, POLL_S_MIN, RUN_QUERIES_MAX, WAIT_MS, WARN_AFTER_S, end_of_job
from bedrockjobs.commands import (
    ExplainJob,
    ExplainReply,
    ListRuns,
    OutputReply,
    QueryJob,
    ReadOutput,
    RunReply,
    RunsReply,
)
from bedrockjobs.commands.control import WaitsReply
from bedrockjobs.commands.workflows import CreateWorkflow, WorkflowJob
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


@pytest.mark.parametrize("ended", [False, True])
async def test_a_job_that_is_cancelled_while_it_runs_was_cancelled(client: AsyncClient, ended: bool) -> None:
    """Whether the wait begins before the end of the run or after it."""
    job_id = await created(client)
    job = await client.call(GetJob(name="foo", worker="w", heartbeat=True))
    waiting = asyncio.ensure_future(client.wait_for_job(job_id))
    await client.call(CancelJob(job_id=job_id, any=True))
    await client.call(FailJob(job_id=job_id, run_id=job.run_id, error="SIGTERM"))
    with pytest.raises(JobFailed, match=f"job {job_id}: cancelled: SIGTERM") as failed:
        await (client.wait_for_job(job_id) if ended else waiting)
    assert failed.value.status == "cancelled"
    await asyncio.wait({waiting})
    assert isinstance(waiting.exception(), JobFailed)


async def test_a_job_that_nobody_knows_is_told_so(live: Live, client: AsyncClient) -> None:
    with pytest.raises(NoResult, match="job 4711: it no longer exists"):
        await client.wait_for_job(4711)
    with pytest.raises(NoResult, match="job 4711"):
        await client.wait_for_job(4711, timeout=0)
    with Client(f"127.0.0.1:{live.port}") as blocking, pytest.raises(NoResult, match="job 4711"):
        await asyncio.to_thread(blocking.wait_for_job, 4711)


def test_what_is_asked_while_time_passes(recwarn: pytest.WarningsRecorder) -> None:
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
    assert not recwarn.list
    assert asking.send((RunsReply(runs=[]), WARN_AFTER_S)) == ExplainJob(job_id=5)
    reasons = [WaitsReply(reason="no worker", detail="no worker is alive")]
    reply = ExplainReply(job_id=5, state="QUEUED", name="a", waits_for=reasons)
    with pytest.warns(
        NoWorkerTakes, match=r"job 5 \(a\) is waited for, but .*: no worker is alive"
    ) as warned:
        asking.send((reply, WARN_AFTER_S))
    assert warned[0].filename == __file__, "the line that waits, not one of the client"
    asking.send((0.0, 6.0))
    asking.send((queued, 6.0))
    assert pauses == [min(POLL_S_MIN * 2**at, POLL_S_MAX) for at in range(8)]
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
    for _ in range(RUN_QUERIES_MAX - 1):
        asking.send((NotFound(), 0.0))
        assert isinstance(asking.send((RunsReply(runs=[]), 0.0)), float)
        asking.send((0.0, 0.0))
    asking.send((NotFound(), 0.0))
    with pytest.raises(NoResult):
        asking.send((RunsReply(runs=[]), 0.0))


# --- waits that cannot end -------------------------------------------------------------------------------


@pytest.fixture
async def running(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> JobReply:
    """Be in a run of a job that holds a lock."""
    await client.call(CreateJob(name="foo", lock="l"))
    job = await taken(client)
    monkeypatch.setenv("BEDROCK_JOB_ID", str(job.job_id))
    monkeypatch.setenv("BEDROCK_RUN_ID", str(job.run_id))
    return job


async def test_a_run_does_not_wait_for_what_waits_for_it(
    live: Live, client: AsyncClient, running: JobReply
) -> None:
    """Itself, its children and theirs, what needs its lock: each is refused at once, in both clients."""
    child = (await client.call(CreateJob(name="c", parent_job_id=running.job_id))).job_id
    locked = (await client.call(CreateJob(name="d", lock="l"))).job_id
    for job_id, words in (
        (running.job_id, "a run cannot wait for the end of its own job"),
        (child, f"it is a child of job {running.job_id}, and starts when this run of it has ended"),
        (locked, f"it needs the lock l, which this run of job {running.job_id} holds until its end"),
    ):
        with pytest.raises(WaitNeverEnds, match=f"job {job_id}: {words}"):
            await client.wait_for_job(job_id)
        with Client(f"127.0.0.1:{live.port}") as blocking, pytest.raises(WaitNeverEnds, match=words):
            await asyncio.to_thread(blocking.wait_for_job, job_id)
        with pytest.raises(JobNotEnded):  # a look is no wait
            await client.wait_for_job(job_id, 0)


async def test_a_run_waits_for_what_does_not_wait_for_it(client: AsyncClient, running: JobReply) -> None:
    """Another job, also one of its own name."""
    other = (await client.call(CreateJob(name="foo"))).job_id
    job = await taken(client)
    waiting = asyncio.create_task(client.wait_for_job(other))
    await client.call(FinishJob(job_id=other, run_id=job.run_id))
    assert (await waiting).job_id == other


async def test_a_child_does_not_wait_for_its_parents(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await created(client)
    run = await taken(client)
    await client.call(CreateJob(name="foo", parent_job_id=parent))
    await client.call(FinishJob(job_id=parent, run_id=run.run_id))
    child = await taken(client)
    monkeypatch.setenv("BEDROCK_JOB_ID", str(child.job_id))
    monkeypatch.setenv("BEDROCK_RUN_ID", str(child.run_id))
    with pytest.raises(WaitNeverEnds, match=f"its child, job {child.job_id}, waits for it"):
        await client.wait_for_job(parent)
    monkeypatch.setenv("BEDROCK_RUN_ID", "4711")  # the run is one of another server
    with pytest.raises(JobNotEnded):
        await client.wait_for_job(parent, 0.01)


async def be_in(client: AsyncClient, monkeypatch: pytest.MonkeyPatch, name: str) -> JobReply:
    """Take a job by name, and be in its run."""
    job = await client.call(GetJob(name=name, worker="w"))
    monkeypatch.setenv("BEDROCK_JOB_ID", str(job.job_id))
    monkeypatch.setenv("BEDROCK_RUN_ID", str(job.run_id))
    return job


async def in_workflow(client: AsyncClient, *jobs: dict[str, Any]) -> dict[str, int]:
    """Create a workflow; return its jobIDs by ref, and its own under an empty text."""
    given = [WorkflowJob.model_validate({"name": each["ref"], **each}) for each in jobs]
    made = await client.call(CreateWorkflow(name="nightly", jobs=given))
    return {"": made.workflow_id, **made.job_ids}


async def refused(client: AsyncClient, job_id: int, words: str) -> None:
    with pytest.raises(WaitNeverEnds) as found:
        await client.wait_for_job(job_id)
    assert str(found.value) == f"job {job_id}: {words}"


async def test_a_run_does_not_wait_for_what_comes_after_it_in_its_workflow(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directly, behind others, and beside others that have not ended."""
    ids = await in_workflow(
        client,
        {"ref": "own"},
        {"ref": "beside"},
        {"ref": "next", "after": ["own"]},
        {"ref": "last", "after": ["beside", "next"]},
        {"ref": "apart", "after": ["beside"]},
    )
    own = await be_in(client, monkeypatch, "own")
    words = f"it comes after job {own.job_id} in workflow {ids['']}, and starts when this run of it has ended"
    for ref in ("next", "last"):
        await refused(client, ids[ref], words)
    for ref in ("beside", "apart"):
        with pytest.raises(JobNotEnded):
            await client.wait_for_job(ids[ref], 0.01)


async def test_a_child_does_not_wait_for_what_comes_after_its_parent(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no children of children."""
    ids = await in_workflow(client, {"ref": "top"}, {"ref": "next", "after": ["top"]})
    run = await client.call(GetJob(name="top", worker="w"))
    await client.call(CreateJob(name="leaf", parent_job_id=run.job_id))
    await client.call(FinishJob(job_id=run.job_id, run_id=run.run_id))
    own = await be_in(client, monkeypatch, "leaf")
    await refused(
        client, ids["next"], f"it waits for job {ids['top']}, whose child, job {own.job_id}, has to end first"
    )


async def test_a_run_does_not_wait_for_what_waits_for_its_lock(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose child needs it, and jobs of workflows after one that does, also of its children."""
    parent = await created(client)
    run = await taken(client)
    child = (await client.call(CreateJob(name="c", parent_job_id=parent, concurrency_key="k"))).job_id
    await client.call(CreateJob(name="own", concurrency_key="k"))
    own = await be_in(client, monkeypatch, "own")
    await client.call(FinishJob(job_id=parent, run_id=run.run_id))
    needs = f"needs the lock k, which this run of job {own.job_id} holds until its end"
    await refused(client, child, f"it {needs}")
    await refused(client, parent, f"it waits for job {child}, which {needs}")
    ids = await in_workflow(
        client,
        {"ref": "a", "concurrencyKey": "k"},
        {"ref": "b", "after": ["a"]},
        {"ref": "c", "after": ["b"]},
        {"ref": "top"},
        {"ref": "next", "after": ["top"]},
    )
    for ref in ("b", "c"):
        await refused(client, ids[ref], f"it waits for job {ids['a']}, which {needs}")
    top = await client.call(GetJob(name="top", worker="w"))
    child = (await client.call(CreateJob(name="d", parent_job_id=top.job_id, concurrency_key="k"))).job_id
    await client.call(FinishJob(job_id=top.job_id, run_id=top.run_id))
    await refused(client, ids["next"], f"it waits for job {child}, which {needs}")


async def test_a_run_waits_for_a_job_whose_key_has_another_slot(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_two = {"concurrency_key": "k", "concurrency_limit": 2}
    await client.call(CreateJob(name="own", **of_two))
    await be_in(client, monkeypatch, "own")
    other = (await client.call(CreateJob(name="other", **of_two))).job_id
    with pytest.raises(JobNotEnded):
        await client.wait_for_job(other, 0.01)


async def test_results_of_many_are_kept(live: Live, client: AsyncClient) -> None:
    """More than the successes that are kept of each name."""

    def echo(n: int) -> int:
        return n

    function = job("foo")(echo)
    many = HISTORY_DEFAULT + 20
    handles = await function.using(client=client).aenqueue_many([{"n": n} for n in range(many)])
    for _ in range(many):
        found = await taken(client)
        await client.call(
            FinishJob(job_id=found.job_id, run_id=found.run_id, data={"result": found.data["n"]})
        )
    assert [await handle.wait(10) for handle in handles] == list(range(many))
    brief = await function.using(client=client, keep=0).aenqueue_many([{"n": n} for n in range(many + 20)])
    for _ in range(many + 20):
        found = await taken(client)
        await client.call(FinishJob(job_id=found.job_id, run_id=found.run_id))
    with pytest.raises(NoResult, match=r"kept as long as the job's keep says: f\.using\(keep='1d'\)"):
        await brief[0].wait(10)


def test_a_result_is_kept_for_an_hour_unless_its_job_says_otherwise() -> None:
    """In every way of enqueuing; a schedule's runs are kept as those of any other."""

    def f(x: object = None) -> None: ...

    sent: list[object] = []

    class Fake(Client):
        def call(self, command: Any) -> Any:
            sent.append(command)
            raise NotFound

    for keep, more in ((RESULT_KEPT_S, {}), (86_400, {"keep": "1d"}), (5, {"keep": 5})):
        for function, said in (
            (job("foo", **more)(f).using(client=Fake()), bool(more)),
            (job("foo")(f).using(client=Fake(), **more), bool(more)),
            (job("foo", keep="7d")(f).using(client=Fake(), **{"keep": keep, **more}), True),
            (job("foo", keep="7d")(f).using(keep=keep).using(client=Fake()), True),
        ):
            one, other = function.s(), function.s()
            ways: list[Callable[[], object]] = [
                function.enqueue,
                lambda g=function: g.enqueue_many([{}]),
                *(partial(each.start, client=Fake()) for each in (one, chain(one, other), group(one, other))),
            ]
            for act in ways:
                with pytest.raises(NotFound):
                    act()
                command: Any = sent.pop()
                made = command.jobs if hasattr(command, "jobs") else [command]
                whole = hasattr(command, "jobs") and hasattr(command, "name")  # kept for a day as a whole
                assert {each.keep for each in made} == {None if whole and not said else keep}
    with pytest.raises(NotFound):
        job("foo")(f).using(client=Fake()).schedule("0 0 * * *")
    assert sent.pop().schedules[0].keep is None  # type: ignore[attr-defined]
