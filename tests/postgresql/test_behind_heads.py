"""Takes by patterns with cached heads: prefetched in the round trip that opens a unit."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import timestamp_ms
from bedrockjobs.base.config import PRIORITIES
from bedrockjobs.store.postgresql import takes
from tests.effort import examples
from tests.postgresql.conftest import Server
from tests.postgresql.test_foreseen import listened
from tests.postgresql.test_unit_walks import fill, taken

Servers = Callable[[int], list[Server]]

FEW, MANY = 4, 64


@pytest.fixture(autouse=True)
def short_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit scans to three jobs of a priority level."""
    monkeypatch.setattr(takes, "scanned_max", lambda _: 3)


def queued(one: Server, dice: random.Random, names: int, jobs: int) -> list[str]:
    """Queue jobs behind others, in random order and priority; return them in the order of takes."""
    fill(one, *"xxxx", priority=1000)
    fill(one, *"xxxx")
    found = []
    for _ in range(jobs):
        name, priority = f"n{dice.randrange(names):03d}", dice.choice(PRIORITIES[1:4])
        first = timestamp_ms(one.clock.now())[:-4]
        job_id = one.do(c.CreateJob, name=name, jobPriority=priority, firstRun=first)["jobID"]
        found.append((-priority, first, job_id, name))
        one.clock.advance(dice.choice((0, 1)))
    return [f"{job_id}{name}" for *_, job_id, name in sorted(found)]


@pytest.mark.parametrize("names", [1, 3, 40])
def test_a_unit_takes_two_round_trips_however_few_names_share_the_jobs(names: int, servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *[f"n{number % names:02d}" for number in range(3 * MANY)])
    expected = [f"{5 + number}n{number % names:02d}" for number in range(3 * MANY)]
    assert taken(one, "n*", FEW) == expected[:FEW]  # which reads the cached heads
    found: list[str] = []
    trips = listened(one.store)
    for count in (FEW, MANY, MANY):
        found += taken(one, "n*", count)
    assert found == expected[FEW : FEW + len(found)]
    assert [trip[0] for trip in trips] == ["begin", trips[1][0]] * 3
    assert "claim_behind_heads" in trips[0]
    assert "heads_of_names" in trips[1]  # with the commit: what the next unit finds is what this one has left
    assert "heads_of_names" not in trips[2]


@pytest.mark.parametrize("seed", range(examples(3, night=200)))
def test_random_jobs_are_taken_in_their_order(seed: int, servers: Servers) -> None:
    dice = random.Random(seed)
    (one,) = servers(1)
    expected = queued(one, dice, names=dice.choice((1, 3, 10, 30)), jobs=60)
    found: list[str] = []
    while len(found) < len(expected):
        found += taken(one, "n*", dice.randint(1, 9))
    assert found[: len(expected)] == expected
    assert set(found[len(expected) :]) <= {"404"}


def test_a_name_with_more_jobs_than_were_asked_for_is_asked_again_and_for_more_next_time(
    servers: Servers,
) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", "n0", "n1", *["n2"] * 24, "n3", "n4")
    assert taken(one, "n*", 2) == ["5n0", "6n1"]
    fill(one, *["n5"] * 2)
    trips = listened(one.store)
    assert taken(one, "n*", 8) == [f"{7 + number}n2" for number in range(8)]
    assert len(trips) == 2  # it is the first of the names, and asked for all
    fill(one, "n1", priority=1000)
    fill(one, "n3", priority=850)
    trips.clear()
    # the third of the names is asked for a third of all, and one more
    expected = ["35n1", "36n3", *[f"{15 + number}n2" for number in range(6)]]
    assert taken(one, "n*", 8) == expected
    assert len(trips) > 2
    fill(one, "n1", priority=1000)
    fill(one, "n3", priority=850)
    trips.clear()
    assert taken(one, "n*", 8) == ["37n1", "38n3", *[f"{21 + number}n2" for number in range(6)]]
    assert len(trips) == 2


def test_names_that_were_not_asked_for_come_before_second_jobs_of_those_that_were(servers: Servers) -> None:
    (one,) = servers(1)
    names = [f"n{number:02d}" for number in range(20)]
    fill(one, *"xxxx", *["n00"] * 21, *names, "n00", "n01")
    assert taken(one, "n*", 1) == ["5n00"]
    assert taken(one, "n*", 20) == [f"{6 + number}n00" for number in range(20)]  # now few are asked
    expected = [*names, "n00", "n01"]
    assert taken(one, "n*", 22) == [f"{26 + number}{name}" for number, name in enumerate(expected)]


def test_jobs_that_another_unit_has_are_passed_over_and_found_when_it_is_undone(servers: Servers) -> None:
    one, other = servers(2)
    fill(one, *"xxxx", "n0", "n1", "n0", "n1")
    assert taken(one, "n*", 1) == ["5n0"]
    other.opened(c.GetJob(name="n1"), c.GetJob(name="n0"))
    assert taken(one, "n*", 2) == ["8n1", "404"]
    other.store.rollback()
    assert taken(one, "n*", 2) == ["6n1", "7n0"]


def test_where_jobs_have_locks_names_are_asked_for_those_that_are_free(servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx")
    for _ in range(6):
        one.do(c.CreateJob, name="n0", lock="L")
    one.do(c.CreateJob, name="n1", lock="M")
    assert taken(one, "n*", 1) == ["5n0"]
    trips = listened(one.store)
    assert taken(one, "n*", 2) == ["11n1", "404"]
    assert not any({"take_behind_heads", "claim_behind_heads"} & {*trip} for trip in trips)


def test_plain_jobs_are_marked_as_taken_at_once_and_put_back_where_nobody_took_them(servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *["n0", "n1"] * 4)
    assert taken(one, "n*", 1) == ["5n0"]
    trips = listened(one.store)
    assert taken(one, "n*", 2) == ["6n1", "7n0"]
    assert "claim_behind_heads" in trips[0]
    assert not any({"claim_jobs", "save_jobs"} & {*trip} for trip in trips)
    states = "SELECT string_agg(state, ' ' ORDER BY jobID) FROM jobs WHERE jobID > 7"
    before = one.value("SELECT string_agg(jobs::text, ' ' ORDER BY jobID) FROM jobs")
    one.open(c.GetJob(name="n*"), c.GetJob(name="n*"))
    watched = one.store.session.run_statements([(states, ())])[0][0][0]
    assert watched.split() == ["RUNNING"] * 2 + ["QUEUED"] * 3
    one.commit()
    assert one.value("SELECT string_agg(jobs::text, ' ' ORDER BY jobID) FROM jobs") == before
    assert taken(one, "n*", 6) == ["8n1", "9n0", "10n1", "11n0", "12n1", "404"]


def test_jobs_of_workers_are_not_as_their_takes_are_runs(servers: Servers) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *["n0", "n1"] * 4)
    assert taken(one, "n*", 1) == ["5n0"]
    trips = listened(one.store)
    found = one.call_together([c.GetJob(name="n*", worker="w")] * 2)
    assert [each.body["jobID"] for each in found] == [6, 7]
    assert any("take_behind_heads" in trip for trip in trips)
    assert one.value("SELECT count(*) FROM runs WHERE status = 'running'") == 2


def test_a_job_that_came_into_another_lane_is_found_before_those_that_were_asked_for(
    servers: Servers,
) -> None:
    (one,) = servers(1)
    fill(one, *"xxxx", *["n0", "n1"] * 3)
    assert taken(one, "n*", 1) == ["5n0"]
    one.store.session.script(
        "UPDATE jobs SET lane = 'now', nextRun = '2020-01-01 00:00:00', priority = 1000 WHERE jobID = 9"
    )
    assert taken(one, "n*", 2) == ["9n0", "6n1"]
    assert one.value(
        "SELECT string_agg(jobID::text, ' ' ORDER BY jobID) FROM jobs WHERE state = 'RUNNING'"
    ) == ("5 6 9")
    assert taken(one, "n*", 4) == ["7n0", "8n1", "10n1", "404"]
