"""Units of several servers in every interleaving: the result equals some serial order."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from random import Random
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.store.base import StoreConflict
from tests.effort import examples
from tests.postgresql.interleaving import Stage, Story, one_by_one, orders

A = c.CreateJob(name="a")
TAKE_A = c.GetJob(name="a")
KEYED = c.CreateJob(name="a", unique_key="k")
KEYED_TOO = c.CreateJob(name="b", unique_key="k")
REPLACE = c.CreateJob(name="a", unique_key="k", on_conflict="replace", data='{"by":"x"}')
FAMILY = (
    c.CreateJob(name="p"),
    c.GetJob(name="p"),
    c.CreateJob(name="c", parent_job_id=1),
    c.CreateJob(name="d", parent_job_id=1),
    c.FinishJob(job_id=1),
    c.GetJob(name="c"),
    c.GetJob(name="d"),
)
"""A parent, which is done and waits, and two children at work."""


def update(job_id: int, by: str) -> c.UpdateJob:
    """Return an update that records in the job who changed it last."""
    return c.UpdateJob(job_id=job_id, data=f'{{"by":"{by}"}}')


def graph(**of_first: Any) -> c.CreateWorkflow:
    """Return a workflow of two jobs and one after both; the first may have more attributes."""
    jobs = [
        {"ref": "a", "name": "a", **of_first},
        {"ref": "b", "name": "b"},
        {"ref": "c", "name": "c", "after": ["a", "b"]},
    ]
    return c.CreateWorkflow.read({"name": "w", "jobs": jobs})


AT_WORK = (graph(), TAKE_A, c.GetJob(name="b"))
TWICE = (*AT_WORK, *AT_WORK)
DONE_A, DONE_B, FAILED_A = c.FinishJob(job_id=1), c.FinishJob(job_id=2, data='{"n":1}'), c.FailJob(job_id=1)
ADDED = c.AddToWorkflow.read({"workflowID": 1, "jobs": [{"ref": "d", "name": "d", "after": ["a", "c"]}]})
PARENTS = (
    graph(onChildFailure="fail"),
    TAKE_A,
    c.GetJob(name="b"),
    c.CreateJob(name="child", parent_job_id=1),
    DONE_A,
    c.GetJob(name="child"),
)
"""A job of a workflow that waits for its child, which runs."""

WORKFLOWS = [
    Story("the ends of two jobs before a third", AT_WORK, [[DONE_A], [DONE_B]]),
    Story("a failure and an end before a third", AT_WORK, [[FAILED_A], [DONE_B]]),
    Story(
        "ends in two workflows in two orders",
        TWICE,
        [[DONE_A, c.FinishJob(job_id=4)], [c.FinishJob(job_id=5), DONE_B]],
    ),
    Story("an end and a cancellation of the next", AT_WORK, [[FAILED_A], [c.CancelJob(job_id=3, any=True)]]),
    Story("an end and a requeue of the next", AT_WORK, [[FAILED_A], [c.RequeueJobs(job_ids=[3])]]),
    Story(
        "an end, and a change of the next with another end", AT_WORK, [[FAILED_A], [update(3, "x"), DONE_B]]
    ),
    Story("an end and an addition", AT_WORK, [[DONE_A], [ADDED]]),
    Story("a failure and an addition", AT_WORK, [[FAILED_A], [ADDED]]),
    Story("an end and a cancellation of all", AT_WORK, [[DONE_A], [c.CancelWorkflow(workflow_id=1)]]),
    Story("an end and a retry of all", (*AT_WORK, FAILED_A), [[DONE_B], [c.RetryWorkflow(workflow_id=1)]]),
    Story(
        "a retry of one and an end before a third",
        (graph(onFailure="continue"), TAKE_A, c.GetJob(name="b"), FAILED_A),
        [[c.RetryJob(job_id=1, revive=True)], [DONE_B]],
    ),
    Story("a child that fails its parent, and an end", PARENTS, [[c.FailJob(job_id=4)], [DONE_B]]),
]
"""Units that end jobs of one workflow, or of several, in each order."""

TWO = [
    Story("two takes of one job", [A], [[TAKE_A], [TAKE_A]], passes_over=True),
    Story("two takes of two jobs", [A, A], [[TAKE_A], [TAKE_A]]),
    Story("a take by name and one by pattern", [A, A], [[TAKE_A], [c.GetJob(name="*")]]),
    Story("a take and a deletion", [A], [[TAKE_A], [c.DeleteJob(job_id=1)]], passes_over=True),
    Story("a take and a change", [A], [[TAKE_A], [update(1, "x")]], passes_over=True),
    Story("a take and a creation", [], [[TAKE_A], [A]], passes_over=True),
    Story("two ends of one job", [A, TAKE_A], [[c.FinishJob(job_id=1)], [c.FinishJob(job_id=1)]]),
    Story("an end and a retry", [A, TAKE_A], [[c.FinishJob(job_id=1)], [c.RetryJob(job_id=1, delay=0)]]),
    Story("the ends of two children", FAMILY, [[c.FinishJob(job_id=2)], [c.FinishJob(job_id=3)]]),
    Story("an end of a child and of its family", FAMILY, [[c.FinishJob(job_id=2)], [c.CancelJob(job_id=3)]]),
    Story(
        "a child while its parent ends",
        [c.CreateJob(name="p"), c.GetJob(name="p")],
        [[c.CreateJob(name="c", parent_job_id=1)], [c.FinishJob(job_id=1)]],
    ),
    Story("unique jobs", [], [[c.CreateJob(name="a", unique=True)], [c.CreateJob(name="a", unique=True)]]),
    Story(
        "a unique job whose first goes", [A], [[c.CreateJob(name="a", unique=True)], [c.DeleteJob(job_id=1)]]
    ),
    Story(
        "one idempotency key",
        [],
        [[c.CreateJob(name="a", idempotency_key="k")], [c.CreateJob(name="b", idempotency_key="k")]],
    ),
    Story("one unique key", [], [[KEYED], [KEYED]]),
    Story("two unique keys in two orders", [], [[KEYED, KEYED_TOO], [KEYED_TOO, KEYED]]),
    Story("a unique key and the end of its job", [KEYED, TAKE_A], [[KEYED], [c.FinishJob(job_id=1)]]),
    Story("a unique key and the start of its job", [KEYED], [[REPLACE], [TAKE_A]], passes_over=True),
    Story("a unique key and a deletion", [KEYED], [[REPLACE], [c.DeleteJob(job_id=1)]]),
    Story("one lock", [c.CreateJob(name="a", lock="L")] * 2, [[TAKE_A], [TAKE_A]], alike=True),
    Story("a pause and a take", [A], [[c.PauseJobs(name="a")], [TAKE_A]]),
]
ROUND = Story(
    "changes of two jobs in two orders",
    [A, c.CreateJob(name="b")],
    [[update(1, "x"), update(2, "x")], [update(2, "y"), update(1, "y")]],
)
ACROSS = Story(
    "children and each other's parents",
    [
        c.CreateJob(name="p"),
        c.CreateJob(name="q"),
        c.GetJob(name="p"),
        c.GetJob(name="q"),
        c.CreateJob(name="c", parent_job_id=1),
        c.CreateJob(name="d", parent_job_id=2),
    ],
    [[update(3, "x"), update(2, "x")], [update(4, "y"), update(1, "y")]],
)
THREE = [
    Story("three takes of two jobs", [A, A], [[TAKE_A]] * 3, passes_over=True),
    Story(
        "changes of three jobs all around",
        [A, A, A],
        [[update(one, "xyz"[one - 1]), update(one % 3 + 1, "xyz"[one - 1])] for one in (3, 1, 2)],
    ),
]


TWO_MIXED = examples(6, night=1_000)
"""Orders of all steps of two units, drawn by lot; at night there are all of them."""

THREE_MIXED = examples(3, night=1_000)
"""The same of three units, of which there are thousands."""

THREE_IN_ONE_GO = examples(12, night=90)
"""Orders of the beginnings and ends of three units."""

WORKFLOWS_MIXED = examples(1, night=1_000)
"""Orders of all steps of two units that change workflows."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Return three servers."""
    stage = Stage(3)
    yield stage
    stage.close()


def told(story: Story) -> str:
    """Return the ID of a test: its story's name."""
    return story.name


@pytest.mark.parametrize("story", [*TWO, ROUND, ACROSS], ids=told)
def test_two_units_are_as_one_after_the_other(stage: Stage, story: Story) -> None:
    """In every order of beginnings and ends, and some orders of all steps: begin, each command, commit."""
    expected = one_by_one(story)
    counts = [len(commands) + 2 for commands in story.units]
    mixed = list(orders(counts))
    assert len(mixed) == comb(sum(counts), counts[0])
    drawn = some_of(mixed, counts, TWO_MIXED)
    found = [stage.act(story, order) for order in drawn]
    assert [order for order, result in zip(drawn, found, strict=True) if result not in expected] == []
    assert any(result.passed_over for result in found) == story.passes_over


def in_one_go(order: tuple[int, ...], counts: list[int]) -> tuple[int, ...]:
    """Return an order of all steps, from an order of the units' beginnings and ends."""
    begun: set[int] = set()
    steps: list[int] = []
    for number in order:
        steps += [number] * (counts[number] - 1 if number in begun else 1)
        begun.add(number)
    return tuple(steps)


def some_of(
    mixed: list[tuple[int, ...]], counts: list[int], drawn: int, in_one: int = 1_000
) -> list[tuple[int, ...]]:
    """Return orders in which units do their commands in one go, at most ``in_one``, and ``drawn`` of all."""
    together = [in_one_go(order, counts) for order in orders([2] * len(counts))]
    assert {*together} <= {*mixed}
    lot = Random(1)
    return list(
        dict.fromkeys(
            lot.sample(together, min(len(together), in_one)) + lot.sample(mixed, min(len(mixed), drawn))
        )
    )


@pytest.mark.parametrize("story", WORKFLOWS, ids=told)
def test_units_that_change_workflows_are_as_one_after_the_other(stage: Stage, story: Story) -> None:
    """The same for every order of their beginnings and ends, and some orders of all steps."""
    expected = one_by_one(story)
    counts = [len(commands) + 2 for commands in story.units]
    mixed = list(orders(counts))
    drawn = some_of(mixed, counts, WORKFLOWS_MIXED)
    found = [stage.act(story, order) for order in drawn]
    assert [order for order, result in zip(drawn, found, strict=True) if result not in expected] == []


@pytest.mark.parametrize("story", THREE, ids=told)
def test_three_units_are_as_one_after_the_other(stage: Stage, story: Story) -> None:
    """The same for every order of their beginnings and ends, and some orders of all steps."""
    expected = one_by_one(story)
    counts = [len(commands) + 2 for commands in story.units]
    mixed = list(orders(counts))
    drawn = some_of(mixed, counts, THREE_MIXED, THREE_IN_ONE_GO)
    found = [stage.act(story, order) for order in drawn]
    assert [order for order, result in zip(drawn, found, strict=True) if result not in expected] == []
    assert any(result.passed_over for result in found) == story.passes_over


def test_takes_that_do_not_look_again_are_as_in_no_order(stage: Stage) -> None:
    """The control: without retries, a take gets 404 if another unit has changed the job."""
    story = next(story for story in TWO if story.name == "a take and a change")
    found = [stage.act(story, order, looks_again=False) for order in orders([3, 3])]
    expected = one_by_one(story)
    assert [result for result in found if result not in expected]
    assert all(result in expected for result in found if not result.passed_over)


@pytest.mark.parametrize("story", [ROUND, WORKFLOWS[2]], ids=told)
def test_units_that_lock_in_an_order_of_their_own_end_in_a_circle(stage: Stage, story: Story) -> None:
    """The control: without plans, rows are locked in the order of the commands."""

    def in_every_order() -> None:
        for order in orders([4, 4]):
            stage.act(story, order, planned=False)

    with pytest.raises(StoreConflict):
        in_every_order()
