"""kill -9 under load: no acknowledged command is lost or executed twice, and nothing waits forever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.effort import examples
from tests.reliability.storm import LIFE_S, Storm

pytestmark = pytest.mark.reliability

KILLS = int(os.environ.get("RELIABILITY_KILLS", examples(8, night=1000)))
"""Kills of one run; the nightly command does more."""

CONTROL_KILLS = 120
"""Kills in which a server with a fault must be found out. Mostly the first ones suffice; whether one falls
where it hurts is chance."""


async def test_kill_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = await Storm(tmp_path, KILLS).run()
    with capsys.disabled():
        print(f"\n{KILLS} kills: {report}")
    assert not report.faults, report
    assert report.counts["kills"] == KILLS
    assert report.counts["finish"] > KILLS, "there must have been load"
    lost, possible = "hand-outs lost with their answer", "jobs asked for without an answer"
    assert report.counts[lost] <= report.counts[possible]


UNDONE = {"lost", "came back", "jobID reused", "two owners", "given out after its end"}
"""What becomes of a job when a commit that was answered is gone: one of them, as the kill falls."""


@pytest.mark.parametrize(
    ("fault", "longer", "found"),
    [
        ("answer before commit", 1, UNDONE | {"orphaned"}),
        ("dropped commit", 1, UNDONE),
        ("blind take", 1, {"two owners"}),
        ("reused ids", 1, {"jobID reused"}),
        # Children must end while a server lives; a slow machine ends few of them between two kills.
        ("forgotten parent", 6, {"orphaned"}),
    ],
)
async def test_a_fault_is_found(tmp_path: Path, fault: str, longer: int, found: set[str]) -> None:
    storm = Storm(tmp_path, CONTROL_KILLS, fault=fault, life_s=LIFE_S * longer)
    report = await storm.run(found)
    assert report.faults.keys() & found, report
