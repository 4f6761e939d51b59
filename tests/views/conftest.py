"""A new database and its views."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from tests.views.table import Table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a new database as the server makes one."""
    path = tmp_path / "jobs.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    return path


@pytest.fixture
async def table(path: Path) -> AsyncIterator[Table]:
    """Return an empty database with its views."""
    settings = Settings()
    reader = SQLiteReader(path, settings)
    await reader.open()
    found = Table(path, reader, settings)
    yield found
    await reader.close()
    found.db.close()
