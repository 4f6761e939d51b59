"""The copy of a file before its schema is migrated: complete, named after its version, or nothing done."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_fake import run
from jobs_file import rows_of

from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_DISK, StartError
from bedrockjobs.databases.file import FileDatabase
from bedrockjobs.store import schema, transfer
from bedrockjobs.store.transfer import MIGRATION_COPIES_KEPT, copy_before_migration, migration_copies

NOW = datetime(2026, 11, 23, 6, 50, tzinfo=UTC)
VERSION_3 = (Path(__file__).parents[1] / "runs" / "schema_3.sql").read_text()
JOB = "INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES ('', 700, 'QUEUED', 'a', '')"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a file of version 3 with one job, written to its log."""
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_3)
        connection.execute("PRAGMA user_version = 3")
        connection.execute(JOB)
        connection.commit()
    return path


def settings_for(path: Path, **more: object) -> Settings:
    return Settings(database=str(path), wal_bytes=0, ballast_bytes=0, **more)  # type: ignore[arg-type]


async def opened(settings: Settings) -> None:
    """Start and end a server's database."""
    database = FileDatabase(settings, None, None)
    found = await database.open_database(lambda _: None)
    found.engine.close()
    database.release()


async def test_a_server_copies_an_older_file_before_it_changes_it(old: Path) -> None:
    await opened(settings_for(old))
    assert rows_of(old, "PRAGMA user_version") == [(schema.VERSION,)]
    (copy,) = migration_copies(old)
    assert copy.name.startswith("jobs.db.schema-3-")
    assert rows_of(copy, "PRAGMA user_version") == [(3,)]
    assert rows_of(copy, "SELECT jobID, name FROM jobs WHERE jobID = 700") == [(700, "a")]
    assert copy.stat().st_mode & 0o777 == 0o600
    await opened(settings_for(old))
    assert migration_copies(old) == [copy], "a file of this version needs none"


async def test_whoever_has_a_copy_may_do_without(old: Path) -> None:
    await opened(settings_for(old, migration_backup=False))
    assert migration_copies(old) == []
    assert rows_of(old, "PRAGMA user_version") == [(schema.VERSION,)]


async def test_without_room_all_stays_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "copy_database", full)
    before = old.read_bytes()
    with pytest.raises(StartError, match=r"No space left on device.*--no-migration-backup") as refused:
        await opened(settings_for(old))
    assert refused.value.status == EXIT_DISK
    result = run("migrate", "--database", str(old))
    assert (result.exit_code, "No space left on device; the schema was not changed" in result.stderr) == (
        4,
        True,
    )
    assert old.read_bytes() == before
    monkeypatch.undo()
    await opened(settings_for(old))  # the lock was released
    assert len(migration_copies(old)) == 1


async def test_a_damaged_file_is_not_changed(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.executemany(
            "INSERT INTO jobs (created, state, name, nextRun) VALUES ('', 'QUEUED', ?, '')",
            [(f"job {number}" * 20,) for number in range(500)],
        )
        connection.commit()
    content = bytearray(old.read_bytes())
    content[8 * 4096 : 12 * 4096] = b"\xff" * (4 * 4096)
    old.write_bytes(content)
    with pytest.raises(StartError, match="could not be copied before its migration"):
        await opened(settings_for(old))
    assert old.read_bytes() == bytes(content)
    assert migration_copies(old) == []


def test_the_last_copies_are_kept(old: Path) -> None:
    others = [old.with_name("jobs.db.schema-notes"), old.with_name("jobs.db2.schema-3-20261123T065000Z")]
    for other in others:
        other.touch()
    copies = [
        copy_before_migration(old, NOW + timedelta(days=day)) for day in range(MIGRATION_COPIES_KEPT + 2)
    ]
    assert migration_copies(old) == copies[-MIGRATION_COPIES_KEPT:]
    assert all(other.exists() for other in others)


def test_a_new_file_needs_none(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    assert copy_before_migration(tmp_path / "jobs.db", NOW) is None
    assert copy_before_migration(tmp_path / "none.db", NOW) is None
