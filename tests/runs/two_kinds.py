"""A server with jobs of two names, of which a token may see one.

Whatever belongs to the other kind has SECRET in it: names, data, errors, output, reasons, workers, sources,
who paused what.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.conftest import Live
from tests.runs.bearer import Bearer, admin_of

SECRET = "SECRET"
ROLES = ("read", "produce", "work", "operate")


@dataclass
class Place:
    """A server with jobs of two kinds of names."""

    root: Bearer
    mine: dict[str, int]
    theirs: dict[str, int]
    """Numbers of what is seen, and of what is not: queued, running, run, failed, parent, child, schedule."""


async def made(root: Bearer, names: str, word: str) -> dict[str, int]:
    """Make a job of each kind; return their numbers."""
    data = {"word": word}
    found: dict[str, int] = {}
    for kind, more in (
        ("running", {}),
        ("failed", {}),
        ("parent", {}),
        ("queued", {}),
        ("schedule", {"repeat": "CRON 0 0 1 1 *"}),
    ):
        name = f"{names}/{kind}"
        found[kind] = (await root.ok("CreateJob", name=name, data=data, **more))["jobID"]
        if kind in ("running", "failed", "parent"):
            taken = await root.ok("GetJob", name=name, worker=f"worker-{word}", host=word, heartbeat=True)
            found["run"] = taken["runID"] if kind == "running" else found["run"]
            await root.ok("AppendOutput", runID=taken["runID"], seq=1, lines=[f"line {word}"])
            await root.ok("UpdateJob", jobID=found[kind], progress=data)
            if kind == "failed":
                await root.ok("FailJob", jobID=found[kind], error=f"error {word}", data=data)
            if kind == "parent":
                found["child"] = (
                    await root.ok("CreateJob", name=f"{names}/child", parentJobID=found[kind], data=data)
                )["jobID"]
    await root.ok("PauseJobs", name=f"{names}/none", reason=f"reason {word}", by=word)
    await root.ok(
        "SyncSchedules", source=word, schedules=[{"name": f"{names}/synced", "repeat": "CRON @daily"}]
    )
    return found


async def place_of(live: Live) -> Place:
    """Make jobs of two kinds of names on a server; each has a child of the other's family, too."""
    root = await admin_of(live)
    theirs = await made(root, f"theirs/{SECRET}", SECRET)
    mine = await made(root, "mine", "open")
    await root.ok("PauseJobs", name="*none", reason=f"wide {SECRET}")
    cross = {"parentJobID": mine["parent"], "data": {"word": SECRET}}
    await root.ok("CreateJob", name=f"theirs/{SECRET}/cross", **cross)
    return Place(root, mine, theirs)
