"""``bedrockjobs job``: make jobs, look at them, take them and change them.

How a job ends is in ``bedrockjobs.cli.job_end``, why it waits in ``bedrockjobs.cli.explain``. What a value
means is decided by the classes of ``bedrockjobs.commands``; nothing is judged twice here.
"""

from __future__ import annotations

import sys
from typing import Any, get_args

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import JOBS_PER_GET_MAX, PRIORITIES, WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.failure_text import line_of
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.bulk import for_each
from bedrockjobs.cli.choosing import Choice, choice_of, choosing, chosen, fitting
from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.explain import sentence
from bedrockjobs.cli.groups import STATES_ALSO, Group, WordChoice
from bedrockjobs.cli.named_job import job_id_of
from bedrockjobs.cli.options import SectionedCommand, chosen_options, job_options
from bedrockjobs.cli.output import Record, printable, text_of, write_many, write_one
from bedrockjobs.cli.pages import Listing, limit_option, paged
from bedrockjobs.cli.session import (
    NOT_FOUND,
    TIMED_OUT,
    Failure,
    Refusal,
    Session,
    built,
    pass_session,
    records_in,
    talks,
)
from bedrockjobs.cli.since import since_option
from bedrockjobs.cli.values import Duration, Modifier, Moment, TextOrFile, WholeNumber
from bedrockjobs.commands import (
    CreateJob,
    ExplainJob,
    GetJob,
    GetJobs,
    ListJobs,
    QueryJob,
    RetryJob,
    UpdateJob,
)
from bedrockjobs.commands.server import State

LIST_COLUMNS = ("jobID", "state", "name", "priority", "nextRun", "lastRun", "repeat")
"""What a table of jobs shows; the data is left to JSON, where its width does no harm."""

JOBS = Listing(ListJobs, "jobs", "after", "jobID", JOBS_PER_GET_MAX)

EARLY_ANSWER = 0.5
"""Part of a wait below which an empty answer means that the server is not waiting for us (it is ending)."""

DATA_HELP = "JSON object; @file and - (stdin) are read."

TIME_HELP = "UTC, ISO 8601 with a zone, or a time from now: 5m."

PRIORITY = click.Choice([str(priority) for priority in sorted(PRIORITIES)])


@click.group(cls=Group)
def job() -> None:
    """Create, take, change and end jobs.

    \b
    bedrockjobs job create mail/welcome --data '{"to": "ann@example.com"}'
    bedrockjobs job list --state failed --since yesterday
    bedrockjobs job explain mail/welcome
    bedrockjobs job retry --name 'mail/*' --since yesterday --dry-run
    """


@job.command(cls=SectionedCommand)
@click.argument("name", shell_complete=job_names)
@click.option("--data", type=TextOrFile(), help=f"What the job needs: a {DATA_HELP}")
@click.option("--first-run", type=Moment(), metavar="TIME", help=f"When it may run first: {TIME_HELP}")
@click.option(
    "--repeat", metavar="REPEAT", help="How it repeats: 'FINISHED, +1 HOUR', 'CRON 0 9 * * 1-5', ..."
)
@click.option("--retry-after", type=Modifier(), help="Give it out again if nobody ended it in this time: 5m.")
@click.option("--priority", type=PRIORITY, help="Higher goes first; 500 if left out.")
@click.option("--unique", is_flag=True, help="Update the job of this name, if there is one.")
@click.option("--no-overwrite", is_flag=True, help="With --unique: leave an existing job as it is.")
@click.option(
    "--parent", metavar="ID|NAME", shell_complete=job_names,
    help="Parent job, which must run or wait for children.",
)  # fmt: skip
@click.option("--mock", is_flag=True, help="A job for tests: only who asks for mocked jobs gets it.")
@click.option("--idempotency-key", metavar="KEY", help="The same key makes one job within a day, no second.")
@job_options
@talks
@pass_session
def create(session: Session, /, name: str, **given: Any) -> None:
    """Create the job NAME and print its jobID."""
    if given["no_overwrite"] and not given["unique"]:
        raise click.UsageError("--no-overwrite has a meaning with --unique only")
    parent = given["parent"]
    command = built(
        CreateJob,
        {
            "name": name,
            "data": given["data"],
            "firstRun": session.moment(given["first_run"]),
            "repeat": given["repeat"],
            "retryAfter": given["retry_after"],
            "jobPriority": given["priority"],
            "unique": given["unique"] or None,
            "overwrite": False if given["no_overwrite"] else None,
            "parentJobID": None if parent is None else job_id_of(session, parent),
            "mockRequest": given["mock"] or None,
            "idempotencyKey": given["idempotency_key"],
            **chosen_options(given),
        },
    )
    reply = session.record(command)
    done = "Created or updated" if given["unique"] else "Created"
    write_one(reply, session.form, f"{done} job {reply['jobID']}.")


@job.command()
@click.argument("name", shell_complete=job_names)
@click.option(
    "--wait", type=Duration(), is_flag=False, flag_value=WAIT_MS_DEFAULT / 1000, metavar="[DURATION]",
    help=f"Wait for a job: 90s, 5m; {duration_text(WAIT_MS_DEFAULT / 1000)} if no time is given.",
)  # fmt: skip
@click.option(
    "--count", type=WholeNumber(1, JOBS_PER_GET_MAX), metavar="NUMBER", help="Take up to so many jobs."
)
@click.option("--worker", metavar="NAME", help="Name of the worker that takes it.")
@click.option("--priority", type=PRIORITY, help="Only jobs of this priority.")
@click.option("--mock", is_flag=True, help="Take mocked jobs too.")
@talks
@pass_session
def get(session: Session, /, name: str, wait: float | None, count: int | None, **given: Any) -> None:
    """Take the next job whose name is or matches NAME: 'Foo*', or a comma list of names.

    The job is RUNNING from then on: end it with `job finish`, `job retry` or `job fail`. One that cannot be
    written to stdout is handed back.
    """
    asked = {
        "name": name,
        "worker": given["worker"],
        "jobPriority": given["priority"],
        "getMockedJobs": given["mock"] or None,
    }
    taken = _taken(session, asked, wait, count)
    try:
        if count is None:
            write_one(taken[0], session.form)
        else:
            write_many(taken, session.form, LIST_COLUMNS)
        sys.stdout.flush()
    except OSError:
        _hand_back(session, taken)
        raise


def _hand_back(session: Session, taken: list[Record]) -> None:
    """Queue jobs again that nobody can know of, since they were not written."""
    for record in taken:
        given = {"jobID": record["jobID"], "runID": record.get("runID"), "delay": 0, "ignoreRepeat": True}
        try:
            session.ask(built(RetryJob, given))
        except click.ClickException as failure:
            words = f"Job {record['jobID']} is still RUNNING: {failure.format_message()}"
            click.echo(printable(words), err=True)
        else:
            click.echo(f"Job {record['jobID']} was handed back.", err=True)


def _taken(session: Session, /, asked: dict[str, Any], wait: float | None, count: int | None) -> list[Record]:
    """Ask until there is a job or the wait is over: the server itself waits for a limited time only."""
    clock = SystemClock()
    deadline = clock.monotonic() + (wait or 0)
    while True:
        begun = clock.monotonic()
        wait_ms = min(round(max(deadline - begun, 0) * 1000), WAIT_MS_MAX)
        if wait is not None:
            asked = {**asked, "connection": "wait", "timeout": wait_ms}
        try:
            if count is None:
                return [session.record(built(GetJob, asked))]
            return records_in(session.record(built(GetJobs, {**asked, "numResults": count}))["jobs"])
        except Refusal as refusal:
            if wait is None or not isinstance(refusal.error, NotFound):
                raise
            if clock.monotonic() - begun < wait_ms / 1000 * EARLY_ANSWER:
                raise Failure(f"{refusal.error} (the server did not wait)", NOT_FOUND) from None
            if wait_ms < WAIT_MS_MAX:
                raise Failure(f"{refusal.error} (waited {duration_text(wait)})", TIMED_OUT) from None


@job.command("list")
@click.option(
    "--name", metavar="GLOB", shell_complete=job_names, help="Only jobs whose name matches: 'Foo*'."
)
@click.option(
    "--state",
    type=WordChoice(get_args(State), STATES_ALSO, case_sensitive=False),
    help="Only this state; PAUSED jobs wait for children.",
)
@since_option("Only jobs that last ran, or were made, since")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Only with this tag; several: with all.")
@click.option("--text", metavar="TEXT", help="Only with this in name, data or error.")
@limit_option("jobs")
@click.option("--after", metavar="ID", help="Only jobs with a higher jobID: the last of the page before.")
@talks
@pass_session
def list_jobs(session: Session, /, limit: int, after: str | None, **given: Any) -> None:
    """List jobs by jobID."""
    choice = Choice(**given)
    asked = {"name": choice.name, "state": choice.state, "after": after}
    found = paged(session, JOBS, asked, limit, fits=fitting(session, choice))
    none = "No jobs." if choice != Choice() else "No jobs: `bedrockjobs job create NAME` makes one."
    write_many(found, session.form, LIST_COLUMNS, none=none)


@job.command()
@click.argument("job_id", metavar="ID|NAME", shell_complete=job_names)
@talks
@pass_session
def show(session: Session, /, job_id: str) -> None:
    """Show a job: its state, its name and why it failed or waits come first."""
    job_id = job_id_of(session, job_id)
    record: Record = session.record(built(QueryJob, {"jobID": job_id}))
    if session.form == "table" and record:
        record = _decisive_first(record, _reason(session, job_id, record))
    write_one(record, session.form)


def _reason(session: Session, job_id: str, record: Record) -> str:
    """Return in one line what a job failed of, or what it waits for; empty if it does neither."""
    if text_of(record, "state") not in ("QUEUED", "PAUSED"):
        return line_of(text_of(record, "error"))
    try:
        reply = session.record(built(ExplainJob, {"jobID": job_id}))
    except Refusal:  # it is gone by now, or too many ask: what is known of it is shown all the same
        return ""
    reasons = records_in(reply.get("waitsFor") or RawJSON("[]"))
    return sentence(reasons[0]) if reasons else ""


def _decisive_first(record: Record, reason: str) -> Record:
    """Return a job as a page for people; the whole error, which may be long, comes last."""
    first = {"state": record.get("state"), "name": record.get("name"), "reason": reason or None}
    first["jobID"] = record.get("jobID")
    shown = {key: value for key, value in first.items() if value is not None}
    shown |= {key: value for key, value in record.items() if key not in (*first, "error")}
    error = text_of(record, "error")
    return shown | ({"error": record["error"]} if error and error != reason else {})


@job.command(cls=SectionedCommand)
@click.argument("job_id", metavar="[ID|NAME]", required=False, shell_complete=job_names)
@click.option("--data", type=TextOrFile(), help=f"New data: a {DATA_HELP}")
@click.option("--repeat", metavar="REPEAT", help="New repeat; the next run follows from it.")
@click.option("--priority", type=PRIORITY, help="New priority.")
@click.option("--next-run", type=Moment(), metavar="TIME", help=f"New time of the next run: {TIME_HELP}")
@click.option("--clear-repeat", is_flag=True, help="End the repetition after the next run.")
@click.option("--progress", type=TextOrFile(), help=f"How far the present run is: a {DATA_HELP}")
@click.option("--run", metavar="RUNID", help="Refuse if this is no longer the job's current run.")
@choosing
@job_options
@talks
@pass_session
def update(session: Session, /, job_id: str | None, **given: Any) -> None:
    """Change a job, in whatever state it is. An option given as '' is taken back: --run-timeout ''.

    Many at once: `job update --name 'mail/*' --state QUEUED --priority 1000`; how many there are and their
    names are told before a question.
    """
    choice = choice_of(given, job_id)
    changes = {
        "data": given["data"],
        "repeat": given["repeat"],
        "jobPriority": given["priority"],
        "nextRun": session.moment(given["next_run"]),
        "shouldClearRepeat": given["clear_repeat"] or None,
        "progress": given["progress"],
        **chosen_options(given),
    }
    if not any(value is not None for value in changes.values()):
        raise click.UsageError("nothing to change: give at least one option; --help lists them")
    built(UpdateJob, {"jobID": 0, **changes})  # what is wrong with it is told before the server is asked
    if choice is None:
        job_id = job_id_of(session, job_id or "")
        session.ask(built(UpdateJob, {"jobID": job_id, **changes, "runID": given["run"]}))
        write_one({"jobID": int(job_id), "outcome": "updated"}, session.form, f"Updated job {job_id}.")
        return
    if given["run"] is not None:
        raise click.UsageError("--run has a meaning with an ID or a name only")

    def change(each: str) -> str:
        session.ask(built(UpdateJob, {"jobID": each, **changes}))
        return "updated"

    for_each(session, "update", chosen(session, choice), change, dry_run=given["dry_run"], yes=given["yes"])
