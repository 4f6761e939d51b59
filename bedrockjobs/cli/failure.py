"""``bedrockjobs failure``: what failed, what is alike put together, and what somebody has seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import SEEN_AT_ONCE_MAX
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.base.words import called
from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.named_job import job_id_of
from bedrockjobs.cli.options import by_option
from bedrockjobs.cli.output import Record, text_of, write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.commands import ListFailures, MarkSeen

_KINDS = (("jobs", "before", "job"), ("runs", "runsBefore", "run"))
"""What a page of failures holds: its member, its cursor, and what one is called."""


@click.group(cls=Group)
def failure() -> None:
    """See what failed, what is alike put together, and mark it as seen.

    \b
    bedrockjobs failure list
    bedrockjobs failure seen --name 'report/*'
    """


@failure.command("list")
@click.argument("mask", metavar="[GLOB]", required=False, shell_complete=job_names)
@click.option("--all", "everything", is_flag=True, help="Also what somebody has seen.")
@talks
@pass_session
def list_failures(session: Session, /, mask: str | None, everything: bool) -> None:
    """List what failed: jobs that wait for somebody, and runs; of each the newest few hundred.

    `newest` is the newest of those that are alike: a jobID for jobs, a runID for runs. What somebody has
    marked as seen is left out, but for --all.
    """
    found = [group for group in _groups(session, mask) if everything or text_of(group, "unseen") != "0"]
    if session.form != "table":
        write_many(found, session.form, identity="name")
        return
    none = (
        "Nothing has failed."
        if everything
        else "Nothing new has failed; --all shows what was marked as seen too."
    )
    write_many([_row(group) for group in found], "table", none=none)


@failure.command()
@click.option("--name", "mask", metavar="GLOB", shell_complete=job_names, help="All of names that match.")
@click.option(
    "--job", "jobs", metavar="ID|NAME", multiple=True, shell_complete=job_names,
    help="A FAILED job; several: all of them.",
)  # fmt: skip
@click.option(
    "--run", "runs", metavar="RUNID", multiple=True, help="A run that failed; several: all of them."
)
@click.option("--undo", is_flag=True, help="Let them count as new again.")
@by_option
@talks
@pass_session
def seen(
    session: Session, /, mask: str | None, jobs: tuple[str, ...], runs: tuple[str, ...], undo: bool, by: str
) -> None:
    """Mark failures as seen: the overview counts them no more, until they fail anew."""
    if (mask is None) == (not jobs and not runs):
        raise click.UsageError("give --name GLOB, or --job ID|NAME and --run RUNID")
    numbers = {"job": [job_id_of(session, each) for each in jobs], "run": list(runs)}
    if mask is not None:
        for group in _all_groups(session, mask):
            numbers[text_of(group, "kind")] += [
                text_of(one, "id")
                for one in records_in(group["failures"])
                if bool(text_of(one, "seen")) == undo
            ]
    marked = {"jobs": 0, "runs": 0}
    for kind, ids in numbers.items():
        for first in range(0, len(ids), SEEN_AT_ONCE_MAX):
            some = ids[first : first + SEEN_AT_ONCE_MAX]
            given: dict[str, Any] = {f"{kind}IDs": ",".join(some), "seen": not undo, "by": by or None}
            reply = session.record(built(MarkSeen, given))
            marked = {key: count + int(text_of(reply, key)) for key, count in marked.items()}
    words = ", ".join(f"{count:,} {key if count != 1 else key[:-1]}" for key, count in marked.items())
    said = f"{'New again' if undo else 'Seen'}: {words}."
    write_one({key: str(count) for key, count in marked.items()}, session.form, said)


def _groups(session: Session, mask: str | None) -> Iterator[Record]:
    """Go through the groups of the newest jobs and runs that failed, each with its kind."""
    page = session.record(built(ListFailures, {"name": mask}))
    for key, _, kind in _KINDS:
        yield from _of_kind(page, key, kind)


def _all_groups(session: Session, mask: str) -> Iterator[Record]:
    """Go through the groups of all jobs and runs that failed, page by page."""
    for key, cursor, kind in _KINDS:
        before = 0
        while before is not None:
            page = session.record(built(ListFailures, {"name": mask, cursor: before}))
            yield from _of_kind(page, key, kind)
            before = jsontext.parse(page[cursor])


def _of_kind(page: Record, key: str, kind: str) -> Iterator[Record]:
    return ({"kind": RawJSON(jsontext.dump(kind)), **group} for group in records_in(page[key]))


def _row(group: Record) -> Record:
    failures = records_in(group["failures"])
    count, unseen = len(failures), int(text_of(group, "unseen"))
    newest = failures[0]
    by = text_of(newest, "seenBy")
    return {
        "state": called(text_of(group, "state")),
        "name": text_of(group, "name"),
        "count": f"{count:,} {text_of(group, 'kind')}{'s' if count != 1 else ''}",
        "new": f"{unseen:,}",
        "newest": text_of(newest, "id"),
        "at": text_of(newest, "at"),
        "seen by": "" if unseen else by or "somebody",
        "what was wrong": text_of(group, "line"),
    }
