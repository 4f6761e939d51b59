"""The files next to a database: links planted in their place are not written to."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bedrockjobs.store import files
from bedrockjobs.store.files import (
    DatabaseLock,
    UnsafeFile,
    check_owner,
    make_plain,
    open_plain,
    remove_plain,
)
from bedrockjobs.store.offline import unit_of


def _linked(path: Path) -> None:
    path.symlink_to(path.with_name("precious"))


def _led_nowhere(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def _hard(path: Path) -> None:
    os.link(path.with_name("precious"), path)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the path of a file of ours, next to a precious file."""
    (tmp_path / "precious").write_text("do not touch")
    return tmp_path / "jobs.db-lock"


@pytest.mark.parametrize("opens", [open_plain, make_plain, remove_plain])
@pytest.mark.parametrize("plant", [_linked, _led_nowhere, _hard, _pipe, _folder])
def test_what_is_no_plain_file_is_refused(
    place: Path, opens: Callable[[Path], object], plant: Callable[[Path], None]
) -> None:
    plant(place)
    with pytest.raises(UnsafeFile, match=f"{place} is a link or not a regular file"):
        opens(place)
    assert place.with_name("precious").read_text() == "do not touch"
    assert not place.with_name("nowhere").exists()


@pytest.mark.parametrize("plant", [_linked, _led_nowhere, _hard, Path.touch])
def test_what_is_planted_at_the_last_moment_is_not_written_to(
    place: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of the path and the creation of the file."""
    monkeypatch.setattr(files, "remove_plain", plant)
    with pytest.raises(FileExistsError):
        make_plain(place)
    assert not place.with_name("nowhere").exists()


def test_plain_ones_are_opened_made_anew_and_removed(place: Path) -> None:
    for opens, content in ((open_plain, b""), (open_plain, b"kept"), (make_plain, b"")):
        file = opens(place)
        try:
            assert os.read(file, 10) == content
            assert os.fstat(file).st_mode & 0o777 == 0o600
            os.pwrite(file, b"kept", 0)
        finally:
            os.close(file)
    for _ in range(2):
        remove_plain(place)
        assert not place.exists()


STRANGER = 4242


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a database with its side files, in a world-writable folder."""
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "jobs.db"
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").touch(0o600)
    return path


def as_a_strangers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make another user the owner of a file: by chown as root, else by patching this process's user ID."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_database_that_another_user_may_have_planted_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    check_owner(database)
    file = Path(f"{database}{suffix}")
    file.chmod(0o602)
    with pytest.raises(UnsafeFile, match=f"everybody may write to {file}: run chmod o-w"):
        check_owner(database)
    file.chmod(0o600)
    as_a_strangers(file, monkeypatch)
    for opens in (lambda: check_owner(database), DatabaseLock(database).acquire):
        with pytest.raises(UnsafeFile, match=r"belongs to the user \d+, who may have put it there"):
            opens()
    if suffix:
        file.unlink()
        file.symlink_to(database)
        with pytest.raises(UnsafeFile, match="is a link"):
            check_owner(database)
    else:
        with pytest.raises(UnsafeFile), unit_of(database, datetime(2026, 1, 1, tzinfo=UTC)):
            pass


def test_who_has_the_folder_may_have_the_file(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when root works on the database of the server's user."""
    as_a_strangers(database, monkeypatch)
    if os.geteuid() == 0:
        os.chown(database.parent, STRANGER, -1)
    database.parent.chmod(0o755)
    check_owner(database)
    database.parent.chmod(0o1777)
    with pytest.raises(UnsafeFile):
        check_owner(database)
