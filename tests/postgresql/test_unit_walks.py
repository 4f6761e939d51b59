"""Takes by patterns that scan past other jobs: the scan ends, and the rest is queried by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.config import SCANNED_MAX
from bedrockjobs.store.postgresql import takes
from tests.postgresql.conftest import Server

Servers = Callable[[int], list[Server]]


@pytest.fixture
def one(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server that scans past three jobs of a priority level."""
    assert [takes.scanned_max(limit) for limit in (1, 100)] == [SCANNED_MAX, 1_000]
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)
    return servers(1)[0]


def fill(one: Server, *names: str, priority: int = 500) -> None:
    """Create jobs one second apart, and move the clock past them."""
    for name in names:
        one.do(c.CreateJob, name=name, jobPriority=priority)
        one.clock.advance(1)


def taken(one: Server, name: str, count: int) -> list[str]:
    """Take jobs in one unit, each by its own command; return their jobIDs and names."""
    outcomes = one.call_together([c.GetJob(name=name)] * count)
    return [f"{found.body['jobID']}{found.body['name']}" if found.body else "404" for found in outcomes]


def test_jobs_behind_the_walk_are_found_in_their_order(one: Server) -> None:
    fill(one, *"xxxxxx", "b", "a", "b", "c", "a", "b")
    assert taken(one, "[abc]", 7) == ["7b", "8a", "9b", "10c", "11a", "12b", "404"]


def test_so_they_are_one_unit_after_the_other(one: Server) -> None:
    fill(one, *"xxxxxx", "b", "a", "b", "c")
    assert [taken(one, "[abc]", 1) for _ in range(5)] == [["7b"], ["8a"], ["9b"], ["10c"], ["404"]]


def test_what_the_walk_finds_and_what_is_behind_it_keep_their_order(one: Server) -> None:
    fill(one, "a", "x", "x", "x", "b", "a")
    fill(one, "b", priority=250)
    assert taken(one, "[ab]", 5) == ["1a", "5b", "6a", "7b", "404"]


def test_a_higher_class_comes_first_also_where_only_the_lower_one_is_walked_to_its_end(one: Server) -> None:
    fill(one, "a", priority=250)
    fill(one, *"xxxx", "b")
    assert taken(one, "[ab]", 3) == ["6b", "1a", "404"]


def test_more_names_than_are_asked_at_a_time(one: Server) -> None:
    names = [f"n{number:02d}" for number in range(30)]
    fill(one, *"xxxx", *names, *names[:3])
    expected = [f"{5 + number}{name}" for number, name in enumerate([*names, *names[:3]])]
    assert taken(one, "n??", 20) == expected[:20]
    assert taken(one, "n*", 14) == [*expected[20:], "404"]


def test_what_was_created_in_the_unit_is_among_them(one: Server) -> None:
    fill(one, *"xxxx", "b")
    outcomes = one.call_together(
        [c.CreateJob(name="a", job_priority=1000), c.GetJob(name="[ab]"), c.GetJob(name="[ab]")]
    )
    assert [found.body["jobID"] for found in outcomes] == [6, 6, 5]


def test_paused_names_and_future_jobs_are_not_asked(one: Server) -> None:
    one.do(c.PauseJobs, name="x")
    fill(one, *"xxxxx", "a")
    one.do(c.CreateJob, name="b", firstRun="2100-01-01 00:00:00")
    assert taken(one, "*", 2) == ["6a", "404"]


def test_jobs_whose_lock_is_held_are_walked_past(one: Server) -> None:
    for name in ("a", "a", "a", "a", "a"):
        one.do(c.CreateJob, name=name, lock="L")
        one.clock.advance(1)
    one.do(c.CreateJob, name="b", lock="M")
    assert taken(one, "*", 3) == ["1a", "6b", "404"]


def test_a_job_that_another_unit_has_is_passed_over(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)
    one, other = servers(2)
    fill(one, *"xxxx", "b", "a")
    other.opened(c.GetJob(name="b"))
    assert taken(one, "[ab]", 2) == ["6a", "404"]
    other.store.rollback()
    assert taken(one, "[ab]", 1) == ["5b"]


def test_names_that_begin_alike_are_asked_alone(one: Server) -> None:
    """Names before and after them are not read."""
    fill(one, *"xxxx", "m", "na", "nb", "o")
    statements: list[Any] = []
    run = one.store.session.run_statements

    def noted(some: Any) -> Any:
        statements.extend(some)
        return run(some)

    one.store.session.run_statements = noted  # type: ignore[method-assign]
    assert taken(one, "n*", 2) == ["6na", "7nb"]
    assert [given[3] for sql, given in statements if sql == takes.SQL["heads_behind"]] == ["n"]
