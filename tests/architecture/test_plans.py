"""Every command of the writer declares the rows it touches, so that an engine can lock them at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.engine import unit
from bedrockjobs.engine.handlers.context import PLANS, plan_of
from bedrockjobs.engine.handlers.create import TakeIn
from bedrockjobs.engine.handlers.serving import PackOutput
from bedrockjobs.job.take_request import Names, TakeRequest, names_from
from bedrockjobs.store.base import AccessPlan

assert unit.HANDLERS
WRITTEN = [kind for kind in c.ALL if kind.where == "writer"]


def asked(name: str) -> Names:
    """Return the requested names of a GetJob."""
    names = names_from(name, None)
    assert names is not None
    return names


def test_every_command_of_the_writer_has_a_plan_and_no_other() -> None:
    known = {*WRITTEN, PackOutput, TakeIn}  # the last two are the server's own
    assert not [kind.__name__ for kind in known - PLANS.keys()], "give its @handles a plan"
    assert not [kind.__name__ for kind in PLANS.keys() - known], "only a command of the writer has a plan"


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: kind.__name__)
def test_the_example_of_each_has_a_plan_that_says_something(kind: type[c.Command[Any]]) -> None:
    plan = plan_of(kind.read(kind.example.request))
    assert plan != AccessPlan(), "its plan names no row: name those that its example touches"


@pytest.mark.parametrize(
    ("kind", "given", "plan"),
    [
        (c.CreateJob, {"name": "a"}, AccessPlan(creates=("a",), new_jobs=1)),
        (
            c.CreateJob,
            {"name": "a", "unique": True, "parentJobID": 3, "idempotencyKey": "k"},
            AccessPlan(jobs=(3,), names=("a",), keys=("\x1f\x1fk", "k"), creates=("a",), new_jobs=1),
        ),
        (
            c.CreateJob,
            {"name": "a", "uniqueKey": "k"},
            AccessPlan(keys=("\x1funique\x1fa\x1fk",), creates=("a",), new_jobs=1),
        ),
        (
            c.CreateJobs,
            {"jobs": [{"name": "a"}, {"name": "b", "parentJobID": 2}]},
            AccessPlan(jobs=(2,), creates=("a", "b"), new_jobs=2),
        ),
        (
            c.GetJobs,
            {"name": "a*", "numResults": 5, "worker": "w"},
            AccessPlan(takes=(TakeRequest(asked("a*"), worker="w", limit=5),), own_jobs=True, new_runs=5),
        ),
        (c.GetJob, {"name": "a"}, AccessPlan(takes=(TakeRequest(asked("a")),))),
        (
            c.FinishJob,
            {"jobID": 4, "runID": 9, "thenGet": "a"},
            AccessPlan(jobs=(4,), runs=(9,), takes=(TakeRequest(asked("a")),)),
        ),
        (
            c.FinishJob,
            {"jobID": 4, "data": {"a": 1}, "thenGet": "a"},
            AccessPlan(ends=(4,), takes=(TakeRequest(asked("a")),)),
        ),
        (
            c.FinishJob,
            {"jobID": 4, "thenGet": "a", "worker": "w"},
            AccessPlan(ends=(4,), takes=(TakeRequest(asked("a"), worker="w"),), own_jobs=True, new_runs=1),
        ),
        (c.FinishJob, {"jobID": 4, "thenGet": ","}, AccessPlan(jobs=(4,))),
        (c.FinishJob, {"jobID": 4, "data": {"mockRequest": True}}, AccessPlan(jobs=(4,))),
        (c.FinishJobs, {"jobs": [{"jobID": 4}, {"jobID": 5}]}, AccessPlan(ends=(4, 5))),
        (c.FinishJobs, {"jobs": [{"jobID": 4}, {"jobID": 5, "runID": 1}]}, AccessPlan(jobs=(4, 5))),
        (
            c.FinishJobs,
            {"jobs": [{"jobID": 4}, {"jobID": 5}], "thenGet": "a", "numResults": 3, "worker": "w"},
            AccessPlan(
                ends=(4, 5), takes=(TakeRequest(asked("a"), worker="w", limit=3),), own_jobs=True, new_runs=3
            ),
        ),
        (c.FinishJobs, {"jobs": [{"jobID": 4}], "thenGet": ","}, AccessPlan(jobs=(4,))),
        (c.RequeueJobs, {"jobIDs": [1, 2]}, AccessPlan(jobs=(1, 2))),
        (c.TriggerJob, {"name": "a"}, AccessPlan(names=("a",))),
        (c.KillRun, {"runID": 3}, AccessPlan(runs=(3,))),
        (c.DeleteRuns, {"runIDs": [3, 4]}, AccessPlan(runs=(3, 4))),
        (c.DeleteRuns, {"name": "a"}, AccessPlan()),
        (c.PauseJobs, {}, AccessPlan(control=True)),
    ],
)
def test_a_plan_names_what_is_touched(
    kind: type[c.Command[Any]], given: dict[str, Any], plan: AccessPlan
) -> None:
    assert _shown(plan_of(kind.read(given))) == _shown(plan)


def _shown(plan: AccessPlan) -> tuple[AccessPlan, list[Any]]:
    """Return a plan without its takes, and its takes: their names are compared by value."""
    takes = [
        (take.names.exact, take.names.patterns, take.mocked, take.priority, take.worker, take.limit)
        for take in plan.takes
    ]
    return replace(plan, takes=()), takes
