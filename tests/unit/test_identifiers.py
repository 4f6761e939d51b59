"""jobIDs and runIDs: in order, unique, with gaps only after a server was killed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from bedrockjobs.base.config import ID_BLOCK
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.sqlite_unit import SQLiteUnit

NOW = "2026-11-22 12:00:00"


class Opened:
    """A database that is opened, killed and closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine = self._open()

    def _open(self) -> SQLiteEngine:
        return SQLiteEngine(self.path, Settings(wal_bytes=0, ballast_bytes=0))

    def begin(self) -> SQLiteUnit:
        return self.engine.begin()

    def draw(self, count: int = 1) -> list[tuple[int, int]]:
        """Allocate jobIDs and runIDs in a transaction that writes."""
        unit = self.begin()
        drawn = [(unit.new_job_id(), unit.new_run_id()) for _ in range(count)]
        unit.set_seen(NOW)
        self.engine.commit()
        return drawn

    def stored(self) -> int:
        """Return the stored numbers."""
        with sqlite3.connect(self.path) as other:
            return int(other.execute("SELECT value FROM meta WHERE key = 'nextJobID'").fetchone()[0])

    def killed(self) -> None:
        self.engine.close()
        self.engine = self._open()

    def ended(self) -> None:
        self.begin().record_shutdown(NOW)
        self.engine.commit()
        self.killed()


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path / "jobs.db")


def test_the_numbers_of_a_block_are_stored_once(opened: Opened) -> None:
    assert opened.draw() == [(1, 1)]
    stored = opened.stored()
    for number in range(2, ID_BLOCK + 1):
        assert opened.draw() == [(number, number)]
        assert opened.stored() == stored
    assert opened.draw(5)[-1] == (ID_BLOCK + 5, ID_BLOCK + 5)
    assert opened.stored() > stored


def test_no_number_is_left_out_where_a_server_ends_well(opened: Opened) -> None:
    opened.draw(3)
    opened.ended()
    assert opened.draw() == [(4, 4)]
    opened.ended()
    opened.ended()  # one that drew nothing
    assert opened.draw() == [(5, 5)]


def test_no_number_is_left_out_where_all_was_forgotten_before_the_end(opened: Opened) -> None:
    opened.draw(3)
    opened.begin()
    opened.engine.rollback()
    opened.ended()
    assert opened.draw() == [(4, 4)]


def test_a_block_at_most_is_left_out_where_it_is_killed(opened: Opened) -> None:
    opened.draw(3)
    opened.killed()
    ((job, run),) = opened.draw()
    assert 3 < job <= 3 + 1 + ID_BLOCK
    assert run == job


def test_what_is_rolled_back_is_drawn_again(opened: Opened) -> None:
    opened.draw(ID_BLOCK)
    for count in (1, 3, 2 * ID_BLOCK):  # within the block, and beyond
        unit = opened.begin()
        for _ in range(count):
            unit.new_job_id()
        unit.set_seen(NOW)
        opened.engine.unit.identifiers.save()
        opened.engine.rollback()
        opened.begin().set_seen(NOW)
        opened.engine.commit()  # which draws none
    assert opened.draw() == [(ID_BLOCK + 1, ID_BLOCK + 1)]


def test_what_somebody_else_stores_counts(opened: Opened) -> None:
    opened.draw(3)
    with sqlite3.connect(opened.path) as other:
        other.execute("UPDATE meta SET value = 5000 WHERE key = 'nextJobID'")
    assert opened.draw() == [(5000, 4)]


def test_a_change_elsewhere_leaves_nothing_out(opened: Opened) -> None:
    opened.draw(3)
    with sqlite3.connect(opened.path) as other:
        other.execute("UPDATE meta SET value = '[\"a\"]' WHERE key = 'crashPatterns'")
    assert opened.draw() == [(4, 4)]
