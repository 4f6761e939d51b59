"""Rules that ruff and import-linter cannot check: SQL stays in the store, module names state a purpose.

The other rules are in pyproject.toml: docstrings (D1), no notes of unfinished work (FIX), the clock
(TID251), who imports whom and who imports SQLite (import-linter).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

MODULES = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("bedrockjobs", "worker")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
"""Every module of the program by its path."""


def test_modules_are_named_for_what_they_do() -> None:
    empty = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
    found = [name for name in MODULES if empty & set(re.split(r"[/_.]", name))]
    assert not found, "name the module after its idea"


# --- SQL -------------------------------------------------------------------------------------------------

SPEAK_SQL = ("bedrockjobs/store/", "bedrockjobs/schedule/repeat.py")
SQL = re.compile(
    r"\b(SELECT\s+[\w*?(]|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|BEGIN IMMEDIATE|"
    r"CREATE\s+(TABLE|INDEX)|DROP\s+TABLE|PRAGMA\s+\w+|ATTACH\s|ROLLBACK\b|SAVEPOINT\b)"
)


def _statements(text: str) -> Iterator[str]:
    """Yield the SQL in a module's strings, except docstrings and descriptions."""
    prose: set[int] = set()
    strings = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.add(id(node.value))
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("description", "help"):
                    prose |= {id(inner) for inner in ast.walk(keyword.value)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.append(node)
    for node in strings:
        if id(node) not in prose:
            for found in SQL.finditer(str(node.value)):
                yield found[0]


def test_sql_is_spoken_in_the_store_alone() -> None:
    spoken = {name: list(_statements(text)) for name, text in MODULES.items() if SQL.search(text)}
    assert spoken["bedrockjobs/store/sqlite.py"], "the search finds SQL where there is some"
    assert spoken["bedrockjobs/schedule/repeat.py"]
    elsewhere = {name: found for name, found in spoken.items() if found and not name.startswith(SPEAK_SQL)}
    assert not elsewhere, "move the SQL to bedrockjobs/store/"


def test_the_database_is_never_asked_for_the_time() -> None:
    texts = {str(path): path.read_text() for path in (ROOT / "bedrockjobs").rglob("*.sql")}
    texts["schema.sql"] = (ROOT / "schema.sql").read_text()
    assert len(texts) >= 2
    asks = re.compile(r"CURRENT_(TIMESTAMP|TIME|DATE)|'now'|unixepoch\(\s*\)", re.IGNORECASE)
    found = [name for name, text in texts.items() if asks.search(text)]
    assert not found, "pass the time as a parameter, from base/clock.py"
