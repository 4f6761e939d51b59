"""A connection that reads and writes whole tables, and how a database is named without its password."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.store.faults import StoreAway, StoreError
from bedrockjobs.store.postgresql.advisory import SALT
from bedrockjobs.store.postgresql.session import Session, fault_of
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.terms import Terms
from bedrockjobs.store.tables import ENGINES_OWN, Row, Table, tables
from bedrockjobs.store.transfer import COUNTED_ID_MAX, MOVED_TO, BadName, Numbers

INDEXES = (
    "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
    " JOIN pg_class ON pg_class.oid = indrelid"
    " WHERE relnamespace = current_schema()::regnamespace AND NOT indisprimary AND NOT indisunique"
)
"""The indexes that a table could do without, and the statements that make them."""

PARENTAL = (
    "UPDATE jobs SET parental = true WHERE jobID IN (SELECT parentJobID FROM jobs WHERE parentJobID <> 0)"
)
"""Notes which jobs have children."""

PARAMETERS = {
    "search_path": "{}",
    "idle_in_transaction_session_timeout": "0",  # a large job may keep the other side busy
    "statement_timeout": "0",
    "enable_seqscan": "off",
    "enable_sort": "off",  # rows are asked for in the order of an index
    "maintenance_work_mem": "128MB",  # indexes are made at once
}
"""What a transaction needs that reads or writes everything; set in each, as a pooler keeps nothing."""


NO_URL = (
    "the URL is not one of PostgreSQL: expected postgresql://user:password@host:port/database, with %2F for a"
    " slash in the password, %40 for @, and so on for other marks"
)


def place_of(url: str) -> str:
    """Return which database a URL names, without its password; raises BadName for no URL.

    libpq's own words are not told: they may hold a part of the password.
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:
        raise BadName(NO_URL) from None
    user, hosts, ports, name = (str(given.get(key, "")) for key in ("user", "host", "port", "dbname"))
    path = url.partition("://")[2].partition("/")[2].partition("?")[0]
    if "@" in path or not re.fullmatch("[0-9,]*", ports):  # it was cut within the password
        raise BadName(NO_URL)
    at = [f"[{host}]" if ":" in host else host.replace("/", "%2F") for host in hosts.split(",")]
    each_port = ports.split(",") if "," in ports else [ports] * len(at)
    where = (f"{host}:{port}" if port else host for host, port in zip(at, each_port, strict=False))
    return f"postgresql://{user}{'@' if user else ''}{','.join(where)}/{name}"


class BulkSession(Session):
    """All rows of one queue, and the one transaction in which they are read or written."""

    def __init__(self, url: str, schema: str) -> None:
        """Connect to ``url``, to tables in ``schema``; raises StoreError where that fails."""
        super().__init__(url, schema, Terms(answer_s=0))  # which may take as long as it does
        self._indexes: list[str] = []
        """How those are made that are put off."""

    @contextmanager
    def transaction(self, level: str) -> Iterator[None]:
        """Context a transaction of that level; it is rolled back unless it was committed within."""
        try:
            self.script(f"BEGIN ISOLATION LEVEL {level}")
            for name, value in PARAMETERS.items():
                self.script(f"SET LOCAL {name} = '{value.format(self._schema)}'")
            yield
        finally:
            if self.alive and self.in_transaction:
                with suppress(StoreError):  # a connection that is lost has undone it
                    self.script("ROLLBACK")

    def value(self, sql: str, *parameters: object) -> Any:
        """Return the one value that a query finds; raises StoreError."""
        return self.run([(sql, parameters)])[0][0][0]

    # --- Source and Target of store.transfer ---------------------------------------------------------------

    def read(self, table: Table) -> Iterator[Row]:
        """Yield the rows of a table in the order of their keys; raises StoreError."""
        with (
            self._faults(),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY ({table.select()}) TO STDOUT (FORMAT BINARY)") as copy,
        ):
            copy.set_types(_types(table))
            yield from copy.rows()

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows to a table that has none; raises StoreError."""
        target = f"{table.name} ({', '.join(table.columns)})"
        with (
            self._faults(),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {target} FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.set_types(_types(table))
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not self.alive:
                raise StoreAway(str(error).strip()) from error
            raise fault_of(error) or error from error

    def put_indexes_off(self) -> None:
        """Drop the indexes that no key needs, until ``finish``: rows are written twice as fast without."""
        found = self.run([(INDEXES, ())])[0]
        for name, definition in found:
            self.script(f"DROP INDEX {name}")
            self._indexes.append(definition)

    def count(self, table: Table) -> int:
        """Return how many rows a table has."""
        return int(self.value(f"SELECT count(*) FROM {table.name}"))  # noqa: S608 - a name of ours

    def meta(self) -> list[tuple[str, str]]:
        """Return what ``meta`` holds that no engine has for itself alone, by its keys."""
        (rows,) = self.run([("SELECT key, value FROM meta ORDER BY key", ())])
        return [(key, value) for key, value in rows if key not in ENGINES_OWN and key != MOVED_TO]

    def numbers(self) -> Numbers:
        """Return the numbers that come next, behind all rows that there are."""
        behind_jobs = self.value(
            "SELECT coalesce(max(jobID), 0) + 1 FROM jobs WHERE jobID < $1::bigint", COUNTED_ID_MAX
        )
        behind_runs = self.value("SELECT coalesce(max(runID), 0) + 1 FROM runs")
        job, run = (
            int(self.value(f"SELECT last_value + is_called::int FROM {name}"))  # noqa: S608 - a name of ours
            for name in ("jobIDs", "runIDs")
        )
        return Numbers(max(job, int(behind_jobs)), max(run, int(behind_runs)))

    def finish(self, meta: list[tuple[str, str]], numbers: Numbers) -> None:
        """Write ``meta``, the numbers that come next, and what is worked out from the rows."""
        event, change = (
            int(self.value(f"SELECT coalesce(max(seq), 0) + 1 FROM {table}"))  # noqa: S608 - names of ours
            for table in ("events", "audit")
        )
        patterns = self.run([("SELECT pattern FROM pauses", ())])[0]
        self.run(
            [
                ("DELETE FROM meta WHERE key <> ALL ($1::text[])", (["schemaVersion", SALT],)),
                *((SQL["set_meta"], row) for row in meta),
                # unlike setval() these are undone with the transaction
                (f"ALTER SEQUENCE jobIDs RESTART WITH {numbers.job:d}", ()),
                (f"ALTER SEQUENCE runIDs RESTART WITH {numbers.run:d}", ()),
                (f"ALTER TABLE events ALTER COLUMN seq RESTART WITH {event:d}", ()),
                (f"ALTER TABLE audit ALTER COLUMN seq RESTART WITH {change:d}", ()),
                *((SQL["pause_regex"], (pattern, anchored_regex([pattern]))) for (pattern,) in patterns),
                (PARENTAL, ()),
                *((definition, ()) for definition in self._indexes),
                (SQL["raise_epoch"], ()),
                *((f"ANALYZE {table.name}", ()) for table in tables()),
            ]
        )


def _types(table: Table) -> list[str]:
    kinds = dict.fromkeys(table.texts, "text") | dict.fromkeys(table.blobs, "bytea")
    return [kinds.get(at, "int8") for at in range(len(table.columns))]
