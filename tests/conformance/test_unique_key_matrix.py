"""``uniqueKey`` on every engine: which job holds a key in which state, and the effect of a second create."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bedrockjobs import commands as c
from tests.conformance.engine import ENGINES, TRIED, Engine, PostgreSQLQueue, SQLiteQueue
from tests.model import Outcome
from tests.postgresql.test_foreseen import listened

DATA = {"n": 2}
LATER = "2026-01-05 12:00:00"
HELD = Outcome(405, "Unique key is held")


def do(engine: Engine, kind: type[c.Command[Any]], **given: Any) -> Any:
    """Execute a command, which must succeed; return its body."""
    found = engine.call(kind.read(given))
    assert found.code == 200, (kind.__name__, found)
    return found.body


def create(engine: Engine, **given: Any) -> int:
    """Create the first job with the key; it is job 1, or job 2 if it is a child."""
    return int(do(engine, c.CreateJob, name="a", uniqueKey="k", data={"n": 1}, **given)["jobID"])


def parent(engine: Engine) -> int:
    """Return a RUNNING job that may have children."""
    job_id = int(do(engine, c.CreateJob, name="p")["jobID"])
    do(engine, c.GetJob, name="p")
    return job_id


def queued(engine: Engine, until: Any) -> int:
    """Return a job that waits for its time."""
    return create(engine, uniqueFor=until, firstRun="2026-01-06")


def running(engine: Engine, until: Any) -> int:
    """Return a RUNNING job."""
    job_id = create(engine, uniqueFor=until)
    do(engine, c.GetJob, name="a")
    return job_id


def runqueued(engine: Engine, until: Any) -> int:
    """Return a RUNNING job with retryAfter."""
    job_id = create(engine, uniqueFor=until, retryAfter="+1 HOUR")
    do(engine, c.GetJob, name="a")
    return job_id


def retried(engine: Engine, until: Any) -> int:
    """Return a job that waits for a retry."""
    job_id = running(engine, until)
    do(engine, c.RetryJob, jobID=job_id, delay=60)
    return job_id


def waits_for_children(engine: Engine, until: Any) -> int:
    """Return a job that has started and waits for its children."""
    job_id = running(engine, until)
    do(engine, c.CreateJob, name="c", parentJobID=job_id)
    do(engine, c.FinishJob, jobID=job_id)
    return job_id


def waits_for_parent(engine: Engine, until: Any) -> int:
    """Return a child that has not started."""
    return create(engine, uniqueFor=until, parentJobID=parent(engine))


def repeats(engine: Engine, until: Any) -> int:
    """Return a job that waits for its next run."""
    job_id = create(engine, uniqueFor=until, repeat="FINISHED, +1 HOUR")
    do(engine, c.GetJob, name="a")
    do(engine, c.FinishJob, jobID=job_id)
    return job_id


def failed(engine: Engine, until: Any) -> int:
    """Return a job that has failed."""
    job_id = running(engine, until)
    do(engine, c.FailJob, jobID=job_id)
    return job_id


def cancelled(engine: Engine, until: Any) -> int:
    """Return a child that was cancelled."""
    job_id = waits_for_parent(engine, until)
    do(engine, c.FinishJob, jobID=job_id - 1)
    do(engine, c.CancelJob, jobID=job_id)
    return job_id


def finished(engine: Engine, until: Any) -> int:
    """Return a job that has finished and was deleted."""
    job_id = running(engine, until)
    do(engine, c.FinishJob, jobID=job_id)
    return job_id


def deleted(engine: Engine, until: Any) -> int:
    """Return a job that was deleted."""
    job_id = queued(engine, until)
    do(engine, c.DeleteJob, jobID=job_id)
    return job_id


def renamed(engine: Engine, until: Any) -> int:
    """Return a job that was given another name."""
    job_id = running(engine, until)
    do(engine, c.RetryJob, jobID=job_id, name="b", delay=0)
    return job_id


WAITS = (queued, retried, waits_for_parent, repeats)
STARTED = (running, runqueued, waits_for_children)
OVER = (failed, cancelled, finished, deleted, renamed)
HOUR = "1h"
HOLDS = {"finished": (*WAITS, *STARTED), "started": WAITS, HOUR: (*WAITS, *STARTED, *OVER)}


@pytest.fixture(params=TRIED)
def engine(request: pytest.FixtureRequest) -> Any:
    """Return an empty queue."""
    with ENGINES[request.param]("document") as found:
        yield found


@pytest.mark.parametrize("until", HOLDS)
@pytest.mark.parametrize("first", [*WAITS, *STARTED, *OVER], ids=lambda first: first.__name__)
def test_a_second_create(engine: Engine, until: str, first: Callable[[Engine, Any], int]) -> None:
    holder = first(engine, until)
    before = engine.call(c.ListJobs.read({}))
    given = {"name": "a", "uniqueKey": "k", "data": DATA, "firstRun": LATER}
    if first not in HOLDS[until]:
        for conflict in ("reject", "replace", "ignore"):
            other = engine.call(c.CreateJob.read({**given, "onConflict": conflict, "uniqueFor": "started"}))
            assert other == Outcome(200, "OK", {"jobID": other.body["jobID"], "created": True})
            assert other.body["jobID"] != holder
            do(engine, c.DeleteJob, jobID=other.body["jobID"])
        assert engine.call(c.ListJobs.read({})) == before
        return
    answer = Outcome(200, "OK", {"jobID": holder, "created": False})
    assert engine.call(c.CreateJob.read(given)) == answer
    assert engine.call(c.CreateJob.read({**given, "onConflict": "reject"})) == HELD
    assert engine.call(c.ListJobs.read({})) == before
    replaced = engine.call(c.CreateJob.read({**given, "onConflict": "replace"}))
    if first not in WAITS:
        assert (replaced, engine.call(c.ListJobs.read({}))) == (HELD, before)
        return
    assert replaced == answer
    changed = {"data": DATA} if first is repeats else {"data": DATA, "nextRun": LATER}
    now = {job["jobID"]: job for job in engine.call(c.ListJobs.read({})).body["jobs"]}
    was = {job["jobID"]: job for job in before.body["jobs"]}
    assert now == {**was, holder: was[holder] | changed}


def test_a_duration_is_over_whatever_its_job_does(engine: Engine) -> None:
    queued(engine, 60)
    engine.advance(60)
    assert do(engine, c.CreateJob, name="a", uniqueKey="k") == {"jobID": 2, "created": True}


def test_the_newest_job_has_the_key(engine: Engine) -> None:
    running(engine, "started")
    assert do(engine, c.CreateJob, name="a", uniqueKey="k", firstRun=LATER) == {"jobID": 2, "created": True}
    do(engine, c.RetryJob, jobID=1, delay=0)
    do(engine, c.DeleteJob, jobID=1)
    assert do(engine, c.CreateJob, name="a", uniqueKey="k") == {"jobID": 2, "created": False}


def test_names_and_mocked_jobs_have_keys_of_their_own(engine: Engine) -> None:
    for number, given in enumerate(({}, {"name": "b"}, {"mockRequest": True}, {"uniqueKey": "l"}), 1):
        command = {"name": "a", "uniqueKey": "k", **given}
        assert do(engine, c.CreateJob, **command) == {"jobID": number, "created": True}
        assert do(engine, c.CreateJob, **command) == {"jobID": number, "created": False}


def test_in_each_spec_of_createjobs(engine: Engine) -> None:
    keyed = {"name": "a", "uniqueKey": "k"}
    found = do(engine, c.CreateJobs, jobs=[keyed, {"name": "a"}, keyed])
    assert found == {"jobIDs": [1, 2, 1], "created": [True, True, False]}
    jobs = [{"name": "z", "uniqueKey": "z"}, {**keyed, "onConflict": "reject"}]
    assert engine.call(c.CreateJobs.read({"jobs": jobs})) == HELD
    assert do(engine, c.CreateJob, **jobs[0])["created"], "nothing is left of a refused list"
    assert do(engine, c.CreateJobs, jobs=[{"name": "a"}]).keys() == {"jobIDs"}


def test_a_key_costs_one_statement_by_the_primary_key() -> None:
    """However many keys exist; a create without a key does not execute it."""
    with ENGINES["sqlite"]("document") as engine:
        statements: list[str] = []
        assert isinstance(engine, SQLiteQueue)
        counts = []
        do(engine, c.CreateJob, name="a")
        engine.store._db.set_trace_callback(statements.append)
        for given in ({}, {"uniqueKey": "k"}, {"uniqueKey": "l", "onConflict": "replace"}):
            statements.clear()
            do(engine, c.CreateJob, name="a", **given)
            counts.append((len(statements), [text for text in statements if "keys" in text]))
        engine.store._db.set_trace_callback(None)
    plain, *keyed = counts
    assert not plain[1]
    for number, texts in keyed:
        assert number == plain[0] + len(texts) == plain[0] + 1
        assert texts[0].startswith("INSERT INTO keys ")


def test_a_key_costs_no_round_trip() -> None:
    """On PostgreSQL the key is read when the unit begins, and written with the commit."""
    with ENGINES["postgresql"]("document") as engine:
        assert isinstance(engine, PostgreSQLQueue)
        do(engine, c.CreateJob, name="a")
        trips = listened(engine.store)
        counts = []
        for given in ({}, {"uniqueKey": "k"}):
            trips.clear()
            do(engine, c.CreateJob, name="a", **given)
            counts.append(len(trips))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"uniqueKey": "k", "unique": True}, "Malformed uniqueKey"),
        ({"uniqueFor": "started"}, "Missing uniqueKey"),
        ({"onConflict": "ignore"}, "Missing uniqueKey"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], reason: str) -> None:
    with ENGINES["sqlite"]("document") as engine:
        assert engine.call(c.CreateJob.read({"name": "a", **given})) == Outcome(402, reason)
