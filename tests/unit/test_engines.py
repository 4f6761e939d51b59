"""Which engines a test of servers runs on."""

from __future__ import annotations

import ast

import pytest

from docs.generator.sqlite_only import found_in
from tests import engines
from tests.engines import EACH, FAST_EACH, FIXTURE, engines_for, is_run_fast


def test_all_of_them_run_on_the_engine_that_is_asked_for() -> None:
    assert engines_for("postgresql", "a", sqlite_alone=False) == ["postgresql"]


def test_by_day_some_run_on_postgresql_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "PROFILE", "same")
    names = [f"tests/a.py::test_{number}" for number in range(100 * EACH)]
    both = [name for name in names if len(engines_for("sqlite", name, sqlite_alone=False)) == 2]
    assert 50 < len(both) < 200
    assert both == [name for name in names if len(engines_for("sqlite", name, sqlite_alone=False)) == 2]
    assert not [name for name in both if len(engines_for("sqlite", name, sqlite_alone=True)) == 2]
    monkeypatch.setattr(engines, "PROFILE", "fast")
    assert engines_for("sqlite", both[0], sqlite_alone=False) == ["sqlite"], "there need be no PostgreSQL"


def test_between_two_changes_some_tests_of_servers_are_run_with_all_their_examples() -> None:
    names = [f"tests/a.py::test_{number}" for number in range(100 * FAST_EACH)]
    assert all(is_run_fast(name, ["tmp_path"]) for name in names)
    run = [name for name in names if is_run_fast(name, [FIXTURE])]
    assert 50 < len(run) < 150
    assert all(is_run_fast(f"{name}[an example]", [FIXTURE]) for name in run)


def test_the_table_has_what_is_marked_and_why() -> None:
    text = """
@sqlite_only("why")
def test_a(): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=sqlite_only("one"))])
def test_b(x): ...

pytestmark = [sqlite_only("each")]
"""
    found = list(found_in(ast.parse(text)))
    assert found == [("test_a", "why"), ("an example", "one"), ("all", "each")]
