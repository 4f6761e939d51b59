"""kill -9 of several servers on one PostgreSQL: no acknowledged command is lost or executed twice."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.effort import examples
from tests.reliability.shared_storm import SharedStorm
from tests.reliability.shared_ticks import TickStorm

pytestmark = pytest.mark.reliability

KILLS = int(os.environ.get("RELIABILITY_SHARED_KILLS", examples(3, night=250)))
"""Kills of one run; the nightly command does more."""

TICKS = examples(40, night=160)
CONTROL_TICKS = 20

CONTROL_KILLS_MAX = 40
"""Kills until a fault must have been seen: the first one is nearly always enough."""

CONTROLS = {
    "shared dropped commit": {
        "lost",
        "came back",
        "jobID reused",
        "two owners",
        "given out after its end",
        "orphaned",
    },
    "unlocked takes": {"two owners", "run twice"},
}
"""Faults of servers, each with what is found: one of these, as it falls. The first answers too early: some of
its units are gone. The second hands out what another server has just taken."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder for logs."""
    return tmp_path


async def test_kill_under_load(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = await SharedStorm(folder, KILLS).run()
    with capsys.disabled():
        print(f"\n{KILLS} kills of servers on one PostgreSQL: {report}")
    assert not report.faults, report
    assert report.counts["kills"] >= KILLS
    assert report.counts["finish"] > KILLS, "there must have been load"
    lost, possible = "hand-outs lost with their answer", "jobs asked for without an answer"
    assert report.counts[lost] <= report.counts[possible]


@pytest.mark.parametrize("fault", CONTROLS)
async def test_a_server_with_a_fault_is_found(fault: str, folder: Path) -> None:
    """The control of the test above."""
    storm = SharedStorm(folder, CONTROL_KILLS_MAX, fault=fault, servers=2)
    report = await storm.run(CONTROLS[fault])
    assert report.faults.keys() & CONTROLS[fault], report


async def test_each_tick_fires_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = await TickStorm(folder, TICKS, schedules=40).run()
    with capsys.disabled():
        print(f"\nticks with servers killed: {report}")
    assert not report.faults, report
    assert report.counts["ticks"] >= TICKS
    assert report.counts["kills"]


async def test_ticks_that_are_lost_or_fire_twice_are_found(folder: Path) -> None:
    """The control of the test above."""
    storms = {}
    for fault in ("tick lost", "tick twice"):
        (folder / fault).mkdir()
        storms[fault] = TickStorm(folder / fault, CONTROL_TICKS, schedules=20, fault=fault, servers=2)
    lost, twice = await asyncio.gather(*(storm.run() for storm in storms.values()))
    assert "tick lost" in lost.faults, lost
    assert "fired twice" in twice.faults, twice
