"""kill -9 of several servers on one PostgreSQL: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.reliability.shared_storm import SharedStorm
from tests.reliability.shared_ticks import TickStorm

pytestmark = pytest.mark.reliability

KILLS = int(os.environ.get("RELIABILITY_SHARED_KILLS", "10"))
"""Kills of one run; the nightly command does more."""

TICKS = 160

CONTROL_KILLS = 2
CONTROL_STORMS = 3

FOUND = {"lost", "came back", "jobID reused", "two owners", "given out after its end", "orphaned"}
"""What becomes of a job when a unit that was answered is gone: one of them, as it falls."""


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
    assert report.counts["hand-outs lost with their answer"] <= report.counts["takes without an answer"]


async def test_a_server_that_answers_too_early_is_found(folder: Path) -> None:
    for seed in range(CONTROL_STORMS):
        storm = SharedStorm(folder, CONTROL_KILLS, seed, "shared dropped commit", servers=2)
        report = await storm.run()
        if report.faults.keys() & FOUND:
            return
    raise AssertionError(f"not found in {CONTROL_STORMS} storms, the last of which was {report}")


async def test_each_tick_fires_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That a tick which is lost, or fires twice, is found, is shown by the controls of one server."""
    report = await TickStorm(folder, TICKS, schedules=40).run()
    with capsys.disabled():
        print(f"\nticks with servers killed: {report}")
    assert not report.faults, report
    assert report.counts["ticks"] >= TICKS
    assert report.counts["kills"]
