"""The databases that tests of whole servers run on: a file, or PostgreSQL, the same tests on each.

``pytest --engine postgresql`` runs them there. Without it they run on files, and every so many of them on
PostgreSQL too. What cannot be the same there says why, by ``sqlite_only``.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import psycopg
import pytest

from bedrockjobs.base.clock import ManualClock, timestamp_ms
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.postgresql.locks import SALT, AdvisoryKeys
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.effort import PROFILE
from tests.postgresql.cluster import CLUSTER, SCHEMA

FIXTURE = "databases"
"""The fixture that all servers of these tests come from."""

FAST_EACH = 2
"""With ``--fast``, one in this many server tests runs: each takes as long as ten other tests."""

EACH = 80
"""By day, one in this many server tests also runs on PostgreSQL; at night, all of them do."""


def sqlite_only(reason: str) -> pytest.MarkDecorator:
    """Mark tests that do not run on PostgreSQL; the documentation lists them with the reason."""
    return pytest.mark.sqlite_only(reason)


class Databases(Protocol):
    """The databases of the servers of one test."""

    name: str
    """``sqlite`` or ``postgresql``."""

    def settings(self, database: str = "") -> dict[str, Any]:
        """Return the settings of a server on a new database, or on an earlier server's database."""
        ...

    def lease_clock(self, clock: ManualClock | None, leases: ManualClock) -> ManualClock | None:
        """Return the clock by which leases expire: the wall clock, or a separate clock for leases."""
        ...

    async def move(
        self,
        database: str,
        before: Any,
        advance: Callable[[], object],
        *,
        date_s: float = 0,
        leases_s: float = 0,
    ) -> None:
        """Move both clocks, those of the process by ``advance``; ``before`` is the date before the move."""
        ...

    async def crash(self, database: str, stop: Callable[[], Awaitable[None]]) -> str:
        """Stop the server of a database; return a database in the state after a kill."""
        ...

    def change(self, database: str, sql: str) -> None:
        """Change a database as another process would."""
        ...


class Files:
    """Databases of SQLite."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        """Make them in a folder."""
        self._folder = folder
        self._made = 0

    def settings(self, database: str = "") -> dict[str, Any]:
        """Return the settings of a server on a new file, or on an earlier one."""
        if not database:
            self._made += 1
            database = str(self._folder / f"jobs{self._made}.db")
            Path(database).write_bytes(empty_file())
        return {"database": database, "wal_bytes": 0, "ballast_bytes": 0}

    def lease_clock(self, clock: ManualClock | None, leases: ManualClock) -> ManualClock | None:
        """Return the clock of leases."""
        return leases

    async def move(
        self,
        database: str,
        before: Any,
        advance: Callable[[], object],
        *,
        date_s: float = 0,
        leases_s: float = 0,
    ) -> None:
        """Advance the clocks of the process: on SQLite, leases have one of their own."""
        advance()

    async def crash(self, database: str, stop: Callable[[], Awaitable[None]]) -> str:
        """Copy the file as it is, then stop the server of the original."""
        old = Path(database)
        new = old.with_name(f"after-{old.name}")
        for suffix in ("", "-wal"):
            part = Path(f"{old}{suffix}")
            if part.exists():
                shutil.copyfile(part, f"{new}{suffix}")
        await stop()
        return str(new)

    def change(self, database: str, sql: str) -> None:
        """Change the file as `sqlite3 jobs.db` would."""
        with closing(sqlite3.connect(database, timeout=5)) as other:
            other.execute(sql)
            other.commit()


@cache
def empty_file() -> bytes:
    """Return a database without jobs: to create its tables takes as long as the rest of a server's start."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        SQLiteEngine(path, Settings(wal_bytes=0, ballast_bytes=0)).close()
        return path.read_bytes()


class Schemas:
    """PostgreSQL databases: schemas of this process's cluster, each emptied before use."""

    name = "postgresql"

    def __init__(self) -> None:
        """Begin with none."""
        self._made = 0
        self._servers = 0

    def settings(self, database: str = "") -> dict[str, Any]:
        """Return the settings of a server on an empty schema, or on an earlier one."""
        if not database:
            database = self._another()
        self._servers += 1
        return {
            "database": database,
            "database_schema": schema_of(database),
            "server_name": f"server-{self._servers}",
        }

    def _another(self) -> str:
        self._made += 1
        schema = SCHEMA if self._made == 1 else f"{SCHEMA}_{self._made}"
        CLUSTER.empty(schema)
        return f"{CLUSTER.url}?application_name={schema}"

    def lease_clock(self, clock: ManualClock | None, leases: ManualClock) -> ManualClock | None:
        """Return the wall clock: leases are in the database, and ``move`` lets them age."""
        return clock

    async def move(
        self,
        database: str,
        before: Any,
        advance: Callable[[], object],
        *,
        date_s: float = 0,
        leases_s: float = 0,
    ) -> None:
        """Let leases age: PostgreSQL stores them as dates, so they are moved with the date or separately.

        The server's last heartbeat moves with the date, as if time had passed while it ran. No maintenance
        may see one of them moved and not the other, which looks as if the clock had been set: its lock is
        held until both are.
        """
        moved = f"interval '{date_s - leases_s} seconds'"
        now = timestamp_ms(before)
        begun = f"coalesce(nullif(least(beat, '{now}'), ''), '{now}')::timestamp"
        schema = schema_of(database)
        sql = f"""
            SET search_path = {schema};
            UPDATE runs SET beat = {_timestamp(f"{begun} + {moved}")} WHERE status = 'running';
            UPDATE workers SET until = {_timestamp(f"until::timestamp + {moved}")};
            UPDATE meta SET value = {_timestamp(f"value::timestamp + interval '{date_s} seconds'")}
                WHERE key = 'seen';
        """

        def moved_in_database() -> psycopg.Connection[Any]:
            ((salt,),) = CLUSTER.do(f"SELECT value FROM {schema}.meta WHERE key = '{SALT}'")
            connection = psycopg.connect(CLUSTER.url, options="-c lock_timeout=20s")
            try:
                connection.execute(
                    f"SELECT pg_advisory_xact_lock({AdvisoryKeys(schema, salt).key_of('watch')}); {sql}"
                )
            except BaseException:
                connection.close()
                raise
            return connection

        with closing(await asyncio.to_thread(moved_in_database)) as connection:
            connection.commit()
            advance()  # in the same turn of the loop, in which the server cannot look at the clock

    async def crash(self, database: str, stop: Callable[[], Awaitable[None]]) -> str:
        """Stop the server, and undo what it wrote during its shutdown."""
        schema = schema_of(database)
        tables = await asyncio.to_thread(_columns_of, schema)
        kept = [f"CREATE TABLE kept.{table} AS TABLE {schema}.{table}" for table in tables]
        await asyncio.to_thread(CLUSTER.do, "; ".join(["CREATE SCHEMA kept", *kept]))
        await stop()
        again = [
            f"TRUNCATE {schema}.{table}; INSERT INTO {schema}.{table} ({columns})"
            f" SELECT {columns} FROM kept.{table}"
            for table, columns in tables.items()
        ]
        await asyncio.to_thread(CLUSTER.do, "; ".join([*again, "DROP SCHEMA kept CASCADE"]))
        return database

    def change(self, database: str, sql: str) -> None:
        """Change the database as `psql` would."""
        CLUSTER.do(f"SET search_path = {schema_of(database)}; {sql}")


def _columns_of(schema: str) -> dict[str, str]:
    """Return the writable columns of each table of a schema, as an SQL column list."""
    found = CLUSTER.do(
        "SELECT table_name, string_agg(quote_ident(column_name), ', ') FROM information_schema.columns"
        " JOIN information_schema.tables USING (table_schema, table_name) WHERE table_type = 'BASE TABLE'"
        f" AND table_schema = '{schema}' AND is_generated = 'NEVER' GROUP BY table_name"
    )
    return dict(found)


def _timestamp(sql: str) -> str:
    return f"to_char({sql}, 'YYYY-MM-DD HH24:MI:SS.MS')"


def schema_of(database: str) -> str:
    """Return the schema of a database that ``Schemas`` made."""
    return psycopg.conninfo.conninfo_to_dict(database)["application_name"]


# --- pytest ----------------------------------------------------------------------------------------------


def engines_for(chosen: str, nodeid: str, *, sqlite_alone: bool) -> list[str]:
    """Return the engines on which a server test runs if ``--engine`` is ``chosen``."""
    if chosen == "postgresql":
        return [chosen]
    if sqlite_alone or PROFILE == "fast" or crc32(nodeid.encode()) % EACH:
        return ["sqlite"]
    return ["sqlite", "postgresql"]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test of servers on each of its engines."""
    definition = metafunc.definition
    chosen_by_itself = any(FIXTURE in mark.args[0] for mark in definition.iter_markers("parametrize"))
    if FIXTURE in metafunc.fixturenames and not chosen_by_itself:
        alone = definition.get_closest_marker("sqlite_only") is not None
        engines = engines_for(metafunc.config.getoption("engine"), definition.nodeid, sqlite_alone=alone)
        if engines != ["sqlite"]:
            metafunc.parametrize(FIXTURE, engines, indirect=True)


def is_run_fast(nodeid: str, fixtures: Iterable[str]) -> bool:
    """Return whether ``--fast`` includes a test: all that need no server, and some that do."""
    return FIXTURE not in fixtures or not crc32(nodeid.partition("[")[0].encode()) % FAST_EACH


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--engine postgresql``, deselect tests without a server and skip those for SQLite only."""
    if PROFILE == "fast":
        left_out = [item for item in items if not is_run_fast(item.nodeid, getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
    if config.getoption("engine") != "postgresql":
        return
    on_servers = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(on_servers)])
    items[:] = on_servers
    for item in items:
        marker = item.get_closest_marker("sqlite_only")
        if marker is not None:
            item.add_marker(pytest.mark.skip(f"sqlite only: {marker.args[0]}"))


def databases_of(engine: str, folder: Path) -> Databases:
    """Return the databases of one test."""
    return Files(folder) if engine == "sqlite" else Schemas()
