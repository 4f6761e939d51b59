"""Each parser of external text, with random inputs for a while and with hostile inputs."""

from __future__ import annotations

import pytest

from tests.fuzz.checks import cases, check_hostile, check_made_up
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_made_up(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_made_up(name, capsys)


@pytest.mark.parametrize(("name", "case"), cases(*TARGETS))
def test_inputs_made_to_hurt(name: str, case: str) -> None:
    check_hostile(name, case)
