"""The files beside a database: what somebody planted in their place is not written to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bedrockjobs.store import plain_file
from bedrockjobs.store.plain_file import PlantedFile, make_plain, open_plain, remove_plain


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
    """Return where a file of ours belongs, beside a precious one."""
    (tmp_path / "precious").write_text("do not touch")
    return tmp_path / "jobs.db-lock"


@pytest.mark.parametrize("opens", [open_plain, make_plain, remove_plain])
@pytest.mark.parametrize("plant", [_linked, _led_nowhere, _hard, _pipe, _folder])
def test_what_is_no_plain_file_is_refused(
    place: Path, opens: Callable[[Path], object], plant: Callable[[Path], None]
) -> None:
    plant(place)
    with pytest.raises(PlantedFile, match=f"{place} is a link or no plain file"):
        opens(place)
    assert place.with_name("precious").read_text() == "do not touch"
    assert not place.with_name("nowhere").exists()


@pytest.mark.parametrize("plant", [_linked, _led_nowhere, _hard, Path.touch])
def test_what_is_planted_at_the_last_moment_is_not_written_to(
    place: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is there and the new file."""
    monkeypatch.setattr(plain_file, "remove_plain", plant)
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
