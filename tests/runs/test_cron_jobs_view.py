"""The view ``cron_jobs``: schedules in the columns of FTL's table, read by Query."""

from __future__ import annotations

from typing import Any

from tests.runs.rig import Site

COLUMNS = ["id", "deployment_id", "verb", "schedule", "start_time", "next_execution", "state", "module_name"]


async def rows(site: Site) -> list[dict[str, Any]]:
    """Return the rows of the view by jobID, each by the names of its columns."""
    found: list[dict[str, Any]] = await site.select("SELECT * FROM cron_jobs ORDER BY id")
    return found


async def row(site: Site) -> dict[str, Any]:
    """Return the only row of the view."""
    (found,) = await rows(site)
    return found


async def test_a_schedule_has_the_columns_of_ftl(site: Site) -> None:
    await site.ok(
        "SyncSchedules", source="echo", schedules=[{"name": "echo.ping", "repeat": "CRON 0 * * * *"}]
    )
    found = await row(site)
    assert list(found) == COLUMNS
    assert found == {
        "id": 1,
        "deployment_id": "echo",
        "verb": "ping",
        "schedule": "0 * * * *",
        "start_time": "2026-11-21 03:29:56",
        "next_execution": "2026-11-21 04:00:00",
        "state": "idle",
        "module_name": "echo",
    }


async def test_what_has_no_module_no_source_and_a_zone(site: Site) -> None:
    await site.create("nightly", repeat="CRON  TZ=Europe/Berlin 0 9 * * 1-5 ")
    found = await row(site)
    assert (found["verb"], found["module_name"], found["deployment_id"]) == ("nightly", "", "")
    assert found["schedule"] == "TZ=Europe/Berlin 0 9 * * 1-5"


async def test_it_executes_and_is_idle_again(site: Site) -> None:
    await site.create("a.b", repeat="CRON * * * * *")
    await site.until_time("2026-11-21 03:30:00")
    job = await site.take("a.b")
    found = await row(site)
    assert (found["state"], found["start_time"]) == ("executing", "2026-11-21 03:30:00")
    await site.finish(job)
    found = await row(site)
    assert (found["state"], found["next_execution"]) == ("idle", "2026-11-21 03:31:00")


async def test_a_run_that_somebody_asked_for_leaves_its_next_execution(site: Site) -> None:
    await site.create("a.b", repeat="CRON 0 9 * * *")
    await site.ok("TriggerJob", name="a.b")
    assert (await row(site))["next_execution"] == "2026-11-21 09:00:00"


async def test_it_holds_schedules_that_will_fire_and_nothing_else(site: Site) -> None:
    await site.create("plain")
    await site.create("repeats", repeat="FINISHED, +1 HOUR")
    await site.create("a", repeat="cron 0 9 * * *")
    broken = await site.create("b", repeat="CRON 0 9 * * *")
    await site.ok("TriggerJob", jobID=broken)
    await site.take("b")
    await site.ok("UpdateJob", jobID=broken, shouldClearRepeat=True)
    assert [found["verb"] for found in await rows(site)] == ["a"]


async def test_text_of_other_hands_that_is_no_json_hurts_nobody(site: Site) -> None:
    await site.create("a.b", repeat="CRON 0 9 * * *")
    await site.change("UPDATE jobs SET options = 'no', memory = '{'")
    found = await row(site)
    assert (found["deployment_id"], found["next_execution"]) == ("", "2026-11-21 09:00:00")


async def test_it_cannot_be_written(site: Site) -> None:
    await site.create("a.b", repeat="CRON 0 9 * * *")
    refused = await site.refused("Query", query="DELETE FROM cron_jobs;")
    assert refused in [(402, "Bad query"), (502, "Query aborted")]  # a file knows that it is a view
    assert len(await rows(site)) == 1
