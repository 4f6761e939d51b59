"""Repeats that begin with CRON: a schedule is a job, and a failed run does not end it."""

from __future__ import annotations

from tests.conformance.scenario import create, fail, finish, get, none, retry, scenario, show, update

SCENARIOS = [
    scenario(
        "a schedule runs first at its first tick, and then at the next one",
        "cron",
        create("s", repeat="CRON */5 * * * *"),
        show(1, nextRun="2026-01-05 10:05:00", repeat="CRON */5 * * * *"),
        none("s"),
        get("s").after(300),
        finish(1),
        show(1, state="QUEUED", nextRun="2026-01-05 10:10:00"),
    ),
    scenario(
        "ticks missed while a job runs are caught up by nobody: the next one counts",
        "cron",
        create("s", repeat="cron */5 * * * *", firstRun="2026-01-05 10:00:00"),
        get("s"),
        finish(1, data={"n": 1}).after(3600),
        show(1, nextRun="2026-01-05 11:05:00", data={"n": 1}),
    ),
    scenario(
        "a failed run does not end a schedule",
        "cron",
        create("s", repeat="CRON 0 9 * * 1-5"),
        show(1, nextRun="2026-01-06 09:00:00"),
        get("s").after(86_400),
        fail(1, error="no disk", exitCode=3),
        show(1, state="QUEUED", nextRun="2026-01-07 09:00:00", error="no disk", exitCode=3),
        retry(1).gives("405 Can only retry/finish RUNNING and RUNQUEUED jobs"),
    ),
    scenario(
        "a schedule has a zone",
        "cron",
        create("s", repeat="CRON TZ=Europe/Berlin 0 9 * * *"),
        show(1, nextRun="2026-01-06 08:00:00"),
        create("t", repeat="CRON TZ=Nowhere/Land 0 9 * * *").gives("402 Malformed repeat"),
    ),
    scenario(
        "tabs separate as blanks do, a day field may be left open by ?, and 7 begins a week too",
        "cron",
        create("s", repeat="cron\tTZ=UTC\t0 9\t? * 7-mon"),
        show(1, nextRun="2026-01-11 09:00:00"),
    ),
    scenario(
        "a schedule that cannot be read or never fires is refused",
        "cron",
        *[
            create("s", repeat=f"CRON {text}").gives("402 Malformed repeat")
            for text in ("", "61 * * * *", "0 0 30 2 *", "* * * *", "10-5 * * * *", "0 0 1 1 * 2020")
        ],
        *[
            create("s", repeat=f"CRON 0 0{other}* * *").gives("402 Malformed repeat")
            for other in ("\u00a0", "\u3000", "\u0085")
        ],
        create("s", repeat="CRON @daily", retryAfter="+1 HOUR").gives(
            "402 Cannot use retryAfter with repeat"
        ),
    ),
    scenario(
        "a schedule that never fires by itself can be started by hand",
        "cron",
        create("s", repeat="CRON @never"),
        show(1, nextRun="9999-12-31 23:59:59"),
        update(1, nextRun="2026-01-05 10:00:00"),
        get("s"),
        finish(1),
        show(1, state="QUEUED", nextRun="9999-12-31 23:59:59"),
    ),
    scenario(
        "declaring a schedule again changes when it fires next",
        "cron",
        create("s", repeat="CRON @daily", unique=True),
        show(1, nextRun="2026-01-06 00:00:00"),
        create("s", repeat="CRON @daily", unique=True, data={"x": 1}).after(60),
        show(1, nextRun="2026-01-06 00:00:00"),
        create("s", repeat="CRON @hourly", unique=True, data={"x": 2}),
        show(1, nextRun="2026-01-05 11:00:00"),
        update(1, repeat="CRON 30 12 * * *"),
        show(1, nextRun="2026-01-05 12:30:00"),
    ),
]
