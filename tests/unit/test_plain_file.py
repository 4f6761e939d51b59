"""The files next to a database: links planted in their place are not written to."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.store import files
from bedrockjobs.store.files import (
    SIDE_FILES,
    DatabaseLock,
    UnsafeFile,
    check_owner,
    make_plain,
    open_plain,
    remove_plain,
)
from bedrockjobs.store.offline import unit_of
from bedrockjobs.store.sqlite import SQLiteEngine


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
SUFFIXES = ("", *SIDE_FILES, "-lock")
"""Endings of the files of a database."""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a database with its side files, in a world-writable folder."""
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "jobs.db"
    for suffix in SUFFIXES:
        Path(f"{path}{suffix}").touch(0o600)
    return path


def as_a_strangers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make another user the owner of a file: by chown as root, else by patching this process's user ID."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


@pytest.mark.parametrize("suffix", SUFFIXES)
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


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_planted_after_the_check_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """By its owner and mode once it is open; SQLite opens the side files by itself, and then finds ours."""
    file = Path(f"{database}{suffix}")
    for each in SUFFIXES:
        Path(f"{database}{each}").unlink()

    def plant(_: Path) -> None:
        file.touch()
        file.chmod(0o606)

    monkeypatch.setattr(files, "check_owner", plant)
    words = f"everybody may write to {file}: run chmod o-w"
    with pytest.raises(UnsafeFile, match=words):
        DatabaseLock(database).acquire()
    if suffix in SIDE_FILES:  # a token command works on an existing database, which others cannot replace
        Path(database).touch(0o600)
        with pytest.raises(UnsafeFile, match=words), unit_of(database, datetime(2026, 1, 1, tzinfo=UTC)):
            pass
    file.chmod(0o600)
    monkeypatch.setattr(files, "check_owner", Path.exists)
    lock = DatabaseLock(database)
    lock.acquire()
    lock.release()


def test_no_name_of_a_side_file_is_free_in_a_folder_of_everybody(database: Path) -> None:
    """While a server has the database, also a new one; a folder of its own user keeps no empty files."""
    for path, kept in ((database, set(SIDE_FILES)), (database.parent.parent / "own.db", {"-wal", "-shm"})):
        for suffix in SUFFIXES:
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        lock = DatabaseLock(path)
        lock.acquire()
        engine = SQLiteEngine(path, Settings())
        try:
            assert {suffix for suffix in SIDE_FILES if Path(f"{path}{suffix}").exists()} == kept
            check_owner(path)
            with unit_of(path, datetime(2026, 1, 1, tzinfo=UTC)):
                pass
            assert {suffix for suffix in SIDE_FILES if Path(f"{path}{suffix}").exists()} == kept
            reading = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
            assert reading.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
            reading.close()
        finally:
            engine.close()
            lock.release()
        with unit_of(path, datetime(2026, 1, 1, tzinfo=UTC)):
            assert {suffix for suffix in SIDE_FILES if Path(f"{path}{suffix}").exists()} == kept
        assert {each.name for each in path.parent.glob(f"{path.name}*")} == {path.name, f"{path.name}-lock"}


def test_a_disk_reserve_of_another_user_is_not_removed(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not start with it: it could never give the reserve up."""
    Path(f"{database}-ballast").touch(0o600)
    as_a_strangers(Path(f"{database}-ballast"), monkeypatch)
    with pytest.raises(UnsafeFile, match="-ballast belongs to the user"):
        SQLiteEngine(database, Settings())
    assert Path(f"{database}-ballast").exists()


def test_a_group_may_write(database: Path) -> None:
    """Only a trusted owner can have let it, as Kubernetes does in a volume with an fsGroup."""
    for suffix in SUFFIXES:
        Path(f"{database}{suffix}").chmod(0o660)
    check_owner(database)
    lock = DatabaseLock(database)
    lock.acquire()
    lock.release()


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
