"""Fixtures for queues that are moved; each test begins and ends without a queue on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.postgresql.moving import moved


@pytest.fixture(autouse=True)
def _no_queue_there() -> Iterator[None]:
    """Begin and end without a queue on PostgreSQL."""
    moved.drop()
    yield
    moved.drop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of an empty queue in a new folder."""
    folder = tmp_path / "queue"
    folder.mkdir()
    SQLiteEngine(folder / "jobs.db", Settings(wal_bytes=0, ballast_bytes=0)).close()
    return folder / "jobs.db"


@pytest.fixture
def full(path: Path) -> Path:
    """Return a queue with many rows in each table."""
    moved.fill(path)
    return path
