"""How many slots remain under a load, and when a file counts as changed."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bedrock_worker.pull import GROW_S, SHRINK_S, Throttle, VersionWatch, digest_of, load_per_cpu, mark_of

from bedrockjobs.base.clock import ManualClock


class Machine:
    """A machine whose load and time a test decides."""

    def __init__(self, slots_max: int) -> None:
        """Be idle."""
        self.load = 0.0
        self.clock = ManualClock(datetime(2026, 11, 21, tzinfo=UTC))
        self.throttle = Throttle(slots_max, 1.0, load=lambda: self.load, clock=self.clock)

    def after(self, seconds: float, load: float) -> int:
        """Return the slots some seconds later under a load."""
        self.load = load
        self.clock.advance(seconds)
        return self.throttle.slots()


def test_it_begins_with_one_and_adds_one_at_a_time() -> None:
    machine = Machine(4)
    assert machine.throttle.slots() == 1
    assert [machine.after(GROW_S, 0.5) for _ in range(5)] == [2, 3, 4, 4, 4]


def test_nothing_changes_between_the_steps() -> None:
    machine = Machine(8)
    assert [machine.after(GROW_S / 4, 0.0) for _ in range(8)] == [1, 1, 1, 2, 2, 2, 2, 3]


def test_a_long_wait_counts_for_several_steps() -> None:
    assert Machine(100).after(10.5 * GROW_S, 0.0) == 11
    assert Machine(5).after(10.5 * GROW_S, 0.0) == 5


def test_the_limit_itself_is_no_overload() -> None:
    assert Machine(8).after(GROW_S, 1.0) == 2


def test_overload_halves_and_waits_for_the_effect() -> None:
    machine = Machine(16)
    assert machine.after(15 * GROW_S, 0.0) == 16
    assert machine.after(GROW_S, 1.1) == 8
    assert machine.after(SHRINK_S - GROW_S, 1.1) == 8
    assert machine.after(GROW_S, 1.1) == 4
    assert machine.after(SHRINK_S, 1.1) == 2
    assert machine.after(GROW_S, 0.9) == 3


def test_some_slots_stay_under_any_load() -> None:
    machine = Machine(4)
    assert [machine.after(SHRINK_S, 99.0) for _ in range(3)] == [1] * 3


def test_when_to_ask_again() -> None:
    machine = Machine(4)
    assert machine.throttle.next_s() == GROW_S
    machine.clock.advance(2)
    assert machine.throttle.next_s() == GROW_S - 2
    machine.clock.advance(60)
    assert machine.throttle.next_s() == 0


def test_the_load_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (6.0, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert load_per_cpu() == 1.5


# --- files ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file."""
    path = tmp_path / "version"
    path.write_text("1")
    return path


def test_a_file_that_stays(file: Path) -> None:
    file_watch = VersionWatch(file)
    assert not file_watch.changed()
    os.utime(file, ns=(0, 0))
    assert not file_watch.changed()
    copy = file.with_name("copy")
    copy.write_text("1")
    copy.replace(file)
    assert not file_watch.changed()


def test_a_file_that_changes(file: Path) -> None:
    file_watch = VersionWatch(file)
    file.write_text("22")
    assert file_watch.changed()
    file.write_text("1")
    assert file_watch.changed(), "what was noticed once stays so"


def test_a_file_that_is_gone_for_a_moment(file: Path) -> None:
    file_watch = VersionWatch(file)
    file.unlink()
    assert not file_watch.changed()
    file.write_text("1")
    assert not file_watch.changed()
    file.unlink()
    file.write_text("22")
    assert file_watch.changed()


def test_a_file_that_comes(tmp_path: Path) -> None:
    file_watch = VersionWatch(tmp_path / "none")
    assert not file_watch.changed()
    (tmp_path / "none").write_text("1")
    assert file_watch.changed()


def test_a_link_that_is_turned(tmp_path: Path) -> None:
    for release in ("1", "2"):
        (tmp_path / release).write_text(release)
    link = tmp_path / "current"
    link.symlink_to("1")
    file_watch = VersionWatch(link)
    assert not file_watch.changed()
    link.unlink()
    link.symlink_to("2")
    assert file_watch.changed()


@pytest.mark.parametrize(
    ("content", "release"),
    [
        (b"v1.2.3\n", "v1.2.3"),
        (b"a" * 60, "a" * 60),
        (b"a" * 61, hashlib.sha256(b"a" * 61).hexdigest()[:12]),
        (b"two\nlines\n", hashlib.sha256(b"two\nlines\n").hexdigest()[:12]),
        (b"\xff", hashlib.sha256(b"\xff").hexdigest()[:12]),
        (b"", ""),
    ],
)
def test_the_release_that_a_file_tells(file: Path, content: bytes, release: str) -> None:
    file.write_bytes(content)
    watch = VersionWatch(file)
    file.write_bytes(b"another")
    assert watch.release == release
    assert VersionWatch(file.with_name("none")).release == ""


def test_the_content_is_read_only_where_the_mark_is_new(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    monkeypatch.setattr("bedrock_worker.pull.digest_of", lambda path: reads.append(path) or digest_of(path))
    file_watch = VersionWatch(file)
    assert not file_watch.changed()
    assert len(reads) == 1
    os.utime(file, ns=(0, 0))
    assert not file_watch.changed()
    assert not file_watch.changed()
    assert reads == [file, file]


def test_what_cannot_be_read_has_no_mark_and_no_digest(tmp_path: Path) -> None:
    assert mark_of(tmp_path / "none") is None
    assert digest_of(tmp_path / "none") is None
    assert digest_of(tmp_path) is None
