"""Power cuts: no acknowledged command is lost and no file is damaged, whatever else the disk kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.effort import examples
from tests.reliability.power import BROKEN, STATES_OF_A_TRACE, check, recorded_session

pytestmark = pytest.mark.reliability

STATES = int(os.environ.get("RELIABILITY_CUTS", examples(50, night=STATES_OF_A_TRACE)))


async def test_a_power_cut_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = await recorded_session(tmp_path, "full", seed=1)
    found = check(trace, STATES, 1, tmp_path)
    with capsys.disabled():
        print(f"\npower cuts, full: {dict(found)} over {len(trace.promises)} jobs, {len(trace.record)} bytes")
    assert not any(found[kind] for kind in ("damaged", *BROKEN))
    assert len(trace.promises) > 100, "there must have been work"


async def test_relaxed_durability_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = await recorded_session(tmp_path, "relaxed", seed=1)
    found = check(trace, STATES, 1, tmp_path)
    with capsys.disabled():
        print(f"\npower cuts, relaxed: {dict(found)}")
    assert found["lost"] > 0, "a cut must lose something here, or the test cannot see it"
    assert found["damaged"] == 0, "what is left is sound all the same"
