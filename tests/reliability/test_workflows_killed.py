"""kill -9 under workflows: each job ends once, after those before it, and gets their results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.effort import examples
from tests.history import Report
from tests.reliability.workflow_storm import Site, Storm, alone, together

pytestmark = pytest.mark.reliability

GRAPHS = examples(3, night=50)
SHARED_GRAPHS = examples(2, night=50)
"""Graphs of one run; the nightly command does more."""

CONTROL_STORMS = 3
"""Storms in which a fault must be found; the first one finds it unless the machine stands still."""

CONTROLS = [("late start", "waits for ever"), ("early start", "too early"), ("lost ends", "runs again")]
SHARED_CONTROLS = [("unlocked workflows", "miscounted, waits for ever"), ("shared lost ends", "runs again")]
"""Faults of servers, each with what is found of it, as it falls; the last one by day on one server only."""


def check(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a storm found no fault, and that its kills cut servers and workers that had work."""
    with capsys.disabled():
        print(f"\nworkflows under kills: {report}")
    counts = report.counts
    assert not report.faults, report
    assert counts["kills at an end"], report
    assert counts["kills during a run"], report
    assert counts["workers killed"], report
    # The workers of these runs were dead, and their jobs were taken again.
    assert counts["requeued"] >= counts["kills during a run"] + counts["workers killed"], report


async def check_fault(site: Site, number: int, fault: str, found: str) -> None:
    """Check that a fault of the servers is found: the control of the test."""
    for seed in range(100 * number, 100 * number + CONTROL_STORMS):
        report = await Storm(site, 1, seed, fault).run()
        if report.faults.keys() & set(found.split(", ")):
            return
    raise AssertionError(f"{fault} is not found in {CONTROL_STORMS} storms, the last was {report}")


async def test_one_server_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with alone(tmp_path) as site:
        check(await Storm(site, GRAPHS, 11).run(), capsys)
        for number, (fault, found) in enumerate(CONTROLS, 1):
            await check_fault(site, number, fault, found)


async def test_one_of_three_servers_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with together(tmp_path, 34) as site:
        check(await Storm(site, SHARED_GRAPHS, 34).run(), capsys)
        for number, (fault, found) in enumerate(SHARED_CONTROLS[: examples(1, night=2)], 1):
            await check_fault(site, number, fault, found)
