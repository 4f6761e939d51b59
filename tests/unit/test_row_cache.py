"""The row cache: within its limits, and always equal to the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bedrockjobs.base.config import (
    HEADS_KEPT_MAX,
    HEADS_READ_MAX,
    NAMES_CACHED_MAX,
    RECENT_DATA_CHARS_MAX,
    RECENT_ROWS_MAX,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store import ready_queue
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.sqlite_unit import RowCache
from bedrockjobs.store.statements import STATEMENTS

AT = "2026-11-21 03:29:56"


def row(job_id: int, data: str = "{}") -> Job:
    return Job(AT, job_id, "QUEUED", "foo", AT, data=data)


def test_the_oldest_row_makes_room() -> None:
    rows = RowCache()
    for job_id in range(RECENT_ROWS_MAX):
        rows.keep(row(job_id))
    rows.keep(row(5, '{"new":1}'))
    assert rows.get(0) is not None
    rows.keep(row(RECENT_ROWS_MAX))
    assert rows.get(0) is None
    assert rows.get(5) == row(5, '{"new":1}')


def test_a_row_with_much_data_is_not_kept() -> None:
    rows = RowCache()
    rows.keep(row(1, "x" * RECENT_DATA_CHARS_MAX))
    assert rows.get(1) is not None
    rows.keep(row(1, "x" * (RECENT_DATA_CHARS_MAX + 1)))
    assert rows.get(1) is None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteEngine]:
    store = SQLiteEngine(tmp_path / "jobs.db", Settings(wal_bytes=0, ballast_bytes=0))
    store.begin()
    store.unit.insert(row(1))
    store.commit()
    store.begin()
    yield store
    store.close()


def stored(store: SQLiteEngine) -> list[Job]:
    store.unit.write()
    return [job_from(found) for found in store._execute(STATEMENTS["job_by_id"], (1,))]


def test_each_write_is_kept(store: SQLiteEngine) -> None:
    store.unit.claim(row(1)._replace(state="RUNNING", last_run=AT, attempt=1))
    assert [store.unit.job(1)] == stored(store)
    store.unit.save(row(1)._replace(state="QUEUED", name="bar", attempt=1))
    assert [store.unit.job(1)] == stored(store)
    store.unit.delete(1)
    assert store.unit.job(1) is None
    assert stored(store) == []


def test_a_plain_delete_is_kept(store: SQLiteEngine) -> None:
    store.unit.claim(row(1)._replace(state="RUNNING", last_run=AT, attempt=1))
    assert store.unit.delete_plain(1)
    assert store.unit.job(1) is None


def test_what_is_undone_is_not_kept(store: SQLiteEngine) -> None:
    mark = store.unit.savepoint()
    store.unit.save(row(1)._replace(name="bar"))
    store.unit.undo(mark)
    assert store.unit.job(1) == row(1)
    store.unit.save(row(1)._replace(name="bar"))
    store.rollback()
    store.begin()
    assert store.unit.job(1) == row(1)


def taken(store: SQLiteEngine, name: str) -> int:
    """Take the next job of a name; return its jobID, or 0 if there is none."""
    names = names_from(name, None)
    assert names is not None
    job = store.unit.first_due(TakeRequest(names), AT)
    if job is None:
        return 0
    store.unit.claim(job._replace(state="RUNNING", last_run=AT, attempt=1))
    return job.job_id


def test_the_lines_of_next_jobs_stay_within_their_limits(
    store: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert NAMES_CACHED_MAX * HEADS_KEPT_MAX * 180 < 24_000_000, "what all of them hold"
    monkeypatch.setattr(ready_queue, "NAMES_CACHED_MAX", 3)
    monkeypatch.setattr(ready_queue, "HEADS_KEPT_MAX", 4)
    names = [f"n{number}" for number in range(10)]
    lines = store.unit.ready._next._lines
    for name in names:
        assert not taken(store, name), "its line is empty and whole"
        for number in range(10):
            store.unit.insert(row(int(name[1:]) * 10 + 10 + number)._replace(name=name))
        assert len(lines) <= 3
        assert max(len(line.heads) for line in lines.values()) <= 4
    for name in names:
        first = int(name[1:]) * 10 + 10
        assert [taken(store, name) for _ in range(11)] == [*range(first, first + 10), 0]
    assert len(lines) <= 3


@pytest.mark.parametrize(("chars", "singly"), [(10, 1), (RECENT_DATA_CHARS_MAX + 1, 8)])
def test_rows_are_read_ahead_unless_they_are_long(store: SQLiteEngine, chars: int, singly: int) -> None:
    for job_id in range(2, 10):
        store.unit.insert(row(job_id, "x" * chars)._replace(name="bar"))
    store.commit()
    store.rollback()  # so that no row is cached
    store.begin()
    read: list[str] = []
    store._db.set_trace_callback(lambda sql: read.append(sql) if sql.startswith("SELECT created") else None)
    assert [taken(store, "bar") for _ in range(8)] == [*range(2, 10)]
    assert len(read) <= singly + 4, "a line begins with one job and doubles: 1, 2, 4 and the last"
    if chars > RECENT_DATA_CHARS_MAX:
        assert sum(" IN (" in sql for sql in read) == 1, "it is tried once"


def test_as_many_heads_and_rows_are_read_as_a_limit_says(store: SQLiteEngine) -> None:
    for job_id in range(2, 5 * HEADS_READ_MAX):
        store.unit.insert(row(job_id)._replace(name="bar"))
    store.commit()
    store.rollback()
    store.begin()
    line_of = store.unit.ready._next._lines
    lengths = []
    for _ in range(3 * HEADS_READ_MAX):
        before = len(line_of["bar"].heads) if "bar" in line_of else 0
        assert taken(store, "bar")
        if not before:
            lengths.append(len(line_of["bar"].heads) + 1)
            assert len(store.unit.ready._next.upcoming("bar")) <= 16
    assert lengths == [1, 2, 4, 8, 16, 32, HEADS_READ_MAX, HEADS_READ_MAX, HEADS_READ_MAX][: len(lengths)]
    assert lengths[-1] == HEADS_READ_MAX
