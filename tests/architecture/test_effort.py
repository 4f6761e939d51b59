"""Every file named in the check exists: a wrong name would silently have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import run
from tests.effort import LONG

ROOT = Path(__file__).parents[2]
IGNORED = [word.removeprefix("--ignore=") for word in run.FAST]
RELIABILITY = [f"{run.RELIABILITY}/test_{name}.py" for name in run.RELIABILITY_LONG]


@pytest.mark.parametrize("name", [*LONG, *run.PATIENT, *IGNORED, *RELIABILITY])
def test_what_the_check_names_is_there(name: str) -> None:
    assert (ROOT / name).exists(), "tests/run.py or tests/effort.py names a file that is gone"
