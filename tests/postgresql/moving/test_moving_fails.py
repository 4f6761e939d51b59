"""If a move fails or is refused, both queues are unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs import commands as c
from bedrockjobs.store import transfer
from bedrockjobs.store.base import StoreFull
from bedrockjobs.store.postgresql import transfer as moving
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.schema import VERSION as THERE
from bedrockjobs.store.postgresql.session import StoreAway
from bedrockjobs.store.schema import VERSION, SchemaError
from bedrockjobs.store.transfer import COMPLAINTS_MAX, REPLACED, BadRows, MoveOptions, TransferError
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.moving import moved
from tests.postgresql.moving.moved import (
    FULL,
    STRICT,
    Trouble,
    damage_there,
    do,
    on_insert,
    postgresql_queue,
    write,
    zero,
)


def target_full(path: Path, _: pytest.MonkeyPatch) -> None:
    there = postgresql_queue()
    do(there, c.CreateJob, name="other")
    there.store.close()


def older(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, f"PRAGMA user_version = {VERSION - 1}")


def newer(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, f"PRAGMA user_version = {VERSION + 1}")


def target_newer(path: Path, _: pytest.MonkeyPatch) -> None:
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    moved.execute(f"UPDATE meta SET value = '{THERE + 1}' WHERE key = 'schemaVersion'")


def damage(path: Path, _: pytest.MonkeyPatch) -> None:
    write(
        path, "UPDATE jobs SET data = '{\"k\":1}', checksum = 1 WHERE jobID = (SELECT max(jobID) FROM jobs)"
    )


def no_utf_8(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE events SET detail = CAST(x'ff' AS TEXT) WHERE seq = (SELECT max(seq) FROM events)")


def no_text(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE meta SET value = 7 WHERE key = 'crashPatterns'")


def cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terminate the connection when half of the rows have arrived."""
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    copied = transfer.copy_rows

    def copy_rows(source: Any, target: Any, rules: MoveOptions, _: Any) -> Any:
        return copied(source, target, rules, lambda done, _: moved.execute(end) if done == 100 else None)

    moved.at_once(monkeypatch)
    monkeypatch.setattr(moving, "copy_rows", copy_rows)


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (target_full, TransferError, r"holds a queue already: jobs have rows.*--schema"),
        (older, TransferError, rf"has schema version {VERSION - 1}; `bedrockjobs migrate --database"),
        (newer, TransferError, rf"has schema version {VERSION + 1}; this program supports {VERSION}"),
        (target_newer, SchemaError, rf"needs schema version {THERE + 1}"),
        (zero, BadRows, r"^1 rows cannot be moved.*--replace-zeros"),
        (damage, BadRows, r"^1 rows cannot be moved.*--keep-damaged"),
        (no_utf_8, TransferError, r"row after events, seq \d+: a text is not UTF-8"),
        (no_text, TransferError, r"meta, key 'crashPatterns': expected text"),
        (on_insert("stats", FULL), StoreFull, "no room"),
        (on_insert("meta", FULL, at_commit=True), StoreFull, "no room"),
        (on_insert("output", "new.at := new.at || '.';"), TransferError, "output: the rows that arrived"),
        (on_insert("keys", "RETURN NULL;"), TransferError, "keys: the rows that arrived.*0 rows of"),
        (on_insert("meta", "new.value := new.value || '.';"), TransferError, "meta: the rows that arrived"),
        (cut, StoreAway, "terminat"),
    ],
    ids=[
        "full",
        "older",
        "newer",
        "target newer",
        "zero",
        "damage",
        "no utf-8",
        "no text",
        "no room",
        "no room at the commit",
        "altered",
        "missing",
        "meta altered",
        "cut",
    ],
)
def test_where_it_fails_both_are_as_before(
    trouble: Trouble, error: type[Exception], words: str, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(full, monkeypatch)
    with moved.both_as_before(full), pytest.raises(error, match=words):
        moving.to_postgresql(full, moved.database(), STRICT)


@contextmanager
def small_file(draft: Path) -> Iterator[sqlite3.Connection]:
    """Within the context, the new file is on a nearly full disk."""
    with transfer.new_queue(draft) as connection:
        connection.execute("PRAGMA max_page_count = 60")
        yield connection


def no_room(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def full_disk(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "new_queue", small_file)


def no_name(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the last step fail: the rename of the file, after the other queue has its tombstone."""
    monkeypatch.setattr(Path, "replace", no_room)


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (full_disk, TransferError, "the disk of .*back or that of temporary files is full"),
        (no_name, OSError, "No space"),
        (cut, StoreAway, "terminat"),
        (damage_there, BadRows, rf"^{moved.ODD_ROWS} rows cannot be moved"),
        (target_newer, SchemaError, f"needs schema version {THERE + 1}"),
    ],
)
def test_on_the_way_back_too(
    trouble: Trouble,
    error: type[Exception],
    words: str,
    full: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moving.to_postgresql(full, moved.database(), STRICT)
    back = tmp_path / "back" / "jobs.db"
    back.parent.mkdir()
    trouble(full, monkeypatch)
    with moved.both_as_before(full), pytest.raises(error, match=words):
        moving.to_sqlite(moved.database(), back, STRICT)
    assert list(back.parent.iterdir()) == []


def test_a_file_in_the_way_stays(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    (tmp_path / "other").write_text("mine")
    with pytest.raises(TransferError, match="exists; a queue is moved into a new file"):
        moving.to_sqlite(moved.database(), tmp_path / "other", STRICT)
    assert (tmp_path / "other").read_text() == "mine"


def test_all_bad_rows_are_told_at_once(full: Path) -> None:
    zero(full, pytest.MonkeyPatch())
    write(full, "UPDATE jobs SET checksum = 1")
    with pytest.raises(BadRows) as error:
        moving.to_postgresql(full, moved.database(), STRICT)
    assert error.value.count == moved.ODD_ROWS + 1
    assert len(error.value.complaints) == COMPLAINTS_MAX < moved.ODD_ROWS
    assert error.value.complaints[0].startswith(f"jobs, jobID {moved.FIRST_KEY}: the data does not match")


def test_bad_rows_are_taken_along_where_that_is_wanted(full: Path, tmp_path: Path) -> None:
    damage(full, pytest.MonkeyPatch())
    before = moved.content_of(full)
    zero(full, pytest.MonkeyPatch())
    moving.to_postgresql(full, moved.database(), MoveOptions(keep_damaged=True, replace_zeros=True))
    moving.to_sqlite(moved.database(), tmp_path / "back.db", MoveOptions(keep_damaged=True))
    after = moved.content_of(tmp_path / "back.db")
    assert after["jobs"] == before["jobs"]
    with closing(sqlite3.connect(tmp_path / "back.db")) as connection:
        last = connection.execute("SELECT detail FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    assert last == (f"a{REPLACED}",)


def test_a_zero_in_a_job_is_never_replaced(full: Path) -> None:
    write(full, "UPDATE jobs SET lastRun = char(0) WHERE jobID = (SELECT max(jobID) FROM jobs)")
    with pytest.raises(BadRows) as error:
        moving.to_postgresql(full, moved.database(), MoveOptions(replace_zeros=True))
    assert "lastRun contains a NUL character" in error.value.complaints[0]
