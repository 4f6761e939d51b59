"""Where commits run: in the event loop while the disk is fast."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import CHECKPOINT_PAGES_MIN, QUICK_COMMIT_S, QUICK_COMMITS
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.committer import CommitExecutor
from bedrockjobs.store.files import FILLED_AT_ONCE, fill
from bedrockjobs.store.sqlite import SQLiteEngine, checkpoint_pages

PAGE_BYTES = 4_096


class Disk:
    """Commits with given durations, and a record of where each ran."""

    def __init__(self, *, waits_for_disk: bool = True) -> None:
        self.clock = ManualClock(datetime(2026, 11, 22, tzinfo=UTC))
        self.commits = CommitExecutor(asyncio.get_running_loop(), self.clock, waits_for_disk=waits_for_disk)
        self.commits.start()
        self.told: list[tuple[float, Exception | None]] = []

    async def commit(self, took_s: float = 0.0, *, error: Exception | None = None) -> bool:
        """Commit; return whether the commit ran in the event loop."""
        told = asyncio.Event()
        threads = []

        def commit() -> None:
            threads.append(threading.current_thread())
            self.clock.advance(took_s)
            if error is not None:
                raise error

        def then(took_s: float, failure: Exception | None) -> None:
            assert threading.current_thread() is threading.main_thread()
            self.told.append((took_s, failure))
            told.set()

        self.commits.do(commit, then)
        at_once = told.is_set()
        await told.wait()
        assert at_once is (threads == [threading.main_thread()])
        return at_once

    async def be_quick(self, times: int = 5 * QUICK_COMMITS) -> list[bool]:
        """Commit a number of times on a fast disk."""
        return [await self.commit() for _ in range(times)]


async def test_the_first_commits_tell_how_quick_the_disk_is() -> None:
    disk = Disk()
    assert not any(await disk.be_quick(2 * QUICK_COMMITS))
    await disk.be_quick()
    assert await disk.commit()
    await disk.commits.end()


async def test_a_slow_disk_sends_what_follows_to_the_thread_at_once() -> None:
    disk = Disk()
    await disk.be_quick()
    assert await disk.commit(QUICK_COMMIT_S * QUICK_COMMITS * 1.5)
    assert not any(await disk.be_quick(3))
    await disk.be_quick()
    assert await disk.commit()
    await disk.commits.end()


async def test_a_disk_that_is_always_slow_is_waited_for_by_the_thread() -> None:
    disk = Disk()
    assert not any([await disk.commit(QUICK_COMMIT_S * 1.1) for _ in range(20 * QUICK_COMMITS)])
    await disk.commits.end()


async def test_a_commit_that_takes_longer_than_most_does_not_make_a_disk_slow() -> None:
    disk = Disk()
    await disk.be_quick()
    for _ in range(10):
        assert await disk.commit(QUICK_COMMIT_S * QUICK_COMMITS * 0.9)
        assert all(await disk.be_quick(3 * QUICK_COMMITS))
    await disk.commits.end()


async def test_without_a_disk_the_loop_commits_from_the_first_one_on() -> None:
    disk = Disk(waits_for_disk=False)
    assert await disk.commit()
    await disk.commits.end()


@pytest.mark.parametrize("waits_for_disk", [True, False])
async def test_what_a_commit_raises_is_told(waits_for_disk: bool) -> None:
    disk = Disk(waits_for_disk=waits_for_disk)
    error = OSError("no")
    assert await disk.commit(error=error) is not waits_for_disk
    assert disk.told == [(0.0, error)]
    await disk.commits.end()


@pytest.mark.parametrize("wal_bytes", [0, 65_536, 20 * 1024 * 1024])
def test_the_log_is_copied_before_it_has_to_grow(tmp_path: Path, wal_bytes: int) -> None:
    engine = SQLiteEngine(tmp_path / "jobs.db", Settings(wal_bytes=wal_bytes, ballast_bytes=0))
    (pages,) = engine._execute("PRAGMA wal_autocheckpoint").fetchone()
    assert engine._execute("PRAGMA page_size").fetchone() == (PAGE_BYTES,)
    log = tmp_path / "jobs.db-wal"
    length = log.stat().st_size
    assert length >= wal_bytes
    assert (tmp_path / "jobs.db").stat().st_size < 1024 * 1024, "a new file is small"
    assert pages == CHECKPOINT_PAGES_MIN or pages * PAGE_BYTES <= wal_bytes * 0.8
    for number in range(3_000):
        engine.begin().set_seen(f"{number}")
        engine.commit()
    if pages > CHECKPOINT_PAGES_MIN:
        assert log.stat().st_size == length
    engine.close()


def test_the_reserve_has_room_for_what_the_log_holds() -> None:
    usual = Settings()
    assert usual.ballast_bytes >= checkpoint_pages(usual.wal_bytes) * PAGE_BYTES


def test_a_log_keeps_what_it_holds(tmp_path: Path) -> None:
    """A killed server leaves commits in the log, and the next server extends it."""
    settings = Settings(wal_bytes=0, ballast_bytes=0)
    killed = SQLiteEngine(tmp_path / "jobs.db", settings)
    killed.begin().set_seen("2026-11-22 12:00:00")
    killed.commit()
    for name in ("jobs.db", "jobs.db-wal"):
        shutil.copyfile(tmp_path / name, tmp_path / f"after-{name}")
    after = SQLiteEngine(tmp_path / "after-jobs.db", settings.model_copy(update={"wal_bytes": 1_000_000}))
    assert after.seen() == "2026-11-22 12:00:00"
    assert (tmp_path / "after-jobs.db-wal").stat().st_size >= 1_000_000
    after.close()
    killed.close()


def test_where_there_is_no_room_a_file_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"kept")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *given: write(*given) if given[2] < FILLED_AT_ONCE else full())
    with pytest.raises(OSError, match="no room"):
        fill(file, 3 * FILLED_AT_ONCE)
    assert file.read_bytes() == b"kept"
