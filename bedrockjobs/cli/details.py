"""``bedrockjobs schedule show``: all there is to know of one schedule on one page."""

from __future__ import annotations

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.failure_text import line_of
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.complete import schedule_names
from bedrockjobs.cli.options import option_text
from bedrockjobs.cli.output import (
    Record,
    as_json,
    away,
    text_of,
    write_many,
    write_one,
    write_title,
)
from bedrockjobs.cli.schedule import found_by_name, split_repeat
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.time_text import local_text, took_text
from bedrockjobs.commands import ListRuns, ListTicks, QueryJob, ValidateSchedule
from bedrockjobs.commands.options import OPTIONS

LAST_RUNS = 5
"""Runs that are shown, and rows of the ledger."""


@click.command()
@click.argument("name", shell_complete=schedule_names)
@talks
@pass_session
def show(session: Session, name: str) -> None:
    """Show the schedule NAME: its job, its last runs and ticks, and the next five."""
    schedule = found_by_name(session, name)
    job_id = text_of(schedule, "jobID")
    job = session.record(built(QueryJob, {"jobID": job_id}))
    runs = session.record(built(ListRuns, {"jobID": job_id, "limit": LAST_RUNS}))["runs"]
    history = session.record(built(ListTicks, {"jobID": job_id, "limit": LAST_RUNS}))
    ticks = history["ticks"]
    failing: Record = {key: history[key] for key in ("failingSince", "neverSucceeded") if key in history}
    validity = session.record(built(ValidateSchedule, {"repeat": text_of(schedule, "repeat")}))
    if session.form != "table":
        page = {
            "name": schedule["name"],
            "job": RawJSON(as_json(job)),
            "schedule": RawJSON(as_json(schedule)),
        }
        write_one(
            {**page, "runs": runs, "ticks": ticks, **failing, "next": validity["next"]},
            session.form,
            identity="name",
        )
        return
    write_one(_facts(schedule, job, failing), "table")
    write_title("Last runs")
    _part([run_row(run) for run in records_in(runs)], RUN_COLUMNS)
    write_title("Last ticks")
    _part([_tick_row(tick) for tick in records_in(ticks)], TICK_COLUMNS)
    write_title("Next ticks")
    for tick in jsontext.parse(validity["next"]) or [""]:
        click.echo(local_text(tick) or "never")


def _part(rows: list[Record], columns: tuple[str, ...]) -> None:
    if rows:
        write_many(rows, "table", columns)
    else:
        click.echo("None yet.")


def _facts(schedule: Record, job: Record, failing: Record) -> Record:
    expression, zone = split_repeat(text_of(schedule, "repeat"))
    facts = {
        "name": text_of(schedule, "name"),
        "job": f"{text_of(schedule, 'jobID')}, {text_of(schedule, 'state')}",
        "schedule": f"{expression} {zone}".strip(),
        "in words": text_of(schedule, "words"),
        "runs next": _when(text_of(schedule, "nextRun")),
        "ran last": _when(text_of(schedule, "lastRun")),
        "last status": text_of(schedule, "lastStatus"),
        "failing since": _when(text_of(failing, "failingSince")) if failing else "",
        "succeeded": "never" if "neverSucceeded" in failing else "",
        "paused": text_of(schedule, "paused"),
        "source": text_of(schedule, "source"),
        "error": text_of(job, "error"),
    }
    shown: dict[str, object] = {key: value for key, value in facts.items() if value}
    shown |= {key: option_text(key, job[key]) for key in job if key in OPTIONS}
    shown |= {"priority": job.get("priority"), "data": job.get("data")}
    return shown


def _when(stamp: str) -> str:
    """Return a moment by both clocks, and how far away it is."""
    return " ".join(filter(None, (local_text(stamp), away(stamp))))


RUN_COLUMNS = ("runID", "status", "cause", "attempt", "started", "took", "worker", "exitCode", "error")


def run_row(run: Record) -> Record:
    """Return a run as a row of a table, with the line of its error that says what was wrong."""
    started = text_of(run, "started")
    return {
        **run,
        "took": took_text(started, text_of(run, "ended")),
        "error": line_of(text_of(run, "error")),
    }


TICK_COLUMNS = ("tick", "until", "count", "outcome", "reason", "status", "failed", "late", "runID")


def _tick_row(tick: Record) -> Record:
    """Return a row of the ledger; what says nothing is left out."""
    row = {key: tick.get(key) for key in TICK_COLUMNS}
    return {**row, **{key: "" for key in ("late", "runID") if row[key] == "0"}}
