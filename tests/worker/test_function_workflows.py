"""Workflows of Python functions: a worker, ``eager`` and ``capture`` agree on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from bedrock_worker import Fail, Signature, Workflow, WorkflowHandle, chain, chord, group, job
from bedrock_worker.options import WorkerOptions
from bedrock_worker.workflows import filled

from bedrockjobs import (
    AsyncClient,
    InvalidArgument,
    InvalidCommand,
    JobNotEnded,
    ListWorkflows,
    NoResult,
    WorkflowFailed,
    WrongState,
)
from bedrockjobs.base.config import REF_CHARS_MAX
from bedrockjobs.client import addresses_of
from bedrockjobs.testing import ServerUnderTest, capture, eager
from tests.worker import workflow_jobs as app
from tests.worker.conftest import agent_at_work
from tests.worker.fake_server import DEADLINE_S


@pytest.fixture
def server() -> Iterator[ServerUnderTest]:
    with ServerUnderTest() as running:
        yield running


def graph() -> Workflow:
    """Return a workflow with results in lists, dicts, members and attributes."""
    workflow = Workflow("graph")
    one = workflow.add(app.add.s(1), ref="one")
    several = workflow.add(group(app.add.s(n) for n in (2, 3)))
    size = workflow.add(app.measured.s(one.result))
    workflow.add(app.total.s([one.result, 10, *several.result], weights={"w": size.result.width}), ref="sum")
    day = date(2030, 1, 2)
    workflow.add(app.described.s(size.result, day, [(day, one.result)]), ref="text", after=[several])
    looked = workflow.add(app.look.s(given=[several.result[1]]), after=["one"], ref="look")
    workflow.add(app.add.s(looked.result["data"]["given"][0]), ref="last")  # type: ignore[index]
    return workflow


SHAPES: dict[str, tuple[Callable[[], Signature[Any]], Any]] = {
    "one": (lambda: app.add.s(1, 2), 3),
    "chain": (lambda: chain(app.add.s(1), app.double.s(), app.add.s(y=5)), 7),
    "group": (lambda: group(app.add.s(n) for n in range(3)), [0, 1, 2]),
    "chord": (lambda: chord([app.add.s(1), chain(app.add.s(2), app.double.s())], app.total.s()), 5),
    "group in a chain": (
        lambda: chain(app.add.s(1), group(app.double.s(), app.add.s(y=1)), app.total.s(), app.add.s()),
        4,
    ),
    "chain in a chain": (lambda: chain(app.add.s(1), chain(app.add.s(y=1), app.add.s(y=1))), 3),
    "nothing passed on": (lambda: chain(app.add.s(1), app.add.si(5)), 5),
    "no parts": (lambda: chord([], app.total.s()), 0),
    "a type of its own": (lambda: chain(app.add.s(3), app.measured.s()), app.Size(3, 2)),
}


def results(handle: WorkflowHandle[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of ``graph``, without what differs between servers."""
    found = handle.wait(DEADLINE_S)
    assert found["look"].pop("in") == handle.workflow_id
    return found


GRAPH = {
    "one": 1,
    "add": 2,
    "add-2": 3,
    "measured": app.Size(1, 2),
    "sum": 17,
    "text": "1 x 2 on 02 Jan: 2030 1",
    "look": {"ref": "look", "before": {"one": {"result": 1}, "add-2": {"result": 3}}, "data": {"given": [3]}},
    "last": 3,
}


async def test_a_worker_runs_workflows(server: ServerUnderTest) -> None:
    """Also if functions are tried again: nothing is added, started or passed twice."""
    client = server.client
    shapes = {name: make().start(name=name, client=client) for name, (make, _) in SHAPES.items()}
    whole, fan = graph().start(client=client), app.fan.s(3).start(client=client)
    started = app.starter.using(client=client).enqueue(1)
    failed = chord([app.bad.using(name="bad/a").s(1), app.add.s(1)], app.total.s()).start(client=client)
    options = WorkerOptions(
        names=(), argv=(), servers=addresses_of(server.address), module=app.__name__, concurrency=2
    )
    async with asyncio.timeout(DEADLINE_S), agent_at_work(options):
        for name, (_, wanted) in SHAPES.items():
            assert await asyncio.to_thread(shapes[name].wait, DEADLINE_S) == wanted, name
        assert await asyncio.to_thread(results, whole) == GRAPH
        assert await asyncio.to_thread(fan.wait, DEADLINE_S) == 3
        ids = await asyncio.to_thread(started.wait, DEADLINE_S)
        assert [await asyncio.to_thread(Workflow.handle(n, client=client).wait, DEADLINE_S) for n in ids] == [
            {"add": {"result": 1}, "double": {"result": 2}},
            {"add": {"result": 2}, "double": {"result": 4}},
        ]
        with pytest.raises(
            WorkflowFailed, match=r"workflow \d+ \(bad/a\), job \d+ \(bad\): fail: ValueError: no 1"
        ):
            await asyncio.to_thread(failed.wait, DEADLINE_S)
    assert len(client.call(ListWorkflows(name="started")).workflows) == 2
    assert Workflow.handle(fan.workflow_id, client=client).wait() == {
        "fan": {"result": 3},
        "fan/add": {"result": 0},
        "fan/add-2": {"result": 1},
        "fan/add-3": {"result": 2},
        "fan/total": {"result": 3},
        "named": {"result": 3},
        "fan/2/add": {"result": 3},
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_eager_runs_workflows(shape: str) -> None:
    make, wanted = SHAPES[shape]
    with eager():
        handle = make().start()
        assert (handle.wait(), handle.result(), handle.state()) == (wanted, wanted, "FINISHED")
        assert handle.cancel() is False
        with pytest.raises(WrongState, match="Nothing to retry"):
            handle.retry()


def test_eager_runs_a_graph_and_a_fan_out() -> None:
    with eager() as jobs:
        assert results(graph().start()) == GRAPH
        fan = app.fan.s(2).start()
        assert (fan.wait(), fan.state()) == (2, "FINISHED")
    jobs.assert_enqueued(app.total, parts=[1, 10, 2, 3], weights={"w": 1})
    jobs.assert_enqueued(app.total, parts=[0, 1])
    assert list(jobs.workflows[1].jobs) == ["fan", "fan/add", "fan/add-2", "fan/total", "named", "fan/2/add"]


@pytest.mark.parametrize(
    ("policy", "states", "state"),
    [
        ("cancel", ["FAILED", "CANCELLED", "CANCELLED"], "FAILED"),
        ("continue", ["FAILED", "FINISHED", "FINISHED"], "FAILED"),
        ("ignore", ["FAILED", "FINISHED", "FINISHED"], "FINISHED"),
    ],
)
def test_eager_obeys_on_failure(policy: Any, states: list[str], state: str) -> None:
    workflow = Workflow("policies")
    first = workflow.add(app.bad.using(name="bad/a").s(1), on_failure=policy)
    second = workflow.add(app.add.s(1), after=[first])
    workflow.add(app.add.s(second.result))
    with eager() as jobs:
        handle = workflow.start()
        assert ([each.state for each in jobs], handle.state()) == (states, state)
        if state == "FAILED":
            with pytest.raises(
                WorkflowFailed, match=r"workflow 1 \(policies\), job 1 \(bad\): fail: ValueError: no 1"
            ):
                handle.result()
            assert handle.retry() == states.count("FAILED") + states.count("CANCELLED")
            assert handle.state() == "FAILED"
        else:
            assert handle.result() == {"bad": None, "add": 1, "add-2": 1}
            assert handle.retry() == 1


def test_capture_records_workflows() -> None:
    with capture() as jobs:
        handle = chain(app.add.s(1), app.total.s(weights={"a": 5})).start(key="one")
        assert chain(app.add.s(1), app.total.s()).start(key="one").workflow_id == handle.workflow_id
        with pytest.raises(JobNotEnded, match="no worker runs in this test"):
            handle.wait()
        with pytest.raises(JobNotEnded, match="2 jobs are open"):
            handle.result()
        assert [each.state for each in jobs] == ["QUEUED", "PAUSED"]
        assert (handle.cancel(), handle.state()) == (True, "CANCELLED")
        with pytest.raises(WorkflowFailed, match="cancelled: The workflow was cancelled"):
            handle.result()
    jobs.assert_enqueued(app.total, weights={"a": 5})


async def test_asyncio(server: ServerUnderTest) -> None:
    with eager():
        handle = await chain(app.add.s(1), app.double.s()).astart()
        assert (await handle.wait(), await handle.state(), await handle.cancel()) == (2, "FINISHED", False)
    async with AsyncClient(server.address) as client:
        workflow = Workflow("both")
        one = workflow.add(app.add.s(1))
        workflow.add(app.add.s(one.result))
        running, other = await workflow.astart(client=client), await app.add.s(1).astart(client=client)
        with pytest.raises(JobNotEnded):
            await running.result(0.01)
        assert await other.cancel()
        await asyncio.to_thread(server.run_jobs, app.__name__)
        assert await running.wait(DEADLINE_S) == {"add": 1, "add-2": 1}
        assert (await other.state(), await other.retry(), await other.state()) == ("CANCELLED", 1, "RUNNING")
        assert await Workflow.ahandle(running.workflow_id, client=client).result() == {
            "add": {"result": 1},
            "add-2": {"result": 1},
        }


def test_a_schedule_starts_one_workflow_however_often_its_run_is_tried(server: ServerUnderTest) -> None:
    server.run_jobs(app.__name__)
    for ticks in (1, 2):
        server.advance_to(f"2030-01-0{ticks} 03:00")
        for _ in range(3):  # attempts; each starts the workflow again
            server.run_jobs(app.__name__)
            server.advance("5m")
        found = server.client.call(ListWorkflows()).workflows
        assert [(each.name, each.state) for each in found] == [("night", "FINISHED")] * ticks


def test_a_workflow_is_followed_by_its_handle(server: ServerUnderTest) -> None:
    client = server.client
    handle = chain(app.bad.using(name="bad/a", client=client).s(1), app.add.s()).start(key="k", keep="1h")
    assert (
        chain(app.bad.using(name="bad/a", client=client).s(1), app.add.s()).start(key="k").job_ids
        == handle.job_ids
    )
    with pytest.raises(JobNotEnded, match="has not ended within 0 s: 2 jobs are open"):
        handle.result()
    server.run_jobs(app.__name__)
    with pytest.raises(WorkflowFailed) as failed:
        handle.result(timeout=DEADLINE_S)
    error = failed.value
    assert (error.workflow_id, error.ref, error.job_id, error.status) == (
        handle.workflow_id,
        "bad",
        handle.job_ids["bad"],
        "fail",
    )
    assert (error.error_type, error.error) == ("ValueError", "ValueError: no 1")
    assert (handle.state(), handle.retry(), handle.state()) == ("FAILED", 2, "RUNNING")
    assert (handle.cancel(), handle.state()) == (True, "CANCELLED")
    with pytest.raises(WorkflowFailed, match="cancelled: The"):
        handle.wait(DEADLINE_S)
    for _ in range(4):
        server.advance("1h")
    for method in (handle.state, handle.wait):
        with pytest.raises(NoResult, match=f"workflow {handle.workflow_id}: it no longer exists"):
            method()
    assert not handle.cancel()


def no_job(x: int) -> int:
    """Be no job."""
    return x


@job("once", unique=True)
def once(x: int) -> int:
    """Be a job that has to be unique."""
    return x


def mistakes() -> dict[str, tuple[Callable[[Workflow, Workflow], object], type[Exception], str]]:
    """Return wrong uses, with their errors."""
    bad, wrong = InvalidArgument, InvalidCommand
    return {
        "a plain function": (
            lambda w, _: w.add(no_job),
            bad,
            "add: expected a signature .* declare it with @job",
        ),
        "no signature": (
            lambda w, _: w.add(app.add),
            bad,
            r"expected a signature, like add.s\(1\), got the function",
        ),
        "in a chain": (lambda *_: chain(app.add.s(1), app.add), bad, "chain: expected a signature"),
        "in a group": (lambda *_: group(app.add.s(1), 5), bad, "group: expected a signature .*, got 5"),
        "another workflow's result": (
            lambda w, o: w.add(app.total.s([1, o.add(app.add.s(1)).result])),
            bad,
            "total: parts: <result of add> is of another workflow, other, than own",
        ),
        "after another workflow's": (
            lambda w, o: w.add(app.add.s(1), after=[o.add(app.add.s(1))]),
            bad,
            "after: <add of workflow other> is of another workflow than own",
        ),
        "a circle": (
            lambda w, _: (
                w.add(app.add.s(1), ref="a", after=["b"]),
                w.add(app.add.s(1), ref="b", after=["a"]),
            ),
            bad,
            "ref: a comes after b: add them in the order",
        ),
        "after nothing": (
            lambda w, _: (w.add(app.add.s(1), after=["x"]), w.start()),
            bad,
            "there is no job x in",
        ),
        "a ref twice": (
            lambda w, _: (w.add(app.add.s(1), ref="a"), w.add(app.add.s(1), ref="a")),
            bad,
            "ref: expected another one, a is there already",
        ),
        "one ref for several": (
            lambda w, _: w.add(group([app.add.s(1)]), ref="a"),
            bad,
            "ref: expected none",
        ),
        "no JSON": (
            lambda w, _: w.add(app.look.s(x=object())),
            wrong,
            "look: x: expected a value that JSON can hold",
        ),
        "no JSON beside a result": (
            lambda w, _: w.add(app.look.s(x=[w.add(app.add.s(1)).result, object()])),
            wrong,
            "look: x: expected a value that JSON can hold",
        ),
        "a wrong type": (lambda w, _: w.add(app.add.s("1")), wrong, "add: x: expected int, got '1'"),
        "one too many": (
            lambda *_: chain(app.add.s(1), app.double.s(5)).start(),
            wrong,
            "too many positional",
        ),
        "one too few": (lambda *_: app.add.s().start(), wrong, "missing a required argument: 'x'"),
        "unique": (
            lambda w, _: w.add(once.s(1)),
            wrong,
            "once: unique: expected none for a job of a workflow",
        ),
        "a connection": (
            lambda w, _: w.add(app.add.using(connection=1).s(1)),
            wrong,
            "connection: expected none",
        ),
        "no name": (lambda w, _: w.add(app.bad.s(1)), wrong, "bad/. is for jobs of several names"),
        "nothing": (lambda w, _: w.start(), wrong, "jobs: expected at least one"),
        "outside of a run": (
            lambda *_: app.add.s(1).add_to_current(),
            bad,
            "this is no run of a job: use start",
        ),
        "a truth": (
            lambda w, _: bool(w.add(app.add.s(1)).result),
            TypeError,
            "<result of add> is not known before",
        ),
        "a loop": (lambda w, _: list(w.add(app.add.s(1)).result), TypeError, "not iterable"),
    }


@pytest.mark.parametrize("name", mistakes())
def test_a_wrong_use_says_what_is_wrong(name: str) -> None:
    use, kind, words = mistakes()[name]
    with capture() as jobs, pytest.raises(kind, match=words):
        use(Workflow("own"), Workflow("other"))
    assert not jobs.workflows


def test_a_missing_member_fails_the_job_that_needs_it() -> None:
    workflow = Workflow("members")
    first = workflow.add(app.look.s())
    workflow.add(app.add.s(first.result["nowhere"]))  # type: ignore[arg-type]
    with eager(), pytest.raises(WorkflowFailed, match="Fail: the result of look has no member 'nowhere'"):
        workflow.start().wait()


def test_a_run_that_waits_for_its_own_workflow_is_refused() -> None:
    with eager(), pytest.raises(WorkflowFailed, match="WaitNeverEnds: workflow 1: a run of it cannot wait"):
        app.waits.s().start().wait()


def test_a_result_that_was_left_out_fails_the_job_that_needs_it() -> None:
    fields = {"data": {"x": None, "$results": [[["x"], "a", ["result"]]]}, "before": {}}
    with pytest.raises(Fail, match="the result of a is not there"):
        filled(fields)
    with pytest.raises(
        Fail, match="the result of a is left out, as all results before this job are too much"
    ):
        filled({**fields, "beforeLeftOut": ["a"]})
    assert filled({**fields, "before": {"a": None}}) == {"x": None}


def test_long_names_have_refs_of_their_own() -> None:
    with eager() as jobs:
        workflow = Workflow("long")
        workflow.add(app.fan.s(2), ref="f" * REF_CHARS_MAX)
        with pytest.raises(WorkflowFailed, match="after: expected refs of the workflow, there is no fan"):
            workflow.start().wait()
    refs = list(jobs.workflows[0].jobs)
    assert len(refs) == 4
    assert all(len(ref) <= REF_CHARS_MAX for ref in refs)


def test_data_is_never_taken_for_a_result() -> None:
    given = {"$results": [[["x"], "a", []]], "ref": "a"}
    with eager():
        assert app.look.s(payload=given).start().wait()["data"] == {"payload": given}
        with pytest.raises(InvalidCommand, match=r"expected no argument called \$results"):
            app.look.s(**{"$results": []}).start()
