"""The audit: what operators changed, who and from where, in the same commit; schedules before and after."""

from __future__ import annotations

from typing import Any

from bedrockjobs.engine.row_access import DETAIL_CHARS_MAX
from bedrockjobs.store.records import CLEANED_MAX
from tests.conftest import Live
from tests.runs.bearer import Bearer, admin_of
from tests.runs.conftest import Open

AUDIT_KEPT_S = 90 * 86_400


async def entries(root: Bearer, **asked: Any) -> list[dict[str, Any]]:
    """Return what was changed, the oldest first."""
    found: list[dict[str, Any]] = (await root.ok("ListAudit", **asked))["entries"]
    return found[::-1]


async def test_what_operators_change_is_told_and_the_work_of_others_is_not(live: Live) -> None:
    root = await admin_of(live)
    operator = await root.token_for("ann", "operate")
    worker = await root.token_for("w", "work,produce")
    job = (await worker.ok("CreateJob", name="a", data={"secret": 1}))["jobID"]
    taken = await worker.ok("GetJob", name="a", worker="w")
    await worker.ok("UpdateJob", jobID=job, progress={"n": 1})
    await operator.ok("PauseJobs", name="a*", reason="why", by="eve")
    await operator.ok("UpdateJob", jobID=job, jobPriority=1000, data={"secret": 2})
    await worker.ok("FailJob", jobID=job, runID=taken["runID"])
    await operator.ok("RetryJob", jobID=job, revive=True)
    await operator.ok("DeleteJob", jobID=job)
    assert (await operator.http("DeleteJob", jobID=job)).code == 404, "what was refused is not told"
    assert (await operator.http("ListAudit")).code == 403
    told = [(one["by"], one["command"], one["name"], one["jobID"]) for one in await entries(root)]
    assert told == [
        ("", "CreateToken", "root", 0),
        ("root", "CreateToken", "ann", 0),
        ("root", "CreateToken", "w", 0),
        ("ann", "PauseJobs", "a*", 0),
        ("ann", "UpdateJob", "a", job),
        ("ann", "RetryJob", "a", job),
        ("ann", "DeleteJob", "a", job),
    ]
    changes = await entries(root, who="ann")
    assert changes[0]["detail"] == {"name": "a*", "reason": "why"}
    assert changes[1]["detail"] == {"jobID": job, "jobPriority": 1000}, "data is not kept"
    assert {one["address"] for one in changes} == {"127.0.0.1"}
    assert [one["command"] for one in await entries(root, command="DeleteJob", name="a*")] == ["DeleteJob"]
    page = await root.ok("ListAudit", limit=2)
    following = await root.ok("ListAudit", limit=2, before=page["entries"][-1]["seq"])
    assert [one["seq"] for one in page["entries"] + following["entries"]] == [7, 6, 5, 4]


async def test_schedules_come_with_how_they_were_and_are(live: Live) -> None:
    root = await admin_of(live)
    job = (await root.ok("CreateJob", name="cron", repeat="CRON 0 0 1 1 *"))["jobID"]
    await root.ok("UpdateJob", jobID=job, repeat="CRON 0 0 2 2 *")
    await root.ok("TriggerJob", name="cron")
    await root.ok("DeleteJob", jobID=job)
    made, changed, triggered, deleted = [one for one in await entries(root) if one["name"] == "cron"]
    assert made["before"] is None
    assert made["after"]["repeat"] == changed["before"]["repeat"] == "CRON 0 0 1 1 *"
    assert changed["after"]["repeat"] == deleted["before"]["repeat"] == "CRON 0 0 2 2 *"
    assert triggered["jobID"] == job
    assert deleted["after"] is None


async def test_without_tokens_by_is_what_the_caller_says(live: Live) -> None:
    anybody = Bearer(live)
    await anybody.ok("PauseJobs", name="a", by="ann")
    await anybody.ok("SyncSchedules", source="s", schedules=[{"name": "x", "repeat": "CRON @daily"}], by="ci")
    await anybody.ok("SyncSchedules", source="s", schedules=[], dryRun=True)
    told = [(one["by"], one["command"], one["name"], one["detail"]) for one in await entries(anybody)]
    assert told == [
        ("ann", "PauseJobs", "a", {"name": "a"}),
        ("ci", "SyncSchedules", "s", {"source": "s", "names": ["x"]}),
    ]


async def test_a_long_command_is_kept_by_its_parameters_names(live: Live) -> None:
    assert DETAIL_CHARS_MAX == 4_000
    schedules = [{"name": f"n{n}" + "x" * 200, "repeat": "CRON @daily"} for n in range(30)]
    await Bearer(live).ok("SyncSchedules", source="s", schedules=schedules)
    assert (await entries(Bearer(live)))[0]["detail"] == {"parameters": ["names", "source"]}


async def test_it_is_kept_for_90_days(open_site: Open) -> None:
    assert (AUDIT_KEPT_S, CLEANED_MAX) == (90 * 86_400, 10_000)
    site = await open_site()
    await site.ok("PauseJobs", name="old")
    await site.later(AUDIT_KEPT_S - 3_600)
    await site.ok("PauseJobs", name="new")
    assert len((await site.ok("ListAudit"))["entries"]) == 2
    await site.later(2 * 3_600)
    assert [one["name"] for one in (await site.ok("ListAudit"))["entries"]] == ["new"]
