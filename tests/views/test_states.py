"""Counts of jobs in each state, and the details in a list, compared with all rows."""

from __future__ import annotations

import random

import pytest

from bedrockjobs.base.config import JOBS_COUNTED_MAX
from bedrockjobs.base.glob import glob
from bedrockjobs.base.principal import Scope
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.views import find, states
from bedrockjobs.views.states import ALL, CHILDREN_OF_MANY, FAMILY_STATES, KEPT, FamilyCounts
from tests.views.table import AT, Table

NAMES = ("a/1", "a/2", "b", "c/d/e")
PATTERNS = (None, "*", "a/*", "a/[12]", "b", "nobody", "c/d/e")


def fill(table: Table) -> list[tuple[str, str, int]]:
    """Add jobs of all states; return state, name and parent of each, by jobID from 1 on."""
    dice = random.Random(5)
    rows = []
    for job_id in range(1, 201):
        state, name = dice.choice(STATES), dice.choice(NAMES)
        share = {"FINISHED": 1.0, "CANCELLED": 0.5}.get(state, 0.2)
        parent = dice.randint(1, 9) if dice.random() < share else 0
        record = state == "CANCELLED" and not parent
        expires = AT if record or dice.random() < 0.2 else ""
        table.job(job_id, state=state, name=name, parentJobID=parent, expires=expires)
        rows.append((state, name, parent))
    return rows


def counted(rows: list[tuple[str, str, int]], pattern: str | None) -> dict[str, int]:
    """Count by reading all rows."""
    found = dict.fromkeys((ALL, "QUEUED", "RUNNING", "PAUSED", "FAILED", "FINISHED", "CANCELLED"), 0)
    for state, name, _ in rows:
        if pattern is None or glob(name, pattern):
            found[ALL] += 1
            found["RUNNING" if state == "RUNQUEUED" else state] += 1
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_each_state_is_counted(table: Table, pattern: str | None) -> None:
    rows = fill(table)
    for run_id in range(1, 12):
        table.run(run_id, name=NAMES[run_id % 4], jobID=900, kept=AT if run_id % 3 else "")
    table.run(12, name="b", jobID=5, kept=AT)
    found = await table.views.states.counts(pattern)
    kept = sum(1 for run in range(1, 12) if run % 3 and (pattern is None or glob(NAMES[run % 4], pattern)))
    assert found == {key: (count, False) for key, count in {**counted(rows, pattern), KEPT: kept}.items()}


async def test_what_would_be_sought_among_all_names_is_not_counted(table: Table) -> None:
    fill(table)
    assert await table.views.states.counts("*2") == {}


async def test_open_runs_count_as_running_once(table: Table) -> None:
    table.job(1, state="RUNNING", runID=7)
    table.job(2, state="RUNNING")
    table.job(3, state="RUNQUEUED")
    table.run(7, jobID=1, status="running")
    assert (await table.views.states.counts())["RUNNING"] == (3, False)
    found = await table.views.find.jobs(state="RUNNING")
    assert [job.job_id for job in found.jobs] == [3, 2, 1]


async def test_counts_end_at_a_limit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert JOBS_COUNTED_MAX == 10_000
    monkeypatch.setattr(states, "JOBS_COUNTED_MAX", 3)
    for job_id in range(1, 6):
        table.job(job_id, name="a")
    table.job(6, name="a", state="FAILED")
    table.job(7, name="b", state="FINISHED", parentJobID=1)
    found = await table.views.states.counts()
    assert (found[ALL], found["QUEUED"], found["FAILED"], found["FINISHED"]) == (
        (3, True),
        (3, True),
        (1, False),
        (1, False),
    )
    named = await table.views.states.counts("a")
    assert (named["QUEUED"], named["FAILED"]) == ((3, True), (0, True))


@pytest.mark.parametrize("few", [0, find.FEW])
@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "FINISHED", "CANCELLED"])
async def test_jobs_of_a_state_are_found_however_many_there_are(
    table: Table, monkeypatch: pytest.MonkeyPatch, state: str, few: int
) -> None:
    monkeypatch.setattr(find, "FEW", few)
    monkeypatch.setattr(find, "STRETCH_MIN", 7)
    rows = fill(table)
    wanted = {"RUNNING": {"RUNNING", "RUNQUEUED"}}.get(state, {state})
    expected = [number for number, (is_in, _, _) in enumerate(rows, 1) if is_in in wanted][::-1]
    found, before = [], None
    while True:
        page = await table.views.find.jobs(state=state, before=before, limit=9, within_s=10)
        found += [job.job_id for job in page.jobs]
        if page.ended:
            break
        before = page.reached
    assert found == expected


@pytest.mark.parametrize("few", [0, find.FEW])
async def test_kept_runs_are_found_however_many_there_are(
    table: Table, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(find, "FEW", few)
    for run_id in range(1, 30):
        table.run(run_id, kept=AT if run_id % 3 == 0 else "")
    first = await table.views.find.runs(only_kept=True, limit=5)
    rest = await table.views.find.runs(only_kept=True, limit=50, before=first.reached)
    assert [run.run_id for run in first.runs + rest.runs] == list(range(27, 0, -3))


async def test_each_job_comes_with_its_newest_run_and_its_children(table: Table) -> None:
    for job_id in range(1, 4):
        table.job(job_id)
    for run_id, job_id in ((1, 1), (2, 2), (3, 1)):
        table.run(run_id, jobID=job_id, worker=f"w{run_id}", progress='{"percent":5}')
    for child in range(10, 10 + CHILDREN_OF_MANY + 3):
        table.job(child, parentJobID=2, state="FAILED")
    for child, state in ((900, "FINISHED"), (901, "RUNQUEUED"), (902, "PAUSED"), (903, "CANCELLED")):
        table.job(child, parentJobID=3, state=state)
    runs = await table.views.states.newest_runs([1, 2, 3])
    assert {job: (run.run_id, run.worker) for job, run in runs.items()} == {1: (3, "w3"), 2: (2, "w2")}
    found = await table.views.states.families([1, 2, 3])
    assert [found[job].states["FAILED"] for job in (1, 2)] == [0, CHILDREN_OF_MANY]
    assert [found[job].more for job in (1, 2, 3)] == [False, True, False]
    assert found[3].states == {"FINISHED": 1, "FAILED": 0, "RUNNING": 1, "QUEUED": 1, "CANCELLED": 1}
    mine = await table.views.scoped(Scope(["j900"])).states.families([2, 3])
    assert (mine[2], sum(mine[3].states.values())) == (FamilyCounts(dict.fromkeys(FAMILY_STATES, 0), True), 1)
    assert await table.views.states.families([]) == {}
