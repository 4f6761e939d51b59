"""The engine of one SQLite file: the only writing connection, used by one thread at a time.

It opens the file, begins and commits units, reserves disk space, and drops all caches when another process
changes the file.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Never

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import CHECKPOINT_PAGES_MIN
from bedrockjobs.base.settings import Durability, Settings
from bedrockjobs.store import schema
from bedrockjobs.store.base import AccessPlan, StoreError
from bedrockjobs.store.files import (
    JOURNAL,
    POLL_S,
    DiskReserve,
    FileGone,
    FileWatch,
    UnsafeFile,
    fill,
    occupy_names,
)
from bedrockjobs.store.sqlite_unit import SQLiteUnit, fault_of
from bedrockjobs.store.statements import STATEMENTS as SQL
from bedrockjobs.store.transfer import moved_refusal, moved_to

log = logging.getLogger(__name__)


class SQLiteEngine:
    """One database, open for writing."""

    shared = False
    """Always False: a file is served by one server."""
    fault = staticmethod(fault_of)

    def __init__(
        self, path: Path | str, settings: Settings, clock: Clock | None = None, *, wait_s: float | None = None
    ) -> None:
        """Open the file, or ``:memory:``, and migrate it to the current schema.

        Opening waits at most ``wait_s`` seconds for another process that writes, by default the setting
        ``busy_s``. Raises ``schema.SchemaError`` for a database of a newer server or one that was moved,
        ``UnsafeFile`` for a link in place of a file, ``sqlite3.Error`` if the file cannot be used.
        """
        self.path = str(path)
        self._clock = clock or SystemClock()
        self.durability: Durability = settings.durability
        self._db = sqlite3.connect(
            self.path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            # A Query process of the previous server may still be exiting.
            timeout=settings.busy_s if wait_s is None else wait_s,
        )
        self._execute = self._db.execute
        self.tight = False
        """Whether the disk is full, so that only commands that free space are executed."""
        self.lost_commit: StoreError | None = None
        """Always None: the outcome of a commit on a file is always known."""
        self._watch: FileWatch | None = None
        self._look_at = 0.0
        self._wipe_at = 0.0
        """When truncating the log is retried, in monotonic seconds."""
        self._reserve = DiskReserve(self.path, settings.ballast_bytes)
        self.waits_for_disk = self.path != ":memory:"
        try:
            self._reserve.give_up()  # left by a server that crashed
            self._prepare(settings)
            self._execute("PRAGMA busy_timeout = 0")  # from now on the dispatcher waits, not the event loop
            if self.waits_for_disk:
                occupy_names(Path(self.path), [JOURNAL])  # creating a database used one up
                self._watch = FileWatch(self.path)
        except BaseException:
            self._db.close()
            raise
        self.unit = SQLiteUnit(self._db, settings, self._clock.monotonic)
        """The open unit, or the last one."""
        self.row_reader = SQLiteRowReader(self.path, settings, self._clock) if self.waits_for_disk else None
        self._version = self._data_version()
        self.reserve_space()

    def _prepare(self, settings: Settings) -> None:
        self._execute("PRAGMA journal_mode = WAL")
        self._execute("PRAGMA secure_delete = ON")  # deleted data must not stay in the file
        self._execute("PRAGMA synchronous = FULL")
        self._execute("PRAGMA cache_size = -65536")
        self._execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages(settings.wal_bytes)}")
        self._execute("PRAGMA temp_store = MEMORY")
        for line in schema.apply(self._db).told:
            log.info("%s", line)
        place = moved_to(self._db)
        if place:
            raise schema.SchemaError(moved_refusal(place))
        self._grow_log(settings.wal_bytes)
        if self.durability != "full":
            self._execute("PRAGMA synchronous = NORMAL")

    def _grow_log(self, size: int) -> None:
        """Extend the write-ahead log to ``size`` bytes, so that commits overwrite instead of extending it.

        A log ends at the first invalid frame, and zeros are invalid.
        """
        if size == 0 or self.path == ":memory:":
            return
        self._execute("BEGIN IMMEDIATE")  # blocks other writers
        try:
            fill(Path(f"{self.path}-wal"), size)
        except OSError as error:
            log.warning("the write-ahead log was not preallocated: %s", error)
        finally:
            self._execute("ROLLBACK")

    # --- units -------------------------------------------------------------------------------------------

    def reach(self) -> None:
        """Do nothing: a file is never away."""

    def begin(self, plans: Iterable[AccessPlan] = ()) -> SQLiteUnit:
        """Open a unit; raises StoreBusy if another process is writing, FileGone if the file was replaced.

        Plans are not needed on SQLite.
        """
        if self._watch is not None and self._clock.monotonic() >= self._look_at:
            self._check_files()
        try:
            self._execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self.fault(error) or error from error
        version = self._data_version()
        changed = version != self._version
        if changed:
            self._version = version
            log.warning("another process changed %s: its cached content is read again", self.path)
            self.unit.forget()
            self.unit.pauses_changed()
        self.unit.open(self._clock.now(), caches_dropped=changed)
        return self.unit

    def _data_version(self) -> int:
        """Return a number that changes with each commit of another connection, not with our own."""
        return int(self._execute("PRAGMA data_version").fetchone()[0])

    def changed_outside(self) -> bool:
        """Return whether another process changed the file since the last unit; raises FileGone."""
        self._check_files()
        try:
            return self._data_version() != self._version
        except sqlite3.Error:  # the next unit will say what is wrong
            return True

    def commit(self) -> None:
        """Commit the open unit; raises StoreError."""
        try:
            self.unit.write()
            self._execute("COMMIT")
        except sqlite3.Error as error:
            raise self.fault(error) or error from error
        self.unit.identifiers.saved()
        if self.unit.wipes_log:
            self._wipe_log()

    def _wipe_log(self) -> None:
        """Checkpoint and truncate the log; retry later if a reader blocks it.

        The log then grows again to its former length.
        """
        now = self._clock.monotonic()
        if now < self._wipe_at:
            return
        try:
            busy = self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:
            busy = 1
        if busy:
            self._wipe_at = now + 1.0  # a reader blocked it; most reads are shorter
        else:
            self.unit.wipes_log, self._wipe_at = False, 0.0

    def confirm(self) -> None:
        """Verify after a commit that the files still exist under their names; raises FileGone."""
        if self._watch is None:
            return
        try:
            self._watch.check_after_sync()
        except FileGone as gone:
            self._save_log(gone)

    def _check_files(self) -> None:
        """Verify every second that all files are still in place."""
        now = self._clock.monotonic()
        if self._watch is None or now < self._look_at:
            return
        try:
            self._watch.look()
        except FileGone as gone:
            self._save_log(gone)
        self._look_at = now + POLL_S

    def _save_log(self, gone: FileGone) -> Never:
        """Raise FileGone; if only the log was removed, first copy its content into the database."""
        if not gone.only_log:
            raise gone
        busy, frames, copied = self._execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        if busy or frames != copied:
            raise gone
        raise FileGone(
            f"{self.path}-wal was removed while the server used it. Its content was saved to the database:"
            " the server can be started again.",
            only_log=True,
        ) from gone

    def rollback(self) -> None:
        """Roll back the unit if it is open, and drop all caches."""
        if self._db.in_transaction:
            self._execute("ROLLBACK")
        self.unit.forget()

    def close(self) -> None:
        """Close the file and roll back an open unit."""
        if self.row_reader is not None:
            self.row_reader.close()
        self._db.close()
        with suppress(UnsafeFile):
            self._reserve.give_up()

    # --- disk space --------------------------------------------------------------------------------------

    def reserve_space(self) -> None:
        """Reserve disk space, so that runs can end on a full disk."""
        self.tight = False
        try:
            self._reserve.take()
        except UnsafeFile as error:
            log.warning("there is no disk reserve: %s", error)
        except OSError as error:
            self.tight = True
            log.warning("no space on the disk for the reserve of %s bytes: %s", self._reserve.bytes, error)

    def free_reserve(self) -> None:
        """Free the reserve and restart the log; no jobs are created until ``reserve_space`` succeeds."""
        if not self.tight:
            log.error(
                "the disk is full: the reserve was released, and no jobs are created until space is freed"
            )
            self.tight = True
        with suppress(UnsafeFile):
            self._reserve.give_up()
        with suppress(sqlite3.Error):
            self._execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    # --- time --------------------------------------------------------------------------------------------

    def seen(self) -> str:
        """Return the last heartbeat of a server of this file; empty if there was none."""
        found = self._execute(SQL["get_meta"], ("seen",)).fetchone()
        return str(found[0]) if found else ""

    def next_moment(self) -> str | None:
        """Return when the next job expires or the next pause ends, whichever is first; None if neither."""
        expiry = self.unit.next_expiry()
        pauses = self.unit.records.pauses()
        if not pauses:
            return expiry
        ends = [pause.until for pause in pauses if pause.until]
        return min(ends if expiry is None else [*ends, expiry], default=None)

    def planned(self) -> object:
        """Return an object that stays equal until ``next_moment`` or ``next_on_all_hosts`` changes."""
        unit = self.unit
        return unit.next_expiry(), unit.records.pauses(), unit.ready.all_hosts.next

    def next_on_all_hosts(self) -> str | None:
        """Return when the next broadcast schedule is due, or None."""
        return self.unit.ready.all_hosts.next

    def search_in_s(self) -> float:
        """Return the seconds until ``Unit.search`` may continue."""
        return self.unit.ready.patterns.search_in_s()

    def soonest_of_all(self, now: str) -> str | None:
        """Return when the next job of any lane becomes due after ``now``, or None."""
        return self.unit.ready.soonest_of_all(now)


class SQLiteRowReader:
    """Reads committed rows on a separate connection, opened at first use."""

    def __init__(self, path: str, settings: Settings, clock: Clock) -> None:
        """Read the file at ``path``."""
        self._path, self._settings, self._clock = path, settings, clock
        self._db: sqlite3.Connection | None = None
        self._unit: SQLiteUnit | None = None

    def begin(self, plans: Sequence[AccessPlan]) -> SQLiteUnit:
        """Begin a read transaction; return a unit that can only read. Raises StoreError."""
        try:
            if self._db is None:
                uri = f"{Path(self._path).absolute().as_uri()}?mode=ro"
                self._db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0)
                self._unit = SQLiteUnit(self._db, self._settings, self._clock.monotonic)
            elif self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._db.execute("BEGIN")
        except sqlite3.Error as error:
            raise fault_of(error) or error from error
        assert self._unit is not None
        self._unit.moment = self._clock.now()
        return self._unit

    def end(self) -> None:
        """End the transaction; an open transaction would keep the log from being restarted."""
        assert self._db is not None
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            self._db.close()


def checkpoint_pages(wal_bytes: int) -> int:
    """Return the length of the log, in pages, at which SQLite checkpoints: below its preallocated length."""
    return max(CHECKPOINT_PAGES_MIN, wal_bytes * 4 // 5 // 4_096)  # bytes of a page
