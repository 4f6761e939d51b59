"""Functions end to end: enqueued by a client, run by a worker, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bedrock_worker.agent import Agent
from bedrock_worker.options import WorkerOptions

from bedrockjobs import (
    AsyncClient,
    CreateJob,
    DeleteJob,
    FinishJob,
    GetJob,
    JobFailed,
    JobNotEnded,
    ListJobs,
    ListRuns,
    ListSchedules,
    NoResult,
    QueryJob,
    QueryRun,
    ReadOutput,
    TriggerJob,
    WrongState,
)
from bedrockjobs.base.config import JOBS_PER_CREATE_MAX
from bedrockjobs.client import addresses_of
from bedrockjobs.testing import ServerUnderTest
from tests.typed import users_jobs
from tests.typed.users_jobs import Size, double, first, look, refuse, resize

DEADLINE_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ServerUnderTest]:
    with ServerUnderTest("2026-11-21 10:00") as found:
        yield found


def worker(server: ServerUnderTest) -> Agent:
    """Return a worker that ends when the queue is empty."""
    options = WorkerOptions(
        names=(),
        argv=(),
        servers=addresses_of(server.address),
        module="tests.typed.users_jobs",
        burst=True,
        concurrency=2,
        process_jobs_max=10,
    )
    return Agent(options)


async def test_enqueued_run_and_awaited(server: ServerUnderTest) -> None:
    client = server.client
    ready = resize.using(client=client)
    async with asyncio.timeout(DEADLINE_S), AsyncClient(server.address) as asking:
        handles = [ready.enqueue(800), ready.enqueue(64, height=5)]
        twice = await double.using(client=asking).aenqueue_many([{"number": 1}, {"number": 2, "note": None}])
        chained = first.using(client=client).enqueue(7)
        looking = look.using(client=client).enqueue(who="Ann")
        failing = refuse.using(client=client, name="refuse/one").enqueue(reason="not today")
        client.call(CreateJob(name="resize", data={"widht": 5}, retries=5))
        with pytest.raises(JobNotEnded, match=f"job {handles[0].job_id} has not ended within 0 s: QUEUED"):
            handles[0].wait(timeout=0)
        waiting = asyncio.create_task(asyncio.to_thread(handles[1].wait, DEADLINE_S))
        assert await worker(server).run_until_stopped() == 0
        assert await waiting == Size(64, 5)
        assert handles[0].wait() == Size(800, 600)
        assert [await each.wait() for each in twice] == [[1, 1], [2, 2]]
        assert double.using(client=client).handle(chained.wait()).wait(DEADLINE_S) == [7, 7]
        assert looking.wait() == {"id": looking.job_id, "who": "Ann"}
        with pytest.raises(JobFailed, match="Fail: not today") as failed:
            failing.wait()
    assert (failed.value.job_id, failed.value.status) == (failing.job_id, "fail")
    assert (failed.value.error_type, failed.value.traceback) == ("Fail", "")
    (run,) = client.call(ListRuns(job_id=handles[0].job_id)).runs
    run = client.call(QueryRun(run_id=run.run_id))
    assert (run.data, run.result) == ({"width": 800}, {"result": {"width": 800, "height": 600}})
    assert run.progress == {"percent": 40, "message": "half way"}
    assert [line.line for line in client.call(ReadOutput(run_id=run.run_id)).lines] == [
        "INFO 800 x 600 on None"
    ]
    wrong = client.call(ListJobs(name="resize")).jobs
    assert [(job.state, job.data) for job in wrong] == [("QUEUED", {"widht": 5})]
    assert (
        "the job's data is for another version of the function: missing a required argument: 'width'"
        in str(wrong[0].error)
    )


async def test_scheduled_with_arguments_that_stay(server: ServerUnderTest) -> None:
    nightly = double.using(client=server.client, name="double", zone="Europe/Berlin", retries=1)
    assert [nightly.schedule("0 9 * * *", 5), nightly.schedule("0 9 * * *", number=5)] == [
        "added",
        "unchanged",
    ]
    assert nightly.schedule("30 9 * * *", 5) == "changed"
    (found,) = server.client.call(ListSchedules(name="double")).schedules
    assert found.repeat == "CRON TZ=Europe/Berlin 30 9 * * *"
    for _ in range(2):
        server.client.call(TriggerJob(job_id=found.job_id))
        async with asyncio.timeout(DEADLINE_S):
            assert await worker(server).run_until_stopped() == 0
    runs = server.client.call(ListRuns(job_id=found.job_id)).runs
    assert [run.result for run in runs] == [{"number": 5, "result": [5, 5]}] * 2
    assert server.client.call(QueryJob(job_id=found.job_id)).state == "QUEUED"


async def test_one_job_for_the_same_arguments(server: ServerUnderTest) -> None:
    client = server.client
    once = resize.using(client=client, unique=True, first_run="2026-12-01")
    same = [once.enqueue(1), once.enqueue(1, 600), once.enqueue(width=1, day=None)]
    assert [(each.job_id, each.created) for each in same] == [
        (same[0].job_id, created) for created in (True, False, False)
    ]
    assert once.enqueue(2).created
    many = once.enqueue_many([{"width": 1}, {"width": 3}, {"width": 3, "height": 600}])
    assert [each.created for each in many] == [False, True, False]
    assert (many[0].job_id, many[2].job_id) == (same[0].job_id, many[1].job_id)
    wide = once.using(unique=("width",), on_conflict="replace")
    first = wide.enqueue(1, 5)
    assert first.created, "another function's key, or that of other arguments, is another key"
    assert wide.enqueue(1, 6).job_id == first.job_id
    assert client.call(QueryJob(job_id=first.job_id)).data == {"width": 1, "height": 6}
    with pytest.raises(WrongState, match="Unique key is held"):
        once.using(on_conflict="reject").enqueue(1)
    assert once.using(unique=False).enqueue(1).created
    assert once.using(unique_key="mine").enqueue(1).created
    assert not once.using(unique_key="mine").enqueue(2).created
    long = look.using(client=client, unique="args")
    assert long.enqueue(who="a" * 500).created
    assert not long.enqueue(who="a" * 500).created
    assert long.enqueue(who="b" * 500).created
    async with AsyncClient(server.address) as asking:
        later = double.using(client=asking, unique=["number"])
        handles = [await later.aenqueue(9), *await later.aenqueue_many([{"number": 9, "note": "x"}])]
    assert [each.created for each in handles] == [True, False]
    for row in client.call(ListJobs()).jobs:
        client.call(DeleteJob(job_id=row.job_id))


@pytest.fixture
def its_own() -> Iterator[ServerUnderTest]:
    with ServerUnderTest() as found:
        yield found


async def test_more_jobs_than_a_request_takes_are_created_by_several(its_own: ServerUnderTest) -> None:
    client, count = its_own.client, JOBS_PER_CREATE_MAX + 3
    numbers = [{"number": number} for number in range(count)]
    async with AsyncClient(its_own.address) as asking:
        handles = double.using(client=client).enqueue_many(numbers)
        later = await double.using(client=asking).aenqueue_many(numbers)
    for made in ([each.job_id for each in handles], [each.job_id for each in later]):
        assert made == list(range(made[0], made[0] + count))
        datas = [client.call(QueryJob(job_id=job_id)).data for job_id in (made[0], made[-4], made[-1])]
        assert datas == [{"number": 0}, {"number": JOBS_PER_CREATE_MAX - 1}, {"number": count - 1}]
    held = double.using(client=client, unique=("number",), on_conflict="reject")
    with pytest.raises(WrongState, match="Unique key is held") as refused:
        held.enqueue_many([*numbers[:JOBS_PER_CREATE_MAX], {"number": 5}])
    assert refused.value.__notes__ == ["the first 1,000 jobs were created"]
    with pytest.raises(WrongState) as refused:
        held.enqueue_many([{"number": -1}, {"number": 5}])
    assert not hasattr(refused.value, "__notes__"), "all or none"


def test_the_end_of_a_job_that_nobody_knows(server: ServerUnderTest) -> None:
    client = server.client
    handle = double.using(client=client, keep=0).enqueue(number=1)
    taken = client.call(GetJob(name="double"))  # without a worker name, so it has no run
    assert taken.job_id == handle.job_id
    client.call(FinishJob(job_id=taken.job_id))
    with pytest.raises(NoResult, match="it no longer exists, and no stored run says how it ended"):
        handle.wait()


def test_a_result_that_is_not_what_the_function_says(server: ServerUnderTest) -> None:
    client = server.client
    handle = double.using(client=client).enqueue(number=1)
    taken = client.call(GetJob(name="double", worker="another"))
    client.call(FinishJob(job_id=taken.job_id, run_id=taken.run_id, data={"result": "two"}))
    with pytest.raises(NoResult, match=r"its result: expected list\[int\], got 'two'"):
        double.using(client=client).handle(handle.job_id).wait()
    assert taken.run_id is not None
    assert client.call(QueryRun(run_id=taken.run_id)).status == "success"


async def test_what_users_wrote_does_what_it_says(
    server: ServerUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(DEADLINE_S), AsyncClient(server.address) as client:
        calls = asyncio.gather(
            asyncio.to_thread(users_jobs.plain, server.client),
            users_jobs.gathered(client),
            asyncio.to_thread(users_jobs.mistakes, server.client),
        )
        while not calls.done():
            assert await worker(server).run_until_stopped() == 0
        assert await worker(server).run_until_stopped() == 0  # for what was enqueued while the last one ended
        (size, many), total, told = await calls
    assert size == Size(800, 600)
    assert [handle.wait() for handle in many] == [[1, 1], [2, 2]]
    assert total == 14
    assert told[0].startswith("CreateJob: retries: expected ")
    assert told[1].endswith("not today")
    assert capsys.readouterr().out == "added\n"
