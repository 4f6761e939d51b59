"""A new database and its views."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.store import schema
from bedrockjobs.store.reader import SQLiteReader
from tests.views.table import Table


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database as the server makes one, to be copied: to make it takes longer than most tests."""
    path = tmp_path_factory.mktemp("empty") / "jobs.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    schema.apply(db)
    db.close()
    return path


@pytest.fixture
def path(empty: Path, tmp_path: Path) -> Path:
    """Return a new database as the server makes one."""
    return shutil.copy(empty, tmp_path / "jobs.db")


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
