"""The lock on a database: held by the process that has the file open, even if files are renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedrockjobs.store.files import DatabaseLock, Lost, Owned, owner_of


def test_a_link_that_came_after_the_path_was_resolved_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        DatabaseLock(tmp_path / "jobs.db").acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_that_was_refused_leaves_nothing_locked(tmp_path: Path) -> None:
    first, second = DatabaseLock(tmp_path / "jobs.db"), DatabaseLock(tmp_path / "jobs.db")
    first.acquire()
    first.describe("the server with pid 1")
    with pytest.raises(Owned, match="is owned by the server with pid 1"):
        second.acquire()
    assert owner_of(tmp_path / "jobs.db") == "the server with pid 1"
    (tmp_path / "jobs.db-lock").unlink()
    with pytest.raises(Owned, match="with its lock file removed"):
        second.acquire()
    assert owner_of(tmp_path / "jobs.db") == "another server"
    first.release()
    assert owner_of(tmp_path / "jobs.db") is None
    second.acquire()
    second.release()


def test_a_clean_shutdown_is_known_from_the_lock_file_of_this_and_of_an_older_version(tmp_path: Path) -> None:
    path, lock_file = tmp_path / "jobs.db", tmp_path / "jobs.db-lock"
    path.write_bytes(b"a database without a log")
    lock = DatabaseLock(path)
    lock.acquire()
    lock.describe("the server with pid 1")
    lock.release()
    assert lock_file.read_text() == "no server: the last one stopped cleanly\n"
    for last in (lock_file.read_text(), "nobody: the last one stopped well\n"):
        lock_file.write_text(last)
        lock.acquire()
        lock.release()
    lock_file.write_text("the server with pid 1\n")
    with pytest.raises(Lost, match="last used by the server with pid 1, which did not stop cleanly"):
        lock.acquire()
