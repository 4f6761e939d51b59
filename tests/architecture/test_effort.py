"""Every file named in the check exists: a wrong name would silently have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import effort, run
from tests.effort import LONG, crossed

ROOT = Path(__file__).parents[2]
IGNORED = [word.removeprefix("--ignore=") for word in run.FAST]
RELIABILITY = [f"{run.RELIABILITY}/test_{name}.py" for name in run.RELIABILITY_LONG]


@pytest.mark.parametrize("name", [*LONG, *run.PATIENT, *IGNORED, *RELIABILITY])
def test_what_the_check_names_is_there(name: str) -> None:
    assert (ROOT / name).exists(), "tests/run.py or tests/effort.py names a file that is gone"


def test_independent_parameters_are_crossed_at_night_and_each_has_its_turn_by_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    axes = ["abc", [1, 2], range(5)]
    monkeypatch.setattr(effort, "PROFILE", "random")
    assert len(set(crossed(*axes))) == 3 * 2 * 5
    monkeypatch.setattr(effort, "PROFILE", "same")
    found = crossed(*axes)
    assert len(found) == 5
    assert [set(values) for values in zip(*found, strict=True)] == [set(axis) for axis in axes]
