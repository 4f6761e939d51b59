"""AdvanceClock: a server whose clock its users move, for their own tests."""

from __future__ import annotations

import pytest

from bedrockjobs.base.config import MOMENTS_PER_ADVANCE_MAX, OUTPUT_KEPT_S
from tests.runs.conftest import Open
from tests.runs.rig import Site, moment


@pytest.fixture
async def own(open_site: Open) -> Site:
    """Return a server that was started with --test-clock."""
    return await open_site(test_clock=True)


async def now(site: Site) -> str:
    """Return the server's time."""
    return str((await site.ok("Status"))["now"])


async def test_without_a_test_clock_it_is_refused(site: Site) -> None:
    assert await site.refused("AdvanceClock", seconds=1) == (405, "Not a test clock")
    assert await site.refused("AdvanceClock") == (405, "Not a test clock")


async def test_by_seconds(own: Site) -> None:
    before = moment(await now(own))
    answer = await own.ok("AdvanceClock", seconds=3600)
    assert 3600 <= (moment(answer["now"]) - before).total_seconds() < 3700
    assert 3600 <= (moment(await now(own)) - before).total_seconds() < 3700


async def test_to_a_moment(own: Site) -> None:
    answer = await own.ok("AdvanceClock", to="2030-01-01 00:00:00")
    assert answer["now"][:19] == "2030-01-01 00:00:00"
    assert (await now(own))[:16] == "2030-01-01 00:00"


async def test_not_back(own: Site) -> None:
    await own.ok("AdvanceClock", to="2030-01-01 00:00:00")
    await own.http("AdvanceClock", {"to": "2029-01-01 00:00:00"})
    assert (await now(own))[:19] == "2030-01-01 00:00:00"


async def test_to_the_next_due_moment(own: Site) -> None:
    await own.ok("AdvanceClock", to="2030-01-01 00:00:30")
    await own.create("a", firstRun="2030-01-05 12:00:00")
    await own.create("b", firstRun="2030-01-06 12:00:00")
    assert await own.nothing("*")
    assert (await own.ok("AdvanceClock"))["now"][:19] == "2030-01-05 12:00:00"
    assert (await own.take("*"))["name"] == "a"
    assert (await own.ok("AdvanceClock"))["now"][:19] == "2030-01-06 12:00:00"
    assert (await own.take("*"))["name"] == "b"


async def test_step_by_step_through_due_moments(own: Site) -> None:
    """A month of cron in one request: a worker that waits gets each job in its own moment."""
    await own.ok("AdvanceClock", to="2030-01-01 00:00:30")
    await own.create("a", runTimeout=60, grace=10, onLost="retry")
    await own.take("a")
    talk = await own.asking("b")
    await own.create("b", firstRun="2030-01-02 00:00:00")
    await own.ok("AdvanceClock", seconds=30 * 86_400)
    job = (await talk.reply()).json
    assert (await own.run(job["runID"]))["started"][:19] == "2030-01-02 00:00:00"
    assert (await own.run(1))["ended"][:19] == "2030-01-01 00:01:50"
    assert (await own.run(1))["status"] == "timeout"


async def test_leases_do_not_move(own: Site) -> None:
    await own.create("a")
    await own.leased("a")
    await own.ok("AdvanceClock", seconds=100_000)
    assert await own.state(1) == "RUNNING"


async def test_a_month_of_a_schedule(own: Site) -> None:
    await own.ok("AdvanceClock", to="2030-01-01 00:00:30")
    await own.create("s", repeat="CRON 0 9 * * 1-5")
    days = []
    for _ in range(22):
        await own.ok("AdvanceClock")
        job = await own.take("s")
        days.append((await own.run(job["runID"]))["started"][:19])
        await own.finish(job)
    assert days[0] == "2030-01-01 09:00:00"
    assert days[-1] == "2030-01-30 09:00:00"
    assert {tick[3] for tick in await own.ticks(1)} == {"fired"}


async def test_a_job_that_expires_is_a_due_moment(own: Site) -> None:
    await own.ok("AdvanceClock", to="2030-01-01 00:00:00")
    await own.create("a", expireAfter=60)
    await own.ok("AdvanceClock", seconds=61)
    assert await own.state(1) == "(deleted)"
    (event,) = await own.events("expired")
    assert event["at"][:16] == "2030-01-01 00:01"


async def test_it_stops_at_a_limited_number_of_moments(own: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them it goes to its end at once: many ticks of a schedule cannot keep a server busy for long."""
    assert MOMENTS_PER_ADVANCE_MAX >= 31 * 24 * 60, "a month of minutes"
    monkeypatch.setattr("bedrockjobs.engine.handlers.serving.MOMENTS_PER_ADVANCE_MAX", 3)
    await own.ok("AdvanceClock", to="2030-01-01 00:00:30")
    for minute in range(6):
        await own.create("a", firstRun=f"2030-01-01 00:0{minute + 1}:00", expireAfter=10)
    assert (await own.ok("AdvanceClock", to="2030-01-01 01:00:00"))["now"][:19] == "2030-01-01 01:00:00"
    assert await own.nothing("a")
    assert len(await own.events("expired")) == 6


async def test_both_at_once(own: Site) -> None:
    assert (await own.refused("AdvanceClock", seconds=1, to="2030-01-01 00:00:00"))[0] == 402


async def test_nonsense(own: Site) -> None:
    assert await own.refused("AdvanceClock", seconds=-1) == (402, "Malformed seconds")
    assert await own.refused("AdvanceClock", to="soon") == (402, "Malformed to")


async def test_the_clock_does_not_go_back(own: Site) -> None:
    before = await now(own)
    assert await own.ok("AdvanceClock", to="2020-01-01") == {"now": before}


async def test_what_is_too_old_by_this_clock_is_deleted(own: Site) -> None:
    await own.create("a")
    job = await own.take("a")
    await own.ok("AppendOutput", runID=job["runID"], seq=1, lines=["text"])
    await own.finish(job)
    await own.ok("AdvanceClock", seconds=OUTPUT_KEPT_S - 60)
    assert len(await own.select("SELECT * FROM output")) == 1
    await own.ok("AdvanceClock", seconds=3_660)
    await own.rest()
    assert await own.select("SELECT * FROM output") == []
