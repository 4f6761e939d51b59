"""The readers of files: definitions of schedules, and LUCI's configuration."""

from __future__ import annotations

import pytest

from tests.fuzz.checks import cases, check_hostile, check_made_up

NAMES = ("definitions-json", "definitions-toml", "definitions-yaml", "textproto")


@pytest.mark.parametrize("name", NAMES)
def test_inputs_made_up(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_made_up(name, capsys)


@pytest.mark.parametrize(("name", "case"), cases(*NAMES))
def test_inputs_made_to_hurt(name: str, case: str) -> None:
    check_hostile(name, case)
