"""What is on the disk before it is answered, where takes alone may be lost: --durability claims-lazy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import Open
from tests.runs.rig import Site

LOG = "bedrockjobs.store.sqlite.os.fdatasync"


@pytest.fixture
async def lazy(open_site: Open) -> Site:
    """Return a server that syncs everything but plain takes."""
    return await open_site(durability="claims-lazy")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that tells how often the log was synced since it was last asked."""
    count, real = 0, os.fdatasync

    def sync(file: int) -> None:
        nonlocal count
        count += 1
        real(file)

    def since() -> int:
        nonlocal count
        found, count = count, 0
        return found

    monkeypatch.setattr(LOG, sync)
    return since


@pytest.mark.parametrize(
    ("command", "body"),
    [
        ("CreateJob", {"name": "c"}),
        ("PauseJobs", {"name": "x"}),
        ("AppendOutput", {"runID": 1, "seq": 1, "lines": ["text"]}),
        ("TerminateRun", {"runID": 1}),
        ("UpdateJob", {"jobID": 1, "runID": 1, "progress": {"percent": 1}}),
        ("DrainWorker", {"worker": "w"}),
        ("FailJob", {"jobID": 1, "runID": 1}),
        ("FinishJob", {"jobID": 1, "runID": 1}),
        ("RetryJob", {"jobID": 1, "runID": 1, "returned": True}),
    ],
)
async def test_what_is_acknowledged_is_synced(
    lazy: Site, synced: Callable[[], int], command: str, body: dict[str, Any]
) -> None:
    await lazy.create("a")
    await lazy.take("a")
    synced()
    await lazy.ok(command, **body)
    assert synced() >= 1


async def test_a_run_that_is_opened_is_synced(lazy: Site, synced: Callable[[], int]) -> None:
    """Its runID must never be given to another one."""
    await lazy.create("a", retryAfter="+1 HOUR")
    await lazy.rest()
    synced()
    await lazy.take("a", "w")
    assert synced() >= 1


async def test_a_run_survives_a_power_cut(open_site: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await open_site(durability="claims-lazy")
    path = site.server.settings.database
    cut, real = f"{path}.cut", os.fdatasync

    def sync(file: int) -> None:
        real(file)
        for suffix in ("", "-wal"):
            if Path(path + suffix).exists():
                shutil.copyfile(path + suffix, cut + suffix)

    monkeypatch.setattr(LOG, sync)
    await site.create("a", retryAfter="+1 HOUR")
    job = await site.take("a", "v")
    await site.rest()  # the event of the worker is written too, and copied
    monkeypatch.undo()
    other = await open_site(durability="claims-lazy", database=cut)
    assert await other.nothing("a", worker="w")
    assert (await other.run(job["runID"]))["worker"] == "v"
    await other.finish(job)
    assert (await other.run(job["runID"]))["status"] == "success"
