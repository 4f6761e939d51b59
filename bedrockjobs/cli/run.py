"""``bedrockjobs run``: list, read, stop, repeat and delete runs, the attempts of jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import RUNS_DELETED_AT_ONCE_MAX, WHOLE_MAX
from bedrockjobs.base.errors import line_of
from bedrockjobs.base.vocabulary import ANY_FAILURE, STATUSES, called
from bedrockjobs.cli.bulk import contains, counted
from bedrockjobs.cli.lookup import WAIT_MS, Pace, job_names, paged, run_ids
from bedrockjobs.cli.output import (
    Record,
    as_json,
    number_of,
    printable,
    printable_line,
    styled,
    text_of,
    took_text,
    write_many,
    write_one,
    write_title,
)
from bedrockjobs.cli.parameters import (
    SINCE_FORMATS,
    STATUSES_ALSO,
    Duration,
    PastTime,
    Since,
    SubcommandGroup,
    WordChoice,
    since_option,
    since_timestamp,
)
from bedrockjobs.cli.session import (
    FAILED,
    NOT_FOUND,
    TIMED_OUT,
    Failure,
    Session,
    built,
    confirm,
    interactive,
    records_in,
    server_options,
)
from bedrockjobs.cli.verbs import limit_option, takes, typed, typed_command, typed_values
from bedrockjobs.commands import DeleteRuns, KillRun, ListRuns, QueryRun, ReadOutput, RunAgain, TerminateRun
from bedrockjobs.commands.runs import StopRun

LIST_COLUMNS = (
    "runID",
    "status",
    "name",
    "jobID",
    "attempt",
    "cause",
    "started",
    "took",
    "worker",
    "exitCode",
    "error",
)

RUN_COLUMNS = ("runID", "status", "cause", "attempt", "started", "took", "worker", "exitCode", "error")


def run_row(run: Record) -> Record:
    """Return a run as a table row, with the decisive line of its error."""
    started = text_of(run, "started")
    return {**run, "took": took_text(started, text_of(run, "ended")), "error": line_of(text_of(run, "error"))}


@click.group(cls=SubcommandGroup)
def run() -> None:
    """List runs, follow their output, stop them, run them again, delete them.

    \b
    bedrockjobs run list --status failed --since yesterday
    bedrockjobs run logs --follow 7
    bedrockjobs run stop --job backup --reason 'the disk is full'
    bedrockjobs run again 7
    bedrockjobs run delete --text - --dry-run
    """


@run.command("list")
@takes(
    ListRuns,
    "name",
    typed("job_id", "--job", "job_id", metavar="ID|NAME", shell_complete=job_names),
    typed(
        "status",
        type=WordChoice((ANY_FAILURE, *STATUSES), STATUSES_ALSO),
        help="Only with this status; failed is each of fail, timeout and lost (the worker fell silent).",
    ),
    "worker",
    typed("error_type", metavar="TYPE"),
)
@since_option("Only runs that began since")
@click.option(
    "--until", type=Since(), metavar="TIME", help=f"Only runs that began before then: {SINCE_FORMATS}."
)
@click.option("--text", metavar="TEXT", help="Only with this in name, worker or error.")
@limit_option("runs")
@takes(ListRuns, typed("before", metavar="RUNID"))
@server_options
def list_runs(
    session: Session,
    /,
    since: PastTime | None,
    until: PastTime | None,
    text: str | None,
    limit: int,
    **_: Any,
) -> None:
    """List runs, the newest first: what failed last night is `run list --status failed --since yesterday`.

    `attempt` counts the tries of one tick, one trigger or one job; `took` is how long it ran.
    """
    parameters = typed_values(session, ListRuns)
    since_time = None if since is None else since_timestamp(since, session.now())
    until_time = None if until is None else since_timestamp(until, session.now(), "--until")

    def too_old(run: Record) -> bool:
        return since_time is not None and text_of(run, "started") < since_time

    def fits(run: Record) -> bool:
        began_before = until_time is None or text_of(run, "started") < until_time
        return began_before and (text is None or contains(run, "runs", ("name", "worker", "error"), text))

    chosen = until is not None or text is not None
    runs = paged(session, ListRuns, parameters, limit, fits=fits if chosen else None, until=too_old)
    if session.form == "table":
        runs = [run_row(record) for record in runs]
    none = "No runs."
    if not (since_time or chosen or any(parameters.values())):
        none = (
            "No runs: a worker records one for each job; `bedrock-worker --name NAME -- COMMAND` starts one."
        )
    write_many(runs, session.form, LIST_COLUMNS, none=none, identity="runID")


@run.command()
@takes(QueryRun, "run_id")
@server_options
def show(session: Session, /, **_: Any) -> None:
    """Show a run, with its result, its progress and its last lines of output."""
    record = session.record(typed_command(session, QueryRun))
    if session.form != "table":
        write_one(record, session.form, identity="runID")
        return
    tail = jsontext.parse(record.pop("output", "[]"))  # left out if hidden
    row = run_row(record)
    row = {**record, "took": row["took"], "error": _unrepeated(text_of(record, "error"), tail)}
    empty = ("", '""', "null", "[]")
    write_one({key: value for key, value in row.items() if value not in empty}, "table")
    if tail:
        write_title("Last lines of output")
        for line in tail:
            click.echo(printable_line(line))


def _unrepeated(error: str, tail: list[str]) -> str:
    """Return an error without the last lines of output in it, if ``tail`` shows these lines separately."""
    first, *more = error.splitlines() or [""]
    return first if more and set(more) <= set(tail) else error


@run.command()
@takes(ReadOutput, "run_id")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option("--since-seq", "after", metavar="NUMBER", default="0", help="Only lines after this number.")
@click.option("-t", "--timestamps", is_flag=True, help="Begin each line with its time (UTC).")
@click.option(
    "--exit-status", is_flag=True, help="Exit with 1 if the run ended without success, or was returned."
)
@server_options
def logs(
    session: Session, /, run_id: str, follow: bool, after: str, timestamps: bool, exit_status: bool
) -> None:
    """Print the output of a run, with stderr in place.

    A terminal shows colours and escapes all other control characters; a file gets the lines as they were
    printed.
    """
    if follow and session.form == "json":
        raise click.UsageError("-f writes continuously: use -o jsonl")
    waiting: list[Record] = []
    pace = Pace()
    ended, status = False, ""
    while True:
        wait = pace.next_parameters() if follow else {}
        command = built(ReadOutput, {"runID": run_id, "after": after, **wait})
        reply = session.record(command)
        lines = records_in(reply["lines"])
        if session.form == "json":
            waiting += lines
        else:
            _report_missing(after, lines)
            _write(lines, session.form, timestamps)
        ended, status = reply["ended"] == "true", text_of(reply, "status")
        if lines:
            after = text_of(lines[-1], "seq")
        if ended or not (lines or follow):
            break
        if follow:
            pace.answered(something=bool(lines))
    if session.form == "json":
        write_many(waiting, "json")
    if ended and status == "returned":
        message = f"Run {run_id} was returned: its job is queued as if it had not been taken."
        click.echo(message, err=True)
    elif follow and sys.stderr.isatty():
        click.echo(f"Run {run_id} ended: {status}.", err=True)
    if exit_status and ended and status != "success":
        click.get_current_context().exit(FAILED)


def _report_missing(after: str, lines: list[Record]) -> None:
    """Report on stderr which lines the server did not keep, because such a note is not output of the run."""
    last = int(after)
    for line in lines:
        seq = int(text_of(line, "seq"))
        if seq > last + 1:
            click.echo(f"[{seq - last - 1} lines left out before line {seq}]", err=True)
        last = seq


def _write(lines: Iterable[Record], form: str, timestamps: bool) -> None:
    terminal = sys.stdout.isatty()
    for line in lines:
        if form == "jsonl":
            click.echo(as_json(line))
            continue
        text = text_of(line, "line")
        if terminal:
            text = printable_line(text)
            if text_of(line, "stream") == "err":
                text = styled(text, fg="red")
        # Without a terminal the line keeps its colour codes, which click would remove.
        click.echo(f"{text_of(line, 'at')}  {text}" if timestamps else text, color=True)


def _add_stop(name: str, command_class: type[StopRun], signal: str, text: str) -> None:
    @run.command(name, help=text)
    @takes(
        command_class,
        typed("run_id", "run_id", required=False),
        typed("job_id", "--job", "job_id", metavar="ID|NAME", shell_complete=job_names),
        *("name", "reason", "by"),
    )
    @server_options
    def stop(session: Session, /, run_id: str | None, job_id: str | None, name: str | None, **_: Any) -> None:
        if sum(value is not None for value in (run_id, job_id, name)) != 1:
            raise click.UsageError("give a RUNID, --job ID|NAME or --name NAME")
        parameters = typed_values(session, command_class)
        session.reply(command_class, parameters)
        targets = {"runID": "run", "jobID": "the run of job", "name": "the runs of the jobs named"}
        key, value = next((key, parameters[key]) for key in targets if parameters[key] is not None)
        sentence = (
            f"SIG{signal} is on its way to {targets[key]} {value}; `bedrockjobs run list` shows how it ends."
        )
        write_one({key: value, "signal": signal}, session.form, sentence, identity=key)


_add_stop(
    "terminate",
    TerminateRun,
    "TERM",
    "Ask a run to end: its worker sends SIGTERM, and no SIGKILL later, to the whole process group.",
)
_add_stop("kill", KillRun, "KILL", "End a run at once: its worker sends SIGKILL to the whole process group.")


KILLED_S = 10.0
"""Seconds that a run gets to end after SIGKILL: its worker gets the signal immediately, and then reports."""


@run.command()
@takes(
    TerminateRun,
    typed("run_id", "run_id", required=False),
    typed("job_id", "--job", "job_id", metavar="ID|NAME", shell_complete=job_names),
)
@click.option(
    "--grace",
    type=Duration(),
    metavar="DURATION",
    default="10s",
    show_default=True,
    help="Time to end after SIGTERM.",
)
@takes(TerminateRun, "reason", "by")
@server_options
def stop(session: Session, /, run_id: str | None, job_id: str | None, grace: float, **_: Any) -> None:
    """Stop a run, and wait until it has ended: SIGTERM first, and SIGKILL if it still runs after --grace.

    The exit status is 124 if it does not end even then: its worker may be gone.
    """
    if (run_id is None) == (job_id is None):
        raise click.UsageError("give a RUNID or --job ID|NAME")
    parameters = typed_values(session, TerminateRun)
    if run_id is None:
        wanted = {"jobID": parameters["jobID"], "status": "running", "limit": 1}
        running = session.rows(ListRuns, wanted)
        if not running:
            raise Failure(f"job {parameters['jobID']} has no run in progress", NOT_FOUND)
        run_id = text_of(running[0], "runID")
    why = {key: parameters[key] for key in ("reason", "by")}
    status = _status_within(session, run_id, 0)
    for command_class, within_s in ((TerminateRun, grace), (KillRun, KILLED_S)):
        if status == "running":
            session.reply(command_class, {"runID": run_id, **why})
            status = _status_within(session, run_id, within_s)
    if status == "running":
        raise Failure(f"run {run_id} has not ended: its worker may be gone", TIMED_OUT)
    sentence = f"Run {run_id} has ended: {called(status)}."
    write_one({"runID": run_id, "status": status}, session.form, sentence, identity="runID")


def _status_within(session: Session, run_id: str, within_s: float) -> str:
    """Return the status of a run as soon as it has ended, or after ``within_s`` seconds."""
    clock, pace = SystemClock(), Pace()
    until = clock.monotonic() + within_s
    while True:
        left_ms = max(round(1_000 * (until - clock.monotonic())), 0)
        wait = {**pace.next_parameters(), "timeout": min(left_ms, WAIT_MS)} if left_ms else {}
        reply = session.reply(ReadOutput, {"runID": run_id, "after": WHOLE_MAX, "limit": 1, **wait})
        status = text_of(reply, "status")
        if status != "running" or not left_ms:
            return status
        pace.answered(something=False)


@run.command()
@takes(RunAgain, "run_id", "by")
@server_options
def again(session: Session, /, **_: Any) -> None:
    """Repeat a run.

    A schedule is triggered; for any other job a new one is created with the data and the options of the run.
    """
    reply = session.record(typed_command(session, RunAgain))
    job_id = text_of(reply, "jobID")
    when = "runs again at the end of its present run" if reply["pending"] == "true" else "is due now"
    write_one(reply, session.form, f"Job {job_id} {when}.", identity="jobID")


DELETED_COLUMNS = ("runID", "status", "name", "jobID", "ended")


@run.command()
@click.argument("run_ids", metavar="[RUNID]...", nargs=-1, shell_complete=run_ids)
@takes(
    DeleteRuns,
    typed("name", help="Runs of jobs whose name matches."),
    typed(
        "text",
        metavar="TEXT",
        help="Runs with this in their data, result, error or output; - asks for it, or reads it from stdin,"
        " so that it does not stay in the history of the shell.",
    ),
)
@click.option("--before", type=Since(), metavar="WHEN", help=f"Runs that ended before then: {SINCE_FORMATS}.")
@click.option("--dry-run", is_flag=True, help="Show which runs would be deleted, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@takes(DeleteRuns, "by")
@server_options
def delete(
    session: Session, /, run_ids: tuple[str, ...], before: PastTime | None, dry_run: bool, yes: bool, **_: Any
) -> None:
    """Delete runs that have ended, with their data, result, error and output.

    Give run numbers, or choose runs by --name, --text and --before together. Events of these runs stay,
    without their detail; with --text all other events that contain it lose their detail too. A run in
    progress is refused if given by number, and skipped otherwise.

    The page remove-a-leaked-secret of the documentation lists all places of a leaked secret.
    """
    parts = _chosen(session, run_ids, before)
    if dry_run or not yes:
        found = [
            one for reply in _deletions(session, parts, dry_run=True) for one in records_in(reply["runs"])
        ]
        if dry_run:
            none = "No matching run to delete."
            write_many(found, session.form, DELETED_COLUMNS, none=none, identity="runID")
            return
        if found or parts[0]["text"]:
            click.echo(printable(counted([text_of(one, "name") for one in found], "run")), err=True)
            confirm("Delete them? This cannot be undone.")
    deleted: list[Record] = []
    running = events = 0
    try:
        for reply in _deletions(session, parts, dry_run=False):
            deleted += records_in(reply["runs"])
            running += int(text_of(reply, "running"))
            events += int(text_of(reply, "events"))
    finally:  # report what was deleted also after an error or an interrupt
        _report_deleted(session, deleted, running, events)
    missing = set(run_ids) - {text_of(one, "runID") for one in deleted}
    if missing:
        raise Failure(f"No such run: {', '.join(sorted(missing, key=int))}", NOT_FOUND)


def _chosen(session: Session, run_ids: Sequence[str], before: PastTime | None) -> list[dict[str, Any]]:
    """Return the parameters of the DeleteRuns requests for the chosen runs; raises click.UsageError."""
    filters = typed_values(session, DeleteRuns)
    if bool(run_ids) == any(each is not None for each in (filters["name"], filters["text"], before)):
        raise click.UsageError("give RUNIDs, or choose runs by --name, --text or --before")
    if filters["text"] == "-":
        filters["text"] = _secret()
    if before is not None:
        filters["endedBefore"] = since_timestamp(before, session.now(), "--before")
    if not run_ids:
        return [filters]
    numbers, each = list(dict.fromkeys(run_ids)), RUNS_DELETED_AT_ONCE_MAX
    return [
        {**filters, "runIDs": ",".join(numbers[first : first + each])}
        for first in range(0, len(numbers), each)
    ]


def _secret() -> str:
    """Return a text that is prompted for without echo, or without a terminal the first line of stdin."""
    if interactive():
        return str(click.prompt("Text", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n")


def _deletions(
    session: Session, parts: Iterable[dict[str, Any]], *, dry_run: bool
) -> Iterator[dict[str, Any]]:
    """Yield the server's replies to DeleteRuns with each of these parameters, page by page."""
    for part in parts:
        cursor: Any = None
        while True:
            reply = session.reply(DeleteRuns, {**part, "before": cursor, "dryRun": dry_run})
            yield reply
            cursor = jsontext.parse(reply["before"])
            if cursor is None:
                break


def _report_deleted(session: Session, deleted: list[Record], running: int, events: int) -> None:
    """Write how many runs were deleted, and how many were left because they are in progress."""
    if session.form == "name":
        write_many(deleted, "name", identity="runID")
        return
    sentence = f"Deleted {number_of(len(deleted), 'run')}"
    sentence += f"; removed the detail of {number_of(events, 'event')}" if events else ""
    sentence += f"; {number_of(running, 'run')} in progress left alone" if running else ""
    write_one(
        {"runs": str(len(deleted)), "running": str(running), "events": str(events)},
        session.form,
        f"{sentence}.",
    )
