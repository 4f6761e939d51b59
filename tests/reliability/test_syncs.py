"""Acknowledged means on disk, command by command: the log was synced between each request and its reply."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.commands import ALL
from bedrockjobs.job.eligibility import HOLD_PATTERN
from tests.reliability.power import records_of
from tests.reliability.servers import Server
from tests.reliability.shim import built
from tests.reliability.wire import Wire

pytestmark = pytest.mark.reliability

LOG = 1
"""The log's number among the files that are recorded."""

JOB, RUN, PLAIN, QUEUED, CHILD = "<job>", "<run>", "<plain>", "<queued>", "<child>"
SCHEDULE, PINGED, FAILED = "<schedule>", "<pinged>", "<failed>"
WORKFLOW, FAILED_WORKFLOW = "<workflow>", "<failed workflow>"
"""The rows that exist before each command; the first is a job with a run. IDs replace placeholders."""

DONE: dict[str, dict[str, Any]] = {
    "CreateJob": {"name": "created"},
    "CreateJobs": {"jobs": [{"name": "created"}]},
    "CreateWorkflow": {"name": "nightly", "jobs": [{"ref": "a", "name": "created"}]},
    "AddToWorkflow": {"workflowID": WORKFLOW, "jobs": [{"ref": "b", "name": "created"}]},
    "CancelWorkflow": {"workflowID": WORKFLOW},
    "RetryWorkflow": {"workflowID": FAILED_WORKFLOW},
    "GetJob": {"name": "queued", "worker": "w"},
    "GetJobs": {"name": "queued", "numResults": 2},
    "FinishJob": {"jobID": PLAIN, "thenGet": "queued"},
    "FinishJobs": {"jobs": [{"jobID": PLAIN}]},
    "RetryJob": {"jobID": JOB, "runID": RUN, "returned": True},
    "FailJob": {"jobID": JOB, "runID": RUN},
    "UpdateJob": {"jobID": JOB, "runID": RUN, "progress": {"percent": 1}},
    "CancelJob": {"jobID": CHILD},
    "DeleteJob": {"jobID": QUEUED},
    "RequeueJobs": {"jobIDs": [PLAIN]},
    "CrashBedrockJob": {"names": ["crashed"]},
    "ClearCrashedBedrockJobs": {},
    "PauseJobs": {"name": "paused"},
    "ResumeJobs": {"name": "paused"},
    "TriggerJob": {"jobID": SCHEDULE},
    "PingSchedule": {"jobID": PINGED},
    "TerminateRun": {"runID": RUN},
    "KillRun": {"runID": RUN},
    "RunAgain": {"runID": RUN},
    "DeleteRuns": {"name": "failing"},
    "MarkSeen": {"jobIDs": [FAILED]},
    "MuteFailures": {"fingerprint": "a"},
    "AppendOutput": {"runID": RUN, "seq": 1, "lines": ["text"]},
    "SyncSchedules": {"source": "s", "schedules": [{"name": "synced", "repeat": "CRON @daily"}]},
    "SetLimit": {"name": "limited", "queued": 5},
    "RemoveLimit": {"name": "limited"},
    "SetRetention": {"name": "limited", "runs": 60},
    "RemoveRetention": {"name": "limited"},
    "PutRule": {"name": "r", "on": "clock set", "to": "mailto:a@example.com"},
    "ClaimMessage": {"name": "r", "sender": "other", "upTo": 1_000_000},
    "ReportDelivery": {"name": "r", "sender": "other", "upTo": 1_000_000, "events": 1},
    "ReportConditions": {"name": "r", "conditions": {"late": {"a": "it waits"}}},
    "SyncRules": {"source": "s", "rules": [{"name": "q", "on": "failed", "to": "mailto:a@example.com"}]},
    "MuteRule": {"name": "r", "until": "2099-01-01"},
    "RemoveRule": {"name": "r"},
    "ReleaseHold": {},
    "CreateToken": {"name": "root", "roles": ["admin"]},
    "AllowAnonymous": {"roles": ["read"]},
    "RotateToken": {"name": "root"},
    "RevokeToken": {"name": "other"},
    "DrainWorker": {"worker": "w"},
}
"""Each command that writes, so that it does, in an order in which each finds something to do."""

LOOKS = {"GetPingSecret"}
"""Commands that write nothing, but are refused to GET because their replies are secret."""

WRITING = {kind.__name__ for kind in ALL if kind.where == "writer" and not kind.reads} - LOOKS


class Served:
    """A server whose writes and syncs are recorded."""

    def __init__(self, wire: Wire, record: Path) -> None:
        """Send requests over ``wire``."""
        self._wire, self._record = wire, record

    async def ask(self, verb: str, **asked: Any) -> Any:
        """Execute a command, which must succeed, and return the reply."""
        answer = await self._wire.ask(verb, **asked)
        assert answer.code == 200, (verb, answer)
        if verb in ("CreateToken", "RotateToken") and asked["name"] == "root":
            await self.ask("Authenticate", token=answer.reply["token"])
            if verb == "CreateToken":
                await self.ask("CreateToken", name="other", roles=["read"])
        return answer.reply

    async def synced(self, verb: str, asked: dict[str, Any]) -> bool:
        """Execute a command; return whether the log was written and then synced before the answer."""
        before = self._record.stat().st_size
        await self.ask(verb, **asked)
        kinds = [kind for kind, file, *_ in records_of(self._record.read_bytes()[before:]) if file == LOG]
        return b"w" in kinds and b"s" in kinds[kinds.index(b"w") :]

    async def prepared(self) -> dict[str, int]:
        """Create the rows that a command may need; return their IDs."""
        await self.ask("CreateJob", name="a", retryAfter="+1 HOUR")
        run = await self.ask("GetJob", name="a", worker="w")
        await self.ask("CreateJob", name="plain")
        plain = (await self.ask("GetJob", name="plain"))["jobID"]
        await self.ask("CreateJob", name="parent")
        parent = (await self.ask("GetJob", name="parent"))["jobID"]
        child = await self.ask("CreateJob", name="child", parentJobID=parent)
        await self.ask("FinishJob", jobID=parent)
        queued = await self.ask("CreateJob", name="queued")
        failed = (await self.ask("CreateJob", name="failing"))["jobID"]
        await self.ask("GetJob", name="failing")
        await self.ask("FailJob", jobID=failed)
        schedule = await self.ask("CreateJob", name="schedule", repeat="CRON @daily")
        pinged = await self.ask("CreateJob", name="pinged", repeat="CRON @daily", expect="ping")
        jobs = [{"ref": "first", "name": "in workflow"}]
        workflow = await self.ask("CreateWorkflow", name="running", jobs=jobs)
        ended = await self.ask("CreateWorkflow", name="failed", jobs=[{"ref": "first", "name": "lost"}])
        await self.ask("FailJob", jobID=(await self.ask("GetJob", name="lost"))["jobID"])
        return {
            WORKFLOW: workflow["workflowID"],
            FAILED_WORKFLOW: ended["workflowID"],
            JOB: run["jobID"],
            RUN: run["runID"],
            PLAIN: plain,
            CHILD: child["jobID"],
            QUEUED: queued["jobID"],
            SCHEDULE: schedule["jobID"],
            PINGED: pinged["jobID"],
            FAILED: failed,
        }


@asynccontextmanager
async def served(tmp_path: Path, *options: str) -> AsyncIterator[Served]:
    """Run one."""
    database, record = tmp_path / "jobs.db", tmp_path / "record"
    shim = {"LD_PRELOAD": str(built()), "SHIM_DATABASE": str(database), "SHIM_RECORD": str(record)}
    async with Server(database, *options, **shim) as server:
        yield Served(await Wire.connect(await server.listening()), record)


def hold(database: Path) -> None:
    """Quarantine the queue, as a restore does."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("INSERT INTO pauses (pattern, since) VALUES (?, '2026-01-01')", (HOLD_PATTERN,))


def with_numbers(given: Any, numbers: dict[str, int]) -> Any:
    """Return the parameters with real IDs in place of placeholders."""
    if isinstance(given, dict):
        return {key: with_numbers(value, numbers) for key, value in given.items()}
    if isinstance(given, list):
        return [with_numbers(value, numbers) for value in given]
    return numbers.get(given, given) if isinstance(given, str) else given


def test_each_command_that_writes_is_tried() -> None:
    assert set(DONE) == WRITING, "add an example of each command that writes to DONE"


async def test_what_is_acknowledged_is_synced(tmp_path: Path) -> None:
    unsynced = []
    async with served(tmp_path) as server:
        for verb, asked in DONE.items():
            given = with_numbers(asked, await server.prepared())
            if verb == "ReleaseHold":
                hold(tmp_path / "jobs.db")
            if not await server.synced(verb, given):
                unsynced.append(verb)
    assert unsynced == []


async def test_relaxed_durability_is_found_out(tmp_path: Path) -> None:
    async with served(tmp_path, "--durability", "relaxed") as server:
        assert not await server.synced("CreateJob", {"name": "a"})
