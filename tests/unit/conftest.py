"""Fixtures for tests of the command line: a missing server, a folder, a database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_fake import FakeServer, fake_server
from jobs_file import add_jobs

from bedrockjobs.base.settings import Settings
from bedrockjobs.store.sqlite import SQLiteEngine


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Replace the server by a fake."""
    monkeypatch.delenv("BEDROCKJOBS_SERVER", raising=False)
    return fake_server(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder that contains only a definitions file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BEDROCKJOBS_BY", "ada")
    Path("jobs.toml").write_text(
        '[[schedules]]\nname = "a"\nschedule = "5m"\ncmd = "make"\npaused = true\n'
        '[[schedules]]\nname = "b"\nschedule = "@daily"\npaused = true\n'
    )
    return tmp_path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteEngine]:
    """Return a database with 300 jobs, open for writing like a server's."""
    monkeypatch.setenv("BEDROCKJOBS_DATABASE", str(tmp_path / "jobs.db"))
    store = SQLiteEngine(tmp_path / "jobs.db", Settings())
    add_jobs(store, 300)
    yield store
    store.close()


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone to one that is an hour ahead of UTC in winter."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
