"""Several servers on one PostgreSQL: who asks is told of what is there, nothing is missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedrockjobs.engine.neighbourhood import EXCHANGE_EVERY_S
from tests.reliability.shared import Shared
from tests.reliability.shared_stall import stall
from tests.reliability.shared_work import Waits, followed, lifecycles

pytestmark = pytest.mark.reliability

LIFECYCLES = 400
EVENTS = 600
WAITS = 60
WAIT_S_MAX = 5.0
"""By then whoever waits has found what nobody told of, on a busy machine too; the night asks for 1.1 s."""

DEAF_MS = 2_000
UNIT_S_MAX = 1.0


async def test_nobody_is_sent_away_waits_for_ever_or_misses_an_event(tmp_path: Path) -> None:
    async with Shared(tmp_path) as shared:
        await shared.start(4)
        assert not (report := await lifecycles(shared, LIFECYCLES)).faults, report
        waits = Waits(shared)
        await waits.run(WAITS, cut_every_s=EXCHANGE_EVERY_S)
        assert waits.all_s[-1] < WAIT_S_MAX, waits
        assert waits.cuts
        report = await followed(shared, EVENTS)
        assert not report.faults, report
        assert report.counts["events"] >= EVENTS


async def test_servers_that_are_deaf_and_events_out_of_order_are_found(tmp_path: Path) -> None:
    """That a take which is not done again is told 404 wrongly comes up in the night, once in a thousand."""
    async with Shared(tmp_path) as shared:
        await shared.start(3, fault="deaf, unordered events")
        waits = Waits(shared)
        await waits.run(3, limit_ms=DEAF_MS)
        assert waits.all_s[0] > DEAF_MS / 2_000, waits
        report = await followed(shared, EVENTS)
        assert "gap" in report.faults, report


async def test_a_server_that_stands_still_in_a_unit_lets_go_of_its_rows(tmp_path: Path) -> None:
    """How long others take meanwhile is judged in the night: by day the machine does other things."""
    async with Shared(tmp_path, settings={"unit_s_max": UNIT_S_MAX}) as shared:
        await shared.start(2)
        report = await stall(shared, 1, unit_s=UNIT_S_MAX, calm_s=UNIT_S_MAX / 2)
        assert "held" not in report.faults, report
        report = await stall(shared, 1, unit_s=-UNIT_S_MAX / 2, calm_s=0.1)
        assert "held" in report.faults, "as it was asked for sooner than it can be"
