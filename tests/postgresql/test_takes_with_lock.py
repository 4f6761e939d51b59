"""Takes of jobs with locks: they skip few jobs with held locks, and find what SQLite finds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import PRIORITIES, TAKEN_AT_ONCE
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.postgresql import takes
from bedrockjobs.store.postgresql.heads import LowWaterMarks
from bedrockjobs.store.postgresql.takes import (
    JOBS_FURTHER,
    LOCKS_FURTHER,
    LOCKS_MAX,
    PASSED_MAX,
    planned_queries,
)
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import START, SQLiteQueue
from tests.effort import crossed, examples
from tests.postgresql.conftest import Server
from tests.postgresql.plans import pages_of
from tests.postgresql.test_foreseen import listened
from tests.postgresql.test_unit_walks import fill, taken

Servers = Callable[[int], list[Server]]

MANY = 5_000
PAGES_MAX = 500
"""Pages that a take may read, however many jobs wait for their lock: it reads 260 to 370. Ended rows are
walked past, twice each, until they are vacuumed: those of earlier tests made it 1,015 once."""

EITHER = [True, False][: examples(1, night=2)]
"""Whether a statement only looks and locks nothing: of tests that take long, one of the two by day."""

ADD = (
    "INSERT INTO jobs (created, jobID, state, name, nextRun, lane)"
    " SELECT '2020-01-01', $1::bigint + n, $2, 'a', '2020-01-01 00:00:' || lpad((n % 60)::text, 2, '0'),"
    " replace($3, '#', (n % 1000)::text)"
    " FROM generate_series(1, $4::bigint) AS n"
)


def add(one: Server, first: int, state: str, lane: str, count: int) -> None:
    """Add jobs named a; ``#`` in the lane becomes one of 1,000 numbers."""
    one.store.session.run_statements([(ADD, (first, state, lane, count))])
    one.store.session.script("VACUUM ANALYZE jobs")


def pages(one: Server, *, seen: bool = False, tried: int = 0) -> int:
    """Return the pages that a take of the name a reads; it scans further after ``tried`` attempts."""
    names = names_from("a", None)
    assert names is not None
    (look,) = planned_queries([TakeRequest(names)])
    plain = look.statement("2027", LowWaterMarks({}, {}), seen=seen)
    with_lock = look.with_lock("2027", seen=seen, tried=tried)
    return pages_of(one, *plain) + pages_of(one, *with_lock)


@pytest.mark.parametrize(("seen", "behind"), crossed([False, True], [False, True]))
def test_jobs_behind_one_held_lock_are_not_walked_past(
    seen: bool, behind: bool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = servers(1)
    add(one, 0, "RUNNING", "lock L", 1)
    add(one, 1, "QUEUED", "lock L", MANY)
    if behind:
        add(one, MANY + 1, "QUEUED", "lock M", 1)
        one.store.session.script("UPDATE jobs SET nextRun = '2020-01-02 00:00:00' WHERE lock = 'M'")
        one.store.session.script("VACUUM jobs")
    assert pages(one, seen=seen) < PAGES_MAX
    assert taken(one, "a", 2) == ([f"{MANY + 2}a", "404"] if behind else ["404", "404"])
    monkeypatch.setattr(takes, "PASSED_MAX", 10 * MANY)
    assert pages(one, seen=seen) > MANY


@pytest.mark.parametrize("seen", EITHER)
def test_jobs_of_one_time_behind_one_held_lock_are_not_walked_past(
    seen: bool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job is due at the same time as they are."""
    (one,) = servers(1)
    add(one, 0, "RUNNING", "lock L", 1)
    add(one, 1, "QUEUED", "lock L", MANY)
    add(one, MANY + 1, "QUEUED", "lock M", 2)
    one.store.session.script("UPDATE jobs SET nextRun = '2020-01-01 00:00:00'")
    one.store.session.script("VACUUM FULL jobs")
    assert pages(one, seen=seen) < PAGES_MAX
    assert taken(one, "a", 3) == [f"{MANY + 2}a", "404", "404"]
    monkeypatch.setattr(takes, "PASSED_MAX", 10 * MANY)
    assert pages(one, seen=seen) > MANY


@pytest.mark.parametrize("seen", EITHER)
def test_where_locks_are_very_many_a_take_goes_further_step_by_step(
    seen: bool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = servers(1)
    add(one, 0, "RUNNING", "lock L#", 999)
    add(one, 1000, "QUEUED", "lock L#", 4 * MANY)
    one.store.session.script("UPDATE jobs SET nextRun = '2020-01-02 00:00:00' WHERE lock = 'L0'")
    one.store.session.script("VACUUM jobs")
    assert (PASSED_MAX, LOCKS_MAX, JOBS_FURTHER, LOCKS_FURTHER) == (100, 300, 100, 10)
    first, second, third = (pages(one, seen=seen, tried=tried) for tried in range(3))
    assert first < 2_000  # it has seen 100 jobs and 301 locks
    assert 20_000 < second < 40_000  # 10,000 jobs, each with its lock, and all 1,000 locks
    assert third > 50_000  # all jobs
    trips = listened(one.store)
    assert taken(one, "a", 2) == ["2000a", "404"]  # of 1,000 locks, one is free
    assert [trip.count("take_with_lock") for trip in trips if "take_with_lock" in trip] == [1, 1]
    for job_id, limits in ((2000, (100, 1)), (3000, (0, 0))):  # the scan restarts several times
        one.do(c.FinishJob, jobID=job_id)
        for name, limit in zip(("PASSED_MAX", "LOCKS_MAX"), limits, strict=True):
            monkeypatch.setattr(takes, name, limit)
        assert taken(one, "a", 2) == [f"{job_id + 1000}a", "404"]


@pytest.mark.parametrize("seen", [False, True])
def test_jobs_of_a_name_that_is_paused_are_not_walked_past(seen: bool, servers: Servers) -> None:
    (one,) = servers(1)
    add(one, 0, "QUEUED", "", MANY)
    add(one, MANY, "QUEUED", "lock L", MANY)
    assert taken(one, "a", 1) != ["404"]
    one.do(c.PauseJobs, name="a*")
    assert taken(one, "a", 1) == ["404"]
    assert pages(one, seen=seen) < 25
    one.store.session.script("UPDATE pauses SET regex = '^b'")
    assert pages(one, seen=seen) >= 25


def test_jobs_with_a_lock_are_asked_for_only_where_some_are_queued(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    trips = listened(one.store)
    assert taken(one, "a", 1) == ["1a"]
    assert "take_with_lock" not in chain.from_iterable(trips)
    other.do(c.CreateJobs, jobs=[{"name": "a", "lock": "L"}] * 2 + [{"name": "a", "lock": "M"}])
    trips.clear()
    assert taken(one, "a", 1) == ["2a"]  # it was not known when the unit began
    assert [trip.count("take_with_lock") for trip in trips] == [0, 1, *[0] * (len(trips) - 2)]
    trips.clear()
    assert taken(one, "a", 1) == ["4a"]
    assert trips[0].count("take_with_lock") == 1
    assert len(trips) <= 3  # it has to lock the lock
    taken(one, "b", 1)
    one.do(c.DeleteJob, jobID=3)
    taken(one, "b", 1)
    trips.clear()
    taken(one, "b", 1)
    assert "take_with_lock" not in chain.from_iterable(trips)


@pytest.mark.parametrize(
    "step",
    [
        c.DeleteJob(jobID=2),
        c.UpdateJob(jobID=2, data={}, nextRun="2100-01-01 00:00:00"),
        c.UpdateJob(jobID=2, data={}, lock="K"),
        c.UpdateJob(jobID=2, data={}, jobPriority=250),
    ],
)
def test_where_the_first_job_of_a_lock_steps_aside_the_next_one_is_found(
    step: c.Command[Any], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takes, "PASSED_MAX", 0)
    (one,) = servers(1)
    for lock in ("K", "L", "L", "L"):
        one.do(c.CreateJob, name="a", lock=lock)
        one.clock.advance(1)
    first, changed, *others = one.call_together([c.GetJob(name="a"), step, *[c.GetJob(name="a")] * 5])
    assert changed.code == 200
    assert [one.body and one.body["jobID"] for one in (first, *others)][:2] == [1, 3]


def test_what_nobody_planned_to_take_comes_in_order_with_and_without_a_lock(servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"a" * 2 * TAKEN_AT_ONCE)
    for number in range(2 * TAKEN_AT_ONCE):
        one.do(c.CreateJob, name="a", lock=f"L{number}")
    context = one.open(c.GetJob(name="b"))
    found = [one.take(context, "a") for _ in range(4 * TAKEN_AT_ONCE)]
    one.commit()
    assert [json.loads(each.body)["jobID"] for each in found if each] == list(range(1, 4 * TAKEN_AT_ONCE + 1))


# --- starts of a key ---------------------------------------------------------------------------------------


def test_servers_share_the_starts_of_a_key(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.SetLimit, name="a", starts="3/1m", perKey=True)
    for _ in range(6):
        one.do(c.CreateJob, name="a", concurrencyKey="k", concurrencyLimit=10)
    assert [one.do(c.GetJob, name="a")["jobID"], other.do(c.GetJob, name="a")["jobID"]] == [1, 2]
    assert len(one.do(c.GetJobs, name="*", numResults=4)["jobs"]) == 1
    assert [server.do(c.GetJob, name="a") for server in (one, other)] == ["404 No job found"] * 2
    one.clock.advance(20.001)  # also that of the other
    assert other.do(c.GetJob, name="*")["jobID"] == 4
    assert one.do(c.GetJob, name="*") == "404 No job found"


@pytest.mark.parametrize("limits", [(100, 300), (5, 300), (5, 2)])
@pytest.mark.parametrize("name", ["a", "*", "a*"])
def test_a_key_that_waits_is_passed_over_with_all_its_jobs(
    name: str, limits: tuple[int, int], servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takes, "PASSED_MAX", limits[0])
    monkeypatch.setattr(takes, "LOCKS_MAX", limits[1])
    (one,) = servers(1)
    one.do(c.SetLimit, name="a", starts="1/1m", perKey=True)
    given = {"name": "a", "concurrencyLimit": 10}
    for key in ("k", "l", "m"):
        one.do(c.CreateJobs, jobs=[given | {"concurrencyKey": key}] * 400)
    one.do(c.CreateJob, **given, concurrencyKey="n")
    found = [one.do(c.GetJob, name=name)["jobID"] for _ in range(4)]
    assert found == [1, 401, 801, 1201]
    before = one.store.session.round_trips
    assert one.do(c.GetJob, name=name) == "404 No job found"
    assert one.store.session.round_trips - before <= 10


# --- random histories ------------------------------------------------------------------------------------

NAMES = ("a", "b", "a", "a,b", "*")
STEPS = 120


def step(dice: random.Random, known: int) -> c.Command[Any]:
    """Return a random command."""
    job_id = dice.randint(1, known + 1)
    kind = dice.random()
    lock = dice.choice(("", "K", "L", "L", "M", "N"))
    limited = {"concurrencyKey": "O", "concurrencyLimit": 2}
    locking = {"lock": lock} if lock != "N" else dice.choice((limited, {"concurrencyKey": "P"}))
    if kind < 0.35:
        given = {"name": dice.choice("ab"), "jobPriority": dice.choice(PRIORITIES[:3])}
        if dice.random() < 0.2:
            given["firstRun"] = "2100-01-01 00:00:00"
        return c.CreateJob.read(given | (locking if lock else {}))
    if kind < 0.6:
        return c.GetJob.read({"name": dice.choice(NAMES)})
    if kind < 0.7:
        return c.GetJobs.read({"name": dice.choice(NAMES), "numResults": dice.randint(1, 4)})
    if kind < 0.8:
        return c.FinishJob.read({"jobID": job_id})
    if kind < 0.85:
        return c.RetryJob.read({"jobID": job_id, "delay": dice.choice((0, 5))})
    if kind < 0.9:
        return c.DeleteJob.read({"jobID": job_id})
    if kind < 0.97:
        given = {"jobID": job_id, "data": {}, "jobPriority": dice.choice(PRIORITIES[:3])}
        return c.UpdateJob.read(given | ({"lock": lock} if dice.random() < 0.5 else {}))
    if kind < 0.985:
        if dice.random() < 0.3:
            return c.RemoveLimit(name="?")
        limited = {"running": dice.randint(0, 3), "starts": dice.choice(("", "1/9s", "4/20s", "30/1m"))}
        if not any(limited.values()):
            limited["starts"] = "2/11s"
        return c.SetLimit.read({"name": "?", "perKey": True, **limited})
    pause = dice.choice((c.PauseJobs, c.ResumeJobs))
    return pause.read({"name": dice.choice(("a", "b"))})


@pytest.mark.parametrize("seed", range(examples(2, night=300)))
def test_random_histories_of_jobs_with_locks_are_answered_as_on_sqlite(
    seed: int, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(takes, "PASSED_MAX", dice.randint(0, 2))
    monkeypatch.setattr(takes, "LOCKS_MAX", dice.choice((0, 1, 300)))
    (one,) = servers(1)
    clock = ManualClock(START)
    store = SQLiteEngine(":memory:", Settings())
    other = SQLiteQueue(store, "document", clock)
    known = 0
    for _ in range(STEPS):
        commands = [step(dice, known) for _ in range(dice.randint(1, 6))]
        expected = other.call_together(commands)
        assert one.call_together(commands) == expected, [
            (type(each).__name__, each.wire()) for each in commands
        ]
        known += sum(isinstance(each, c.CreateJob) for each in commands)
        seconds = dice.choice((0, 0.001, 1, 10))
        clock.advance(seconds)
        one.clock.advance(seconds)
    store.close()


def test_a_lock_that_was_got_in_a_part_that_is_undone_is_asked_for_again(servers: Servers) -> None:
    one, other = servers(2)
    for _ in range(2):
        one.do(c.CreateJob, name="a", lock="L")
    context = one.open()
    mark = context.unit.savepoint()
    assert one.take(context, "a") is not None
    context.unit.undo(mark)  # PostgreSQL lets go of the lock
    assert other.do(c.GetJob, name="a")["jobID"] == 1
    assert one.take(context, "a") is None
    one.commit()
    assert one.do(c.GetJob, name="a") == "404 No job found"
