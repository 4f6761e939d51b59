"""A SQLite file as the database of one server: locked, checked for damage and opened."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path

from bedrockjobs import systemd
from bedrockjobs.base.clock import Clock, StandingClock, SystemClock, timestamp_ms
from bedrockjobs.base.config import INBOX_ROWS_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import (
    EXIT_DISK,
    EXIT_FAILURE,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    Opened,
    Passing,
    StartError,
    WaitingStart,
)
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.own_commands import Inbox
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.job.rows import InboxRow
from bedrockjobs.store import offline
from bedrockjobs.store.base import ServerRow, StoreBusy, StoreDamaged, StoreError, StoreFull
from bedrockjobs.store.files import DatabaseLock, FileGone, Lost, Owned, UnsafeFile
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.store.records import Records
from bedrockjobs.store.sandbox import is_damage
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.sqlite_unit import fault_of
from bedrockjobs.store.transfer import TransferError, copy_before_migration, older_version

log = logging.getLogger(__name__)

FULL_TOO = ("SQLITE_IOERR", "SQLITE_CANTOPEN")
"""Prefixes of the names of SQLite errors that also occur if the disk is too full for a new file or for
SQLite's shared memory. If less than a MiB is free, they mean a full disk."""

WAITED_FOR: dict[type[StoreError] | type[None], str] = {
    StoreBusy: "another process keeps it locked",
    StoreFull: "the disk is full",
}
"""Errors that may pass, for which a start waits, with the words that describe them in messages."""

EXTEND = f"EXTEND_TIMEOUT_USEC={3_600 * 1_000_000}"
"""Asks systemd for an hour for the check or the copy of a database at the start: enough for a terabyte on a
good disk."""


def usable_path(settings: Settings) -> Path:
    """Return the path of the database; raises StartError if it is unsuitable."""
    try:
        path = settings.database_path().resolve()
    except ValueError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    folder = path.parent
    if not folder.is_dir():
        raise StartError(f"database: there is no folder {folder}", EXIT_USAGE)
    if path.is_dir():
        raise StartError(f"database: {path} is a folder: expected a file in it", EXIT_USAGE)
    mode = folder.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise StartError(f"database: everybody may write to the folder {folder}", EXIT_USAGE)
    return path


class FileDatabase(WaitingStart):
    """A SQLite file, used by one server."""

    def __init__(self, settings: Settings, clock: Clock | None, lease_clock: Clock | None) -> None:
        """Prepare to use the file of ``settings``; tests may pass their own clocks."""
        super().__init__()
        self._settings = settings
        system = SystemClock()
        self.clock = clock or (StandingClock(system.now()) if settings.test_clock else system)
        self._lease_clock = lease_clock or system
        self._machine = system
        self.workers = WorkerRegistry(self.clock, self._lease_clock)
        self._path = Path()
        self._lock: DatabaseLock | None = None
        self._version = ""
        self._inbox: Inbox | None = None

    async def open_database(self, on_failure: Callable[[Exception], object]) -> Opened:
        """Lock and open the file; raises StartError. ``on_failure`` is called if damage is found later."""
        self._path = usable_path(self._settings)
        self._lock = DatabaseLock(self._path, accept_loss=self._settings.accept_loss)
        await self.when_there(partial(self._record_owner, self._lock))
        try:
            await self.when_there(self._check_damage)
            await self.when_there(self._copy_before_migration)
            engine = await self.when_there(self._opened)
        except UnsafeFile as error:
            self._lock.release()
            raise StartError(f"database: {error}", EXIT_FAILURE) from None
        except TransferError as error:
            self._lock.release()
            raise StartError(f"database: {error}", EXIT_DISK) from None
        except (sqlite3.Error, SchemaError) as error:
            self._lock.release()
            if is_damage(error):
                raise StartError(self._damaged(str(error)), EXIT_DISK) from None
            raise StartError(f"database: {self._path}: {error}", EXIT_FAILURE) from None
        except BaseException:
            self._lock.release()
            raise
        return Opened(engine, SQLiteReader(self._path, self._settings, on_failure))

    async def _opened(self) -> SQLiteEngine:
        """Open the file; the first attempt may wait for another process, later attempts do not."""
        wait_s = 0.0 if self.waits else None
        engine = SQLiteEngine(self._path, self._settings, self.clock, wait_s=wait_s)
        try:
            self._describe("which is starting")  # before anything is acknowledged
        except OSError:
            engine.close()
            raise
        return engine

    async def _record_owner(self, lock: DatabaseLock) -> None:
        logged = False
        while True:
            try:
                lock.acquire()
            except Owned as error:
                if not self._settings.standby:
                    raise StartError(f"{error} --standby waits for it.", EXIT_UNAVAILABLE) from None
                if not logged:
                    log.info("%s Standing by.", error)
                    systemd.notify("READY=1", "STATUS=standing by")
                    logged = True
                await asyncio.sleep(0.2)  # interval between attempts of a standby to acquire the database
            except Lost as error:
                raise StartError(str(error), EXIT_DISK) from None
            except (OSError, UnsafeFile) as error:
                if self.passing(error) is not None:
                    raise
                raise StartError(f"database: {error}", EXIT_FAILURE) from None
            else:
                return

    async def _check_damage(self) -> None:
        """Check for damage if the previous server did not shut down cleanly; raises StartError."""
        if not offline.ended_uncleanly(self._path):
            return
        systemd.notify("STATUS=checking the database", EXTEND)
        begun = self._lease_clock.monotonic()
        faults = await asyncio.to_thread(offline.faults_of, self._path, whole=False)
        if faults:
            raise StartError(self._damaged("; ".join(faults)), EXIT_DISK)
        took_s = self._lease_clock.monotonic() - begun
        log.info("the previous server did not shut down cleanly; the database was checked in %.1f s", took_s)

    async def _copy_before_migration(self) -> None:
        """Copy a file with an older schema; raises TransferError if that fails."""
        if not self._settings.migration_backup or older_version(self._path) is None:
            return
        systemd.notify("STATUS=copying the database before its schema is changed", EXTEND)
        copy = await asyncio.to_thread(copy_before_migration, self._path, self._machine.now())
        if copy is not None:
            log.info("the database was copied to %s before its schema is changed", copy)

    def _damaged(self, text: str) -> str:
        """Describe a damaged database and what to do."""
        path = self._path
        damaged = "is damaged, or no database at all" if "not a database" in text else "is damaged"
        return (
            f"database: {path} {damaged}, and is not served: {text}. Restore a backup, or save"
            f" what can be read: `sqlite3 {path} .recover | sqlite3 new.db`. `bedrockjobs doctor --scrub`"
            " shows more."
        )

    def passing(self, error: Exception) -> Passing | None:
        """Return the error of a locked file or a full disk, or None."""
        fault = self._fault(error)
        words = WAITED_FOR.get(type(fault))
        if fault is None or words is None:
            return None
        return Passing(f"database: {self._path}: {words}", fault)

    def _fault(self, error: Exception) -> StoreError | None:
        if isinstance(error, OSError):
            return StoreFull(str(error)) if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
        fault = fault_of(error)
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(FULL_TOO) and shutil.disk_usage(self._path.parent).free < 1024**2:
            return StoreFull(str(fault))
        return fault

    async def join(
        self, dispatcher: Dispatcher, notifier: Notifier, listeners: Listeners, version: str
    ) -> None:
        """Store the version, and take in jobs of the inbox: a copy of a PostgreSQL database may have some."""
        self._version = version
        if await self._rows_of_inbox():
            self._inbox = Inbox(self._rows_of_inbox, dispatcher.submit)

    async def _rows_of_inbox(self) -> list[InboxRow]:
        """Return the next jobs of the inbox, read on a separate connection."""
        now = timestamp_ms(self.clock.now())
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as connection:
            return Records(connection).due_in_inbox(now, INBOX_ROWS_MAX)

    async def move_clock(self, moment: datetime) -> None:
        """Advance the test clock."""
        assert isinstance(self.clock, StandingClock)
        self.clock.move_to(moment)

    def serves_at(self, where: str) -> None:
        """Write the address of the server to the lock file."""
        self._describe(f"on {where}")
        now = timestamp_ms(self.clock.now())
        name = self._settings.resolved_server_name()
        if self._inbox is not None:
            self._inbox.start()
        self.workers.servers = [ServerRow(name, where, now, now, self._version)]

    def _describe(self, text: str) -> None:
        assert self._lock is not None
        self._lock.describe(f"the server with pid {os.getpid()} {text}")

    def why_failed(self, error: Exception) -> str:
        """Describe a failure after which the server must stop."""
        if isinstance(error, StoreDamaged):
            return self._damaged(str(error))
        why = "its file is gone" if isinstance(error, FileGone) else "the disk failed"
        return f"{why}, the server ends: {error}"

    async def leave_cluster(self) -> None:
        """Stop taking in jobs; the file has one server."""
        if self._inbox is not None:
            await self._inbox.close()

    def release(self) -> None:
        """Release the lock."""
        assert self._lock is not None
        self._lock.release()
