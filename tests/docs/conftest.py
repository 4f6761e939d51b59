"""A server of its own for each page whose sessions are run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import live_server
from tests.docs.sessions import Player


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    """Return a player with a fresh server and an empty folder."""
    server = live_server.start(tmp_path / "jobs.db")
    folder = tmp_path / "folder"
    folder.mkdir()
    yield Player(server, folder)
    live_server.stop(server.process)
