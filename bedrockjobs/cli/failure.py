"""``bedrockjobs failure``: list failures grouped by cause, retry, delete, acknowledge and mute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import SEEN_AT_ONCE_MAX
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import called
from bedrockjobs.cli.bulk import Chosen, for_each
from bedrockjobs.cli.lookup import job_id_of, job_names
from bedrockjobs.cli.output import Record, local_text, number_of, text_of, write_many, write_one
from bedrockjobs.cli.parameters import SubcommandGroup
from bedrockjobs.cli.session import Session, records_in, server_options
from bedrockjobs.cli.verbs import GLOB, limit_option, takes, typed, typed_command
from bedrockjobs.commands import DeleteJob, ListFailures, MarkSeen, MuteFailures, RetryJob

_KINDS = (("jobs", "before", "job"), ("runs", "runsBefore", "run"))
"""The two parts of a page of failures, each with the key in the reply, the parameter for its next page, and
what its members are."""

SHOW_COLUMNS = ("kind", "id", "name", "at", "worker", "seen", "seenBy", "what was wrong")


@click.group(cls=SubcommandGroup)
def failure() -> None:
    """List failures by cause; retry, delete, acknowledge or mute them.

    \b
    bedrockjobs failure list
    bedrockjobs failure show 8f3c2f0c1b7a9d10
    bedrockjobs failure retry --fingerprint 8f3c2f0c1b7a9d10
    bedrockjobs failure delete --fingerprint 8f3c2f0c1b7a9d10
    bedrockjobs failure seen --name 'report/*'
    bedrockjobs failure mute 8f3c2f0c1b7a9d10 --reason 'the disk is ordered'
    """


@failure.command("list")
@takes(ListFailures, GLOB, "text", typed("error_type", metavar="TYPE"))
@click.option("--all", "everything", is_flag=True, help="Include failures that are marked as seen.")
@limit_option("groups of jobs, and of runs,")
@server_options
def list_failures(
    session: Session,
    /,
    mask: str | None,
    text: str | None,
    error_type: str | None,
    everything: bool,
    limit: int,
) -> None:
    """List failures grouped by cause: FAILED jobs, then runs, the newest first.

    Errors that differ in numbers, ids, quoted texts or paths are in one group. `count` covers the whole
    group, `newest` is its newest member: `job 7` or `run 8`. `trend` is new in the first 24 hours of a group,
    growing if failures were more than twice as frequent in the last hour as before it, quiet if there was
    none in the last 24 hours, muted, or "came back" if the group was muted until a new release and has failed
    in one. The run that made its job FAILED is not counted separately. Failures that are marked as seen are
    left out without --all. With --all, each page of groups lists those with new failures first.
    """
    filters = {"name": mask, "text": text, "errorType": error_type}
    groups = list(_groups(session, filters, limit, wanted=lambda group: everything or _is_new(group)))
    if session.form != "table":
        write_many(groups, session.form, identity="name")
        return
    none = (
        "Nothing has failed."
        if everything
        else "No new failures; --all includes those that are marked as seen."
    )
    write_many([_row(group) for group in groups], "table", none=none)


@failure.command()
@click.argument("fingerprint")
@takes(ListFailures, typed("name", "--name", "mask"))
@limit_option("jobs, and runs,")
@server_options
def show(session: Session, fingerprint: str, mask: str | None, limit: int) -> None:
    """List the failures of one group, the newest first; `failure list` shows its fingerprint."""
    members = [one for key in _KINDS for one in islice(_members(session, mask, fingerprint, key), limit)]
    if session.form != "table":
        write_many(members, session.form, identity="id")
        return
    rows = [{**one, "what was wrong": text_of(one, "line")} for one in members]
    write_many(rows, "table", SHOW_COLUMNS, none="Nothing with this fingerprint has failed.")


_which_jobs = takes(
    ListFailures,
    typed("fingerprint", help="The jobs of one group."),
    typed("name", "--name", "mask", help="Jobs whose name matches."),
)
_dry_run = click.option("--dry-run", is_flag=True, help="Show which jobs are meant, and change nothing.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


@failure.command()
@_which_jobs
@_dry_run
@_yes
@server_options
def retry(session: Session, /, fingerprint: str | None, mask: str | None, **options: Any) -> None:
    """Queue all FAILED jobs of a group again, or all whose name matches.

    It shows how many there are and asks for confirmation.
    """

    def queue(job_id: str) -> str:
        session.reply(RetryJob, {"jobID": job_id, "revive": True})
        return "queued"

    for_each(session, "retry", _failed_jobs(session, mask, fingerprint), queue, options)


@failure.command()
@_which_jobs
@_dry_run
@_yes
@server_options
def delete(session: Session, /, fingerprint: str | None, mask: str | None, **options: Any) -> None:
    """Delete all FAILED jobs of a group, or all whose name matches.

    It shows how many there are and asks for confirmation. Their failed runs stay until their retention ends.
    """

    def remove(job_id: str) -> str:
        session.reply(DeleteJob, {"jobID": job_id})
        return "deleted"

    for_each(session, "delete", _failed_jobs(session, mask, fingerprint), remove, options)


def _failed_jobs(session: Session, mask: str | None, fingerprint: str | None) -> list[Chosen]:
    if mask is None and fingerprint is None:
        raise click.UsageError("give --fingerprint TEXT or --name GLOB")
    members = _all_members(session, mask, fingerprint, _KINDS[0])
    return [Chosen(text_of(one, "id"), text_of(one, "name")) for one in members]


@failure.command()
@click.argument("fingerprint")
@takes(MuteFailures, "name", "reason", "until", "undo", "by")
@server_options
def mute(session: Session, fingerprint: str, undo: bool, **_: Any) -> None:
    """Mark the failures of a group as seen, also future ones, until a time or a new release.

    A mute ends with --until, or with the first failure in a new release: in a worker with a version that no
    live worker has now. `failure list --all` shows what is muted. Notification rules do not send
    the events of muted failures.
    """
    command = typed_command(session, MuteFailures, fingerprint=fingerprint)
    session.send(command)
    ends = str(command.until or "")
    until = local_text(ends) if ends else "they occur in a new release"
    sentence = f"Failures {fingerprint} are {'no longer muted' if undo else f'muted until {until}'}."
    outcome = "unmuted" if undo else "muted"
    record = {"fingerprint": fingerprint, "name": command.name, "outcome": outcome, "until": command.until}
    write_one(record, session.form, sentence, identity="fingerprint")


@failure.command()
@takes(ListFailures, typed("name", "--name", "mask", help="All failures of names that match."))
@click.option(
    "--job",
    "jobs",
    metavar="ID|NAME",
    multiple=True,
    shell_complete=job_names,
    help="A FAILED job; repeatable.",
)
@click.option("--run", "runs", metavar="RUNID", multiple=True, help="A run that failed; repeatable.")
@takes(ListFailures, typed("fingerprint", help="All of one group."))
@click.option("--undo", is_flag=True, help="Mark them as new again.")
@takes(MarkSeen, "by")
@server_options
def seen(
    session: Session,
    /,
    mask: str | None,
    jobs: tuple[str, ...],
    runs: tuple[str, ...],
    fingerprint: str | None,
    undo: bool,
    by: str,
) -> None:
    """Mark failures as seen, so that the overview does not count them until they fail again."""
    if (mask is None and fingerprint is None) == (not jobs and not runs):
        raise click.UsageError("give --name GLOB or --fingerprint TEXT, or --job ID|NAME and --run RUNID")
    numbers = {"job": [job_id_of(session, each) for each in jobs], "run": list(runs)}
    if not jobs and not runs:
        for which in _KINDS:
            numbers[which[-1]] = [
                text_of(one, "id")
                for one in _all_members(session, mask, fingerprint, which)
                if bool(text_of(one, "seen")) == undo
            ]
    marked = {"jobs": 0, "runs": 0}
    for kind, ids in numbers.items():
        for first in range(0, len(ids), SEEN_AT_ONCE_MAX):
            chunk = ids[first : first + SEEN_AT_ONCE_MAX]
            filters: dict[str, Any] = {f"{kind}IDs": ",".join(chunk), "seen": not undo, "by": by or None}
            reply = session.reply(MarkSeen, filters)
            marked = {key: count + int(text_of(reply, key)) for key, count in marked.items()}
    sentence = ", ".join(f"{count:,} {key if count != 1 else key[:-1]}" for key, count in marked.items())
    sentence = f"{'New again' if undo else 'Seen'}: {sentence}."
    write_one({key: str(count) for key, count in marked.items()}, session.form, sentence)


def _groups(
    session: Session, filters: dict[str, Any], limit: int, wanted: Callable[[Record], bool]
) -> Iterator[Record]:
    """Yield up to ``limit`` groups of jobs, and of runs, that are ``wanted``, the newest failures first."""
    for key, cursor, kind in _KINDS:
        matching = filter(wanted, _pages(session, filters, key, cursor, kind))
        yield from islice(matching, limit)
        if next(matching, None) is not None:
            click.echo(f"There are more groups of {key}: a higher --limit shows them.", err=True)


def _pages(session: Session, filters: dict[str, Any], key: str, cursor: str, kind: str) -> Iterator[Record]:
    """Yield all groups of jobs or of runs, reading page by page."""
    before = 0
    while before is not None:
        page = session.reply(ListFailures, {**filters, cursor: before})
        for group in records_in(page[key]):
            yield {"kind": RawJSON(jsontext.dump(kind)), **group}
        before = jsontext.parse(page[cursor])


def _all_members(
    session: Session, mask: str | None, fingerprint: str | None, which: tuple[str, str, str]
) -> Iterator[Record]:
    """Yield all failed jobs, or all failed runs, of one group or of all groups."""
    if fingerprint:
        yield from _members(session, mask, fingerprint, which)
        return
    for group in _pages(session, {"name": mask}, *which):
        listed = records_in(group["failures"])
        if len(listed) == int(text_of(group, "count")):
            yield from listed
        else:
            yield from _members(session, mask, text_of(group, "fingerprint"), which)


def _members(
    session: Session, mask: str | None, fingerprint: str, which: tuple[str, str, str]
) -> Iterator[Record]:
    """Yield all failed jobs, or all failed runs, of a group, each with its kind, the newest first."""
    for group in _pages(session, {"name": mask, "fingerprint": fingerprint}, *which):
        for one in records_in(group["failures"]):
            yield {"kind": group["kind"], **one}


def _is_new(group: Record) -> bool:
    return text_of(group, "unseen") != "0"


def _row(group: Record) -> Record:
    newest = records_in(group["failures"])[0]
    count, unseen, names = (int(text_of(group, key)) for key in ("count", "unseen", "names"))
    by = text_of(newest, "seenBy")
    more = f" and {names - 1:,} more" if names > 1 else ""
    return {
        "state": called(text_of(group, "state")),
        "name": f"{text_of(group, 'name')}{more}",
        "count": number_of(count, text_of(group, "kind")),
        "new": f"{unseen:,}",
        "newest": f"{text_of(group, 'kind')} {text_of(newest, 'id')}",
        "at": text_of(group, "last"),
        "trend": ": ".join(filter(None, (text_of(group, "trend"), _why_muted(group)))),
        "seen by": "" if unseen else by or "unknown",
        "fingerprint": text_of(group, "fingerprint"),
        "type": text_of(group, "errorType"),
        "what was wrong": text_of(group, "line"),
    }


def _why_muted(group: Record) -> str:
    """Return why a group is muted, and until when; empty if it is not muted."""
    muted = jsontext.parse(group.get("muted", "null")) or {"reason": "", "until": ""}
    until = muted["until"] and f"until {local_text(muted['until'])}"
    return ", ".join(filter(None, (muted["reason"], until)))
