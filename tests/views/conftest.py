"""A new database and its views."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.store.reader import SQLiteReader
from tests.engines import empty_file
from tests.views.table import Table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a new database as the server makes one."""
    path = tmp_path / "jobs.db"
    path.write_bytes(empty_file())
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
