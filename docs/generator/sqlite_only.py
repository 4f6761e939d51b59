"""Which tests of servers are not run on PostgreSQL, and why, as they say themselves by ``sqlite_only``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

TESTS = Path(__file__).parent.parent.parent / "tests"
MARK = "sqlite_only"
ALL, EXAMPLE = "all", "an example"


def table() -> str:
    """Return a row for each reason that a file gives, with how much of the file it is for."""
    rows: dict[tuple[str, str], list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if MARK in (text := path.read_text()):
            for what, reason in found_in(ast.parse(text)):
                rows.setdefault((path.relative_to(TESTS.parent).as_posix(), reason), []).append(what)
    lines = [f"| `{file}` | {_counted(what)} | {reason} |" for (file, reason), what in rows.items()]
    return "\n".join(["| file | tests | why they run on SQLite alone |", "| --- | --- | --- |", *lines])


def found_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what of a file is marked, and why: all of it, a test by its name, or an example of one."""
    for statement in tree.body:
        marks = [part for part in ast.walk(statement) if _is_mark(part)]
        for mark in marks:
            (reason,) = mark.args
            assert isinstance(reason, ast.Constant), "a reason is written out"
            yield _marked_by(mark, statement), str(reason.value)


def _is_mark(part: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == MARK


def _marked_by(mark: ast.Call, statement: ast.stmt) -> str:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return statement.name if mark in statement.decorator_list else EXAMPLE
    return ALL if ast.unparse(statement).startswith("pytestmark") else EXAMPLE


def _counted(what: list[str]) -> str:
    return what[0] if what[0] in (ALL, EXAMPLE) else str(len(what))
