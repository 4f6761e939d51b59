"""``bedrockjobs job finish|retry|fail|cancel|delete``: how a job's run, or the job itself, ends.

The server decides what is allowed; here its answer is put into words.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from bedrockjobs.base.errors import NotFound, WrongState
from bedrockjobs.cli.bulk import for_each
from bedrockjobs.cli.choosing import choice_of, choosing, chosen
from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.job import DATA_HELP, PRIORITY, TIME_HELP
from bedrockjobs.cli.named_job import is_number, job_id_of
from bedrockjobs.cli.options import SectionedCommand
from bedrockjobs.cli.output import Record, text_of, write_many, write_one
from bedrockjobs.cli.session import NOT_FOUND, REFUSED, Failure, Refusal, Session, built, pass_session, talks
from bedrockjobs.cli.stopping import stop_told
from bedrockjobs.cli.values import Duration, Moment, TextOrFile
from bedrockjobs.commands import CancelJob, Command, DeleteJob, FailJob, FinishJob, QueryJob, RetryJob

ENDED_BADLY = "FAILED"
"""The state of jobs that are queued again where many are chosen and no state is given."""

WORKING = ("RUNNING", "RUNQUEUED")
"""States of jobs that somebody has taken."""

NO_PARENT = "without a parent"
"""Words of the server's 404 for the cancelling of a job that is nobody's child."""

_chosen_argument = click.argument("job_id", metavar="[ID|NAME]", required=False, shell_complete=job_names)
_id_argument = click.argument("job_id", metavar="ID|NAME", shell_complete=job_names)
_run_option = click.option(
    "--run", metavar="RUNID", help="Refuse if this is no longer the job's current run."
)
_data_option = click.option("--data", type=TextOrFile(), help=f"New data: a {DATA_HELP}")
_exit_code_option = click.option("--exit-code", metavar="NUMBER", help="Exit status of the command that ran.")


def _end(session: Session, command: Command[Any], job_id: str, outcome: str) -> None:
    session.ask(command)
    _say(session, job_id, outcome)


def _say(session: Session, job_id: str, outcome: str) -> None:
    write_one(_outcome(job_id, outcome), session.form, f"{outcome.capitalize()} job {job_id}.")


def _outcome(job_id: str, outcome: str) -> Record:
    return {"jobID": int(job_id), "outcome": outcome}


@click.command()
@_id_argument
@_data_option
@_exit_code_option
@_run_option
@talks
@pass_session
def finish(session: Session, job_id: str, data: str | None, exit_code: str | None, run: str | None) -> None:
    """End a run well: the job repeats, waits for its children, or is over."""
    job_id = job_id_of(session, job_id)
    given = {"jobID": job_id, "data": data, "exitCode": exit_code, "runID": run}
    _end(session, built(FinishJob, given), job_id, "finished")


@click.command(cls=SectionedCommand)
@_chosen_argument
@click.option("--delay", type=Duration(whole=True), help="How long to wait: 90s, 5m; nothing if left out.")
@click.option("--next-run", type=Moment(), metavar="TIME", help=f"When to run again: {TIME_HELP}")
@_data_option
@click.option("--rename", metavar="NAME", help="New name.")
@click.option("--priority", type=PRIORITY, help="New priority.")
@click.option("--ignore-repeat", is_flag=True, help="Use --delay or --next-run although the job repeats.")
@click.option("--revive", is_flag=True, help="Also queue a FAILED job again.")
@click.option("--returned", is_flag=True, help="Hand it back as if it had never been taken.")
@click.option(
    "--snoozed", is_flag=True, help="It was put off and has not failed; the attempt does not count."
)
@_run_option
@choosing
@talks
@pass_session
def retry(
    session: Session, /, job_id: str | None, delay: float | None, run: str | None, **given: Any
) -> None:
    """Queue a running job again, or with --revive a FAILED one.

    Many at once: `job retry --name 'mail/*' --since yesterday` queues the FAILED ones among them again, which
    needs no --revive; how many there are and their names are told before a question.
    """
    choice = choice_of(given, job_id)
    if choice is not None:
        if run is not None:
            raise click.UsageError("--run has a meaning with an ID or a name only")
        choice = choice._replace(state=choice.state or ENDED_BADLY)
    changes = {
        "delay": None if delay is None else int(delay),
        "nextRun": session.moment(given["next_run"]),
        "data": given["data"],
        "name": given["rename"],
        "jobPriority": given["priority"],
        "ignoreRepeat": given["ignore_repeat"] or None,
        "revive": given["revive"] or (choice is not None and choice.state == ENDED_BADLY) or None,
        "returned": given["returned"] or None,
        "snoozed": given["snoozed"] or None,
        "runID": run,
    }
    outcome = "returned" if given["returned"] else "queued"
    if choice is None:
        job_id = job_id_of(session, job_id or "")
        try:
            _end(session, built(RetryJob, {"jobID": job_id, **changes}), job_id, outcome)
        except Refusal as refusal:
            if not (isinstance(refusal.error, WrongState) and f"is {ENDED_BADLY}" in str(refusal.error)):
                raise
            raise Refusal(refusal.error, "--revive queues it again") from None
        return
    built(RetryJob, {"jobID": 0, **changes})  # what is wrong with it is told before the server is asked

    def again(each: str) -> str:
        session.ask(built(RetryJob, {"jobID": each, **changes}))
        return outcome

    for_each(session, "retry", chosen(session, choice), again, dry_run=given["dry_run"], yes=given["yes"])


@click.command()
@_id_argument
@click.option("--error", type=TextOrFile(), help="What went wrong; @file and - (stdin) are read.")
@_data_option
@_exit_code_option
@click.option("--final", is_flag=True, help="Fail for good although retries are left.")
@_run_option
@talks
@pass_session
def fail(session: Session, /, job_id: str, error: str | None, run: str | None, **given: Any) -> None:
    """End a run badly: the job stays as FAILED."""
    job_id = job_id_of(session, job_id)
    command = built(
        FailJob,
        {
            "jobID": job_id,
            "error": error,
            "data": given["data"],
            "exitCode": given["exit_code"],
            "final": given["final"] or None,
            "runID": run,
        },
    )
    _end(session, command, job_id, "failed")


@click.command(cls=SectionedCommand)
@_chosen_argument
@click.option("--delete", "deletes", is_flag=True, help="Delete a queued job that is nobody's child.")
@click.option("--no-wait", is_flag=True, help="Do not wait until a run that is stopped has ended.")
@choosing
@talks
@pass_session
def cancel(session: Session, /, job_id: str | None, deletes: bool, no_wait: bool, **given: Any) -> None:
    """Cancel a child job that has not run, or stop a job that a worker runs.

    A run is stopped by SIGTERM, and by SIGKILL after the job's grace; how it ended is waited for and told.
    Many at once: `job cancel --name 'mail/*' --state RUNNING`, which waits for none.

    A queued job without a parent cannot be cancelled: `job delete` is meant, or --delete.
    """
    choice = choice_of(given, job_id)
    if choice is None:
        _cancel_one(session, job_id_of(session, job_id or ""), deletes, no_wait)
        return

    def act(each: str) -> str:
        outcome, _ = _cancelled(session, each, deletes)
        return outcome

    for_each(session, "cancel", chosen(session, choice), act, dry_run=given["dry_run"], yes=given["yes"])


def _cancelled(session: Session, job_id: str, deletes: bool, named: str = "ID") -> tuple[str, str]:
    """Cancel a job, or delete it where that is wanted; return the outcome, and the run that is stopped.

    ``named`` is what a hint calls the job.
    """
    try:
        run_id = text_of(session.record(built(CancelJob, {"jobID": job_id})), "runID")
    except Refusal as refusal:
        if not isinstance(refusal.error, NotFound) or NO_PARENT not in refusal.error.reason.lower():
            raise
        if not deletes:
            hint = f"only children are cancelled; `bedrockjobs job delete {named}` or --delete removes it"
            if text_of(session.record(built(QueryJob, {"jobID": job_id})), "state") in WORKING:
                hint = (
                    "it is RUNNING, and who took it cannot be told to stop;"
                    f" `bedrockjobs job fail {named}` or `job retry {named}` ends its run"
                )
            raise Failure(f"{refusal.error.status_line}: {hint}", refusal.exit_code) from None
        session.ask(built(DeleteJob, {"jobID": job_id}))
        return "deleted", ""
    return ("stopping" if run_id else "cancelled"), run_id


def _cancel_one(session: Session, job_id: str, deletes: bool, no_wait: bool) -> None:
    outcome, run_id = _cancelled(session, job_id, deletes, job_id)
    if run_id:
        stop_told(session, job_id, run_id, wait=not no_wait)
    else:
        _say(session, job_id, outcome)


@click.command(cls=SectionedCommand)
@click.argument("job_ids", metavar="[ID|NAME]...", nargs=-1, shell_complete=job_names)
@choosing
@talks
@pass_session
def delete(session: Session, /, job_ids: tuple[str, ...], **given: Any) -> None:
    """Remove jobs that are neither RUNNING nor waiting for children (state PAUSED).

    Each is removed for itself; the exit status is that of the first that was refused. Many at once:
    `job delete --name 'mail/*' --state FAILED --dry-run`.
    """
    choice = choice_of(given, job_ids)
    if choice is not None:
        for_each(
            session, "delete", chosen(session, choice), partial(_delete, session),
            dry_run=given["dry_run"], yes=given["yes"],
        )  # fmt: skip
        return
    for job_id in filter(is_number, job_ids):
        built(DeleteJob, {"jobID": job_id})  # nothing is removed where one of them cannot be a jobID
    deleted: list[Record] = []
    first: Failure | None = None
    try:
        for each in job_ids:
            try:
                job_id = job_id_of(session, each)
                _delete(session, job_id)
            except Failure as failure:
                if not (isinstance(failure, Refusal) or failure.exit_code in (NOT_FOUND, REFUSED)):
                    raise
                Failure(f"Job {each}: {failure.message}").show()
                first = first or failure
            else:
                deleted.append(_outcome(job_id, "deleted"))
    finally:  # what was removed is told even where the server went away in between
        if len(job_ids) == 1 and deleted:
            write_one(deleted[0], session.form, f"Deleted job {deleted[0]['jobID']}.")
        elif len(job_ids) > 1:
            write_many(deleted, session.form)
    if first is not None:
        click.get_current_context().exit(first.exit_code)


def _delete(session: Session, job_id: str) -> str:
    session.ask(built(DeleteJob, {"jobID": job_id}))
    return "deleted"


COMMANDS = (finish, retry, fail, cancel, delete)
