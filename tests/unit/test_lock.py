"""The lock on a database: held by the process that has the file open, even if files are renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedrockjobs.store.files import DatabaseLock, Owned, owner_of


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
