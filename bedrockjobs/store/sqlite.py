"""The rows in one SQLite file: the only writing connection, used by one thread at a time.

A ``SQLiteStore`` is its own transaction: ``begin``, the operations of ``Transaction``, ``commit``. It knows
nothing of commands, and it takes the time as a parameter.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from bedrockjobs.config import PRIORITIES, Durability, Settings
from bedrockjobs.store import schema
from bedrockjobs.store.heads import Heads
from bedrockjobs.store.recent import RecentRows
from bedrockjobs.store.rows import MOCK_LANE, OPEN_LANE, JobRow, Names
from bedrockjobs.store.statements import STATEMENTS as SQL

log = logging.getLogger(__name__)


class SQLiteStore:
    """One database, open for writing."""

    def __init__(self, path: Path | str, settings: Settings) -> None:
        """Open the file, or ``:memory:``, and bring it to the present schema.

        Raises ``schema.SchemaError`` for a database of a newer server, ``sqlite3.Error`` where the file
        cannot be used.
        """
        self.path = str(path)
        self.durability: Durability = settings.durability
        self._db = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            timeout=0,
        )
        self._execute = self._db.execute
        self._prepare(settings)
        self._wal: int | None = None
        if self.durability == "claims-lazy" and self.path != ":memory:":
            self._wal = os.open(f"{self.path}-wal", os.O_RDONLY)
        self._recent = RecentRows()
        self._heads = Heads(self, settings.patterns_cached_max, settings.groups_remembered_max)
        self._next_job_id = self._saved_job_id = self._highest_job_id = 0
        self._next_run_id = self._saved_run_id = 0
        self._ids_before = (0, 0)
        self._crash_patterns: tuple[str, ...] | None = None
        self._must_sync = False
        self._changes_before = 0
        self._families = False
        self._ballast_bytes = settings.ballast_bytes
        self._ballast = Path(f"{self.path}-ballast")
        self.tight = False
        """Whether the disk is full: only commands that free room are done."""
        self.take_ballast()
        self.freed: list[JobRow] = []
        """Jobs that became ready, now or for later, since the list was last cleared."""
        self._load()

    def _prepare(self, settings: Settings) -> None:
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA synchronous = FULL")
        self._execute("PRAGMA cache_size = -65536")
        self._execute("PRAGMA temp_store = MEMORY")
        schema.apply(self._db)
        self._grow_log(settings.wal_bytes)
        if self.durability != "full":
            # claims-lazy syncs the log itself after each commit that must be on disk.
            self._execute("PRAGMA synchronous = NORMAL")

    def _grow_log(self, size: int) -> None:
        """Make the write-ahead log ``size`` bytes long once: commits then overwrite, not extend it."""
        if size == 0 or self.path == ":memory:":
            return
        log = Path(f"{self.path}-wal")
        if log.exists() and log.stat().st_size >= size:
            return
        self._execute(SQL["set_meta"], ("padding", bytes(size)))
        self._execute(SQL["forget_meta"], ("padding",))
        self._execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def take_ballast(self) -> None:
        """Keep some room on the disk in reserve, so that runs can be ended on a full one."""
        self.tight = False
        if not self._ballast_bytes or self.path == ":memory:":
            return
        try:
            with self._ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, self._ballast_bytes)
        except OSError as error:
            self._ballast.unlink(missing_ok=True)
            self.tight = True
            log.warning("no room on the disk for the reserve of %s bytes: %s", self._ballast_bytes, error)

    def make_room(self) -> None:
        """Give the reserve up: the log is copied into the database and begins anew, creates are refused."""
        if not self.tight:
            log.error(
                "the disk is full: its reserve is given up, and no jobs are created until there is room"
            )
            self.tight = True
        self._ballast.unlink(missing_ok=True)
        with suppress(sqlite3.Error):
            self._execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def close(self) -> None:
        """Close the file; an open transaction is rolled back."""
        if self._wal is not None:
            os.close(self._wal)
            self._wal = None
        self._db.close()
        if self._ballast_bytes and self.path != ":memory:":
            self._ballast.unlink(missing_ok=True)

    # --- the transaction ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the transaction; raises ``sqlite3.OperationalError`` at once where another process writes."""
        self._execute("BEGIN IMMEDIATE")
        self._must_sync = False
        self._changes_before = self._db.total_changes

    @property
    def changed(self) -> bool:
        """Tell whether the open transaction has written anything."""
        return self._db.total_changes != self._changes_before

    def commit(self) -> None:
        """Write the transaction to disk."""
        if self._next_job_id != self._saved_job_id:
            self._execute(SQL["set_meta"], ("nextJobID", self._next_job_id))
        if self._next_run_id != self._saved_run_id:
            self._execute(SQL["set_meta"], ("nextRunID", self._next_run_id))
        self._execute("COMMIT")
        if self._wal is not None and self._must_sync:
            os.fdatasync(self._wal)
        self._saved_job_id, self._saved_run_id = self._next_job_id, self._next_run_id

    def rollback(self) -> None:
        """Undo the transaction, if it is still open."""
        if self._db.in_transaction:
            self._execute("ROLLBACK")
        self.freed.clear()
        self._recent.clear()
        self._heads.forget()
        self._load()

    def savepoint(self) -> None:
        """Begin a part that can be undone by itself."""
        self._heads.advanced = False
        self._ids_before = (self._next_job_id, self._next_run_id)
        self._execute("SAVEPOINT part")

    def release(self) -> None:
        """Keep the part."""
        self._execute("RELEASE part")

    def undo(self) -> None:
        """Undo the part."""
        self._execute("ROLLBACK TO part")
        self._execute("RELEASE part")
        self._next_job_id, self._next_run_id = self._ids_before
        self.freed.clear()
        self._recent.clear()
        self._crash_patterns = None
        if self._heads.advanced:
            self._heads.forget()

    def _load(self) -> None:
        self._next_job_id = self._saved_job_id = int(self._meta("nextJobID"))
        self._next_run_id = self._saved_run_id = int(self._meta("nextRunID"))
        self._highest_job_id = int(self._execute(SQL["highest_job_id"]).fetchone()[0] or 0)
        # Most databases have no families at all; then nobody need look for children.
        self._families = self._execute(SQL["has_families"]).fetchone() is not None
        self._crash_patterns = None
        self._must_sync = False

    def _meta(self, key: str) -> str:
        return str(self._execute(SQL["get_meta"], (key,)).fetchone()[0])

    # --- Transaction: see store.base ---------------------------------------------------------------------

    def new_job_id(self) -> int:
        """Return the next jobID that is not in use; imported jobs may lie ahead."""
        found = self._next_job_id
        while found <= self._highest_job_id and self.job(found) is not None:
            found += 1
        self._next_job_id = found + 1
        return found

    def new_run_id(self) -> int:
        """Return the next runID."""
        self._next_run_id += 1
        return self._next_run_id - 1

    def insert(self, row: JobRow) -> None:
        """Add a job."""
        self._must_sync = True
        self._families = self._families or row.parent_job_id != 0
        self._execute(SQL["insert_job"], row)
        self._recent.keep(row)
        if row.queued:
            self._ready(row)

    def job(self, job_id: int) -> JobRow | None:
        """Return a job, or None."""
        row = self._recent.get(job_id)
        if row is None:
            found = self._execute(SQL["job_by_id"], (job_id,)).fetchone()
            row = None if found is None else JobRow._make(found)
        return row

    def save(self, row: JobRow) -> None:
        """Write what can change in a job."""
        # A lost take of a RUNQUEUED job is repeated after retryAfter, as a lost delivery is.
        self._must_sync = self._must_sync or row.state != "RUNQUEUED"
        self._execute(
            SQL["save_job"],
            (
                row.state, row.name, row.next_run, row.last_run, row.repeat, row.data, row.priority,
                row.retry_after, row.attempt, row.run_id, row.expires, row.lane, row.options, row.job_id,
            ),
        )  # fmt: skip
        self._recent.keep(row)
        if row.queued:
            self._ready(row)

    def claim(self, row: JobRow) -> None:
        """Write lastRun, attempt and runID of a job that becomes RUNNING."""
        self._must_sync = True
        self._execute(SQL["claim_job"], (row.last_run, row.attempt, row.run_id, row.job_id))
        self._recent.keep(row)

    def delete(self, job_id: int) -> None:
        """Remove a job."""
        self._must_sync = True
        self._execute(SQL["delete_job"], (job_id,))
        self._recent.drop(job_id)

    def delete_plain(self, job_id: int, run_id: int | None) -> bool:
        """Remove a RUNNING job if that is all its end takes; return whether it was."""
        if self._families:
            return False
        found = self._execute(SQL["delete_plain_job"], (job_id, run_id)).rowcount == 1
        if found:
            self._must_sync = True
            self._recent.drop(job_id)
        return found

    def _ready(self, row: JobRow) -> None:
        self._heads.offer(row)
        self.freed.append(row)

    def first_due(self, names: Names, now: str, *, mocked: bool, priority: int | None) -> JobRow | None:
        """Return the due job to take."""
        if not mocked:
            return self._first_due(names, OPEN_LANE, now, priority)
        found = [self._first_due(names, lane, now, priority) for lane in (OPEN_LANE, MOCK_LANE)]
        rows = [row for row in found if row is not None]
        return min(rows, key=lambda row: (-row.priority, row.next_run, row.job_id), default=None)

    def _first_due(self, names: Names, lane: str, now: str, priority: int | None) -> JobRow | None:
        if names.single is not None:
            if priority is None:
                return self._found("due_by_name", (lane, names.single, now))
            return self._found("due_by_name_of_priority", (lane, names.single, now, priority))
        if names.everything:
            if priority is None:
                return self._found("due_of_any", (lane, now))
            return self._found("due_of_any_of_priority", (lane, now, priority))
        priorities = PRIORITIES if priority is None else (priority,)
        if self._heads.is_wide(names, lane):
            return self._look_through(names, lane, now, priorities)
        return self._heads.first_due(names, lane, now, priorities)

    def _found(self, statement: str, parameters: tuple[str | int, ...]) -> JobRow | None:
        """Return the job that a statement finds the jobID of."""
        found = self._execute(SQL[statement], parameters).fetchone()
        return None if found is None else self.job(found[0])

    def _look_through(self, names: Names, lane: str, now: str, priorities: tuple[int, ...]) -> JobRow | None:
        """Walk the due jobs in order; with very many matching names one is found soon."""
        for priority in priorities:
            for job_id, name in self._execute(SQL["due_in_order"], (lane, now, priority)):
                if names.match(name):
                    return self.job(job_id)
        return None

    def soonest(self, names: Names, now: str, *, mocked: bool) -> str | None:
        """Return a stamp before which no further matching job becomes due."""
        lanes = (OPEN_LANE, MOCK_LANE) if mocked else (OPEN_LANE,)
        found = [self._soonest(names, lane, now) for lane in lanes]
        return min((stamp for stamp in found if stamp is not None), default=None)

    def _soonest(self, names: Names, lane: str, now: str) -> str | None:
        stamp: str | None
        if names.single is not None:
            stamp = self._execute(SQL["soonest_by_name"], (lane, names.single, now)).fetchone()[0]
        elif names.everything or self._heads.is_wide(names, lane):
            stamp = self._execute(SQL["soonest_of_any"], (lane, now)).fetchone()[0]
        else:
            stamp = self._heads.soonest(names, lane, now)
        return stamp

    def first_of_name(self, name: str, *, mocked: bool) -> JobRow | None:
        """Return the oldest job of a name in any state, mocked or real."""
        return self._found("first_of_name", (name, int(mocked)))

    def children(self, job_id: int) -> list[JobRow]:
        """Return the children of a job by jobID."""
        if not self._families:
            return []
        return [JobRow._make(row) for row in self._execute(SQL["children_of"], (job_id,))]

    def has_children(self, job_id: int) -> bool:
        """Tell whether a job has children."""
        return self._families and self._execute(SQL["has_children"], (job_id,)).fetchone() is not None

    def has_pending_children(self, job_id: int) -> bool:
        """Tell whether a job has children that have not ended."""
        return self._execute(SQL["has_pending_children"], (job_id,)).fetchone() is not None

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            self._crash_patterns = tuple(json.loads(self._meta("crashPatterns")))
        return self._crash_patterns

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace them."""
        self._must_sync = True
        self._crash_patterns = patterns
        self._execute(SQL["set_meta"], ("crashPatterns", json.dumps(patterns)))

    # --- Seeks: what Heads asks --------------------------------------------------------------------------

    def head(self, lane: str, name: str, priority: int) -> tuple[str, int] | None:
        """Return nextRun and jobID of the first job of a group, due or not."""
        found: tuple[str, int] | None
        found = self._execute(SQL["head_of_group"], (lane, name, priority)).fetchone()
        return found

    def groups(self, lane: str, names: Names, limit: int) -> list[tuple[str, int, str, int]] | None:
        """Return the head of every group that ``names`` match, None where they are more than ``limit``."""
        found: list[tuple[str, int, str, int]] = []
        if names.exact:
            for name in names.exact:
                group = self._execute(SQL["next_group_of_name"], (lane, name, PRIORITIES[0] + 1)).fetchone()
                while group is not None:
                    found.append(group)
                    group = self._execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
            return found
        prefix = names.prefix()
        group = self._execute(SQL["first_group"], (lane, prefix)).fetchone()
        while group is not None and group[0].startswith(prefix):
            name = group[0]
            if names.match(name):
                while group is not None:
                    found.append(group)
                    group = self._execute(SQL["next_group_of_name"], (lane, name, group[1])).fetchone()
                if len(found) > limit:
                    return None
            group = self._execute(SQL["next_group"], (lane, name)).fetchone()
        return found
