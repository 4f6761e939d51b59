"""If a machine's clock was a year ahead for a while, every schedule still fires."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reliability.servers import Server
from tests.reliability.shim import CLOCK, built
from tests.reliability.wire import Wire

pytestmark = pytest.mark.reliability

YEAR_S = 365 * 86_400
WAIT_MS = 20_000
"""Time in which a schedule of every second must be taken on a busy machine."""


def set_clock(file: Path, ahead_s: int) -> None:
    """Set the clock of the servers ahead."""
    with file.open("r+b") as clock:
        clock.write(ahead_s.to_bytes(8, "little", signed=True))


async def run_once(wire: Wire) -> str:
    """Run the schedule once; return its planned time."""
    taken = await wire.ask("GetJob", name="tick", connection="wait", timeout=WAIT_MS)
    assert taken.code == 200, taken
    assert (await wire.ask("FinishJob", jobID=taken.reply["jobID"])).code == 200
    return str(taken.reply["nextRun"])


async def test_a_year_forward_and_back(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_bytes(bytes(8))
    shim = {"LD_PRELOAD": str(built(CLOCK)), "CLOCK_AHEAD": str(clock)}
    async with Server(tmp_path / "jobs.db", **shim) as server:
        wire = await Wire.connect(await server.listening())
        assert (await wire.ask("CreateJob", name="tick", repeat="CRON * * * * * *")).code == 200
        before = await run_once(wire)
        set_clock(clock, YEAR_S)
        ahead = await run_once(wire)
        while ahead[:4] == before[:4]:  # the last tick of this year came first
            ahead = await run_once(wire)
        set_clock(clock, 0)
        after = await run_once(wire)
        while after[:4] == ahead[:4]:
            after = await run_once(wire)
        events = (await wire.ask("Events", limit=100)).reply["events"]
    assert before[:4] == after[:4] < ahead[:4]
    assert len([event for event in events if event["kind"] == "clock set"]) == 2
