"""What a server remembers of where queued jobs begin: takes walk less, and miss nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.engine.handlers import take
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.postgresql import floors as floors_module
from bedrockjobs.store.postgresql import heads as heads_module
from bedrockjobs.store.postgresql import looks, remembered
from bedrockjobs.store.postgresql.floors import ANY, BEHIND_S, RAISED_EVERY_S, Floors
from bedrockjobs.store.postgresql.heads import Heads, RememberedHeads
from bedrockjobs.store.postgresql.looks import planned_looks
from bedrockjobs.store.postgresql.statements import QUERIES
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.conftest import Server
from tests.postgresql.plans import pages_of
from tests.postgresql.test_unit_walks import fill, taken

Servers = Callable[[int], list[Server]]

NOW = "2027-01-01 00:00:00"
EARLY = "2026-01-01 00:00:00"
"""Before all that servers here do."""


@pytest.fixture
def short_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let walks end after three jobs of a class."""
    monkeypatch.setattr(looks, "walked_max", lambda _: 3)


def sent(one: Server, act: Callable[[], Any]) -> list[str]:
    """Return the names of the statements that are sent by an act."""
    names, found, run = {sql: name for name, sql in QUERIES.items()}, [], one.store.session.run

    def noted(statements: Any) -> Any:
        found.extend(names.get(sql, "?") for sql, _ in statements)
        return run(statements)

    one.store.session.run = noted  # type: ignore[method-assign]
    act()
    one.store.session.run = run  # type: ignore[method-assign]
    return found


def test_a_name_that_has_most_of_the_next_jobs_is_asked_for_more_and_more(
    servers: Servers, short_walks: None
) -> None:
    (one,) = servers(1)
    names = [f"n{number:02d}" for number in range(1, 20)]
    fill(one, *"xxxx", *["n00"] * 40, *names)
    found: list[str] = []
    listed = sent(one, lambda: found.extend(taken(one, "n*", 45)))
    assert found == [f"{5 + number}{name}" for number, name in enumerate([*["n00"] * 40, *names[:5]])]
    assert listed.count("take_by_name") <= 6  # of four each, it would be ten


# --- floors ----------------------------------------------------------------------------------------------


def hits(one: Server, name: str, floors: Floors) -> int:
    """Return how many pages a take of one job reads."""
    names = names_from(name, None)
    assert names is not None
    sql, parameters = planned_looks([TakeRequest(names)])[0].statement(NOW, floors)
    return pages_of(one, sql, parameters)


@pytest.mark.parametrize("name", ["hot", "h*", "*"])
def test_a_take_does_not_walk_past_what_has_ended_while_somebody_looks_at_an_old_state(
    name: str, servers: Servers
) -> None:
    (one,) = servers(1)
    with psycopg.connect(CLUSTER.url) as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM pg_class")
        for _ in range(3):
            one.do(c.CreateJobs, jobs=[{"name": "hot"}] * 1000)
            one.clock.advance(2)
            assert len(one.do(c.GetJobs, name=name, numResults=1000)["jobs"]) == 1000
        one.do(c.CreateJob, name="hot")
        one.clock.advance(BEHIND_S + RAISED_EVERY_S)
        one.do(c.UpdateJob, jobID=3001, data={})
        one.call_together([c.GetJob(name=name), c.CreateJob(name="hot")])
        floors = one.store.unit.remembered.floors
        assert 3 * hits(one, name, floors) < hits(one, name, Floors({}, {}))


def test_floors_stay_behind_the_clock_and_are_read_now_and_then() -> None:
    floors = Floors({}, {})
    assert floors.to_raise(["a", "b"], NOW) == []  # nobody knows whether they are asked for again
    later = f"{NOW[:-1]}{RAISED_EVERY_S}"
    assert floors.to_raise(["a"], later) == ["a"]
    floors.raised({"a": [EARLY, None, NOW, later, None, None]}, later)
    behind = "2026-12-31 23:59:59"
    assert floors.of("a") == (EARLY, *[behind] * 5)
    assert later > behind
    assert floors.to_raise(["a"], later) == []
    assert floors.to_raise(["a"], NOW) == ["a"]  # the clock was set back
    assert floors.of("b") == ("",) * len(PRIORITIES)


def test_a_job_that_is_queued_lowers_the_floor_of_its_class_or_of_each() -> None:
    floors = Floors({"a": (NOW,) * 6, ANY: (NOW,) * 6, "b": (NOW,) * 6}, {})
    floors.lower("a", EARLY, 500)
    assert floors.of("a") == (NOW, NOW, NOW, EARLY, NOW, NOW) == floors.of(ANY)
    floors.lower("b", EARLY)
    assert floors.of("b") == (EARLY,) * 6


def test_floors_of_so_many_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert floors_module.FLOORS_KEPT_MAX == 10_000
    monkeypatch.setattr(floors_module, "FLOORS_KEPT_MAX", 2)
    floors = Floors({}, {})
    floors.to_raise(["a", "b", "c"], NOW)
    floors.raised({"a": [NOW] * 6}, NOW)
    assert list(floors.known) == ["a"] == list(floors.read)


def hot(one: Server) -> None:
    """Let a server know where the jobs of a name begin."""
    for _ in range(3):
        one.do(c.CreateJob, name="a")
        one.clock.advance(5)
        assert taken(one, "a", 1) != ["404"]
    assert min(one.store.unit.remembered.floors.of("a")) > EARLY


def test_a_job_of_this_server_is_found_below_a_floor(servers: Servers) -> None:
    (one,) = servers(1)
    hot(one)
    one.do(c.CreateJob, name="a", firstRun=EARLY)
    assert taken(one, "a", 2) == ["4a", "404"]


def test_so_is_one_of_another_server_that_told_of_it(servers: Servers) -> None:
    one, other = servers(2)
    hot(one)
    other.do(c.CreateJob, name="a", firstRun=EARLY)
    assert taken(one, "a", 1) == ["404"]
    one.store.heard({"a": EARLY})
    assert taken(one, "a", 1) == ["4a"]
    other.do(c.CreateJob, name="a", firstRun=EARLY)
    one.store.heard(None)
    assert taken(one, "a", 1) == ["5a"]


def test_what_was_changed_by_hand_is_found_after_a_while(servers: Servers) -> None:
    (one,) = servers(1)
    hot(one)
    one.store.session.run([("UPDATE jobs SET state = 'QUEUED', nextRun = $1 WHERE jobID = 3", (EARLY,))])
    assert taken(one, "a", 1) == ["404"]
    one.clock.advance(remembered.KEPT_S)
    assert taken(one, "a", 1) == ["3a"]


def test_a_hint_while_the_floor_is_read_counts(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    taken(one, "a", 1)
    one.clock.advance(10)
    run = one.store.session.run

    def told_after(statements: Any) -> Any:
        found = run(statements)
        if any(sql == QUERIES["floors_of_names"] for sql, _ in statements):
            other.do(c.CreateJob, name="a", firstRun=EARLY)
            one.store.heard({"a": EARLY})
        return found

    one.store.session.run = told_after  # type: ignore[method-assign]
    assert taken(one, "a", 1) == ["404"]
    one.store.session.run = run  # type: ignore[method-assign]
    assert taken(one, "a", 1) == ["2a"]


def test_what_is_remembered_is_forgotten_where_another_primary_may_not_have_it(servers: Servers) -> None:
    (one,) = servers(1)
    hot(one)
    one.store.session.close()
    assert taken(one, "b", 1) == ["404"]
    assert one.store.unit.remembered.floors.of("a") == ("",) * len(PRIORITIES)


# --- heads -----------------------------------------------------------------------------------------------


def behind(one: Server, *names: str) -> None:
    """Create jobs behind more others than a walk looks at."""
    fill(one, *"xxxx", *names)


@pytest.mark.usefixtures("short_walks")
def test_names_are_looked_for_once_and_then_remembered(servers: Servers) -> None:
    (one,) = servers(1)
    behind(one, "a", "b", "a", "c", "b")
    assert "heads_in_order" in sent(one, lambda: taken(one, "[abc]", 1))
    found: list[str] = []
    statements = sent(one, lambda: found.extend(taken(one, "[abc]", 2)))
    assert found == ["6b", "7a"]
    assert {"heads_in_order", "take_in_order"}.isdisjoint(statements)
    fill(one, "a", priority=1000)
    assert taken(one, "[abc]", 4) == ["10a", "8c", "9b", "404"]


@pytest.mark.usefixtures("short_walks")
def test_of_a_priority_alone_its_heads_are_asked(servers: Servers) -> None:
    (one,) = servers(1)
    behind(one, "a", "b")
    fill(one, "b", priority=250)
    assert taken(one, "[ab]", 1) == ["5a"]
    assert one.do(c.GetJob, name="[ab]", jobPriority=250)["jobID"] == 7
    assert one.do(c.GetJob, name="[ab]", jobPriority=1000) == "404 No job found"


@pytest.mark.usefixtures("short_walks")
def test_what_others_left_is_found_when_they_tell_and_what_nobody_tells_after_a_while(
    servers: Servers,
) -> None:
    one, other = servers(2)
    behind(one, "a")
    assert taken(one, "[abc]", 2) == ["5a", "404"]
    other.do(c.CreateJob, name="b")
    assert taken(one, "[abc]", 1) == ["404"]
    one.store.heard({"b": EARLY})
    assert taken(one, "[abc]", 1) == ["6b"]
    other.do(c.CreateJob, name="c")
    one.clock.advance(remembered.KEPT_S)
    assert taken(one, "[abc]", 1) == ["7c"]


@pytest.mark.usefixtures("short_walks")
def test_heads_that_were_read_in_a_unit_that_is_undone_are_forgotten(servers: Servers) -> None:
    (one,) = servers(1)
    behind(one, "a", "b")
    context = one.opened(c.GetJob(name="a"))
    assert one.take(context, "[ab]") is not None  # which reads heads, and the job of a has none
    one.store.rollback()
    assert taken(one, "[ab]", 2) == ["5a", "6b"]


@pytest.mark.usefixtures("short_walks")
def test_a_job_that_was_taken_ahead_and_put_back_is_among_them(servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", priority=1000)
    fill(one, "a", *"xxxx")
    names = names_from("[ab]", None)
    assert names is not None
    context = one.open(c.GetJob(name="a"))  # marked as taken by the first round trip
    assert take.take(context, TakeRequest(names, priority=1000)) is None  # which reads heads
    one.commit()  # nobody has taken it
    assert taken(one, "[ab]", 1) == ["5a"]


@pytest.mark.usefixtures("short_walks")
def test_what_another_server_resumes_is_found_at_once(servers: Servers) -> None:
    one, other = servers(2)
    behind(one, "a", "b", "a")
    other.do(c.PauseJobs, name="b")
    assert taken(one, "[ab]", 1) == ["5a"]
    other.do(c.ResumeJobs, name="b")
    assert taken(one, "[ab]", 1) == ["6b"]


@pytest.mark.usefixtures("short_walks")
def test_patterns_with_too_many_names_are_looked_for_each_time(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heads_module.HEADS_KEPT_MAX == 50_000
    monkeypatch.setattr(heads_module, "HEADS_KEPT_MAX", 2)
    monkeypatch.setattr("bedrockjobs.store.postgresql.takes.HEADS_KEPT_MAX", 2)
    (one,) = servers(1)
    behind(one, "a", "b", "c")
    assert [taken(one, "[abc]", 1) for _ in range(4)] == [["5a"], ["6b"], ["7c"], ["404"]]


def test_heads_are_in_the_order_of_takes() -> None:
    patterns = names_from("*", None)
    assert patterns is not None
    stamps = [f"{NOW[:-1]}{second}" for second in range(10)]
    known = Heads(
        (("",), patterns), [(-500, stamps[1], 8, "a"), (-500, stamps[1], 7, "b"), (-500, NOW, 9, "c")]
    )
    known.lower("c", EARLY, 10, 250)
    known.lower("d", EARLY)
    known.lower("d", NOW, 11, 250)  # is later than what is known
    begin = (-1001, "", 0, "")
    due = known.next(begin, stamps[1], None, 100)
    assert [f"{name}{-down}" for down, *_, name in due] == [
        "d1000", "d850", "d750", "d500", "c500", "b500", "a500", "d250", "c250", "d0",
    ]  # fmt: skip
    assert known.next(begin, NOW, None, 100) == [*due[:5], *due[7:]]
    assert known.next(begin, NOW, 250, 1) == [due[7]]
    assert known.next(due[5], stamps[9], None, 2) == due[6:8]
    assert known.asked == {(-priority, "d"): None for priority in PRIORITIES}  # it may be a job of any class
    known.replace([*known.asked, (-500, "a")], [(-500, NOW, 12, "a")])
    assert [name for *_, name in known.next(begin, stamps[9], None, 9)] == ["c", "a", "b", "c"]


def test_patterns_asked_for_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (heads_module.PATTERNS_KEPT_MAX, heads_module.NAMES_MATCHED_MAX) == (200, 50_000)
    monkeypatch.setattr(heads_module, "PATTERNS_KEPT_MAX", 2)
    monkeypatch.setattr(heads_module, "NAMES_MATCHED_MAX", 1)
    known = RememberedHeads()
    keys = [(("",), names) for text in ("a*", "b*", "c*") if (names := names_from(text, None)) is not None]
    for key in keys[:2]:
        known.remember(key, [])
    known.of(keys[0])
    known.remember(keys[2], [])
    assert [known.knows(key) for key in keys] == [True, False, True]
    for name in ("a1", "c1", "a2"):
        known.lower(Job(created=NOW, job_id=1, state="QUEUED", name=name, next_run=NOW))
    assert [len(known.of(key) or ()) for key in (keys[0], keys[2])] == [2, 1]


def test_the_next_unit_asks_such_a_name_for_as_many_at_once(servers: Servers, short_walks: None) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *["n00"] * 60, *[f"n{number:02d}" for number in range(1, 20)])
    first = sent(one, lambda: taken(one, "n*", 20)).count("take_by_name")
    found: list[str] = []
    second = sent(one, lambda: found.extend(taken(one, "n*", 20)))
    assert found == [f"{25 + number}n00" for number in range(20)]
    assert (first, second.count("claim_behind_heads"), second.count("take_by_name")) == (4, 1, 0)
