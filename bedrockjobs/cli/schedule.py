"""``bedrockjobs schedule``: jobs that run by a cron expression, by their names.

A schedule is a job whose repeat begins with CRON. What an expression means is asked of the server; how
schedules are paused and triggered is in ``bedrockjobs.cli.schedule_control``.
"""

from __future__ import annotations

import re
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.complete import job_names, schedule_names
from bedrockjobs.cli.explain import sentence
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.job import DATA_HELP, PRIORITY
from bedrockjobs.cli.options import SectionedCommand, chosen_options, job_options
from bedrockjobs.cli.output import Record, one_line, printable, text_of, write_many, write_one
from bedrockjobs.cli.pages import Listing, limit_option, literal, paged
from bedrockjobs.cli.session import (
    NOT_FOUND,
    REFUSED,
    Failure,
    Session,
    built,
    pass_session,
    records_in,
    talks,
)
from bedrockjobs.cli.time_text import local_text
from bedrockjobs.cli.values import TextOrFile
from bedrockjobs.commands import (
    CreateJob,
    DeleteJob,
    ExplainJob,
    ListJobs,
    ListSchedules,
    UpdateJob,
    ValidateSchedule,
)
from bedrockjobs.schedule.repeat import NEVER

SCHEDULES = Listing(ListSchedules, "schedules", "after", "jobID", LIST_MAX)

UNTAKEN = ("own command", "no worker")
"""Reasons of ExplainJob for which nobody would run a schedule when its time comes."""

_REPEAT = re.compile(
    r"(?:CRON(?=[ \t]|$)[ \t]*)?(?:TZ=(?P<zone>[^ \t]*)[ \t]*)?(?P<expression>.*)", re.I | re.S
)

_name_argument = click.argument("name", shell_complete=schedule_names)
_zone_option = click.option(
    "--zone", metavar="ZONE", help="Time zone whose clock counts: Europe/Berlin. UTC if left out."
)


@click.group(cls=Group)
def schedule() -> None:
    """Add, look at, pause and trigger what runs by the clock.

    \b
    bedrockjobs schedule add backup '0 3 * * *' --zone Europe/Berlin --argv 'restic backup /srv'
    bedrockjobs schedule next '*/15 9-17 * * 1-5'
    bedrockjobs schedule pause backup --reason 'moving the disks' --until 2h
    """


def repeat_of(expression: str, zone: str | None) -> str:
    """Return the repeat of a job that runs by this expression.

    Raises click.UsageError where the expression names a zone itself and another is given.
    """
    found = _REPEAT.fullmatch(expression.strip())
    assert found is not None
    inner, rest = found["zone"], found["expression"]
    if zone is not None and inner is not None and inner != zone:
        raise click.UsageError(f"--zone: the expression names the zone {inner!r} itself")
    chosen = inner if zone is None else zone
    return f"CRON TZ={chosen} {rest}" if chosen else f"CRON {rest}"


def split_repeat(repeat: str) -> tuple[str, str]:
    """Return the expression and the zone of a schedule's repeat; an empty zone is UTC."""
    found = _REPEAT.fullmatch(repeat.strip())
    assert found is not None
    return found["expression"], found["zone"] or ""


def validated(session: Session, repeat: str) -> Record:
    """Return what the server says of a repeat; raises click.UsageError where it cannot be read.

    Its warnings go to stderr.
    """
    reply = session.record(built(ValidateSchedule, {"repeat": repeat}))
    if reply["valid"] != "true":
        raise click.UsageError("\n".join(map(printable, jsontext.parse(reply["errors"]))))
    for warning in jsontext.parse(reply["warnings"]):
        click.echo(f"Warning: {printable(warning)}", err=True)
    return reply


def next_ticks(reply: Record) -> list[str]:
    """Return the next ticks in an answer to ValidateSchedule."""
    return [str(tick) for tick in jsontext.parse(reply["next"])]


def found_by_name(session: Session, name: str) -> Record:
    """Return the one schedule of this name; raises Failure where there is none, or more than one."""
    found = records_in(session.record(built(ListSchedules, {"name": literal(name), "limit": 2}))["schedules"])
    if not found:
        raise Failure(f"there is no schedule {name!r}; `bedrockjobs schedule list` shows them", NOT_FOUND)
    if len(found) > 1:
        raise Failure(f"several schedules are named {name!r}; use `bedrockjobs job` with the jobID", REFUSED)
    return found[0]


def _told(
    session: Session, did: str, name: str, job_id: str, validity: Record | None, set_to: str = ""
) -> None:
    """Tell what was done; ``set_to`` is the next run that the server has, if it was asked."""
    record: dict[str, Any] = {"jobID": int(job_id), "name": name, "outcome": did}
    lines = [f"{did.capitalize()} schedule {name} (job {job_id})."]
    if validity is not None:
        ticks = next_ticks(validity)
        words = text_of(validity, "words")
        following = set_to or (ticks[0] if ticks else "")
        record |= {"words": words, "nextRun": following or None}
        lines = [f"{lines[0][:-1]}: {words}", f"Next tick: {local_text(following) if following else 'never'}"]
    if session.form != "table":
        write_one(record, session.form, identity="name")
        return
    for line in lines:
        click.echo(printable(line))


@schedule.command(cls=SectionedCommand)
@click.argument("name", shell_complete=job_names)
@click.argument("expression", metavar="EXPRESSION")
@_zone_option
@click.option("--data", type=TextOrFile(), help=f"What the job needs: a {DATA_HELP}")
@click.option("--priority", type=PRIORITY, help="Higher goes first; 500 if left out.")
@job_options
@talks
@pass_session
def add(session: Session, /, name: str, expression: str, zone: str | None, **given: Any) -> None:
    """Add the schedule NAME; refused if there is a job of this name.

    EXPRESSION is 'MINUTE HOUR DAY MONTH WEEKDAY', quoted for the shell: '0 9 * * 1-5' is nine o'clock on
    weekdays. It may have seconds before them and a year after them, or be a word like @daily.

    Without --cmd, --argv or --url a worker must know what NAME stands for.
    """
    if "*" in name:
        raise click.UsageError(f"NAME: {name!r} has a *, which stands for other names in patterns")
    repeat = repeat_of(expression, zone)
    command = built(
        CreateJob,
        {
            "name": name,
            "repeat": repeat,
            "data": given["data"],
            "jobPriority": given["priority"],
            # Whoever adds the same name at the same moment makes no second schedule.
            "unique": True,
            "overwrite": False,
            **chosen_options(given),
        },
    )
    validity = validated(session, repeat)
    for there in records_in(session.record(built(ListJobs, {"name": literal(name), "limit": 1}))["jobs"]):
        is_schedule = text_of(there, "repeat").upper().startswith("CRON")
        what = "schedule" if is_schedule else "job"
        hint = f"; `bedrockjobs schedule update {name}` changes it" if is_schedule else ""
        raise Failure(f"there is a {what} {name!r} already: job {there['jobID']}{hint}", REFUSED)
    job_id = session.record(command)["jobID"]
    _told(session, "added", name, job_id, validity)
    if session.form == "table":
        _tell_if_untaken(session, job_id)


def _tell_if_untaken(session: Session, job_id: str) -> None:
    """Say on stderr that nobody would run it, as far as the server tells us."""
    try:
        reply = session.record(built(ExplainJob, {"jobID": job_id}))
    except Failure:
        return  # it was added, whatever we may see of it
    for reason in records_in(reply.get("waitsFor", RawJSON("[]"))):
        if text_of(reason, "reason") in UNTAKEN:
            click.echo(f"Note: {one_line(sentence(reason))}.", err=True)
            return


def _next_run(session: Session, name: str) -> str:
    """Return when a schedule runs next as the server has it; empty if that is not to be had, or never."""
    try:
        found = session.record(built(ListSchedules, {"name": literal(name), "limit": 1}))
    except Failure:
        return ""  # it was changed, whatever we may see of it
    rows = records_in(found.get("schedules", RawJSON("[]")))
    following = text_of(rows[0], "nextRun") if rows else ""
    return "" if following >= NEVER else following


@schedule.command(cls=SectionedCommand)
@_name_argument
@click.argument("expression", metavar="[EXPRESSION]", required=False)
@click.option(
    "--zone", metavar="ZONE", help="New time zone; it stays as it is if left out, and '' makes it UTC."
)
@click.option("--data", type=TextOrFile(), help=f"New data: a {DATA_HELP}")
@click.option("--priority", type=PRIORITY, help="New priority.")
@job_options
@talks
@pass_session
def update(session: Session, /, name: str, expression: str | None, zone: str | None, **given: Any) -> None:
    """Change the schedule NAME; refused if there is none.

    What is not given stays as it is. A new expression keeps the time zone of the old one.
    """
    changes = {"data": given["data"], "jobPriority": given["priority"], **chosen_options(given)}
    times = expression is not None or zone is not None
    if not times and not any(value is not None for value in changes.values()):
        raise click.UsageError("nothing to change: give an expression or an option; --help lists them")
    built(UpdateJob, {"jobID": 0, **changes})  # what is wrong with it is told before the server is asked
    there = found_by_name(session, name)
    validity: Record | None = None
    if times:
        old, old_zone = split_repeat(text_of(there, "repeat"))
        wanted = repeat_of(expression if expression is not None else old, zone)
        if zone is None and not split_repeat(wanted)[1]:
            wanted = repeat_of(split_repeat(wanted)[0], old_zone)
        changes["repeat"] = wanted
        validity = validated(session, wanted)
    job_id = text_of(there, "jobID")
    session.ask(built(UpdateJob, {"jobID": job_id, **changes}))
    _told(session, "updated", name, job_id, validity, _next_run(session, name) if times else "")


@schedule.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=schedule_names)
@talks
@pass_session
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Remove schedules that are not running at the moment.

    Each is removed for itself; the exit status is that of the first that was refused.
    """
    deleted: list[Record] = []
    first: Failure | None = None
    try:
        for name in names:
            try:
                job_id = text_of(found_by_name(session, name), "jobID")
                session.ask(built(DeleteJob, {"jobID": job_id}))
            except Failure as failure:
                if failure.exit_code not in (NOT_FOUND, REFUSED):
                    raise
                Failure(f"Schedule {name}: {failure.message}").show()
                first = first or failure
            else:
                deleted.append({"jobID": int(job_id), "name": name, "outcome": "deleted"})
    finally:  # what was removed is told even where the server went away in between
        if session.form == "table":
            for each in deleted:
                click.echo(printable(f"Deleted schedule {each['name']} (job {each['jobID']})."))
        elif len(names) == 1 and deleted:
            write_one(deleted[0], session.form, identity="name")
        elif len(names) > 1:
            write_many(deleted, session.form, identity="name")
    if first is not None:
        click.get_current_context().exit(first.exit_code)


@schedule.command("list")
@click.argument("mask", metavar="[GLOB]", required=False, shell_complete=schedule_names)
@click.option(
    "--source", metavar="NAME", help="Only those that came from this source (see `bedrockjobs apply`)."
)
@limit_option("schedules")
@click.option("--after", metavar="ID", help="Only those with a higher jobID: the last of the page before.")
@talks
@pass_session
def list_schedules(session: Session, /, mask: str | None, limit: int, **asked: str | None) -> None:
    """List the schedules whose name matches GLOB, by jobID: 'report*'; all if left out."""
    found = paged(session, SCHEDULES, {"name": mask, **asked}, limit)
    if session.form != "table":
        write_many(found, session.form, identity="name")
        return
    none = "No schedules."
    if not (mask or any(asked.values())):
        none = "No schedules: `bedrockjobs schedule add NAME EXPRESSION` makes one."
    write_many([_row(record) for record in found], "table", none=none)


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


@schedule.command("next")
@click.argument("expression", metavar="EXPRESSION|NAME", shell_complete=schedule_names)
@_zone_option
@talks
@pass_session
def show_next(session: Session, /, expression: str, zone: str | None) -> None:
    """Say what an expression, or the schedule NAME, means, and when it runs next."""
    named = ListSchedules(name=literal(expression), limit=1)
    there = [] if zone is not None else records_in(session.record(named)["schedules"])
    repeat = text_of(there[0], "repeat") if there else repeat_of(expression, zone)
    try:
        validity = validated(session, repeat)
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
