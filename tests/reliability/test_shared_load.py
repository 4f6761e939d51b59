"""Several servers on one PostgreSQL under load: takes find all existing jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bedrockjobs.engine.cluster import EXCHANGE_EVERY_S
from tests.effort import examples
from tests.history import Report
from tests.pace import in_time
from tests.reliability.shared import Shared
from tests.reliability.shared_stall import stall
from tests.reliability.shared_work import Deliveries, Waits, followed, lifecycles

pytestmark = pytest.mark.reliability

LIFECYCLES = examples(60, night=250)
EVENTS = examples(150, night=600)
LONELY_LIFECYCLES = examples(50, night=100)
"""With one client for each server: the fewer jobs there are, the more often others have all a take sees."""
CONTROL_TRIES = 20
"""Whether commits overtake each other while somebody looks, or a take sees what is taken already and not what
is there instead, is left to chance: in most tries some do."""

WAITS = examples(15, night=60)
WAIT_S_MAX = 5.0
"""By then whoever waits has found what nobody told of, on a busy machine too; the night asks for 1.1 s."""

DELIVERIES = examples(60, night=250)
CONTROL_DELIVERIES = examples(100, night=200)
SERVERS_CHANGED = examples(2, night=4)

DEAF_MS = 2_000
UNIT_S_MAX = 1.0
MORE_S = 0.4
"""What others may wait longer on a busy machine; who waits for the server that stands still waits for longer
than that. The night allows nothing."""


async def found(play: Callable[[], Awaitable[Report]], fault: str) -> None:
    """Run until a fault is found; fails after some attempts without one."""
    for _ in range(CONTROL_TRIES):
        report = await play()
        if fault in report.faults:
            return
    raise AssertionError(f"not found in {CONTROL_TRIES} tries, the last of which was {report}")


async def test_nobody_is_sent_away_waits_for_ever_or_misses_an_event(tmp_path: Path) -> None:
    async with Shared(tmp_path) as shared:
        await shared.start(2)
        await shared.start(2, fault="slow takes")
        assert not (report := await lifecycles(shared, LIFECYCLES)).faults, report
        assert not (report := await lifecycles(shared, LONELY_LIFECYCLES, 1)).faults, report
        waits = Waits(shared)
        await waits.run(WAITS, cut_every_s=EXCHANGE_EVERY_S)
        assert in_time(waits.all_s[-1], WAIT_S_MAX), waits
        assert waits.cuts
        report = await followed(shared, EVENTS)
        assert not report.faults, report
        assert report.counts["events"] >= EVENTS


async def test_what_was_delivered_is_not_undone(tmp_path: Path) -> None:
    async with Shared(tmp_path) as shared:
        await shared.start(3)
        report = await Deliveries(shared).run(DELIVERIES, changes=SERVERS_CHANGED)
    assert not report.faults, report
    assert report.counts["given"] > DELIVERIES // 2, report


async def test_a_server_that_undoes_deliveries_is_found(tmp_path: Path) -> None:
    """The control of the test above."""
    async with Shared(tmp_path) as shared:
        await shared.start(2, fault="undone deliveries")
        report = await Deliveries(shared).run(CONTROL_DELIVERIES)
    assert report.faults.keys() == {"given twice", "undone"}, report


async def test_servers_that_are_deaf_send_away_and_mix_up_events_are_found(tmp_path: Path) -> None:
    """The control: without retries, slow takes often get a wrong 404."""
    async with Shared(tmp_path) as shared:
        await shared.start(3, fault="never looks again, slow takes, deaf, unordered events")
        await found(lambda: lifecycles(shared, LONELY_LIFECYCLES, 1), "404 where jobs are")
        waits = Waits(shared)
        await waits.run(3, limit_ms=DEAF_MS)
        assert waits.all_s[-1] > DEAF_MS / 2_000, waits
        await found(lambda: followed(shared, EVENTS), "gap")


async def test_a_server_that_stands_still_in_a_unit_lets_go_of_its_rows(tmp_path: Path) -> None:
    async with Shared(tmp_path, settings={"unit_s_max": UNIT_S_MAX}) as shared:
        await shared.start(2)
        report = await stall(shared, 1, unit_s=UNIT_S_MAX, calm_s=UNIT_S_MAX / 2, more_s=MORE_S)
        assert not report.faults, report


async def test_servers_that_wait_for_each_other_and_units_without_an_end_are_found(tmp_path: Path) -> None:
    """The controls of the test above: serialized takes all wait for each other."""
    async with Shared(tmp_path, settings={"unit_s_max": UNIT_S_MAX}) as shared:
        longer_s = 2 * UNIT_S_MAX
        await shared.start(2, isolation="serial", unit_s_max=longer_s)
        report = await stall(shared, 1, unit_s=longer_s, calm_s=longer_s / 2, more_s=MORE_S)
        assert "others wait" in report.faults, report
        for place in range(2):
            await shared.kill(place)
            await shared.replace(place, fault="endless units")
        report = await stall(shared, 1, unit_s=UNIT_S_MAX, calm_s=0.1, more_s=MORE_S)
        assert "held" in report.faults, report
