"""The overview."""

from __future__ import annotations

import asyncio
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.principal import Scope
from bedrockjobs.commands import ListQueues, Overview
from bedrockjobs.engine.events import JobsCreated
from bedrockjobs.observe.stats import JOBS_DONE
from bedrockjobs.views import name_tree, queues
from bedrockjobs.views.problems import PROBLEMS_MAX, SPACE_LOW_BYTES
from bedrockjobs.views.queues import COUNTED_MAX
from tests.views.table import AT, Table


def job(table: Table, **values: Any) -> None:
    """Add a job that is due."""
    table.add("jobs", **{"created": AT, "nextRun": AT, "state": "QUEUED", "name": "a", **values})


async def overview(table: Table) -> dict[str, Any]:
    """Return the reply to Overview, without problems and upcoming runs."""
    found = await table.ask(Overview())
    return {key: value for key, value in found.items() if key not in ("problems", "next", "newestEvent")}


NONE = {
    "now": "2026-11-21 03:29:56",
    "ready": 0,
    "later": 0,
    "running": 0,
    "paused": 0,
    "blocked": 0,
    "mocked": 0,
    "failed": 0,
    "unseen": 0,
    "children": 0,
    "untaken": 0,
    "repeating": 0,
    "pauses": 0,
    "workers": 0,
    "taking": 0,
    "oldestReady": "",
    "more": [],
    "countedAge": 0,
}


async def test_an_overview_of_nothing(table: Table) -> None:
    assert await overview(table) == NONE
    assert (await table.ask(Overview()))["problems"] == []


async def test_an_overview(table: Table) -> None:
    job(table, nextRun="2026-11-21 02:00:00", priority=0)
    job(table, lane="cmd lock x")
    job(table, lane="mock", state="RUNQUEUED")
    job(table, nextRun="2026-11-22 00:00:00", lane="every", repeat="CRON 0 0 * * *")
    for state in ("FAILED", "PAUSED", "PAUSED", "RUNNING", "FINISHED", "CANCELLED"):
        job(table, state=state)
    table.run(1, status="running")
    table.run(2)
    table.presence.record_contact("w")
    assert await overview(table) == {
        **NONE,
        "ready": 2,
        "later": 1,
        "mocked": 1,
        "running": 2,
        "children": 2,
        "failed": 1,
        "unseen": 1,
        "repeating": 1,
        "workers": 1,
        "taking": 1,
        "untaken": 2,
        "oldestReady": "2026-11-21 02:00:00",
    }


async def test_what_is_paused_or_mocked_keeps_nobody_waiting(table: Table) -> None:
    job(table, name="mock", lane="mock", nextRun="2026-11-21 01:00:00")
    job(table, name="held/a", nextRun="2026-11-21 02:00:00")
    job(table, name="free", nextRun="2026-11-21 03:00:00")
    assert (await overview(table))["oldestReady"] == "2026-11-21 02:00:00"
    table.add("pauses", pattern="held/*", since=AT)
    found = await overview(table)
    assert (found["oldestReady"], found["ready"], found["paused"]) == ("2026-11-21 03:00:00", 1, 1)
    table.db.execute("UPDATE pauses SET \"until\" = '2026-11-21 00:00:00'")
    assert (await overview(table))["oldestReady"] == "2026-11-21 02:00:00"


async def test_an_overview_counts_no_further_than_it_shows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts stop there if counting all takes too long."""
    monkeypatch.setattr(queues, "COUNT_S", 0)
    rows = ((AT, AT, "QUEUED", "a"),) * (COUNTED_MAX + 5)
    table.db.execute("BEGIN")
    table.db.executemany("INSERT INTO jobs (created, nextRun, state, name) VALUES (?, ?, ?, ?)", rows)
    table.db.execute("COMMIT")
    found = await overview(table)
    assert (found["ready"], found["more"]) == (COUNTED_MAX, ["ready", "untaken"])
    (queue,) = (await table.ask(ListQueues()))["queues"]
    assert (queue["ready"], queue["more"]) == (COUNTED_MAX, True)


async def ranked(table: Table, **given: Any) -> list[tuple[str, int, bool]]:
    """Return names ranked by jobs, the number of ready jobs, and whether there are more names."""
    found = (await table.ask(ListQueues(sort="jobs", **given)))["queues"]
    return [(queue["name"], queue["ready"], queue["more"]) for queue in found]


async def test_counts_are_exact_and_names_are_ranked_by_them(table: Table) -> None:
    """However many names and jobs exist: no count ends at a limit, and no name is left out."""
    rows = [(AT, AT, "QUEUED", f"n{number % 3_000}/x") for number in range(6_000)]
    rows += [(AT, AT, "QUEUED", "z/large")] * (COUNTED_MAX + 5) + [(AT, AT, "QUEUED", "y")] * 230
    rows += [(AT, "2027-01-01 00:00:00", "QUEUED", "later")] * 300
    table.db.execute("BEGIN")
    table.db.executemany("INSERT INTO jobs (created, nextRun, state, name) VALUES (?, ?, ?, ?)", rows)
    table.db.execute("COMMIT")
    job(table, name="running", state="RUNQUEUED", nextRun="2027-01-01 00:00:00", runID=1)
    found = await overview(table)
    assert (found["ready"], found["later"], found["more"]) == (COUNTED_MAX + 6_235, 300, [])
    assert await ranked(table, limit=2) == [("z/large", COUNTED_MAX + 5, False), ("y", 230, False)]
    assert (await ranked(table, limit=1, after="y"))[0][1] == 2
    assert await ranked(table, name="z*") == [("z/large", COUNTED_MAX + 5, False)]


async def test_a_count_of_very_many_is_kept_and_told_with_its_age(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(table, name="a")
    monkeypatch.setattr(queues, "COUNTED_EACH_TIME", 1)
    monkeypatch.setattr(queues, "AGE_PER_COST", 10**9)
    assert (await overview(table))["ready"] == 1
    job(table, name="a")
    assert (await overview(table))["ready"] == 1, "it is as old as what it cost allows"
    look = await table.views.queues.snapshot()
    assert look.age > 0
    monkeypatch.setattr(queues, "AGE_MAX_S", 0)
    assert (await overview(table))["ready"] == 2
    monkeypatch.setattr(queues, "COUNTED_EACH_TIME", 1_000)
    job(table, name="a")
    assert (await overview(table))["ready"] == 3
    job(table, name="a")
    assert (await overview(table))["ready"] == 4, "few jobs are counted each time"


async def test_of_very_many_names_those_with_the_most_jobs_are_kept(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "NAMES_COUNTED_MAX", 2)
    monkeypatch.setattr(queues, "COUNT_SLICE", 3)
    for number in range(12):
        for _ in range(1 + (number in (4, 11))):
            job(table, name=f"n{number:02}")
    assert [name for name, *_ in await ranked(table)] == ["n04", "n11"]
    assert "ready" in (await overview(table))["more"]


HELD, RUN, BAD, LATE = "held", "run", "bad", "late"
"""Prefixes of names whose jobs are paused, running, failed and not due; those of others are ready."""


def many(table: Table) -> dict[str, int]:
    """Fill a database with names in all columns of a list of queues; return how many jobs each has.

    Names later in the alphabet have more jobs.
    """
    table.add("pauses", pattern=f"{HELD}/*", since=AT)
    counts: dict[str, int] = {}
    runs = 0
    table.db.execute("BEGIN")
    for number in range(8):
        for prefix in (HELD, RUN, BAD, LATE, "ready"):
            name, counts[name] = f"{prefix}/{number}", 10 + number
            for _ in range(counts[name]):
                runs += prefix == RUN
                given = {
                    RUN: {"state": "RUNNING", "runID": runs},
                    BAD: {"state": "FAILED"},
                    LATE: {"nextRun": "2027-01-01 00:00:00"},
                }
                job(table, name=name, **given.get(prefix, {}))
                if prefix == RUN:
                    table.run(runs, name=name, status="running")
    table.db.execute("COMMIT")
    return counts


def column(name: str) -> str:
    """Return the column in which the jobs of a name are counted."""
    prefix = name.partition("/")[0]
    return {HELD: "paused", RUN: "running", BAD: "failed", LATE: "later"}.get(prefix, "ready")


COLUMNS = ("ready", "later", "running", "paused", "failed")


@pytest.mark.parametrize("prefix", [HELD, RUN, BAD, LATE, "ready"])
async def test_lists_and_trees_of_very_many_names_are_ranked_by_true_counts(
    table: Table, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """This holds in each column, and for a tree of some names."""
    monkeypatch.setattr(name_tree, "NAMES_MAX", 3)
    monkeypatch.setattr(queues, "COUNTED_MAX", 5)
    monkeypatch.setattr(queues, "COUNTS_MAX", 50)
    counts = many(table)
    best = [f"{prefix}/{number}" for number in reversed(range(8))]
    found = (await table.ask(ListQueues(sort="jobs", name=f"{prefix}/*")))["queues"]
    assert [each["name"] for each in found] == best
    for each in found:
        assert {key: each[key] for key in COLUMNS if each[key]} == {
            column(each["name"]): counts[each["name"]]
        }
        assert not each["more"]
    for under in ("", f"{prefix}/"):
        folds = await table.views.folder.some(f"{prefix}/*", under, 4)
        assert [fold.label for fold in folds.rows] == best[:4]
        assert (folds.left_out, folds.more) == (4, False)
        for fold in folds.rows:
            said = {key: getattr(fold.totals, key) for key in ("ready", "later", "paused")}
            said |= {"running": fold.running, "failed": fold.failed}
            assert {key: count for key, count in said.items() if count} == {
                column(fold.label): counts[fold.label]
            }
            assert (fold.more, fold.more_running) == (False, False)


async def test_runs_are_counted_as_far_as_it_is_said(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = many(table)
    running = sum(count for name, count in counts.items() if column(name) == "running")
    assert (await overview(table))["running"] == running
    monkeypatch.setattr(queues, "RUNNING_COUNTED_MAX", 20)
    found = await overview(table)
    assert (found["running"], found["more"]) == (20, ["running"])
    assert all(each["more"] for each in (await table.ask(ListQueues()))["queues"])
    assert all(fold.more_running for fold in (await table.views.folder.all(100)).rows)


async def test_a_count_that_is_too_slow_for_its_slice_goes_on_in_smaller_ones(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = many(table)
    view, sizes = table.reader.view, []

    async def slow(name: str, given: dict[str, Any], limit: int, **more: Any) -> Any:
        if name == "count_all_groups":
            sizes.append(limit)
            if limit > 2:
                raise TimedOut
        return await view(name, given, limit, **more)

    monkeypatch.setattr(table.reader, "view", slow)
    found = await ranked(table, name="ready/*")
    assert found == [(f"ready/{number}", counts[f"ready/{number}"], False) for number in reversed(range(8))]
    assert sizes[0] == queues.COUNT_SLICE
    assert sizes[-1] <= 2


async def test_a_count_that_is_not_finished_in_time_is_continued(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next requests continue it, and the last has the exact ranking."""
    counts = many(table)
    monkeypatch.setattr(queues, "COUNT_SLICE", 7)
    monkeypatch.setattr(queues, "COUNT_S", 0.001)
    view, read = table.reader.view, 0

    async def slow(name: str, given: dict[str, Any], limit: int, **more: Any) -> Any:
        nonlocal read
        if name == "count_all_groups":
            read += 1
            loop = asyncio.get_running_loop()
            late = loop.time() + queues.COUNT_S
            while loop.time() < late:
                await asyncio.sleep(0)
        return await view(name, given, limit, **more)

    monkeypatch.setattr(table.reader, "view", slow)
    looks = 1
    while await table.views.queues.counted_names("ready/*") is None:
        looks += 1
    slices = -(-sum(column(name) in ("ready", "later", "paused") for name in counts) // 7)
    assert looks > 1
    assert read == slices, "no slice is read again"


async def test_a_count_that_takes_too_long_leaves_the_one_before(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply shows its age; without it, names would be in alphabetical order."""
    many(table)
    monkeypatch.setattr(queues, "COUNTED_EACH_TIME", 1)
    before = await ranked(table, name="ready/*")
    monkeypatch.setattr(queues, "AGE_MAX_S", 0)
    monkeypatch.setattr(queues, "COUNT_S", 0)
    job(table, name="ready/7")
    assert await ranked(table, name="ready/*") == before
    assert (await table.views.queues.snapshot()).age > 0


def small(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Make counts of the queue stop early."""
    monkeypatch.setattr(queues, "COUNT_S", 0)
    for name, limit in limits.items():
        monkeypatch.setattr(queues, name, limit)


async def test_few_large_names_are_counted_further_than_many(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, COUNTS_MAX=100, COUNTED_LEAST=1)
    for name in ("a", "b", "c"):
        job(table, name=name)
    for _ in range(90):
        job(table, name="large")
    found = await overview(table)
    assert (found["ready"], found["more"]) == (93, [])
    for _ in range(20):
        job(table, name="large")
    found = await overview(table)
    assert found["ready"] == 100
    assert found["more"] == ["ready", "untaken"]


async def test_names_behind_the_limit_are_counted_together_by_their_beginning(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, ALIKE_MAX=2)
    for number in range(6):
        job(table, name=f"mail/{number}", nextRun="2026-11-21 02:00:00" if number == 5 else AT)
    job(table, name="zz")
    found = await overview(table)
    assert (found["ready"], found["more"], found["oldestReady"]) == (7, [], "2026-11-21 02:00:00")
    table.add("pauses", pattern="mail/*", since=AT)
    found = await overview(table)
    assert (found["ready"], found["paused"], found["more"]) == (1, 6, [])
    table.db.execute("UPDATE pauses SET pattern = 'mail/[0-3]'")
    found = await overview(table)
    assert (found["paused"], found["ready"]) == (2, 1), "what is not known one by one is not guessed"
    assert "ready" in found["more"] or "paused" in found["more"]


async def test_each_lane_has_its_share_of_the_names(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, GROUPS_MAX=6)
    for number in range(20):
        job(table, name=f"n{number:02}")
    job(table, name="own", lane="cmd")
    job(table, name="bound", lane="for w9")
    table.presence.record_contact("w", names=["*"])
    found = await table.ask(Overview())
    assert found["ready"] == 22, "the lanes alone tell it while nothing is paused"
    assert {"ready", "later", "paused", "blocked", "mocked"} <= set(found["more"])
    assert {problem["name"] for problem in found["problems"]} >= {"own", "bound"}


async def test_very_many_names_that_nobody_takes_are_counted(table: Table) -> None:
    table.presence.record_contact("w", names=["x"])
    for number in range(PROBLEMS_MAX + 3):
        job(table, name=f"n{number}")
    found = [one for one in (await table.ask(Overview()))["problems"] if one["kind"] == "no worker"]
    assert len(found) == PROBLEMS_MAX + 1
    assert found[0]["detail"].startswith("no worker takes n")
    assert found[-1]["detail"] == "no worker takes 3 more names"


async def test_very_many_pauses_are_counted(table: Table) -> None:
    for number in range(PROBLEMS_MAX + 3):
        table.add("pauses", pattern=f"n{number}", since=AT)
    found = (await table.ask(Overview()))["problems"]
    assert [one["kind"] for one in found] == ["paused"] * (PROBLEMS_MAX + 1)
    assert found[-1]["detail"] == "3 more patterns are paused"


async def test_what_is_paused_for_somebody_is_said_in_full(table: Table) -> None:
    table.add("pauses", pattern="*", since=f"{AT}.250", by="ann", reason="moving the disks")
    job(table, name="a")
    job(table, name="b", nextRun="2026-11-22 00:00:00")
    (found,) = (await table.ask(Overview()))["problems"]
    assert found["detail"] == (
        f"everything has been paused by ann since {AT}: 2 jobs wait, 1 of them not due yet;"
        " reason: moving the disks"
    )


@pytest.mark.parametrize(("free", "told"), [(SPACE_LOW_BYTES, False), (SPACE_LOW_BYTES - 1, True)])
async def test_a_disk_with_little_room_is_told_first_and_to_who_sees_everything(
    table: Table, monkeypatch: pytest.MonkeyPatch, free: int, told: bool
) -> None:
    table.job(1, name="a", state="FAILED")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    found = (await table.ask(Overview()))["problems"]
    assert [one["kind"] for one in found] == (["disk low"] if told else []) + ["failed"]
    words = "1,074 MB are free on the disk of the database: when it is full no jobs are created"
    assert not told or found[0]["detail"] == words
    narrow = await table.views.scoped(Scope(("a",))).standings.overview()
    assert [one.kind for one in narrow.problems] == ["failed"], "the disk is no matter of theirs"


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (1, "the last run of s1 failed"),
        (2, "the last runs of s1 and s2 failed"),
        (3, "the last runs of s1, s2 and s3 failed"),
        (4, "the last runs of s1, s2, s3 and 1 more schedule failed"),
        (6, "the last runs of s1, s2, s3 and 3 more schedules failed"),
    ],
)
async def test_schedules_that_failed_are_named(table: Table, count: int, sentence: str) -> None:
    for number in range(1, count + 1):
        table.job(number, name=f"s{number}", repeat="CRON 0 0 1 1 *", nextRun="2027-01-01 00:00:00")
        table.run(number, jobID=number, name=f"s{number}", status="fail")
    (found,) = (await table.ask(Overview()))["problems"]
    assert (found["kind"], found["count"], found["detail"]) == ("last run failed", count, sentence)


async def test_the_schedules_that_fire_next(table: Table) -> None:
    for number, next_run in enumerate(("2026-12-02", "2026-12-01", "9999-12-31"), 1):
        table.job(number, name=f"s{number}", repeat="CRON 0 0 1 1 *", nextRun=f"{next_run} 00:00:00")
    table.add("pauses", pattern="s2", since=AT)
    assert [(one["jobID"], one["paused"]) for one in (await table.ask(Overview()))["next"]] == [
        (2, "s2"),
        (1, ""),
    ]


async def test_counters_in_steps(table: Table) -> None:
    for minute, created in (("03:00", 1), ("03:01", 2), ("03:05", 4)):
        counts = dict.fromkeys(
            [*JOBS_DONE[1:], *(f"{span}{at}" for span in ("wait", "took") for at in range(15))], 0
        )
        at = f"2026-11-21 {minute}:00"
        table.add("stats", **{"name": "", "step": 60, "at": at, "created": created, **counts, "wait3": 2})
    table.stats.begin_minute("2026-11-21 03:06:00")
    table.stats.event_handlers()[JobsCreated](JobsCreated(["a"] * 8))
    found = await table.views.histories.of_all("6h")
    assert found.step == 300
    shown = [(step.at, step.created, step.wait_p95) for step in found.steps if step.created]
    assert shown == [("2026-11-21 03:00:00", 3, 0.28), ("2026-11-21 03:05:00", 12, 0.28)]
    assert [step.created for step in (await table.views.histories.of_all("1h")).steps if step.created] == [
        1,
        2,
        4,
        8,
    ]
    last = (await table.views.histories.of_name("a", "15m")).total
    assert (last.created, last.wait_p50) == (0, None), "that was 23 minutes ago"
