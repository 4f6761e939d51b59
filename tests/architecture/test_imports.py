"""Imports go one way, and the clock, SQL and size rules of the house hold in every module."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES_MAX = 400

SERVER = sorted((ROOT / "bedrockjobs").rglob("*.py"))
WORKER = sorted((ROOT / "worker").rglob("*.py"))


def name(path: Path) -> str:
    """Return a path as a person knows it."""
    return str(path.relative_to(ROOT))


def test_the_import_contracts_are_kept() -> None:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which(
        "lint-imports"
    )
    assert command is not None, "import-linter is not installed"
    run = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout
    assert re.search(r"Contracts: [2-9] kept, 0 broken", run.stdout)


@pytest.mark.parametrize("path", SERVER + WORKER, ids=name)
def test_no_module_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", [path for path in SERVER + WORKER if path.stat().st_size], ids=name)
def test_every_module_and_every_public_thing_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
            for inner in node.body:
                if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)) and inner.name[:1] != "_":
                    assert ast.get_docstring(inner), f"{node.name}.{inner.name} has no docstring"
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"


# --- SQL -------------------------------------------------------------------------------------------------

SPEAKS_SQL = {"bedrockjobs/schedule/repeat.py"}
SQL = re.compile(
    r"\b(SELECT\s+[\w*?(]|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|BEGIN IMMEDIATE|"
    r"CREATE\s+(TABLE|INDEX)|DROP\s+TABLE|PRAGMA\s+\w+|ATTACH\s|ROLLBACK\b|SAVEPOINT\b)"
)


def _statements(path: Path) -> Iterator[str]:
    """Yield the SQL in a module's strings, but for docstrings and descriptions, which speak to people."""
    tree = ast.parse(path.read_text())
    prose = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        for keyword in getattr(node, "keywords", ()):
            if keyword.arg in ("description", "help"):
                prose |= {id(inner) for inner in ast.walk(keyword.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            for found in SQL.finditer(node.value):
                yield found[0]


@pytest.mark.parametrize("path", SERVER + WORKER, ids=name)
def test_sql_is_spoken_in_the_store_alone(path: Path) -> None:
    if name(path).startswith("bedrockjobs/store/") or name(path) in SPEAKS_SQL:
        return
    assert list(_statements(path)) == []


def test_the_search_for_sql_finds_it() -> None:
    for module in ("bedrockjobs/store/sqlite.py", "bedrockjobs/schedule/repeat.py"):
        assert list(_statements(ROOT / module))


@pytest.mark.parametrize("path", SERVER + WORKER, ids=name)
def test_sqlite_is_imported_where_it_is_spoken_or_its_errors_are_understood(path: Path) -> None:
    allowed = ("bedrockjobs/store/", "bedrockjobs/engine/", "bedrockjobs/cli/", *SPEAKS_SQL)
    allowed += ("bedrockjobs/server.py",)
    if not name(path).startswith(allowed):
        assert "sqlite3" not in _imports(path)


def test_the_database_is_never_asked_for_the_time() -> None:
    texts = [path.read_text() for path in (ROOT / "bedrockjobs").rglob("*.sql")]
    texts += [(ROOT / "schema.sql").read_text()]
    assert len(texts) >= 2
    for text in texts:
        assert not re.search(r"CURRENT_(TIMESTAMP|TIME|DATE)|'now'|unixepoch\(\s*\)", text, re.IGNORECASE)


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


# --- the clock -------------------------------------------------------------------------------------------

CLOCKS = {
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime",
             "gmtime", "sleep"},
}  # fmt: skip


def _clock_calls(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if node.attr in CLOCKS.get(owner, ()):
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            found += [f"from time import {alias.name}" for alias in node.names]
    return found


NOT_THE_SERVER = ("bedrockjobs/client/", "bedrockjobs/cli/")
"""These run in the user's process and measure their own waits."""


@pytest.mark.parametrize("path", SERVER, ids=name)
def test_the_time_is_asked_of_the_clock_alone(path: Path) -> None:
    if name(path) == "bedrockjobs/base/clock.py":
        assert set(_clock_calls(path)) == {"datetime.now", "time.monotonic"}
    elif name(path).startswith(NOT_THE_SERVER):
        assert set(_clock_calls(path)) <= {"time.monotonic", "time.sleep"}
    else:
        assert _clock_calls(path) == []


# --- words -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SERVER + WORKER, ids=name)
def test_modules_are_named_for_what_they_do(path: Path) -> None:
    assert not {"utils", "util", "helpers", "helper", "common", "manager", "misc"} & set(path.stem.split("_"))


@pytest.mark.parametrize("path", SERVER + WORKER, ids=name)
def test_nothing_is_left_to_do(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())
