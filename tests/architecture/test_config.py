"""Every setting and every constant of config.py says what it is for, and has a test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bedrockjobs.base import config
from bedrockjobs.base.config import Settings

TESTS = Path(__file__).parents[1]
TREE = ast.parse(Path(config.__file__).read_text())
CONSTANTS = [
    node.targets[0].id
    for node in TREE.body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
]
LIMITS = [name for name in CONSTANTS if name.endswith("_MAX")]
UNITS = re.compile(r".*_(max|s|bytes|ms)$")
NOT_QUANTITIES = {
    "host",
    "port",
    "database",
    "durability",
    "compatibility",
    "standby",
    "insecure",
    "test_clock",
    "log_format",
    "unix",
    "public_hosts",
    "root_path",
}

_texts = [path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)]


def test_there_are_constants_and_settings() -> None:
    assert len(CONSTANTS) > 15
    assert len(LIMITS) > 12
    assert len(Settings.model_fields) > 20


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_says_what_it_is_for(name: str) -> None:
    for node, behind in zip(TREE.body, TREE.body[1:], strict=False):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            assert isinstance(behind, ast.Expr)
            assert isinstance(behind.value, ast.Constant)
            assert isinstance(behind.value.value, str)
            assert behind.value.value.rstrip().endswith(".")
            return
    raise AssertionError(name)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_says_what_it_is_for(name: str) -> None:
    description = Settings.model_fields[name].description
    assert description is not None
    assert description.endswith(".")
    assert name in NOT_QUANTITIES or UNITS.fullmatch(name), "a quantity's name ends in its unit"


@pytest.mark.parametrize("name", [*CONSTANTS, *Settings.model_fields])
def test_it_has_a_test(name: str) -> None:
    """A name that no test mentions is a limit that nobody has tried."""
    assert any(re.search(rf"\b{name}\b", text) for text in _texts), f"no test mentions {name}"
