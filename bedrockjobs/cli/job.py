"""``bedrockjobs job``: create, show, take, change and end jobs.

The command classes validate values; the server decides what is allowed.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, duration_text
from bedrockjobs.base.config import (
    GRACE_S_DEFAULT,
    JOBS_PER_GET_MAX,
    TAKE_BACK_S,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    WHOLE_MAX,
)
from bedrockjobs.base.errors import (
    JobFailed,
    JobNotEnded,
    NoResult,
    NotFound,
    NoWorkerTakes,
    WaitNeverEnds,
    WrongState,
    line_of,
)
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.programs import WholeNumber
from bedrockjobs.cli.bulk import STATE, Choice, choice_of, choosing, delete_each, fitting, for_chosen
from bedrockjobs.cli.lookup import WAIT_MS, Pace, is_number, job_id_of, job_names, paged
from bedrockjobs.cli.output import (
    Record,
    local_text,
    one_line,
    printable,
    text_of,
    with_hidden,
    with_local_times,
    write_many,
    write_one,
    write_wrapped,
)
from bedrockjobs.cli.parameters import Duration, SectionedCommand, SubcommandGroup, since_option
from bedrockjobs.cli.session import (
    FAILED,
    NOT_FOUND,
    TIMED_OUT,
    CommandRefused,
    Failure,
    Session,
    built,
    in_commands,
    records_in,
    returned_unless_written,
    server_options,
)
from bedrockjobs.cli.verbs import (
    JOB,
    RUN,
    act,
    job_options,
    limit_option,
    takes,
    typed,
    typed_command,
    typed_values,
)
from bedrockjobs.commands import (
    CancelJob,
    Command,
    CreateJob,
    DeleteJob,
    ExplainJob,
    FailJob,
    FinishJob,
    GetJob,
    GetJobs,
    ListJobs,
    QueryJob,
    ReadOutput,
    RetryJob,
    UpdateJob,
)

LIST_COLUMNS = ("jobID", "state", "name", "priority", "nextRun", "lastRun", "repeat")
"""Columns of a table of jobs. The data may be long, so only the other output forms have it."""

RETRIED_STATE = "FAILED"
"""The state of the jobs that ``job retry`` chooses unless another state is given."""

NO_PARENT = "without a parent"
"""Words in the server's 404 for cancelling a job that is not a child."""

MARGIN_S = 2.0 * TAKE_BACK_S
"""Seconds to wait beyond the grace of a stopped run: if its worker is silent, the server has ended the run by
then."""

UNIQUE = ("uniqueKey", "uniqueUntil")
"""The attributes of a job that concern its unique key; a table shows them in one row."""

REASONS = {
    "state": "It is not queued",
    "children": "Its parent or its children come first",
    "paused": "It is paused",
    "held": "The queue was restored",
    "nextRun": "It is not due yet",
    "no tick": "Its schedule has no further tick",
    "mocked": "Workers do not take it",
    "limit": "A limit is reached",
    "lock": "Another job with its lock is running",
    "concurrency": "As many with its key run as may at once",
    "name": "A request for its name does not match it",
    "own command": "No live worker accepts its own command",
    "no worker": "No live worker takes it",
    "ahead": "Other jobs go first",
}
"""The beginning of a sentence for each reason of ExplainJob; the server's detail follows."""

_some_job = click.argument("job_id", metavar="[ID|NAME]", required=False, shell_complete=job_names)


@click.group(cls=SubcommandGroup)
def job() -> None:
    """Create, take, change and end jobs.

    \b
    bedrockjobs job create mail/welcome --data '{"to": "ann@example.com"}'
    bedrockjobs job list --state failed --since yesterday
    bedrockjobs job explain mail/welcome
    bedrockjobs job retry --name 'mail/*' --since yesterday --dry-run
    """


@job.command(cls=SectionedCommand)
@takes(CreateJob, *("name", "data", "first_run"))
@click.option(
    "--delay", type=Duration(), metavar="DURATION", help="Instead of --first-run: run in 90s, 5m, 1h30m."
)
@takes(
    CreateJob,
    *("repeat", "retry_after", "job_priority", "unique"),
    typed("overwrite", "--no-overwrite", help="With --unique: leave an existing job unchanged."),
    typed("parent_job_id", "--parent", metavar="ID|NAME", shell_complete=job_names),
    typed("mock_request", "--mock", help="A job for tests: only workers that ask for mocked jobs get it."),
    *("unique_key", "unique_for", "on_conflict", "idempotency_key"),
)
@job_options
@server_options
def create(
    session: Session, /, unique: bool, no_overwrite: bool, delay: float | None, first_run: object, **_: Any
) -> None:
    """Create the job NAME and print its jobID."""
    if no_overwrite and not unique:
        raise click.UsageError("--no-overwrite needs --unique")
    if delay is not None and first_run is not None:
        raise click.UsageError("--delay: expected nothing together with --first-run")
    command = (
        typed_command(session, CreateJob)
        if delay is None
        else typed_command(session, CreateJob, firstRun=f"{delay}s")
    )
    reply = session.record(command)
    sentence = f"{'Created or updated' if unique else 'Created'} job {reply['jobID']}."
    if reply.get("created") == "false":
        sentence = f"Job {reply['jobID']} holds the unique key, so no job was created; see `job explain`."
    write_one(reply, session.form, sentence)


@job.command()
@takes(GetJob, typed("name", "name", metavar="NAME", shell_complete=job_names))
@click.option(
    "--wait",
    type=Duration(),
    is_flag=False,
    flag_value=WAIT_MS_DEFAULT / 1000,
    metavar="[DURATION]",
    help=f"Wait for a job: 90s, 5m; {duration_text(WAIT_MS_DEFAULT / 1000)} if no time is given.",
)
@takes(
    GetJobs,
    typed(
        "num_results",
        "--count",
        type=WholeNumber(1, JOBS_PER_GET_MAX),
        metavar="NUMBER",
        help="Maximum number of jobs to take.",
    ),
)
@takes(GetJob, "worker", "job_priority", typed("get_mocked_jobs", "--mock"))
@server_options
def get(session: Session, /, wait: float | None, count: int | None, **_: Any) -> None:
    """Take the next job whose name is or matches NAME: 'Foo*', or a comma list of names.

    The job is RUNNING from then on: end it with `job finish`, `job retry` or `job fail`. A job that cannot be
    written to stdout is returned.
    """
    jobs = _taken(session, typed_values(session, GetJob), wait, count)
    with returned_unless_written(session, jobs):
        if count is None:
            write_one(jobs[0], session.form)
        else:
            write_many(jobs, session.form, LIST_COLUMNS)


def _taken(
    session: Session, /, parameters: dict[str, Any], wait: float | None, count: int | None
) -> list[Record]:
    """Request jobs until some are taken or the wait is over; one request waits for a limited time only."""
    clock = SystemClock()
    deadline = clock.monotonic() + (wait or 0)
    while True:
        begun = clock.monotonic()
        wait_ms = min(round(max(deadline - begun, 0) * 1000), WAIT_MS_MAX)
        if wait is not None:
            parameters = {**parameters, "connection": "wait", "timeout": wait_ms}
        try:
            if count is None:
                return [session.reply(GetJob, parameters)]
            return session.rows(GetJobs, {**parameters, "numResults": count})
        except CommandRefused as refusal:
            if wait is None or not isinstance(refusal.error, NotFound):
                raise
            # An empty answer after less than half of the wait means that the server is shutting down.
            if clock.monotonic() - begun < wait_ms / 1000 / 2:
                raise Failure(f"{refusal.error} (the server did not wait)", NOT_FOUND) from None
            if wait_ms < WAIT_MS_MAX:
                raise Failure(f"{refusal.error} (waited {duration_text(wait)})", TIMED_OUT) from None


@job.command("list")
@takes(ListJobs, "name", typed("state", type=STATE, help="Only this state; PAUSED jobs wait for other jobs."))
@since_option("Only jobs that last ran, or were created, since")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Only with all of these tags.")
@click.option("--text", metavar="TEXT", help="Only with this in name, data or error.")
@limit_option("jobs")
@takes(ListJobs, "after")
@server_options
def list_jobs(session: Session, /, limit: int, after: str | None, **choices: Any) -> None:
    """List jobs by jobID."""
    choice = Choice(**choices)
    parameters = {"name": choice.name, "state": choice.state, "after": after}
    jobs = paged(session, ListJobs, parameters, limit, fits=fitting(session, choice))
    made = ": `bedrockjobs job create NAME` makes one" if choice == Choice() else ""
    none = f"No jobs{made}; `bedrockjobs run list` shows those that have ended."
    columns = (*LIST_COLUMNS, "uniqueKey") if any("uniqueKey" in each for each in jobs) else LIST_COLUMNS
    write_many(jobs, session.form, columns, none=none)


@job.command()
@takes(QueryJob, JOB)
@server_options
def show(session: Session, /, **_: Any) -> None:
    """Show a job: its state, its name and why it failed or waits come first."""
    command = typed_command(session, QueryJob)
    record: Record = session.record(command)
    if session.form == "table" and record:
        record = _decisive_first(record, _reason(session, command.job_id, record))
    write_one(record, session.form)


@job.command()
@click.argument("job_id", metavar="ID|NAME", shell_complete=job_names)
@click.option("--timeout", "timeout_s", type=Duration(), help="Give up after this time; exit status 124.")
@server_options
def wait(session: Session, /, job_id: str, timeout_s: float | None) -> None:
    """Wait until a job has ended, and print its result.

    The exit status is 0 if it succeeded, and 1 if it failed or was cancelled.
    """
    number = int(job_id_of(session, job_id))
    with session.errors_shown(), warnings.catch_warnings():
        warnings.simplefilter("always", NoWorkerTakes)
        warnings.showwarning = lambda message, *_: click.echo(f"Note: {message}", err=True)
        try:
            run = session.client.wait_for_job(number, timeout_s)
        except JobNotEnded as error:
            raise Failure(str(error), TIMED_OUT) from None
        except (JobFailed, NoResult, WaitNeverEnds) as error:
            raise Failure(str(error), FAILED) from None
    result = RawJSON("null" if run.result is None else jsontext.dump(run.result))
    record = {"jobID": RawJSON(number), "runID": RawJSON(run.run_id), "status": run.status, "result": result}
    write_one(record, session.form, f"Job {number} ended: {run.status}. Result: {result}")


def _reason(session: Session, job_id: int, record: Record) -> str:
    """Return in one line why a job failed, or what it waits for; empty if it did neither."""
    if text_of(record, "state") not in ("QUEUED", "PAUSED"):
        return line_of(text_of(record, "error"))
    try:
        reply = session.reply(ExplainJob, {"jobID": job_id})
    except CommandRefused:  # the job is gone, or the server is busy: show the job without a reason
        return ""
    reasons = records_in(reply.get("waitsFor") or RawJSON("[]"))
    return sentence(reasons[0]) if reasons else ""


def _decisive_first(record: Record, reason: str) -> Record:
    """Return a job for people: the decisive values come first, and an error, which may be long, last."""
    first = {"state": record.get("state"), "name": record.get("name"), "reason": reason or None}
    first["jobID"] = record.get("jobID")
    shown = {key: value for key, value in first.items() if value is not None}
    held = _held(record)
    record = with_hidden(record)
    if "finished" in record:  # the name that other tables have for it, and that means a time
        record = {"ended" if key == "finished" else key: value for key, value in record.items()}
    shown |= {key: value for key, value in record.items() if key not in (*first, "error", *UNIQUE)}
    shown |= {"unique key": held} if held else {}
    error = text_of(record, "error")
    return shown | ({"error": record["error"]} if error and error != reason else {})


@job.command()
@click.argument("job_id", metavar="ID|NAME", shell_complete=job_names)
@server_options
def explain(session: Session, /, job_id: str) -> None:
    """Explain why a job does not run, with the most decisive reason first.

    Of several jobs with the name, it is the first queued one.
    """
    reply = session.reply(ExplainJob, {"jobID": job_id_of(session, job_id, first=True)})
    if session.form != "table":
        write_one(reply, session.form)
        return
    failed = text_of(reply, "state") == "FAILED"
    write_reasons(reply, line_of(text_of(_job(session, reply["jobID"]) or {}, "error")) if failed else "")


def write_reasons(reply: Record, error: str = "") -> None:
    """Write the reply to ExplainJob for people; ``error`` is the line that says why the job failed."""
    reasons = records_in(reply["waitsFor"])
    state = text_of(reply, "state")
    write_wrapped(printable(f"Job {reply['jobID']} ({text_of(reply, 'name')}) is {state}."))
    if error:
        write_wrapped(printable(error), ("Why it failed: ", ""))
    if not reasons:
        click.echo("Nothing prevents it from running.")
    elif text_of(reasons[0], "reason") == "state":  # it does not wait
        write_wrapped(one_line(sentence(reasons[0])))
        reasons = []
    else:
        click.echo("Why it waits" + (", the most decisive reason first:" if len(reasons) > 1 else ":"))
    for at, reason in enumerate(reasons, 1):
        write_wrapped(one_line(sentence(reason)), (f"  {at}. ", ""))
    if held := _held(reply):
        meaning = "`job create` with this key makes no other job of this name."
        write_wrapped(printable(f"It holds the unique key {held}: {meaning}"))


def _held(record: Record) -> str:
    """Return the unique key that a job holds, and until when; empty if it holds none."""
    until = text_of(record, "uniqueUntil")
    if not until:
        return ""
    from bedrockjobs.job.lifecycle import HeldKey

    held = HeldKey(text_of(record, "name"), text_of(with_hidden(record), "uniqueKey"), until)
    return f"{held.key} {with_local_times(held.until_text)}"


def sentence(reason: Record) -> str:
    """Return a reason in the reply to ExplainJob as a sentence."""
    key, detail = text_of(reason, "reason"), in_commands(with_local_times(text_of(reason, "detail")))
    text = REASONS.get(key, key)
    return f"{text}: {detail}" if detail else f"{text}."


def _check(
    command_class: type[Command[Any]], job_id: str | None, run: str | None, changes: dict[str, Any]
) -> None:
    """Validate the changes of one or many jobs before any request is sent; raises click.UsageError."""
    if not job_id and run is not None:
        raise click.UsageError("--run needs an ID or a name")
    built(command_class, {"jobID": 0, **changes})


@job.command(cls=SectionedCommand)
@_some_job
@takes(
    UpdateJob,
    *("data", "repeat", "job_priority", "next_run"),
    typed("should_clear_repeat", "--clear-repeat"),
    *("progress", RUN),
)
@choosing
@job_options
@server_options
def update(session: Session, /, job_id: str | None, run: str | None, **options: Any) -> None:
    """Change a job in any state. An empty value removes an option: --run-timeout ''.

    Many at once: `job update --name 'mail/*' --state QUEUED --priority 1000`, which shows the matching jobs
    and asks for confirmation.
    """
    choice = choice_of(options, job_id)
    changes = typed_values(session, UpdateJob) | {"runID": None}
    if not any(value is not None for value in changes.values()):
        raise click.UsageError("nothing to change: give at least one option; --help lists them")
    _check(UpdateJob, job_id, run, changes)

    def change(each: str) -> str:
        session.reply(UpdateJob, {**changes, "jobID": each, "runID": run})
        return "updated"

    if choice is None:
        job_id = job_id_of(session, job_id or "")
        _write_outcome(session, job_id, change(job_id))
    else:
        for_chosen(session, "update", choice, change, options)


act(
    job,
    "finish",
    FinishJob,
    *(JOB, "data", "exit_code", RUN),
    outcome="finished",
    sentence="Finished job {jobID}.",
)


@job.command(cls=SectionedCommand)
@_some_job
@takes(
    RetryJob,
    *("delay", "next_run", "data"),
    typed("name", "--rename"),
    *("job_priority", "ignore_repeat"),
    typed(
        "revive",
        help="For workers, which report on a run by --run, --returned, --snoozed or --unfit: queue the job"
        " even if it is FAILED. Without these options that needs no --revive.",
    ),
    *("returned", "snoozed", "unfit", RUN),
)
@choosing
@server_options
def retry(session: Session, /, job_id: str | None, run: str | None, **options: Any) -> None:
    """Queue a FAILED or running job again.

    Many at once: `job retry --name 'mail/*' --since yesterday` queues the FAILED ones among them again; it
    shows the matching jobs and asks for confirmation.
    """
    choice = choice_of(options, job_id)
    changes = typed_values(session, RetryJob) | {"runID": None}
    if choice is not None:
        choice = choice._replace(state=choice.state or RETRIED_STATE)
        changes["revive"] = changes["revive"] or choice.state == RETRIED_STATE or None
    _check(RetryJob, job_id, run, changes)

    def queue(each: str) -> str:
        session.reply(RetryJob, {**changes, "jobID": each, "runID": run})
        return "returned" if changes["returned"] or changes["unfit"] is not None else "queued"

    if choice is not None:
        for_chosen(session, "retry", choice, queue, options)
        return
    job_id, workflow = job_id_of(session, job_id or ""), ""
    try:
        outcome = queue(job_id)
    except CommandRefused as refusal:
        of_a_run = run or changes["returned"] or changes["snoozed"] or changes["unfit"] is not None
        failed = isinstance(refusal.error, WrongState) and f"is {RETRIED_STATE}" in str(refusal.error)
        if of_a_run or not failed:
            raise
        changes["revive"] = True  # only now, as a token of a worker may not ask for it
        outcome = queue(job_id)
        with suppress(CommandRefused):  # of a token that may not read
            workflow = text_of(_job(session, job_id) or {}, "workflowID")
    _write_outcome(session, job_id, outcome)
    if workflow and session.form == "table":
        advice = f"`bedrockjobs workflow retry {workflow}` also queues the jobs cancelled with it"
        write_wrapped(f"It is a job of workflow {workflow}: {advice}.")


act(
    job,
    "fail",
    FailJob,
    *(JOB, "error", "data", "exit_code", "final", "delay", "retries", RUN),
    outcome="failed",
    sentence="Failed job {jobID}.",
)


@job.command(cls=SectionedCommand)
@_some_job
@click.option("--delete", "deletes", is_flag=True, help="Delete a queued job that is not a child.")
@click.option("--no-wait", is_flag=True, help="Do not wait for a stopped run to end.")
@choosing
@server_options
def cancel(session: Session, /, job_id: str | None, deletes: bool, no_wait: bool, **options: Any) -> None:
    """Cancel a job and its children.

    A run is stopped by SIGTERM, and by SIGKILL after the job's grace; the command waits for its end and says
    how it ended. Many at once: `job cancel --name 'mail/*' --state RUNNING`, which does not wait.

    A queued job becomes CANCELLED and is kept for its --keep; with --delete it is gone at once. Of a job that
    repeats, only the run that is due is cancelled: `job delete` and `queue pause` end or stop all of them.
    """
    choice = choice_of(options, job_id)
    if choice is not None:
        for_chosen(session, "cancel", choice, lambda each: _cancelled(session, each, deletes)[0], options)
        return
    job_id = job_id_of(session, job_id or "")
    outcome, run_id = _cancelled(session, job_id, deletes)
    if run_id:
        _report_stop(session, job_id, run_id, wait=not no_wait)
    elif outcome == "unchanged":
        words = f"Nothing to cancel: job {job_id} has ended, or repeats and no run of it is due."
        write_one(_outcome(job_id, outcome), session.form, words)
    else:
        _write_outcome(session, job_id, outcome)


def _cancelled(session: Session, job_id: str, deletes: bool) -> tuple[str, str]:
    """Cancel a job, or delete it if requested; return the outcome, and the runID of a run being stopped."""
    parameters = {"jobID": job_id} if deletes else {"jobID": job_id, "any": True}
    try:
        reply = session.reply(CancelJob, parameters)
    except CommandRefused as refusal:
        no_child = isinstance(refusal.error, NotFound) and NO_PARENT in refusal.error.reason.lower()
        if not (deletes and no_child):
            raise
        return _delete(session, job_id), ""
    run_id = text_of(reply, "runID")
    if run_id:
        return "stopping", run_id
    return ("unchanged" if text_of(reply, "cancelled") == "false" else "cancelled"), ""


@job.command(cls=SectionedCommand)
@click.argument("job_ids", metavar="[ID|NAME]...", nargs=-1, shell_complete=job_names)
@choosing
@server_options
def delete(session: Session, /, job_ids: tuple[str, ...], **options: Any) -> None:
    """Delete jobs that are neither RUNNING nor waiting for other jobs (state PAUSED).

    Each is deleted on its own; the exit status is that of the first refusal. Many at once:
    `job delete --name 'mail/*' --state FAILED --dry-run`.
    """
    choice = choice_of(options, job_ids)
    if choice is not None:
        for_chosen(session, "delete", choice, lambda each: _delete(session, each), options)
        return
    for job_id in filter(is_number, job_ids):
        built(DeleteJob, {"jobID": job_id})  # no job is deleted if one of them is not a jobID

    def removed(label: str) -> Record:
        job_id = job_id_of(session, label)
        return _outcome(job_id, _delete(session, job_id))

    def write(deleted: list[Record]) -> None:
        if len(job_ids) == 1 and deleted:
            write_one(deleted[0], session.form, f"Deleted job {deleted[0]['jobID']}.")
        elif len(job_ids) > 1:
            write_many(deleted, session.form)

    delete_each("Job", job_ids, removed, write)


def _delete(session: Session, job_id: str) -> str:
    session.reply(DeleteJob, {"jobID": job_id})
    return "deleted"


def _write_outcome(session: Session, job_id: str, outcome: str) -> None:
    write_one(_outcome(job_id, outcome), session.form, f"{outcome.capitalize()} job {job_id}.")


def _outcome(job_id: str, outcome: str) -> Record:
    return {"jobID": int(job_id), "outcome": outcome}


# --- a run that is stopped ---------------------------------------------------------------------------------


def _report_stop(session: Session, job_id: str, run_id: str, *, wait: bool) -> None:
    """Write that a run is being stopped; with ``wait``, write how it ended, or exit with 124."""
    grace = _grace(session, job_id)
    how = f"it gets SIGTERM, and SIGKILL after {duration_text(grace)}"
    advice = f"`bedrockjobs run show {run_id}` shows how it ends"
    record: Record = {"jobID": int(job_id), "outcome": "stopping", "runID": int(run_id)}
    if not wait:
        write_one(record, session.form, f"Stopping run {run_id} of job {job_id}: {how}; {advice}.")
        return
    click.echo(f"Stopping run {run_id} of job {job_id}: {how}.", err=True)
    clock = SystemClock()
    begun = clock.monotonic()
    status = _ended(session, run_id, grace + MARGIN_S)
    spent = duration_text(round(clock.monotonic() - begun, 1))
    if not status:
        write_one(record, session.form, f"Run {run_id} has not ended after {spent}; {advice}.")
        click.get_current_context().exit(TIMED_OUT)
    record = {**record, "outcome": "cancelled", "status": status}
    write_one(
        record, session.form, f"Run {run_id} ended after {spent}: {status}. {_state_of(session, job_id)}"
    )


def _job(session: Session, job_id: str) -> Record | None:
    """Return a job, or None if it is gone."""
    try:
        return session.reply(QueryJob, {"jobID": job_id})
    except CommandRefused as refusal:
        if not isinstance(refusal.error, NotFound):
            raise
        return None


def _grace(session: Session, job_id: str) -> float:
    return float(text_of(_job(session, job_id) or {}, "grace") or GRACE_S_DEFAULT)


def _ended(session: Session, run_id: str, most_s: float) -> str:
    """Return the status with which a run ended; empty if it did not end within ``most_s`` seconds."""
    clock, pace = SystemClock(), Pace()
    deadline = clock.monotonic() + most_s
    while True:
        left_ms = max(round((deadline - clock.monotonic()) * 1000), 0)
        parameters = {**pace.next_parameters(), "timeout": min(left_ms, WAIT_MS)}
        reply = session.reply(ReadOutput, {"runID": run_id, "after": WHOLE_MAX, "limit": 1, **parameters})
        if reply["ended"] == "true":
            return text_of(reply, "status")
        if clock.monotonic() >= deadline:
            return ""
        pace.answered(something=False)


def _state_of(session: Session, job_id: str) -> str:
    """Return a sentence about the state of a job after its run was stopped."""
    job = _job(session, job_id)
    if job is None:
        return f"Job {job_id} is deleted."
    state, next_run = text_of(job, "state"), text_of(job, "nextRun")
    when = f" for its next run, {local_text(next_run)}" if state == "QUEUED" and next_run else ""
    return f"Job {job_id} is {state}{when}."
