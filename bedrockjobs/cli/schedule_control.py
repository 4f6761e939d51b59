"""``schedule pause|resume|trigger``, ``queue pause|resume``: what a person decides about what runs when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import stamped
from bedrockjobs.cli.complete import Completer, job_names, schedule_names
from bedrockjobs.cli.options import by_option, until_option
from bedrockjobs.cli.output import Record, one_line, printable, text_of, write_many, write_one
from bedrockjobs.cli.session import Session, built, interactive, pass_session, records_in, talks
from bedrockjobs.cli.time_text import local_text
from bedrockjobs.commands import ListJobs, ListPauses, PauseJobs, ResumeJobs, TriggerJob
from bedrockjobs.job.limits import AT_LIMIT

F = TypeVar("F", bound=Callable[..., Any])

EVERYTHING = "*"


def _pattern_argument(names: Completer) -> Callable[[F], F]:
    return click.argument("pattern", metavar="[NAME|GLOB]", required=False, shell_complete=names)


def _pattern(pattern: str | None, everything: bool) -> str:
    """Return the pattern that is meant; everything is never meant by leaving something out."""
    if everything and pattern is not None:
        raise click.UsageError("give a name or --all, not both")
    if everything:
        return EVERYTHING
    if not pattern:
        raise click.UsageError("give a name or a pattern like 'report*', or --all")
    return pattern


def _pausing(group: str, names: Completer) -> click.Command:
    """Return ``pause`` for a group of commands; ``names`` completes its argument."""

    @click.command("pause")
    @_pattern_argument(names)
    @click.option("--all", "everything", is_flag=True, help="Pause everything.")
    @click.option("--reason", default="", help="Why, for others to read.")
    @until_option
    @by_option
    @talks
    @pass_session
    def pause(
        session: Session,
        /,
        pattern: str | None,
        everything: bool,
        reason: str,
        until: str | timedelta | None,
        by: str,
    ) -> None:
        """Let no job of this name be taken: schedules and others whose name matches.

        Runs in progress go on. Pausing the same pattern again changes its reason and its end.
        """
        name = _pattern(pattern, everything)
        end = session.moment(until)
        command = built(PauseJobs, {"name": name, "reason": reason or None, "until": end, "by": by or None})
        session.ask(command)
        assert isinstance(command, PauseJobs)
        what = "everything" if name == EVERYTHING else name
        ends = stamped(command.until)
        how = f" until {local_text(ends)}" if ends else f"; `{resume_command(name, group)}` ends it"
        write_one(
            {"name": name, "outcome": "paused", "until": command.until}, session.form, f"Paused {what}{how}."
        )
        matching = built(ListJobs, {"name": name, "limit": 1})
        if name != EVERYTHING and not records_in(session.record(matching)["jobs"]):
            click.echo("No job has such a name at the moment.", err=True)

    return pause


def resume_command(pattern: str, group: str = "schedule") -> str:
    """Return what to type to take back the pause of a pattern."""
    # Whoever made the pause chose its pattern: it must not bring a command of its own into somebody's shell.
    quoted = "'" + pattern.replace("'", "'\"'\"'") + "'"
    return f"bedrockjobs {group} resume {quoted}"


def _resuming(names: Completer) -> click.Command:
    """Return ``resume`` for a group of commands."""

    @click.command("resume")
    @_pattern_argument(names)
    @click.option("--all", "everything", is_flag=True, help="End every pause, whoever made it.")
    @click.option("-y", "--yes", is_flag=True, help="With --all: do not ask.")
    @by_option
    @talks
    @pass_session
    def resume(session: Session, /, pattern: str | None, everything: bool, yes: bool, by: str) -> None:
        """End a pause, by the pattern it was made with: '*' ends the pause of '*' and no other.

        Ticks of schedules that passed meanwhile are skipped. --all lists the pauses and asks first.
        """
        name = _pattern(pattern, everything)
        if everything and not yes:
            _ask_to_end_all(session)
        what = {"all": True} if everything else {"name": name}
        reply = session.record(built(ResumeJobs, {**what, "by": by or None}))
        resumed = jsontext.parse(reply["resumed"])
        records: list[Record] = [{"name": each, "outcome": "resumed"} for each in resumed]
        if session.form == "table":
            click.echo(printable(f"Resumed {', '.join(resumed)}.") if resumed else "Nothing was paused.")
        else:
            write_many(records, session.form)

    return resume


def paused_words(pattern: str, pause: Record) -> str:
    """Return who paused a pattern, why and until when: ``ada: moving the disks (mail/*)``."""
    by, reason = text_of(pause, "by"), text_of(pause, "reason")
    if by == AT_LIMIT:
        return f"its limit: {reason} ({pattern})"
    until = local_text(text_of(pause, "until"))
    words = ": ".join(filter(None, (by or "somebody", reason)))
    return f"{words} ({pattern}{f' until {until}' if until else ''})"


def _ask_to_end_all(session: Session) -> None:
    """List the pauses in force, and ask whether all of them are to end; raises click.Abort."""
    pauses = records_in(session.record(built(ListPauses, {}))["pauses"])
    ending = [pause for pause in pauses if text_of(pause, "by") != AT_LIMIT]
    if not ending:
        return
    for pause in ending:
        click.echo(one_line(paused_words(text_of(pause, "pattern"), pause)), err=True)
    if not interactive():
        raise click.UsageError("nobody can be asked here: give --yes to end all of these pauses")
    click.confirm(f"End {len(ending):,} pause{'s' if len(ending) > 1 else ''}?", abort=True, err=True)


@click.command()
@click.argument("name", metavar="[NAME]", required=False, shell_complete=schedule_names)
@click.option("--job", "job_id", metavar="ID", help="The job instead of its name.")
@by_option
@talks
@pass_session
def trigger(session: Session, /, name: str | None, job_id: str | None, by: str) -> None:
    """Run a job now, a schedule or another, also a paused one.

    A schedule's own next run is kept. A job that is running runs once more at its end.
    """
    if (name is None) == (job_id is None):
        raise click.UsageError("give the name of a job, or --job ID")
    reply = session.record(built(TriggerJob, {"name": name, "jobID": job_id, "by": by or None}))
    job = reply["jobID"]
    pending = reply.get("pending") == "true"
    said = f"Job {job} is running; it runs once more at its end." if pending else f"Job {job} is due now."
    write_one(reply, session.form, said)


COMMANDS = (_pausing("schedule", schedule_names), _resuming(schedule_names), trigger)
OF_QUEUES = (_pausing("queue", job_names), _resuming(job_names))
