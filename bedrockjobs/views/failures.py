"""ListFailures and the page of failures: what failed alike, grouped by its fingerprint and counted.

A failure is a FAILED job, or a failed run of a job that was tried again, went on or is gone: the run that
made its job FAILED is not listed beside it. Counts cover whole groups, not only what is listed of them.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOB_ID_MAX
from bedrockjobs.base.failure_text import line_of, shortened
from bedrockjobs.commands import ListFailures
from bedrockjobs.commands.failures import FailureGroupReply, FailureReply, FailuresReply
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.views import Views

GROUPS_SHOWN = 50
"""Groups on a page: a table each."""

LISTED_OF_GROUP = 20
"""The newest failures of a group that are listed with it."""

LISTED_OF_ONE = 100
"""Failures on a page of one group."""

ERROR_CHARS_SHOWN = 2_000
"""Length of an error up to which it is shown whole; its run has all of it."""

Kind = Literal["job", "run"]


class Failed(NamedTuple):
    """A page of failures: its groups, those first that hold what nobody has seen, and how it goes on."""

    groups: list[FailureGroupReply]
    following: int | None
    """The number before which the next page begins."""


async def failed_alike(
    views: Views, kind: Kind, pattern: str | None, fingerprint: str | None, before: int | None
) -> Failed:
    """Return a page of groups of failed jobs or runs, those with the newest failures first.

    With a ``fingerprint`` the page is one of the failures of this group. ``before`` is a number: only groups
    come whose newest failure has a lower one, of the failures of one group those with a lower one.
    """
    limit = JOB_ID_MAX if before is None else before
    if fingerprint is None:
        rows, more = await views.find.failed_alike(kind, pattern, None, limit, GROUPS_SHOWN)
        fingerprints = [row[0] for row in rows]
        listed, _ = await _failures(views, kind, pattern, fingerprints, JOB_ID_MAX, LISTED_OF_GROUP)
        following = rows[-1][4] if more else None
    else:
        rows, _ = await views.find.failed_alike(kind, pattern, fingerprint, JOB_ID_MAX, 1)
        listed, more = await _failures(views, kind, pattern, [fingerprint], limit, LISTED_OF_ONE)
        following = listed[fingerprint][-1].id if more else None
    groups = [_group(row, listed[row[0]]) for row in rows if row[0] in listed]
    return Failed(sorted(groups, key=lambda group: not group.unseen), following)


class _Listed(FailureReply):
    """A failure with what its group is told by."""

    state: str


async def _failures(
    views: Views,
    kind: Kind,
    pattern: str | None,
    fingerprints: list[str],
    before: int,
    members: int,
) -> tuple[dict[str, list[_Listed]], bool]:
    """Return the newest failures of some groups, and whether there are more of a single one."""
    if not fingerprints:
        return {}, False
    rows = await views.find.newest_failed(kind, pattern, fingerprints, before, members + 1)
    found: dict[str, list[_Listed]] = {}
    for fingerprint, state, name, number, at, error, worker, started, seen, by in rows:
        listed = _Listed(
            id=number, name=name, at=at, line=line_of(error), error=shortened(error, ERROR_CHARS_SHOWN),
            worker=worker, started=started, seen=seen, seen_by=by, state=state,
        )  # fmt: skip
        found.setdefault(fingerprint, []).append(listed)
    more = len(found.get(fingerprints[0], ())) > members
    return {fingerprint: listed[:members] for fingerprint, listed in found.items()}, more


def _group(row: tuple[Any, ...], listed: list[_Listed]) -> FailureGroupReply:
    fingerprint, count, names, unseen, _, _, first = row
    newest = listed[0]
    return FailureGroupReply(
        fingerprint=fingerprint, state=newest.state, name=newest.name, names=names, line=newest.line,
        count=count, unseen=unseen, first=first, last=newest.at,
        failures=[FailureReply(**one.model_dump(exclude={"state"})) for one in listed],
    )  # fmt: skip


@handles(ListFailures)
async def list_failures(views: Views, command: ListFailures) -> Answer:
    """List what failed."""
    jobs = await failed_alike(views, "job", command.name, command.fingerprint, command.before or None)
    runs = await failed_alike(views, "run", command.name, command.fingerprint, command.runs_before or None)
    reply = FailuresReply(
        jobs=jobs.groups, runs=runs.groups, before=jobs.following, runs_before=runs.following
    )
    return Answer(jsontext.dump(reply.model_dump(by_alias=True)))
