"""Applies a command to many jobs: chooses them, asks for confirmation, and reports the result in one line."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOBS_PER_GET_MAX
from bedrockjobs.cli.lookup import job_names
from bedrockjobs.cli.output import Record, hidden_in, number_of, printable, text_of, write_many, write_one
from bedrockjobs.cli.parameters import (
    STATES_ALSO,
    FieldOption,
    PastTime,
    WordChoice,
    since_option,
    since_timestamp,
)
from bedrockjobs.cli.session import (
    FORBIDDEN,
    NOT_FOUND,
    OK,
    REFUSED,
    CommandRefused,
    Failure,
    Session,
    confirm,
)
from bedrockjobs.commands import ListJobs
from bedrockjobs.commands.server import State

STATE = WordChoice(get_args(State), STATES_ALSO, case_sensitive=False)

SECTION = "Many jobs at once"
"""Heading of the help for the options that choose jobs."""

NEITHER = "give an ID or a name, or choose jobs by --name, --state, --since, --tag or --text"

F = TypeVar("F", bound=Callable[..., Any])


class Choice(NamedTuple):
    """The conditions that a job must meet to be chosen; a value that is None or empty is no condition."""

    name: str | None = None
    state: str | None = None
    since: PastTime | None = None
    tags: tuple[str, ...] = ()
    text: str | None = None


class Chosen(NamedTuple):
    """A job that was chosen."""

    job_id: str
    name: str


def choosing(command: F) -> F:
    """Add the options that choose jobs, --dry-run and --yes to a command."""
    for option in (
        _many("-y", "--yes", is_flag=True, help="Do not ask for confirmation."),
        _many("--dry-run", is_flag=True, help="Show which jobs would be chosen, and change nothing."),
        _many("--text", "only_text", metavar="TEXT", help="Jobs with this in name, data or error."),
        _many(
            "--tag",
            "only_tags",
            multiple=True,
            metavar="WORD",
            help="Jobs with this tag; if repeated, with all of them.",
        ),
        since_option(
            "Jobs that last ran, or were created, since", "only_since", section=SECTION, cls=FieldOption
        ),
        _many("--state", "only_state", type=STATE, help="Jobs in this state."),
        _many(
            "--name",
            "only_name",
            metavar="GLOB",
            shell_complete=job_names,
            help="Jobs whose name matches, instead of an ID: 'mail/*'.",
        ),
    ):
        command = option(command)
    return command


_many = partial(click.option, cls=FieldOption, section=SECTION)


def choice_of(options: dict[str, Any], one: object) -> Choice | None:
    """Take out of ``options`` those that choose several jobs, and return them; None if ``one`` is given.

    Raises click.UsageError if both were given, or neither, or --dry-run with ``one``.
    """
    keys = {
        "name": "only_name",
        "state": "only_state",
        "since": "only_since",
        "tags": "only_tags",
        "text": "only_text",
    }
    choice = Choice(**{field: options.pop(key) for field, key in keys.items()})
    if one:
        if choice != Choice():
            raise click.UsageError("give an ID or a name, or choose jobs by --name, --state, ...: not both")
        if options["dry_run"]:
            raise click.UsageError("--dry-run needs --name, --state, ...")
        return None
    if choice == Choice():
        raise click.UsageError(NEITHER)
    return choice


def chosen(session: Session, choice: Choice) -> list[Chosen]:
    """Return all chosen jobs, ordered by jobID."""
    fits = fitting(session, choice) or (lambda _: True)
    return [
        Chosen(text_of(job, "jobID"), text_of(job, "name")) for job in _listed(session, choice) if fits(job)
    ]


def fitting(session: Session, choice: Choice) -> Callable[[Record], bool] | None:
    """Return a filter for conditions that the server does not check; None if the choice has none of these."""
    if choice.since is None and not choice.tags and choice.text is None:
        return None
    since = since_timestamp(choice.since, session.now()) if choice.since is not None else ""
    return lambda job: _fits(job, choice, since)


def _listed(session: Session, choice: Choice) -> Iterator[Record]:
    after = "0"
    while True:
        parameters = {"name": choice.name, "state": choice.state, "after": after, "limit": JOBS_PER_GET_MAX}
        page = session.rows(ListJobs, parameters)
        yield from page
        if len(page) < JOBS_PER_GET_MAX:
            return
        after = text_of(page[-1], "jobID")


def _fits(job: Record, choice: Choice, since: str) -> bool:
    if since and max(text_of(job, "lastRun"), text_of(job, "created")) < since:
        return False
    if choice.tags and not set(choice.tags) <= set(jsontext.parse(job.get("tags", "[]"))):
        return False
    return choice.text is None or contains(job, "jobs", ("name", "data", "error"), choice.text)


def contains(record: Record, what: str, keys: Sequence[str], text: str) -> bool:
    """Return whether the value of one of ``keys`` contains a text, ignoring case.

    Raises Failure if such a value is hidden from the token; ``what`` names the records in the error:
    ``jobs``.
    """
    hidden = [key for key in hidden_in(record) if key in keys]
    if hidden:
        raise Failure(f"--text: this token may not read {hidden[0]} of {what}", FORBIDDEN)
    return any(text.casefold() in text_of(record, key).casefold() for key in keys)


Act = Callable[[str], str]
"""Function that acts on the job with a jobID, and returns the outcome, such as ``deleted``; raises Failure if
refused."""


def counted(names_found: Sequence[str], word: str) -> str:
    """Return a count with its noun and the most frequent names: ``3 jobs: 2 mail/welcome, 1 mail/digest``."""
    names = Counter(names_found).most_common()
    counts = ", ".join(f"{count:,} {name}" for name, count in names[:5])
    more = f", and {len(names[5:]):,} more names" if names[5:] else ""
    return f"{number_of(len(names_found), word)}{': ' if counts else ''}{counts}{more}"


def for_chosen(session: Session, verb: str, choice: Choice, act: Act, options: Mapping[str, Any]) -> None:
    """Act on each job that is chosen by ``choice``, as ``for_each`` does."""
    for_each(session, verb, chosen(session, choice), act, options)


def for_each(session: Session, verb: str, jobs: list[Chosen], act: Act, options: Mapping[str, Any]) -> None:
    """Act on each job, after a confirmation unless --yes; ``verb`` names the act, such as ``delete``.

    Jobs are handled one by one: if one is refused, the others are still handled, and an interrupt undoes
    nothing. The exit status is 4 if any job was refused. Raises click.UsageError if no terminal is there to
    ask.
    """
    if not jobs and session.form == "table":
        click.echo(f"No matching job to {verb}.", err=True)
        return
    if options["dry_run"]:
        _would(session, verb, jobs)
        return
    if jobs and not options["yes"]:
        click.echo(printable(counted([job.name for job in jobs], "job")), err=True)
        confirm(f"{verb.capitalize()} {number_of(len(jobs), 'job')}?")
    outcomes: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    try:
        with _progress(len(jobs)) as advance:
            for job in jobs:
                try:
                    outcomes[act(job.job_id)] += 1
                    if session.form == "name":
                        click.echo(job.job_id)
                except Failure as failure:
                    if not _is_refusal(failure):
                        raise
                    refused[failure.message] += 1
                advance()
    finally:  # report what was done also after an error or an interrupt
        _write(session, verb, len(jobs), outcomes, refused)
    click.get_current_context().exit(REFUSED if refused else OK)


def _is_refusal(failure: Failure) -> bool:
    """Return whether a failure concerns one job only, so that the next job can be tried."""
    return isinstance(failure, CommandRefused) or failure.exit_code in (NOT_FOUND, REFUSED)


def delete_each(
    noun: str, names: Sequence[str], delete: Callable[[str], Record], write: Callable[[list[Record]], None]
) -> None:
    """Delete records by name, one by one, and write the records that were deleted.

    If any is refused, the exit status is that of the first refusal.
    """
    deleted: list[Record] = []
    first: Failure | None = None
    try:
        for name in names:
            try:
                deleted.append(delete(name))
            except Failure as failure:
                if not _is_refusal(failure):
                    raise
                Failure(f"{noun} {name}: {failure.message}").show()
                first = first or failure
    finally:  # also if the server goes away in between
        write(deleted)
    if first is not None:
        click.get_current_context().exit(first.exit_code)


def _would(session: Session, verb: str, jobs: list[Chosen]) -> None:
    if session.form == "table":
        click.echo(printable(f"Would {verb} {counted([job.name for job in jobs], 'job')}."))
    else:
        write_many([{"jobID": int(job.job_id), "name": job.name} for job in jobs], session.form)


def _write(session: Session, verb: str, total: int, outcomes: Counter[str], refused: Counter[str]) -> None:
    if session.form != "name":
        record: Record = {"command": verb, "jobs": total, **outcomes, "refused": sum(refused.values())}
        write_one(record, session.form, _sentence(verb, total, outcomes, refused))


def _sentence(verb: str, total: int, outcomes: Counter[str], refused: Counter[str]) -> str:
    """Return the result as a sentence: ``Deleted 2 of 3 jobs; 1 refused: 405 Can't delete a RUNNING job.``"""
    done = ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common())
    of = f" of {number_of(total, 'job')}" if sum(outcomes.values()) != total or len(outcomes) > 1 else ""
    if not of:
        of = " job" if total == 1 else " jobs"
    sentence = f"{done.capitalize()}{of}" if done else f"None of {number_of(total, 'job')} to {verb}"
    if refused:
        # Maximum number of refusal reasons in the result, the most frequent ones.
        reasons = "; ".join(reason for reason, _ in refused.most_common(3))
        sentence += f"; {sum(refused.values()):,} refused: {reasons}"
    remaining = total - sum(outcomes.values()) - sum(refused.values())
    return f"{sentence}; {remaining:,} not tried." if remaining else f"{sentence}."


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr if stderr is a terminal; yield a function that advances it by one."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with click.progressbar(length=total, file=sys.stderr) as bar:
        yield lambda: bar.update(1)
