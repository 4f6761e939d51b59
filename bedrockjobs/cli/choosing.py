"""Which jobs a command is for, where no jobID is given: by name, state, time, tag and text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOBS_PER_GET_MAX
from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.groups import STATES_ALSO, WordChoice
from bedrockjobs.cli.options import SectionedOption
from bedrockjobs.cli.output import Record, text_of
from bedrockjobs.cli.session import Session, built, records_in
from bedrockjobs.cli.since import Given, since_option, since_stamp
from bedrockjobs.commands import ListJobs
from bedrockjobs.commands.server import State

SECTION = "Many jobs at once"
"""Where the help lists the options that choose."""

NEITHER = "give an ID or a name, or choose jobs by --name, --state, --since, --tag or --text"

F = TypeVar("F", bound=Callable[..., Any])


class Choice(NamedTuple):
    """What jobs must be like, all of it; what is left out says nothing."""

    name: str | None = None
    state: str | None = None
    since: Given | None = None
    tags: tuple[str, ...] = ()
    text: str | None = None


class Chosen(NamedTuple):
    """A job that was chosen."""

    job_id: str
    name: str


def choosing(command: F) -> F:
    """Add the options that choose jobs, and what becomes of them: --dry-run and --yes."""
    many = partial(click.option, cls=SectionedOption, section=SECTION)
    for option in (
        many("-y", "--yes", is_flag=True, help="Do not ask."),
        many("--dry-run", is_flag=True, help="Tell which jobs it would be, and change nothing."),
        many("--text", "only_text", metavar="TEXT", help="Jobs with this in name, data or error."),
        many(
            "--tag", "only_tags", multiple=True, metavar="WORD", help="Jobs with this tag; several: with all."
        ),
        since_option(
            "Jobs that last ran, or were made, since", "only_since", section=SECTION, cls=SectionedOption
        ),
        many(
            "--state", "only_state", type=WordChoice(get_args(State), STATES_ALSO, case_sensitive=False),
            help="Jobs in this state.",
        ),
        many(
            "--name", "only_name", metavar="GLOB", shell_complete=job_names,
            help="Jobs whose name matches, instead of an ID: 'mail/*'.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def choice_of(given: dict[str, Any], one: object) -> Choice | None:
    """Take the choice out of the values of a command's options; None where ``one`` job was named.

    Raises click.UsageError where neither or both are given.
    """
    keys = {"name": "only_name", "state": "only_state", "since": "only_since", "tags": "only_tags",
            "text": "only_text"}  # fmt: skip
    choice = Choice(**{field: given.pop(key) for field, key in keys.items()})
    if one:
        if choice != Choice():
            raise click.UsageError("give an ID or a name, or choose jobs by --name, --state, ...: not both")
        if given["dry_run"]:
            raise click.UsageError("--dry-run has a meaning with --name, --state, ... only")
        return None
    if choice == Choice():
        raise click.UsageError(NEITHER)
    return choice


def chosen(session: Session, choice: Choice) -> list[Chosen]:
    """Return the jobs that are chosen, by jobID; they are looked through page by page."""
    fits = fitting(session, choice) or (lambda _: True)
    return [
        Chosen(text_of(job, "jobID"), text_of(job, "name")) for job in _listed(session, choice) if fits(job)
    ]


def fitting(session: Session, choice: Choice) -> Callable[[Record], bool] | None:
    """Return what tells whether a job is chosen; None where its name and state, as asked for, say all."""
    if choice.since is None and not choice.tags and choice.text is None:
        return None
    since = since_stamp(choice.since, session.now()) if choice.since is not None else ""
    return lambda job: _fits(job, choice, since)


def _listed(session: Session, choice: Choice) -> Iterator[Record]:
    after = "0"
    while True:
        asked = {"name": choice.name, "state": choice.state, "after": after, "limit": JOBS_PER_GET_MAX}
        page = records_in(session.record(built(ListJobs, asked))["jobs"])
        yield from page
        if len(page) < JOBS_PER_GET_MAX:
            return
        after = text_of(page[-1], "jobID")


def _fits(job: Record, choice: Choice, since: str) -> bool:
    if since and max(text_of(job, "lastRun"), text_of(job, "created")) < since:
        return False
    if choice.tags and not set(choice.tags) <= set(jsontext.parse(job.get("tags", "[]"))):
        return False
    if choice.text is None:
        return True
    words = choice.text.casefold()
    return any(words in text_of(job, key).casefold() for key in ("name", "data", "error"))
