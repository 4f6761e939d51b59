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

from bedrockjobs.base.config import Durability, Settings
from bedrockjobs.job.rows import Job
from bedrockjobs.store import schema
from bedrockjobs.store.ready_queue import ReadyQueue
from bedrockjobs.store.records import Records
from bedrockjobs.store.row_cache import RowCache
from bedrockjobs.store.statements import STATEMENTS as SQL

log = logging.getLogger(__name__)

_REST = Job._fields.index("priority") + 1
_PLAIN = Job("", 0, "", "", "")[_REST:]
"""What follows the priority in the row of a job that nothing special was asked for."""


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
        self._recent = RowCache()
        self.records = Records(self._db)
        """The tables beside jobs."""
        self.ready = ReadyQueue(self._db, self.job, self.records, settings)
        """The queued jobs."""
        self.first_due, self.soonest = self.ready.first_due, self.ready.soonest
        self.lock_holder, self.reopen = self.ready.lock_holder, self.ready.reopen
        self._patterns, self._holders, self._all_hosts = (
            self.ready.patterns,
            self.ready.holders,
            self.ready.all_hosts.rows,
        )
        self._next_expiry: str | None = None
        self._next_job_id = self._saved_job_id = self._highest_job_id = 0
        self._next_run_id = self._saved_run_id = 0
        self._ids_before = (0, 0)
        self._crash_patterns: tuple[str, ...] | None = None
        self._must_sync = self.records.dirty = False
        self._changes_before = 0
        self._families = False
        self._ballast_bytes = settings.ballast_bytes
        self._ballast = Path(f"{self.path}-ballast")
        self.tight = False
        """Whether the disk is full: only commands that free room are done."""
        self.take_ballast()
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
        self._must_sync = self.records.dirty = False
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
        if self._wal is not None and (self._must_sync or self.records.dirty):
            os.fdatasync(self._wal)
        self._saved_job_id, self._saved_run_id = self._next_job_id, self._next_run_id

    def rollback(self) -> None:
        """Undo the transaction, if it is still open."""
        if self._db.in_transaction:
            self._execute("ROLLBACK")
        self.ready.newly_ready.clear()
        self._recent.clear()
        self._patterns.forget()
        self._load()

    def savepoint(self) -> None:
        """Begin a part that can be undone by itself."""
        self._patterns.advanced = False
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
        self.ready.newly_ready.clear()
        self._recent.clear()
        self._crash_patterns = None
        self.records.forget()
        self.ready.load()
        if self._patterns.advanced:
            self._patterns.forget()

    def _load(self) -> None:
        self._next_job_id = self._saved_job_id = int(self._meta("nextJobID"))
        self._next_run_id = self._saved_run_id = int(self._meta("nextRunID"))
        self._highest_job_id = int(self._execute(SQL["highest_job_id"]).fetchone()[0] or 0)
        # Most databases have no families at all; then nobody need look for children.
        self._families = self._execute(SQL["has_families"]).fetchone() is not None
        self._crash_patterns = None
        self._must_sync = False
        self.records.forget()
        self.ready.load()
        self._next_expiry = self._execute(SQL["next_expiry"]).fetchone()[0]

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

    def insert(self, row: Job) -> None:
        """Add a job."""
        self._must_sync = True
        self._families = self._families or row.parent_job_id != 0
        if row[_REST:] == _PLAIN and not (row.last_run or row.repeat):
            plain = (row.created, row.job_id, row.state, row.name, row.next_run, row.data, row.priority)
            self._execute(SQL["insert_plain_job"], plain)
        else:
            self._execute(SQL["insert_job"], row)
            if row.expires:
                self._note_expiry(row.expires)
        self._recent.keep(row)
        self._place(row)

    def _place(self, row: Job) -> None:
        if row.lane or row.job_id in self._holders or row.job_id in self._all_hosts:
            self.ready.note_lock(row)
            self.ready.all_hosts.note(row)
        if row.queued:
            self.ready.add(row)

    def job(self, job_id: int) -> Job | None:
        """Return a job, or None."""
        row = self._recent.get(job_id)
        if row is None:
            found = self._execute(SQL["job_by_id"], (job_id,)).fetchone()
            row = None if found is None else Job._make(found)
        return row

    def save(self, row: Job) -> None:
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
        if row.expires:
            self._note_expiry(row.expires)
        self._place(row)

    def claim(self, row: Job) -> None:
        """Write lastRun, attempt and runID of a job that becomes RUNNING."""
        self._must_sync = True
        self._execute(SQL["claim_job"], (row.last_run, row.attempt, row.run_id, row.job_id))
        self._recent.keep(row)
        if row.lane:
            self.ready.note_lock(row)

    def delete(self, job_id: int) -> None:
        """Remove a job."""
        self._must_sync = True
        self._execute(SQL["delete_job"], (job_id,))
        self._recent.drop(job_id)
        self.ready.drop(job_id)

    def delete_plain(self, job_id: int) -> bool:
        """Remove a RUNNING job if that is all its end takes; return whether it was."""
        if self._families:
            return False
        found = self._execute(SQL["delete_plain_job"], (job_id,)).rowcount == 1
        if found:
            self._must_sync = True
            self._recent.drop(job_id)
        return found

    # --- more of Transaction -----------------------------------------------------------------------------

    def _note_expiry(self, stamp: str) -> None:
        if self._next_expiry is None or stamp < self._next_expiry:
            self._next_expiry = stamp

    @property
    def next_expiry(self) -> str | None:
        """Return a stamp before which no job expires; None: none does."""
        return self._next_expiry

    def expired(self, now: str, limit: int) -> list[Job]:
        """Return jobs whose ``expires`` has passed, the oldest first."""
        return [Job._make(row) for row in self._execute(SQL["expired"], (now, limit))]

    def look_for_expiry(self) -> None:
        """Find out when the next job expires, after those of ``expired`` have been dealt with."""
        self._next_expiry = self._execute(SQL["next_expiry"]).fetchone()[0]

    def repeating(self) -> list[Job]:
        """Return all jobs with a repeat, by name."""
        return [Job._make(row) for row in self._execute(SQL["repeating"])]

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the first jobs of a name, by jobID, whatever their state."""
        return [Job._make(row) for row in self._execute(SQL["named"], (name, limit))]

    def bound_of_name(self, name: str) -> list[Job]:
        """Return the jobs of a name that are bound to a worker."""
        return [Job._make(row) for row in self._execute(SQL["bound_of_name"], (name,))]

    def count_ahead(self, row: Job, now: str, limit: int) -> int:
        """Return how many due jobs of its lane and name come before a job, up to ``limit``."""
        found = self._execute(
            SQL["count_ahead"], (row.lane, row.name, now, row.priority, row.next_run, row.job_id, limit)
        ).fetchone()
        return int(found[0])

    def set_seen(self, now: str) -> None:
        """Note that the server is alive."""
        self._execute(SQL["set_meta"], ("seen", now))

    def seen(self) -> str:
        """Return when a server of this file was last known to be alive; empty for a new file."""
        found = self._execute(SQL["get_meta"], ("seen",)).fetchone()
        return str(found[0]) if found else ""

    def first_of_name(self, name: str, *, mocked: bool) -> Job | None:
        """Return the oldest job of a name in any state, mocked or real."""
        found = self._execute(SQL["first_of_name"], (name, int(mocked))).fetchone()
        return None if found is None else self.job(found[0])

    def children(self, job_id: int) -> list[Job]:
        """Return the children of a job by jobID."""
        if not self._families:
            return []
        return [Job._make(row) for row in self._execute(SQL["children_of"], (job_id,))]

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
