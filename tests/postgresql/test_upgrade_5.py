"""Tables of version 4, which stored output line by line, are migrated to this version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.store.chunks import Chunk, PrintedLine, lines_of
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.postgresql.cluster import CLUSTER

NAME = "fourth"
VERSION_4 = Path(__file__).with_name("schema_4.sql").read_text()
AT = "2026-11-21 03:29:30.000"
LINES = [f"line {n}" if n % 7 else 'quote " and \\ ü' for n in range(1, 1_001)]


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    """Create tables of version 4, with two runs and their output."""
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {NAME} CASCADE; CREATE SCHEMA {NAME}")
    with connected() as connection:
        connection.execute(VERSION_4)
        connection.execute(
            "INSERT INTO runs (runID, jobID, name, attempt, cause, scheduledFor, started, worker)"
            " VALUES (1, 1, 'a', 1, 'schedule', '', '', 'w'), (2, 2, 'b', 1, 'schedule', '', '', 'w')"
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO output VALUES (%s, %s, %s, %s, %s)",
                [(1, n, AT, "out", line) for n, line in enumerate(LINES, start=1)] + [(2, 1, AT, "err", "")],
            )
    yield
    CLUSTER.do(f"DROP SCHEMA {NAME} CASCADE")


def connected(name: str = NAME) -> psycopg.Connection[Any]:
    """Return a connection to the tables."""
    return psycopg.connect(CLUSTER.url, options=f"-c search_path={name}")


def described(name: str) -> list[Any]:
    """Return the columns of all tables, and their indexes."""
    with connected(name) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, column_default, is_nullable, collation_name"
            " FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position",
            (name,),
        ).fetchall()
        indexes = connection.execute(
            "SELECT replace(indexdef, schemaname, '') FROM pg_indexes WHERE schemaname = %s ORDER BY 1",
            (name,),
        ).fetchall()
    said = [tuple(str(value).replace(f"{name}.", "") for value in column) for column in columns]
    return [said, indexes]


def test_tables_of_version_4_equal_new_ones_and_keep_what_runs_printed() -> None:
    engine = PostgreSQLEngine(CLUSTER.url, SystemClock(), name=NAME)
    try:
        assert engine.unit is not None
    finally:
        engine.close()
    with connected() as connection:
        rows = connection.execute(
            "SELECT runID, firstSeq, lastSeq, at, codec, start, size, bytes FROM output ORDER BY 1, 2"
        ).fetchall()
        version = connection.execute("SELECT version FROM control").fetchone()
    assert version == (schema.VERSION,)
    chunks = [Chunk._make(row) for row in rows]
    assert [chunk.first_seq for chunk in chunks if chunk.run_id == 1] == [1, 201, 401, 601, 801]
    found = [line for chunk in chunks if chunk.run_id == 1 for line in lines_of(chunk.codec, chunk.content)]
    assert found == [PrintedLine(AT, "out", line) for line in LINES]
    assert lines_of("", chunks[-1].content) == [PrintedLine(AT, "err", "")]
    assert chunks[4].end == sum(len(line.encode()) + 1 for line in LINES)
    fresh = f"{NAME}_new"
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {fresh} CASCADE")
    PostgreSQLEngine(CLUSTER.url, SystemClock(), name=fresh).close()
    try:
        assert described(NAME) == described(fresh)
    finally:
        CLUSTER.do(f"DROP SCHEMA {fresh} CASCADE")
