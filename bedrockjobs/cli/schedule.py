"""``bedrockjobs schedule``: jobs that run by a cron expression, given by their names.

A schedule is a job whose repeat begins with CRON. The server validates and explains expressions.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli.bulk import delete_each
from bedrockjobs.cli.job import sentence
from bedrockjobs.cli.lookup import paged, schedule_names
from bedrockjobs.cli.output import (
    Record,
    as_json,
    away,
    local_text,
    one_line,
    printable,
    text_of,
    with_hidden,
    write_many,
    write_one,
    write_title,
)
from bedrockjobs.cli.parameters import DAY_FORMATS, DayParameter, SectionedCommand, SubcommandGroup, bounds_of
from bedrockjobs.cli.queue import add_pausing
from bedrockjobs.cli.run import RUN_COLUMNS, run_row
from bedrockjobs.cli.session import NOT_FOUND, REFUSED, Failure, Session, built, records_in, server_options
from bedrockjobs.cli.verbs import job_options, listing, option_text, takes, typed, typed_command, typed_values
from bedrockjobs.commands import (
    CreateJob,
    DeleteJob,
    ExplainJob,
    ListJobs,
    ListRuns,
    ListSchedules,
    ListTicks,
    QueryJob,
    TriggerJob,
    UpdateJob,
    ValidateSchedule,
)
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.schedule.repeat import NEVER

OF_DAY_MAX = 1_000
"""Maximum number of runs, and of rows of ticks, that ``schedule show`` shows of one day."""

TICK_COLUMNS = ("tick", "until", "count", "outcome", "reason", "status", "failed", "late", "runID")

UNTAKEN = ("own command", "no worker")
"""Reasons of ExplainJob that mean that no live worker would run the schedule."""

_REPEAT = re.compile(
    r"(?:CRON(?=[ \t]|$)[ \t]*)?(?:TZ=(?P<zone>[^ \t]*)[ \t]*)?(?P<expression>.*)", re.I | re.S
)

_name_argument = click.argument("name", shell_complete=schedule_names)
_zone_option = click.option(
    "--zone", metavar="ZONE", help="Time zone of the expression: Europe/Berlin. UTC if left out."
)


@click.group(cls=SubcommandGroup)
def schedule() -> None:
    """Add, show, change, pause and trigger schedules.

    \b
    bedrockjobs schedule add backup '0 3 * * *' --zone Europe/Berlin --argv 'restic backup /srv'
    bedrockjobs schedule next '*/15 9-17 * * 1-5'
    bedrockjobs schedule pause backup --reason 'moving the disks' --until 2h
    """


def repeat_of(expression: str, zone: str | None) -> str:
    """Return the repeat of a schedule with an expression and a zone.

    Raises click.UsageError if the expression itself names another zone.
    """
    match = _REPEAT.fullmatch(expression.strip())
    assert match is not None
    inner, rest = match["zone"], match["expression"]
    if zone is not None and inner is not None and inner != zone:
        raise click.UsageError(f"--zone: the expression names the zone {inner!r} itself")
    used = inner if zone is None else zone
    return f"CRON TZ={used} {rest}" if used else f"CRON {rest}"


def split_repeat(repeat: str) -> tuple[str, str]:
    """Return the expression and the zone in a schedule's repeat; an empty zone means UTC."""
    match = _REPEAT.fullmatch(repeat.strip())
    assert match is not None
    return match["expression"], match["zone"] or ""


def validated(session: Session, repeat: str, after: str | None = None) -> Record:
    """Return the server's reply to ValidateSchedule; raises click.UsageError if the repeat is invalid.

    Warnings go to stderr. The ticks in the reply are those after ``after``, or after now if it is None.
    """
    reply = session.reply(ValidateSchedule, {"repeat": repeat, "after": after})
    if reply["valid"] != "true":
        raise click.UsageError("\n".join(map(printable, jsontext.parse(reply["errors"]))))
    for warning in jsontext.parse(reply["warnings"]):
        click.echo(f"Warning: {printable(warning)}", err=True)
    return reply


def next_ticks(reply: Record) -> list[str]:
    """Return the next ticks in the reply to ValidateSchedule."""
    return [str(tick) for tick in jsontext.parse(reply["next"])]


def found_by_name(session: Session, name: str) -> Record:
    """Return the schedule with a name; raises Failure if no schedule has it, or if several have it."""
    rows = session.rows(ListSchedules, {"name": literal(name), "limit": 2})
    if not rows:
        raise Failure(f"there is no schedule {name!r}; `bedrockjobs schedule list` shows them", NOT_FOUND)
    if len(rows) > 1:
        raise Failure(f"several schedules are named {name!r}; use `bedrockjobs job` with the jobID", REFUSED)
    return rows[0]


def _report(
    session: Session, did: str, name: str, job_id: str, validity: Record | None, set_to: str = ""
) -> None:
    """Report that a schedule was added or updated; ``set_to`` is its next run on the server, if known."""
    record: dict[str, Any] = {"jobID": int(job_id), "name": name, "outcome": did}
    lines = [f"{did.capitalize()} schedule {name} (job {job_id})."]
    if validity is not None:
        ticks = next_ticks(validity)
        explanation = text_of(validity, "words")
        following = set_to or (ticks[0] if ticks else "")
        record |= {"words": explanation, "nextRun": following or None}
        lines = [
            f"{lines[0][:-1]}: {explanation}",
            f"Next tick: {local_text(following) if following else 'never'}",
        ]
    if session.form != "table":
        write_one(record, session.form, identity="name")
        return
    for line in lines:
        click.echo(printable(line))


@schedule.command(cls=SectionedCommand)
@takes(CreateJob, "name")
@click.argument("expression", metavar="EXPRESSION")
@_zone_option
@takes(CreateJob, "data", "job_priority")
@job_options
@server_options
def add(session: Session, /, name: str, expression: str, zone: str | None, **_: Any) -> None:
    """Add the schedule NAME; refused if there is a job of this name.

    EXPRESSION is 'MINUTE HOUR DAY MONTH WEEKDAY', quoted for the shell: '0 9 * * 1-5' is nine o'clock on
    weekdays. Seconds may precede it and a year may follow it, or it is a word like @daily.

    Without --cmd, --argv or --url a worker must know NAME.
    """
    if "*" in name:
        raise click.UsageError(f"NAME: {name!r} contains a *, which is for patterns")
    repeat = repeat_of(expression, zone)
    # Two people who add the same name at the same moment make one schedule.
    command = typed_command(session, CreateJob, repeat=repeat, unique=True, overwrite=False)
    validity = validated(session, repeat)
    for existing in session.rows(ListJobs, {"name": literal(name), "limit": 1}):
        is_schedule = text_of(existing, "repeat").upper().startswith("CRON")
        what = "schedule" if is_schedule else "job"
        advice = f"; `bedrockjobs schedule update {name}` changes it" if is_schedule else ""
        raise Failure(f"a {what} {name!r} already exists: job {existing['jobID']}{advice}", REFUSED)
    job_id = session.record(command)["jobID"]
    _report(session, "added", name, job_id, validity)
    if session.form == "table":
        _warn_if_untaken(session, job_id)


def _warn_if_untaken(session: Session, job_id: str) -> None:
    """Warn on stderr if no live worker would run the schedule."""
    try:
        reply = session.reply(ExplainJob, {"jobID": job_id})
    except Failure:
        return  # the schedule was added, even if this token may not see it
    for reason in records_in(reply.get("waitsFor", RawJSON("[]"))):
        if text_of(reason, "reason") in UNTAKEN:
            click.echo(f"Note: {one_line(sentence(reason))}.", err=True)
            return


def _next_run(session: Session, name: str) -> str:
    """Return the next run of a schedule as the server has stored it; empty if it is unknown or never."""
    try:
        reply = session.reply(ListSchedules, {"name": literal(name), "limit": 1})
    except Failure:
        return ""  # the schedule was changed, even if this token may not see it
    rows = records_in(reply.get("schedules", RawJSON("[]")))
    following = text_of(rows[0], "nextRun") if rows else ""
    return "" if following >= NEVER else following


@schedule.command(cls=SectionedCommand)
@_name_argument
@click.argument("expression", metavar="[EXPRESSION]", required=False)
@click.option("--zone", metavar="ZONE", help="New time zone; unchanged if left out, and '' makes it UTC.")
@takes(UpdateJob, "data", "job_priority")
@job_options
@server_options
def update(session: Session, /, name: str, expression: str | None, zone: str | None, **_: Any) -> None:
    """Change the schedule NAME; refused if there is none.

    Options that are left out stay unchanged. A new expression keeps the time zone of the old one.
    """
    changes = typed_values(session, UpdateJob)
    times = expression is not None or zone is not None
    if not times and not any(value is not None for value in changes.values()):
        raise click.UsageError("nothing to change: give an expression or an option; --help lists them")
    built(UpdateJob, {"jobID": 0, **changes})  # report errors before asking the server
    existing = found_by_name(session, name)
    validity: Record | None = None
    if times:
        old, old_zone = split_repeat(text_of(existing, "repeat"))
        wanted = repeat_of(expression if expression is not None else old, zone)
        if zone is None and not split_repeat(wanted)[1]:
            wanted = repeat_of(split_repeat(wanted)[0], old_zone)
        changes["repeat"] = wanted
        validity = validated(session, wanted)
    job_id = text_of(existing, "jobID")
    session.reply(UpdateJob, {"jobID": job_id, **changes})
    _report(session, "updated", name, job_id, validity, _next_run(session, name) if times else "")


@schedule.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=schedule_names)
@server_options
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Delete schedules that are not running at the moment.

    Each is deleted on its own; the exit status is that of the first refusal.
    """

    def removed(name: str) -> Record:
        job_id = text_of(found_by_name(session, name), "jobID")
        session.reply(DeleteJob, {"jobID": job_id})
        return {"jobID": int(job_id), "name": name, "outcome": "deleted"}

    def write(deleted: list[Record]) -> None:
        if session.form == "table":
            for each in deleted:
                click.echo(printable(f"Deleted schedule {each['name']} (job {each['jobID']})."))
        elif len(names) == 1 and deleted:
            write_one(deleted[0], session.form, identity="name")
        elif len(names) > 1:
            write_many(deleted, session.form, identity="name")

    delete_each("Schedule", names, removed, write)


def _row(record: Record) -> Record:
    expression, zone = split_repeat(text_of(record, "repeat"))
    return {
        "jobID": record["jobID"],
        "name": text_of(record, "name"),
        "schedule": f"{expression} {zone}".strip(),
        "next run": text_of(record, "nextRun"),
        "last status": text_of(record, "lastStatus"),
        "paused": text_of(record, "paused"),
    }


listing(
    schedule,
    ListSchedules,
    typed("name", "mask", required=False, shell_complete=schedule_names),
    *("source", "after"),
    row=_row,
    what="schedules",
    none="No schedules.",
    none_at_all="No schedules: `bedrockjobs schedule add NAME EXPRESSION` makes one.",
    text="List the schedules whose name matches GLOB, by jobID: 'report*'; all if left out.",
)


@schedule.command("next")
@click.argument("expression", metavar="EXPRESSION|NAME", shell_complete=schedule_names)
@_zone_option
@takes(ValidateSchedule, typed("after", "--from", "after", metavar="TIME"))
@server_options
def show_next(session: Session, /, expression: str, zone: str | None, after: str | timedelta | None) -> None:
    """Explain an expression, or the schedule NAME, and show when it runs next."""
    query = ListSchedules(name=literal(expression), limit=1)
    existing = [] if zone is not None else records_in(session.record(query)["schedules"])
    repeat = text_of(existing[0], "repeat") if existing else repeat_of(expression, zone)
    try:
        validity = validated(session, repeat, session.parse_time(after))
    except click.UsageError as error:
        if re.search(r"\s", expression.strip()):
            raise
        complaint = f"there is no schedule {expression!r}, and as an expression: {error.message}"
        raise click.UsageError(complaint) from None
    if session.form in ("json", "jsonl"):
        write_one(validity, session.form)
        return
    ticks = next_ticks(validity)
    if session.form == "table":
        click.echo(printable(text_of(validity, "words")))
        ticks = [local_text(tick) for tick in ticks] or ["never"]
    for tick in ticks:
        click.echo(printable(tick))


@schedule.command()
@takes(
    TriggerJob,
    typed("name", "name", metavar="[NAME]", required=False, shell_complete=schedule_names),
    typed("job_id", "--job", "job_id", help="The jobID, instead of the name."),
    "by",
)
@server_options
def trigger(session: Session, /, name: str | None, job_id: str | None, **_: Any) -> None:
    """Run a schedule or another job now, even if it is paused.

    Its next run is kept. A job that is running runs once more after its end.
    """
    if (name is None) == (job_id is None):
        raise click.UsageError("give the name of a job, or --job ID")
    reply = session.record(typed_command(session, TriggerJob))
    job = reply["jobID"]
    pending = reply.get("pending") == "true"
    sentence = f"Job {job} is running; it runs once more at its end." if pending else f"Job {job} is due now."
    write_one(reply, session.form, sentence)


@schedule.command()
@_name_argument
@click.option(
    "--on",
    "day",
    type=DayParameter(),
    metavar="WHEN",
    help=f"The runs and ticks of this day instead: {DAY_FORMATS}.",
)
@server_options
def show(session: Session, name: str, day: str | date | None) -> None:
    """Show the schedule NAME: its job, its last runs and ticks, and its next five ticks."""
    schedule = found_by_name(session, name)
    job_id = text_of(schedule, "jobID")
    job = session.reply(QueryJob, {"jobID": job_id})
    last = {"jobID": job_id, "limit": 5}
    history = session.reply(ListTicks, last)
    if day is None:
        runs = records_in(session.reply(ListRuns, last)["runs"])
        ticks = records_in(history["ticks"])
    else:
        runs, ticks = _of_day(session, job_id, *bounds_of(day, session.now()))
    failing: Record = {key: history[key] for key in ("failingSince", "neverSucceeded") if key in history}
    validity = session.reply(ValidateSchedule, {"repeat": text_of(schedule, "repeat")})
    if session.form != "table":
        page = {
            "name": schedule["name"],
            "job": RawJSON(as_json(job)),
            "schedule": RawJSON(as_json(schedule)),
        }
        write_one(
            {
                **page,
                "runs": RawJSON(as_json(runs)),
                "ticks": RawJSON(as_json(ticks)),
                **failing,
                "next": validity["next"],
            },
            session.form,
            identity="name",
        )
        return
    write_one(_facts(schedule, job, failing), "table")
    write_title("Last runs" if day is None else f"Runs that began on {day}")
    _part([run_row(run) for run in runs], RUN_COLUMNS)
    write_title("Last ticks" if day is None else f"Ticks on {day}")
    _part([_tick_row(tick) for tick in ticks], TICK_COLUMNS)
    write_title("Next ticks")
    for tick in jsontext.parse(validity["next"]) or [""]:
        click.echo(local_text(tick) or "never")


def _of_day(session: Session, job_id: str, begin: str, end: str) -> tuple[list[Record], list[Record]]:
    """Return the runs that began between two times, and the rows of the tick history for that time."""
    runs = paged(
        session,
        ListRuns,
        {"jobID": job_id},
        OF_DAY_MAX,
        fits=lambda run: text_of(run, "started") < end,
        until=lambda run: text_of(run, "started") < begin,
        hint=False,
    )
    ticks = paged(
        session,
        ListTicks,
        {"jobID": job_id, "before": end},
        OF_DAY_MAX,
        until=lambda tick: text_of(tick, "until") < begin,
        hint=False,
    )
    return runs, ticks


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
    job = with_hidden(job)
    shown |= {key: option_text(key, job[key]) for key in job if key in OPTIONS}
    shown |= {"priority": job.get("priority"), "data": job.get("data")}
    return shown


def _when(timestamp: str) -> str:
    """Return a timestamp in local time and UTC, followed by its relative time."""
    return " ".join(filter(None, (local_text(timestamp), away(timestamp))))


def _tick_row(tick: Record) -> Record:
    """Return a tick as a table row, in which zeros are left empty."""
    row = {key: tick.get(key) for key in TICK_COLUMNS}
    return {**row, **{key: "" for key in ("late", "runID") if row[key] == "0"}}


add_pausing(schedule, schedule_names)
