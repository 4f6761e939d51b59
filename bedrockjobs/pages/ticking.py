"""Last ticks, pauses and next ticks of schedules, shared by the pages about schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from bedrockjobs.base.vocabulary import FAILED_STATUSES
from bedrockjobs.base.wire import called, moment_of, timestamp
from bedrockjobs.commands import ExplainJob, ListRuns, ListTicks
from bedrockjobs.pages.site import Site
from bedrockjobs.schedule import cron

TICKS_SHOWN = 30
"""Ticks shown as cells."""

LATE_S = 10
"""Delay from which a tick is shown as late; less is ordinary latency."""

_GLOB = re.compile(r"[*?\[]")


class Cell(NamedTuple):
    """One tick: its state, tooltip and run; 0 if there was no run."""

    state: str
    words: str
    run_id: int


async def cells(site: Site, job_id: int) -> list[Cell]:
    """Return the last ticks of a schedule, oldest first.

    A row of the tick history may cover several ticks, so runs are matched by their scheduled time.
    """
    rows = (await site.ask(ListTicks(job_id=job_id, limit=TICKS_SHOWN)))["ticks"]
    runs = (await site.ask(ListRuns(job_id=job_id, limit=TICKS_SHOWN)))["runs"]
    found: list[Cell] = []
    for row in rows:
        own = {
            run["scheduledFor"][:19]: run
            for run in reversed(runs)
            if row["tick"] <= run["scheduledFor"][:19] <= row["until"] and run["cause"] != "manual"
        }
        each = [_fired(row, tick, own[tick]) for tick in sorted(own, reverse=True)][: row["count"]]
        each += [_cell(row)] * min(row["count"] - len(each), TICKS_SHOWN)
        found += each
    return found[:TICKS_SHOWN][::-1]


def _fired(row: dict[str, Any], tick: str, run: dict[str, Any]) -> Cell:
    late_s = int((moment_of(run["started"]) - moment_of(tick)).total_seconds())
    state = state_of({**row, "late": late_s})
    words = f"{tick} UTC: {called(state)}{_late(late_s)}; run {run['runID']}: {called(run['status'])}"
    return Cell(state if run["status"] == "success" else run["status"], words, run["runID"])


def _cell(row: dict[str, Any]) -> Cell:
    state = state_of(row)
    when = f"{row['tick']} UTC"
    if row["count"] > 1:
        when = f"{row['count']} ticks, {row['tick']} to {row['until']} UTC"
    why = f", {row['reason']}" if row["reason"] else ""
    return Cell(state, f"{when}: {called(state)}{why}{_late(row['late'])}", row["runID"])


def _late(late_s: int) -> str:
    return f", {late_s} s late" if late_s > 0 else ""


def state_of(row: dict[str, Any]) -> str:
    """Return the state of a row of the tick history: its outcome, late or missed."""
    if row["reason"] in ("server down", "no worker"):
        return "missed"
    if row["outcome"] == "fired" and row["late"] >= LATE_S:
        return "late"
    return str(row["outcome"])


def end_of(row: dict[str, Any]) -> tuple[str, str]:
    """Return the state of a row by the outcome of its runs, and the number of failed ticks as text."""
    state, status, failed = state_of(row), row.get("status", ""), row.get("failed", 0)
    if status == "running":
        return status, ""
    if failed:
        shown = status if status in FAILED_STATUSES else "fail"
        return shown, f"{failed} of {row['count']}" if row["count"] > 1 else ""
    return (status if status in ("terminated", "killed") else state), ""


async def why_paused(site: Site, schedules: list[dict[str, Any]]) -> dict[str, str]:
    """Return a description of each pause, by its pattern."""
    found: dict[str, str] = {}
    for row in schedules:
        if row["paused"] and row["paused"] not in found:
            waits = (await site.ask(ExplainJob(job_id=row["jobID"])))["waitsFor"]
            told = [wait["detail"] for wait in waits if wait["reason"] in ("paused", "held")]
            found[row["paused"]] = told[0] if told else f"{row['paused']} is paused"
    return found


def exactly(name: str) -> str:
    """Return the GLOB pattern that matches only this name."""
    return _GLOB.sub(lambda found: f"[{found[0]}]", name)


def zone_of(repeat: str) -> str:
    """Return the zone of a stored schedule."""
    return cron.split_zone(repeat)[0]


def next_ticks(repeat: str, after: datetime) -> Iterator[datetime]:
    """Yield the ticks of a stored schedule in UTC; none if it is invalid."""
    try:
        zone, expression = cron.split_zone(repeat)
        at = cron.next_tick(expression, after, zone)
        while at is not None:
            yield at.astimezone(UTC)
            at = cron.next_tick(expression, at, zone)
    except ValueError:
        return


def timestamps(ticks: Iterator[datetime], count: int) -> list[str]:
    """Return the timestamps of the first ticks."""
    return [timestamp(tick) for _, tick in zip(range(count), ticks, strict=False)]
