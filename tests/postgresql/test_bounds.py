"""Cached lower bounds of queued jobs: takes scan less, and miss nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.config import NAMES_AT_ONCE, PRIORITIES, SCANNED_MAX
from bedrockjobs.base.glob import glob
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest, names_from
from bedrockjobs.store import pattern_index
from bedrockjobs.store.postgresql import heads as floors_module
from bedrockjobs.store.postgresql import heads as heads_module
from bedrockjobs.store.postgresql import takes
from bedrockjobs.store.postgresql.heads import (
    ANY,
    BEGINNING,
    BEHIND_S,
    RAISED_EVERY_S,
    HeadIndex,
    LowWaterMarks,
    MatchingHeads,
    SortedHeads,
    WantedHeads,
)
from bedrockjobs.store.postgresql.statements import QUERIES
from bedrockjobs.store.postgresql.takes import planned_queries
from tests.effort import examples
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
    """Limit scans to three jobs of a priority level."""
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)


def sent(one: Server, act: Callable[[], Any]) -> list[str]:
    """Return the names of the statements that a function sends."""
    names, found, run = {sql: name for name, sql in QUERIES.items()}, [], one.store.session.run_statements

    def noted(statements: Any) -> Any:
        found.extend(names.get(sql, "?") for sql, _ in statements)
        return run(statements)

    one.store.session.run_statements = noted  # type: ignore[method-assign]
    act()
    one.store.session.run_statements = run  # type: ignore[method-assign]
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


def hits(one: Server, name: str, floors: LowWaterMarks) -> int:
    """Return the number of pages that a take of one job reads."""
    names = names_from(name, None)
    assert names is not None
    sql, parameters = planned_queries([TakeRequest(names)])[0].statement(NOW, floors)
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
        assert 3 * hits(one, name, floors) < hits(one, name, LowWaterMarks({}, {}))


def test_floors_stay_behind_the_clock_and_are_read_now_and_then() -> None:
    floors = LowWaterMarks({}, {})
    assert floors.to_raise(["a", "b"], NOW) == []  # it is unknown whether they will be requested again
    later = f"{NOW[:-1]}{RAISED_EVERY_S}"
    assert floors.to_raise(["a"], later) == ["a"]
    floors.raised({"a": [EARLY, None, NOW, later, None, None]}, later)
    behind = "2026-12-31 23:59:59"
    assert floors.marks_of("a") == (EARLY, *[behind] * 5)
    assert later > behind
    assert floors.to_raise(["a"], later) == []
    assert floors.to_raise(["a"], NOW) == ["a"]  # the clock was set back
    assert floors.marks_of("b") == ("",) * len(PRIORITIES)


def test_a_job_that_is_queued_lowers_the_floor_of_its_class_or_of_each() -> None:
    floors = LowWaterMarks({"a": (NOW,) * 6, ANY: (NOW,) * 6, "b": (NOW,) * 6}, {})
    floors.lower("a", EARLY, 500)
    assert floors.marks_of("a") == (NOW, NOW, NOW, EARLY, NOW, NOW) == floors.marks_of(ANY)
    floors.lower("b", EARLY)
    assert floors.marks_of("b") == (EARLY,) * 6


def test_floors_of_so_many_names_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert floors_module.FLOORS_KEPT_MAX == 10_000
    monkeypatch.setattr(floors_module, "FLOORS_KEPT_MAX", 2)
    floors = LowWaterMarks({}, {})
    floors.to_raise(["a", "b", "c"], NOW)
    floors.raised({"a": [NOW] * 6}, NOW)
    assert list(floors.known) == ["a"] == list(floors.load)


def hot(one: Server) -> None:
    """Let a server cache the lower bound of a name's jobs."""
    for _ in range(3):
        one.do(c.CreateJob, name="a")
        one.clock.advance(5)
        assert taken(one, "a", 1) != ["404"]
    assert min(one.store.unit.remembered.floors.marks_of("a")) > EARLY


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
    one.store.on_queued({"a": EARLY})
    assert taken(one, "a", 1) == ["4a"]
    other.do(c.CreateJob, name="a", firstRun=EARLY)
    one.store.on_queued(None)
    assert taken(one, "a", 1) == ["5a"]


def test_what_was_changed_by_hand_is_found_after_a_while(servers: Servers) -> None:
    (one,) = servers(1)
    hot(one)
    one.store.session.run_statements(
        [("UPDATE jobs SET state = 'QUEUED', nextRun = $1 WHERE jobID = 3", (EARLY,))]
    )
    assert taken(one, "a", 1) == ["404"]
    one.clock.advance(heads_module.KEPT_S)
    assert taken(one, "a", 1) == ["3a"]


def test_a_hint_while_the_floor_is_read_counts(servers: Servers) -> None:
    one, other = servers(2)
    one.do(c.CreateJob, name="a")
    taken(one, "a", 1)
    one.clock.advance(10)
    run = one.store.session.run_statements

    def told_after(statements: Any) -> Any:
        found = run(statements)
        if any(sql == QUERIES["floors_of_names"] for sql, _ in statements):
            other.do(c.CreateJob, name="a", firstRun=EARLY)
            one.store.on_queued({"a": EARLY})
        return found

    one.store.session.run_statements = told_after  # type: ignore[method-assign]
    assert taken(one, "a", 1) == ["404"]
    one.store.session.run_statements = run  # type: ignore[method-assign]
    assert taken(one, "a", 1) == ["2a"]


def test_what_is_remembered_is_forgotten_where_another_primary_may_not_have_it(servers: Servers) -> None:
    (one,) = servers(1)
    hot(one)
    one.store.session.close()
    assert taken(one, "b", 1) == ["404"]
    assert one.store.unit.remembered.floors.marks_of("a") == ("",) * len(PRIORITIES)


# --- heads -----------------------------------------------------------------------------------------------


def behind(one: Server, *names: str) -> None:
    """Create jobs behind more jobs than a scan reads."""
    fill(one, *"xxxx", *names)


@pytest.mark.usefixtures("short_walks")
def test_names_are_looked_for_once_and_then_remembered(servers: Servers) -> None:
    (one,) = servers(1)
    behind(one, "a", "b", "a", "c", "b")
    assert "heads_behind" in sent(one, lambda: taken(one, "[abc]", 1))
    found: list[str] = []
    statements = sent(one, lambda: found.extend(taken(one, "[abc]", 2)))
    assert found == ["6b", "7a"]
    assert {"heads_behind", "take_in_order"}.isdisjoint(statements)
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
    one.store.on_queued({"b": EARLY})
    assert taken(one, "[abc]", 1) == ["6b"]
    other.do(c.CreateJob, name="c")
    one.clock.advance(heads_module.KEPT_S)
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
    one.commit()  # it has not been taken
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
    (one,) = servers(1)
    behind(one, "a", "b", "c")
    assert [taken(one, "[abc]", 1) for _ in range(4)] == [["5a"], ["6b"], ["7c"], ["404"]]


def test_heads_are_in_the_order_of_takes() -> None:
    patterns = names_from("*", None)
    assert patterns is not None
    timestamps = [f"{NOW[:-1]}{second}" for second in range(10)]
    known = MatchingHeads(
        (("",), patterns), [(-500, timestamps[1], 8, "a"), (-500, timestamps[1], 7, "b"), (-500, NOW, 9, "c")]
    )
    known.lower("c", EARLY, 10, 250)
    known.lower("d", EARLY)
    known.lower("d", NOW, 11, 250)  # is later than the cached bound
    begin = (-1001, "", 0, "")
    due = known.next_due(begin, timestamps[1], None, 100)
    assert [f"{name}{-down}" for down, *_, name in due] == [
        "d1000",
        "d850",
        "d750",
        "d500",
        "c500",
        "b500",
        "a500",
        "d250",
        "c250",
        "d0",
    ]
    assert known.next_due(begin, NOW, None, 100) == [*due[:5], *due[7:]]
    assert known.next_due(begin, NOW, 250, 1) == [due[7]]
    assert known.next_due(due[5], timestamps[9], None, 2) == due[6:8]
    assert known.used == {(-priority, "d"): None for priority in PRIORITIES}  # it may be a job of any class
    known.replace([*known.used, (-500, "a")], [(-500, NOW, 12, "a", False)])
    assert [name for *_, name in known.next_due(begin, timestamps[9], None, 9)] == ["c", "a", "b", "c"]


def test_patterns_asked_for_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (heads_module.PATTERNS_KEPT_MAX, heads_module.NAMES_MATCHED_MAX) == (10_000, 50_000)
    monkeypatch.setattr(heads_module, "PATTERNS_KEPT_MAX", 2)
    monkeypatch.setattr(heads_module, "NAMES_MATCHED_MAX", 1)
    known = HeadIndex(lambda: 0.0)
    known.begin_unit(NOW)
    keys = [(("",), names) for text in ("a*", "b*", "c*") if (names := names_from(text, None)) is not None]
    for key in (*keys[:2], keys[0], keys[2]):
        known.begin_unit(NOW)
        known.find(key, "", WantedHeads(BEGINNING, NOW, None, 1), (), lambda _: [])
    assert [known.heads_of(key) is not None for key in keys] == [True, False, True]
    for name in ("a1", "c1", "a2"):
        known.lower(Job(created=NOW, job_id=1, state="QUEUED", name=name, next_run=NOW))
    kept = [known.heads_of(key) for key in (keys[0], keys[2])]
    assert [len(part) for heads in kept if heads is not None for part in heads.parts] == [2, 1]


def test_the_next_unit_asks_such_a_name_for_as_many_at_once(servers: Servers, short_walks: None) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *["n00"] * 60, *[f"n{number:02d}" for number in range(1, 20)])
    first = sent(one, lambda: taken(one, "n*", 20)).count("take_by_name")
    found: list[str] = []
    second = sent(one, lambda: found.extend(taken(one, "n*", 20)))
    assert found == [f"{25 + number}n00" for number in range(20)]
    assert (first, second.count("claim_behind_heads"), second.count("take_by_name")) == (4, 1, 0)


# --- searches that take more than one unit ---------------------------------------------------------------


@pytest.fixture
def slow_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each unit to very few names, and scans in order to three jobs of a priority level."""
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)
    few = {"SEARCHED_AT_ONCE": 8, "ROWS_UNIT_MAX": 8, "ROWS_OF_READ": 1, "ASIDE_AT_ONCE": 3}
    for name, value in few.items():
        monkeypatch.setattr(heads_module, name, value)


def names_of(asked: str | tuple[str, ...]) -> Names:
    """Return the requested names of a GetJob with a pattern, or a list of names."""
    names = names_from(asked, None) if isinstance(asked, str) else names_from(None, asked)
    assert names is not None
    return names


def searched(
    one: Server, asked: str | tuple[str, ...], by: str = "", *, units_max: int = 400
) -> tuple[str, int]:
    """Take a job like a waiting client; return its name, and the number of units that the search took."""
    names = names_of(asked)
    for units in range(1, units_max + 1):
        context = one.open()
        answer = take.take(context, TakeRequest(names, by=by))
        if answer is None or not answer.searching:
            one.commit()
            return (answer.taken[0].before.name if answer else "404"), units
        context.unit.search([names])
        one.commit()
    return "searching", units_max


def create(one: Server, *names: str) -> None:
    """Create jobs that become due in this order, two seconds apart."""
    for number, name in enumerate(names):
        first = timestamp_ms(one.clock.now() + timedelta(seconds=2 * number))
        one.do(c.CreateJob, name=name, firstRun=first[:-4])
    one.clock.advance(2 * len(names) + 10)


MANY = [f"n{number:02d}" for number in range(60)]


@pytest.mark.usefixtures("slow_search")
def test_a_new_pattern_is_searched_for_in_slices_and_a_pause_forgets_nothing(servers: Servers) -> None:
    one, other = servers(2)
    create(one, *MANY, "zz/y", "zz/y", "zz/y")
    name, units = searched(one, "*/y")
    assert name == "zz/y"
    assert units >= 5, "one slice of eight names in each"
    assert searched(one, "[n]*")[0] == "n00"
    one.do(c.PauseJobs, name="n*")
    assert searched(one, "[nz]*")[0] == "zz/y", "they are looked for, as those in front are paused"
    one.do(c.ResumeJobs, name="n*")
    left = iter(MANY[1:])
    for pausing, resuming in ((one, one), (other, other), (one, other)):
        found: list[str] = []
        listed = sent(one, lambda found=found: found.append(searched(one, "[nz]*")[0]))
        pausing.do(c.PauseJobs, name="n*")
        listed += sent(one, lambda found=found: found.append(searched(one, "[nz]*")[0]))
        resuming.do(c.ResumeJobs, name="n*")
        listed += sent(one, lambda found=found: found.append(searched(one, "[nz]*")[0]))
        assert found == [next(left), "zz/y", next(left)]
        create(one, "zz/y")
        assert "heads_behind" not in listed


@pytest.mark.usefixtures("slow_search")
def test_a_job_that_no_pause_holds_is_found_among_paused_names(servers: Servers) -> None:
    (one,) = servers(1)
    create(one, *MANY, "zz")
    assert searched(one, "[nz]*")[0] == "n00"
    one.do(c.PauseJobs, name="n*")
    assert searched(one, "[nz]*")[0] == "zz"
    one.do(c.TriggerJob, name="n29")
    assert searched(one, "[nz]*")[0] == "n29"
    assert searched(one, "[nz]*")[0] == "404"


@pytest.mark.usefixtures("slow_search")
def test_a_pattern_with_too_many_names_keeps_the_place_up_to_which_nothing_matches(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "HEADS_KEPT_MAX", 10)
    one, other = servers(2)
    create(one, *[f"x{number}" for number in range(60)], *MANY)
    name, units = searched(one, "n*")
    assert name == "n00"
    assert units >= 5
    found: list[str] = []
    listed = sent(one, lambda: found.append(searched(one, "n*")[0]))
    assert found == ["n01"]
    assert listed.count("jobs_behind") <= len(PRIORITIES), "it begins at the place"
    one.do(c.CreateJob, name="n-own", firstRun=EARLY)
    other.do(c.CreateJob, name="n-other", firstRun=EARLY)
    one.store.on_queued({"n-other": EARLY})
    assert [searched(one, "n*")[0] for _ in range(3)] == ["n-own", "n-other", "n02"]
    other.do(c.PauseJobs, name="n0*")
    assert searched(one, "n*")[0] == "n10"
    other.do(c.ResumeJobs, name="n0*")
    assert searched(one, "n*")[0] == "n03"


@pytest.mark.usefixtures("slow_search")
@pytest.mark.parametrize("kept", [10, 1_000])
def test_a_unit_that_is_undone_in_the_middle_of_a_search_loses_no_job(
    kept: int, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "HEADS_KEPT_MAX", kept)
    (one,) = servers(1)
    create(one, *[f"x{number}" for number in range(30)], *MANY[:30])
    names = names_from("n*", None)
    assert names is not None
    for number in range(12):  # in each, all jobs of the pattern are taken before others are looked for
        context = one.opened(*[c.GetJob(name=name) for name in MANY[:30]])
        answer = take.take(context, TakeRequest(names))
        assert answer is None or answer.searching
        context.unit.search([names])
        one.store.rollback()
        if number % 3 == 0:
            context = one.open()
            answer = take.take(context, TakeRequest(names))
            assert answer is None or answer.searching
            context.unit.search([names])
            one.commit()
        if answer is None:
            break
    assert [searched(one, "n*")[0] for _ in range(31)] == [*MANY[:30], "404"]


@pytest.mark.usefixtures("slow_search")
@pytest.mark.parametrize("kept", [5, 25, 1_000])
@pytest.mark.parametrize("seed", range(examples(1, night=60)))
def test_whatever_is_paused_meanwhile_jobs_are_found_in_their_order(
    kept: int, seed: int, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "HEADS_KEPT_MAX", kept)
    dice = random.Random(seed)
    one, other = servers(2)
    create(one, *(f"{dice.choice('abx')}{dice.randrange(20):02d}/{dice.choice('yz')}" for _ in range(80)))
    queued = one.store.session.run_statements([("SELECT nextRun, jobID, name FROM jobs ORDER BY 1, 2", ())])[
        0
    ]
    paused: set[str] = set()
    for _ in range(60):
        by = dice.choice((one, other))
        pattern = dice.choice(("a*", "*0/?", "b1*"))
        match dice.randrange(5):
            case 0:
                by.do(c.PauseJobs, name=pattern)
                paused.add(pattern)
            case 1 if pattern in paused:
                by.do(c.ResumeJobs, name=pattern)
                paused.discard(pattern)
            case 2:
                name = f"a{dice.randrange(20):02d}/y"
                job_id = by.do(c.CreateJob, name=name, firstRun=EARLY)["jobID"]
                one.store.on_queued({name: EARLY})
                queued.append((EARLY, job_id, name))
            case _:
                asked = dice.choice(
                    ("*/y", "[ab]*", "?1*", "x*", "*", ("a0*", "*1/y", "x01/z"), ("b1*", "*/y"))
                )
                names = names_of(asked)
                due = [each for each in queued if names.match(each[2])]
                due = [each for each in due if not any(glob(each[2], pause) for pause in paused)]
                expected = min(due, default=("", 0, "404"))
                assert searched(one, asked)[0] == expected[2]
                queued = [each for each in queued if each != expected]


@pytest.mark.usefixtures("slow_search")
def test_a_token_that_has_used_up_its_walks_leaves_others_theirs(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_index, "SEARCH_BURST", 70)
    (one,) = servers(1)
    create(one, *MANY)
    assert searched(one, "*x", "greedy")[0] == "404"
    assert searched(one, "*y", "greedy", units_max=30)[0] == "searching"
    assert one.store.search_in_s() > 0
    assert searched(one, "*z", "other", units_max=30)[0] == "404"
    one.clock.advance(1)
    assert searched(one, "*y", "greedy", units_max=30)[0] == "404"


def test_ever_new_lists_share_what_is_known_of_their_patterns(servers: Servers) -> None:
    (one,) = servers(1)
    one.do(c.CreateJobs, jobs=[{"name": f"n/{number % 20}/{number}"} for number in range(200)])
    one.do(c.PauseJobs, name="n/*")
    listed = sent(
        one,
        lambda: [
            searched(one, (f"n/{number % 20}/*", f"n/{number % 19}/*x", f"n/{number % 17}/9?", "n/0/0"))
            for number in range(200)
        ],
    )
    assert 20 < listed.count("heads_behind") <= 20 + 19 + 17, "each pattern is searched for once"
    one.do(c.ResumeJobs, name="n/*")
    assert searched(one, ("n/1/*", "n/2/*x", "n/0/0"))[0] == "n/0/0"
    assert searched(one, ("n/3/*", "n/2/*x", "n/0/0"))[0] == "n/3/3"


@pytest.mark.usefixtures("short_walks")
@pytest.mark.parametrize("by", ["", "other"])
def test_very_many_new_patterns_come_in_turn(by: str, servers: Servers) -> None:
    (one,) = servers(1)
    behind(one, "n/1")
    mine = names_of(("k/*", "m/*"))
    waiting: dict[Names, None] = {}
    invited: list[Names] = []
    served_in = 0

    def take_now(context: Context, names: Names) -> bool:
        answer = take.take(context, TakeRequest(names, by=by if names is mine else ""))
        if answer is not None and answer.searching:
            waiting[names] = None
            return False
        waiting.pop(names, None)
        return True

    def one_unit(unit: int) -> None:
        nonlocal served_in
        context = one.open()
        for number in range(10):  # a flood: ever new lists of eight, more than a unit has time for
            take_now(context, names_of(tuple(f"f/{unit}/{number}/{part}/*" for part in range(NAMES_AT_ONCE))))
        if unit == 5:
            take_now(context, mine)
        for names in invited:
            if take_now(context, names) and names is mine:
                served_in = unit
        invited[:] = context.unit.search([*waiting])
        one.commit()

    for unit in range(80):
        listed = sent(one, lambda unit=unit: one_unit(unit))
        assert len(listed) <= 100, "what one unit sends is bounded"
    assert served_in > 5
    assert not by or served_in <= 10, "tokens take turns"


def test_a_take_that_stops_reads_no_more_jobs_of_the_same_time(servers: Servers) -> None:
    (one,) = servers(1)
    one.store.session.script(
        f"INSERT INTO jobs (created, jobID, state, name, nextRun) SELECT '{EARLY}', n, 'QUEUED', 'n' || n,"
        f" '{EARLY}' FROM generate_series(1, {300 * SCANNED_MAX}) AS n"
    )
    assert hits(one, "absent*", LowWaterMarks({}, {})) < 100
    assert taken(one, f"n{SCANNED_MAX}", 1) == [f"{SCANNED_MAX}n{SCANNED_MAX}"]
    assert searched(one, f"n[2]{SCANNED_MAX}*")[0] == f"n2{SCANNED_MAX}"


def test_sorted_heads_are_a_sorted_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "BLOCK_HEADS", 3)
    dice = random.Random(1)
    known = [(-dice.choice(PRIORITIES), NOW, job_id, "n") for job_id in range(20)]
    ordered = SortedHeads(known)
    for job_id in range(100, 600):
        if known and dice.random() < (0.4 if job_id < 350 else 0.6):
            ordered.remove(known.pop(dice.randrange(len(known))))
        else:
            known.append((-dice.choice(PRIORITIES), NOW, job_id, "n"))
            ordered.add(known[-1])
        begin, end = sorted((-dice.choice(PRIORITIES), NOW, dice.randrange(600), "") for _ in range(2))
        expected = [head for head in sorted(known) if begin < head < end]
        assert [*ordered.between(begin, end)] == expected
