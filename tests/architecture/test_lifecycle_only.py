"""Only the life cycle sets a job's state; no call elsewhere writes one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedrockjobs.commands import COMMANDS
from bedrockjobs.job.lifecycle import STATES
from bedrockjobs.store.statements import METRICS, RECORDS, STATEMENTS, VIEWS

PACKAGE = Path(__file__).parents[2] / "bedrockjobs"
LIFECYCLE = PACKAGE / "job" / "lifecycle.py"
_NAMED = re.compile(r"\b(?:state\s*=|Job\()")
"""What is in each text that sets a state; to parse all texts takes seconds."""

ASKING = {*COMMANDS, "jobs"}
"""Calls whose ``state`` is a search filter: commands, and the views' search."""


def states_set(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each call that names a state to set, and which.

    That is a call with ``state=`` and a state's name, alone or in an expression, or a ``Job`` with one of its
    values.
    """
    if not (_NAMED.search(text) and any(state in text for state in STATES)):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ASKING:
            continue
        given = [keyword.value for keyword in node.keywords if keyword.arg == "state"]
        if called == "Job":
            given += node.args
        for value in given:
            for inner in ast.walk(value):
                if isinstance(inner, ast.Constant) and inner.value in STATES:
                    yield node.lineno, str(inner.value)


def test_nobody_else_sets_a_state() -> None:
    found = [
        f"{path.relative_to(PACKAGE.parent)}:{line} sets {state}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != LIFECYCLE
        for line, state in states_set(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_no_statement_sets_a_state_but_the_quick_take() -> None:
    """``save_job`` binds what ``move`` returned; the others are ``lifecycle.QUICK_TAKE``."""
    setting = {name for name, sql in STATEMENTS.items() if re.search(r"SET[^;]*\bstate = '", sql)}
    assert setting == {"claim_job", "claim_jobs"}, "let job/lifecycle.py set the state"
    others = [*RECORDS.values(), *VIEWS.values(), *METRICS.values()]
    writing = r"UPDATE\s+jobs SET (?!fingerprint = \? WHERE)|INTO\s+jobs\b"
    found = [sql for sql in others if re.search(writing, sql)]
    assert not found, "write jobs with save_job, after job/lifecycle.py"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("row._replace(state='FAILED')", [(1, "FAILED")]),
        ("move(row,\n state='QUEUED' if again else 'FAILED')", [(1, "QUEUED"), (1, "FAILED")]),
        ("rows.Job(now, 1, 'PAUSED', 'name', now)", [(1, "PAUSED")]),
        ("Job(now, 1, before.state, 'name', now)", []),
        ("ListJobs(state='FAILED')", []),
        ("views.find.jobs(state='FAILED')", []),
        ("row.state == 'FAILED'", []),
    ],
)
def test_the_search_finds_what_sets_a_state(text: str, found: list[tuple[int, str]]) -> None:
    assert list(states_set(text)) == found
