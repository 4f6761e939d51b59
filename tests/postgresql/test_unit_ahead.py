"""Plain takes and ends in the first round trip, ahead of the handlers: unused ones are reverted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.engine.unit import perform
from bedrockjobs.store.base import AccessPlan, StoreConflict
from bedrockjobs.store.postgresql import unit as pg_unit
from bedrockjobs.store.postgresql.locks import AdvisoryKeys
from bedrockjobs.store.postgresql.statements import QUERIES
from bedrockjobs.store.postgresql.takes import CachedBounds
from bedrockjobs.store.postgresql.unit import OpeningRound
from tests.postgresql.conftest import Server

Servers = Callable[[int], list[Server]]
Beside = Callable[[Callable[[], Any]], "Future[Any]"]

ROWS = "SELECT string_agg(jobs::text, ' ' ORDER BY jobID) FROM jobs"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], list[str]]:
    """Return a function that makes a server record the names of its statements."""
    names = {sql: name for name, sql in QUERIES.items()}

    def listed(server: Server) -> list[str]:
        found: list[str] = []
        session, run, commit = (
            server.store.session,
            server.store.session.run_statements,
            server.store.session.commit,
        )

        def noted(statements: Any) -> Any:
            found.extend(names.get(sql, "?") for sql, _ in statements)
            return run(statements)

        def noted_commit(statements: Any) -> Any:
            found.extend(names.get(sql, "?") for sql, _ in statements)
            return commit(statements)

        monkeypatch.setattr(session, "run_statements", noted)
        monkeypatch.setattr(session, "commit", noted_commit)
        return found

    return listed


def test_plain_takes_and_ends_are_written_by_the_first_round_trip(servers: Servers, sent: Any) -> None:
    (one,) = servers(1)
    for _ in range(3):
        one.do(c.CreateJob, name="a")
    listed = sent(one)
    one.do(c.GetJobs, name="a", numResults=2)
    assert "claim_in_open_lane" in listed
    assert "claim_jobs" not in listed
    del listed[:]
    assert one.do(c.FinishJobs, jobs=[{"jobID": 1}, {"jobID": 2}])["results"][1]["code"] == 200
    assert "end_jobs" in listed
    assert not {"lock_jobs", "runs_ahead", "delete_jobs"} & set(listed)
    assert one.value("SELECT count(*) FROM jobs") == 1


@pytest.mark.parametrize("lane", ["now", "now lock L", "lock L"])
def test_other_lanes_are_looked_into_only_where_anything_is_queued_there(
    lane: str, servers: Servers, sent: Any
) -> None:
    (one,) = servers(1)
    for _ in range(5):
        one.do(c.CreateJob, name="a")
    listed = sent(one)
    takes = ("claim_in_open_lane", "claim_by_name", "take_by_name", "commit")

    def taken() -> tuple[int, list[int]]:
        del listed[:]
        job_id = one.do(c.GetJob, name="a")["jobID"]
        return job_id, [listed.count(name) for name in takes]

    assert taken() == (1, [1, 0, 0, 1])
    aside = f"lane = '{lane}', nextRun = '2020-01-01 00:00:00'"
    one.store.session.script(f"UPDATE jobs SET {aside} WHERE jobID = 4")
    assert taken() == (4, [1, 0, 1, 1])  # it was not known when the unit began
    assert one.value("SELECT string_agg(state, ' ' ORDER BY jobID) FROM jobs") == (
        "RUNNING QUEUED QUEUED RUNNING QUEUED"
    )
    assert taken() == (2, [0, 1, 0, 1])
    assert taken() == (3, [1, 0, 0, 1])


def test_a_server_knows_of_the_jobs_that_it_puts_into_other_lanes(servers: Servers, sent: Any) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a")
    one.do(c.CreateJob, name="a", lock="L")
    listed = sent(one)
    assert one.do(c.GetJobs, name="a", numResults=2)["jobs"][1]["jobID"] == 2
    assert "claim_in_open_lane" not in listed


def test_jobs_of_which_little_is_said_are_added_with_fewer_columns(servers: Servers, sent: Any) -> None:
    (one,) = servers(1)
    listed = sent(one)
    first = c.CreateJob.read({"name": "a", "firstRun": "2100-01-01 00:00:00", "data": {"x": 1}})
    one.call_together([first, c.CreateJob.read({"name": "a", "data": {"x": 1}})])
    assert {"insert_plain_jobs", "insert_jobs"} <= set(listed)  # the former contains only one time
    alike = "SELECT count(DISTINCT to_jsonb(jobs) - 'jobid' - 'nextrun') FROM jobs"
    assert one.value(alike) == 1
    del listed[:]
    one.call_together(
        [c.CreateJob(name="b"), c.CreateJob(name="c"), c.CreateJob(name="b", job_priority=1000)]
    )
    assert [listed.count(name) for name in ("insert_plain_jobs", "insert_jobs")] == [1, 1]
    assert one.value("SELECT string_agg(name || priority, ' ' ORDER BY jobID) FROM jobs WHERE jobID > 2") == (
        "b500 c500 b1000"
    )


def test_what_was_taken_ahead_and_by_nobody_is_put_back(servers: Servers) -> None:
    (one,) = servers(1)
    for _ in range(3):
        one.do(c.CreateJob, name="a", data={"x": 1})
    before = one.value(ROWS)
    context = one.open(c.GetJobs(name="a", num_results=3))
    watched = one.store.session.run_statements([(ROWS, ())])[0][0][0]
    assert watched.count("RUNNING") == 3
    assert context.unit.job(2).state == "QUEUED"
    one.commit()
    assert one.value(ROWS) == before


def test_what_was_taken_ahead_is_put_back_once_also_after_a_part(servers: Servers) -> None:
    (one,) = servers(1)
    for _ in range(2):
        one.do(c.CreateJob, name="a")
    commands = [
        c.GetJobs(name="a", num_results=2),
        c.CreateJobs.read({"jobs": [{"name": "b"}, {"name": "c", "parentJobID": 9}]}),
        c.GetJob(name="a"),
    ]
    context = one.open(*commands)
    outcomes = [perform(context, command) for command in commands[1:]]
    assert [getattr(outcome, "code", 200) for outcome in outcomes] == [404, 200]
    one.commit()
    assert one.value("SELECT string_agg(state, ' ' ORDER BY jobID) FROM jobs") == "RUNNING QUEUED"


def test_what_was_removed_ahead_and_by_nobody_is_put_back(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a", data={"x": 1})
    one.do(c.GetJob, name="a")
    before = one.value(ROWS)
    context = one.open(c.FinishJob(job_id=1))
    assert one.store.session.run_statements([(ROWS, ())])[0][0][0] is None
    assert context.unit.job(1).state == "RUNNING"
    one.commit()
    assert one.value(ROWS) == before


def test_a_named_job_that_is_taken_ahead_is_written_as_it_is_in_the_end(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a")
    one.opened(c.UpdateJob(job_id=1, data='{"by":1}'), c.GetJob(name="a"))
    one.commit()
    assert one.value("SELECT state || data FROM jobs") == 'RUNNING{"by":1}'
    one.do(c.RetryJob, jobID=1)
    one.open(c.UpdateJob(job_id=1, data="{}"), c.GetJob(name="a"))
    one.commit()
    assert one.value("SELECT state || data FROM jobs") == 'QUEUED{"by":1}'


@pytest.mark.parametrize(
    ("command", "given", "left"),
    [
        (c.UpdateJob, {"jobID": 1, "data": {}, "repeat": "FINISHED, +1 HOUR"}, "QUEUED"),
        (c.CreateJob, {"name": "child", "parentJobID": 1}, "PAUSED QUEUED"),
    ],
)
def test_a_job_that_another_server_made_more_of_is_not_removed(
    command: type[c.Command[Any]], given: dict[str, Any], left: str, servers: Servers
) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    one.do(c.GetJob, name="a")
    other.do(command, **given)
    one.do(c.FinishJob, jobID=1)
    assert one.value("SELECT string_agg(state, ' ' ORDER BY jobID) FROM jobs") == left


def test_a_damaged_job_is_not_removed_before_it_is_looked_at(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a")
    one.do(c.GetJob, name="a")
    one.store.session.script("UPDATE jobs SET checksum = checksum + 1")
    with pytest.raises(StoreConflict, match="damaged"):
        one.open(c.FinishJob(job_id=1))
    one.store.rollback()
    one.do(c.FinishJob, jobID=1)  # again, in the way of all that is not known
    assert one.value("SELECT count(*) FROM jobs") == 0


def test_a_unit_that_removes_ahead_locks_nothing_else_by_job_id() -> None:
    keys, plain = AdvisoryKeys("tested"), {1, 2}

    def statements(*plans: AccessPlan) -> set[str]:
        names = {sql: name for name, sql in QUERIES.items()}
        opening = OpeningRound(plans, "2027-01-01 00:00:00.000", keys, plain, CachedBounds(), "")
        return {names[sql] for sql, _ in opening.statements()}

    locking = {"lock_jobs", "lock_jobs_and_firsts"}
    assert "end_jobs" in statements(AccessPlan(ends=(1, 2)), AccessPlan(new_jobs=1, keys=("k",)))
    for other in (
        AccessPlan(ends=(3,)),
        AccessPlan(jobs=(1,)),
        AccessPlan(names=("n",)),
        AccessPlan(control=True),
    ):
        found = statements(AccessPlan(ends=(1, 2)), other)
        assert "end_jobs" not in found
        assert locking & found


def test_a_unit_looks_for_workflows_only_if_there_are_any() -> None:
    def statements(plan: AccessPlan, *, workflows: bool) -> list[str]:
        names = {sql: name for name, sql in QUERIES.items()}
        now, keys = "2027-01-01 00:00:00.000", AdvisoryKeys("tested")
        opening = OpeningRound([plan], now, keys, {1}, CachedBounds(), "", workflows=workflows)
        return [names[sql] for sql, _ in opening.statements()]

    named, plain = AccessPlan(ends=(3,)), AccessPlan(ends=(1,), new_jobs=1)
    for plan in (named, plain):
        assert "lock_workflows" not in statements(plan, workflows=False)
    assert "lock_workflows" not in statements(plain, workflows=True)
    for found in (
        statements(named, workflows=True),
        statements(AccessPlan(jobs=(1,), workflows=(7,)), workflows=False),
    ):
        assert found.index("lock_workflows") < found.index("lock_jobs")


def test_only_so_many_jobs_are_remembered_as_plain(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pg_unit.PLAIN_KEPT_MAX >= 10_000
    monkeypatch.setattr(pg_unit, "PLAIN_KEPT_MAX", 2)
    (one,) = servers(1)
    for _ in range(5):
        one.do(c.CreateJob, name="a")
    one.do(c.GetJobs, name="a", numResults=5)
    assert len(one.store.unit._plain) <= 2
    for job_id in range(1, 6):
        one.do(c.FinishJob, jobID=job_id)
    assert one.value("SELECT count(*) FROM jobs") == 0


def test_a_damaged_job_that_is_taken_ahead_is_set_aside_or_stays_as_it_was(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a", data={"x": 1})
    one.store.session.script("UPDATE jobs SET checksum = checksum + 1")
    before = one.value(ROWS)
    one.open(c.GetJob(name="a"))
    one.commit()
    assert one.value(ROWS) == before
    assert one.do(c.GetJob, name="a") == "404 No job found"
    assert one.value("SELECT state || data FROM jobs") == 'FAILED{"damagedData":"{\\"x\\":1}"}'
