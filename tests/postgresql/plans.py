"""What PostgreSQL plans for a statement, and how many pages it reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg

from tests.postgresql.conftest import Server


def plan_of(one: Server, sql: str, parameters: Sequence[Any], options: str = "VERBOSE OFF") -> str:
    """Return the generic plan of a statement."""
    return _plans_of(one, sql, parameters, options, times=1)[0]


def pages_of(one: Server, sql: str, parameters: Sequence[Any]) -> int:
    """Return the pages a statement reads: the lower of two counts, as the first may read catalogues."""
    plans = _plans_of(one, sql, parameters, "ANALYZE, BUFFERS", times=2)
    return min(map(_pages, plans))


def _plans_of(one: Server, sql: str, parameters: Sequence[Any], options: str, *, times: int) -> list[str]:
    values = ", ".join(psycopg.sql.Literal(value).as_string() for value in parameters)
    given = f"({values})" if parameters else ""
    explained = (f"EXPLAIN (COSTS OFF, {options}) EXECUTE explained{given}", ())
    one.store.session.script(f"PREPARE explained AS {sql}")
    plans = [
        "\n".join(row[0] for row in one.store.session.run_statements([explained])[0]) for _ in range(times)
    ]
    one.store.session.script("DEALLOCATE explained")
    return plans


def _pages(plan: str) -> int:
    """Return what is at the top of a plan: pages found in memory and pages read from the file."""
    (top, *_) = re.findall(r"^\s+Buffers: shared (.*)", plan, re.M)
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", top)))
