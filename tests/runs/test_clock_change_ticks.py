"""Ticks that a clock change moved, or that come twice, say so in the history of their schedule."""

from __future__ import annotations

from datetime import datetime

import pytest

from bedrockjobs.schedule.repeat import clock_change_note
from tests.runs.rig import Site

FORWARD = "2027-03-28 01:00:00"
"""In Berlin the clock is put forward from 02:00 to 03:00."""

BACK = "2027-10-31 01:00:00"
"""It is put back from 03:00 to 02:00."""


@pytest.mark.parametrize(
    ("expression", "tick", "note"),
    [
        ("30 2 * * *", FORWARD, "02:30 does not exist in Europe/Berlin, ran at 03:00"),
        ("0 2 * * *", FORWARD, "02:00 does not exist in Europe/Berlin, ran at 03:00"),
        ("0 2,3 * * *", FORWARD, "02:00 does not exist in Europe/Berlin, ran at 03:00"),
        ("0 3 * * *", FORWARD, ""),
        ("30 2 * * *", "2027-03-29 00:30:00", ""),
        ("30 2 * * *", "2027-10-31 00:30:00", "02:30 comes twice in Europe/Berlin, ran the first time only"),
        ("0 3 * * *", "2027-10-31 02:00:00", ""),
        ("30 2 * * *", "2027-11-01 01:30:00", ""),
        ("*/30 * * * *", FORWARD, ""),
        ("*/30 * * * *", "2027-10-31 00:30:00", ""),
    ],
)
def test_what_is_said_of_a_tick(expression: str, tick: str, note: str) -> None:
    assert clock_change_note(f"CRON TZ=Europe/Berlin {expression}", tick) == note
    assert clock_change_note(f"CRON {expression}", tick) == ""


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (FORWARD, "02:30 does not exist in Europe/Berlin, ran at 03:00"),
        (BACK, "02:30 comes twice in Europe/Berlin, ran the first time only"),
    ],
)
async def test_the_history_has_a_row_of_its_own_for_it(site: Site, change: str, note: str) -> None:
    day = datetime.fromisoformat(change).day
    month = change[:7]
    await site.until_time(f"{month}-{day - 3:02} 12:00:00")
    job_id = await site.create("nightly", repeat="CRON TZ=Europe/Berlin 30 2 * * *")
    ticks = []
    for _ in range(4):
        (row,) = (await site.ok("ListSchedules", name="nightly"))["schedules"]
        ticks.append(row["nextRun"])
        await site.until_time(row["nextRun"])
        await site.finish(await site.take("nightly"))
    rows = (await site.ok("ListTicks", jobID=job_id))["ticks"]
    assert [(row["outcome"], row["count"], row["reason"]) for row in rows] == [
        ("fired", 1, ""),
        ("fired", 1, note),
        ("fired", 2, ""),
    ]
    assert rows[1]["tick"] == ticks[2]
