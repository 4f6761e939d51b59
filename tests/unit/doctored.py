"""A healthy server and its database for `bedrockjobs doctor`, and its findings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cli_fake import FakeServer, fake_server, run

from bedrockjobs.base.clock import SystemClock, timestamp
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main
from bedrockjobs.cli.doctor import doctor
from bedrockjobs.store.files import DatabaseLock
from bedrockjobs.store.sqlite import SQLiteEngine

Found = list[dict[str, str]]


def offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the command."""
    monkeypatch.setitem(main.commands, "doctor", doctor)
    monkeypatch.delenv("BEDROCKJOBS_DATABASE", raising=False)


@contextmanager
def owned(path: Path) -> Iterator[Path]:
    """Create a database that this process owns, like a server; yield its path."""
    SQLiteEngine(path, Settings(wal_bytes=0, ballast_bytes=0)).close()
    lock = DatabaseLock(path)
    lock.acquire()
    lock.describe(f"the server with pid {os.getpid()} on 127.0.0.1:8888")
    yield path
    lock.release()


def well(monkeypatch: pytest.MonkeyPatch, path: Path) -> FakeServer:
    """Provide a healthy server without workers and without due jobs."""
    fake = fake_server(monkeypatch)
    fake.will("Status", status(path))
    fake.will("Overview", overview())
    fake.will("ListSchedules", {"schedules": []})
    fake.will("ListWorkflows", *[{"workflows": []}] * 2)
    return fake


def status(path: Path | str, **more: Any) -> dict[str, Any]:
    """Return the reply to Status."""
    now = timestamp(SystemClock().now())
    return {
        "version": "0.1.0",
        "state": "serving",
        "durability": "full",
        "compatibility": "document",
        "database": str(path),
        "pid": os.getpid(),
        "started": now,
        "now": now,
        "connections": 1,
        "waiting": 0,
        "commits": 0,
        "commands": 0,
        **more,
    }


def overview(*problems: dict[str, Any], workers: int = 1, **more: Any) -> dict[str, Any]:
    """Return the relevant part of the reply to Overview."""
    counts = dict.fromkeys(("ready", "later", "running", "paused", "blocked", "mocked", "failed"), 0)
    return {**counts, "workers": workers, "taking": workers, "more": [], "problems": list(problems), **more}


def ago(seconds: float) -> str:
    """Return the timestamp of a time in the past."""
    return timestamp(SystemClock().now() - timedelta(seconds=seconds))


def findings(*arguments: str, expect: int = 0) -> Found:
    """Run doctor; check its exit status and return its findings."""
    result = run("doctor", "-o", "json", *arguments)
    assert result.exit_code == expect, result.stdout + result.stderr
    return list(json.loads(result.stdout))


def of(found: Found, check: str) -> Found:
    """Return the findings of one check."""
    return [finding for finding in found if finding["check"] == check]


def not_ok(found: Found) -> Found:
    """Return the findings other than ok."""
    return [finding for finding in found if finding["level"] != "ok"]
