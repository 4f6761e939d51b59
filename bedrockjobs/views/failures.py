"""ListFailures and the failures page: failures grouped by fingerprint.

A failure is a FAILED job, or a failed run of a job that was retried, went on or was removed. The last run of
a FAILED job is no failure of its own. Counts are of whole groups, not only of the listed failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import JOB_ID_MAX
from bedrockjobs.base.errors import line_of, shortened, type_of_error
from bedrockjobs.base.glob import glob
from bedrockjobs.commands import ListFailures
from bedrockjobs.commands.overview import FailureGroupReply, FailureReply, FailuresReply, MuteReply
from bedrockjobs.engine.handlers.context import Answer, handles
from bedrockjobs.job.limits import Mute
from bedrockjobs.views import Views
from bedrockjobs.views.problems import age_s

GROUPS_SHOWN = 50
"""Maximum groups on a page; each is a table."""

LISTED_OF_GROUP = 20
"""Maximum failures listed for each group: the newest ones."""

RECENT_S = 86_400
"""Seconds. A group is new if its first failure is not older, and quiet if its last failure is older."""

GROWTH_S = 3_600
"""Seconds before now in which a growing group has failures at more than twice the earlier rate."""

HOUR_S = 3_600
"""Seconds of each part of ``RECENT_S`` whose failed runs are counted."""

FailureKind = Literal["job", "run"]


class Failed(NamedTuple):
    """A page of failure groups, those with unseen failures first."""

    groups: list[FailureGroupReply]
    following: int | None
    """The parameter ``before`` for the next page, or None."""


async def failed_alike(views: Views, command: ListFailures) -> tuple[Failed, Failed]:
    """Return a page of groups of failed jobs, and one of failed runs, those with the newest failures first.

    With a ``fingerprint``, these are pages of that group's failures, each with an ID lower than ``before`` or
    ``runs_before``. With an ``error_type`` or a ``text``, up to 20 pages are read to find some groups.
    """
    jobs = await _matching(views, "job", command, command.before or None)
    runs = await _matching(views, "run", command, command.runs_before or None)
    if command.fingerprint is not None and (command.before or command.runs_before):
        return jobs, runs  # a later page of one group
    fingerprints = {group.fingerprint for group in (*jobs.groups, *runs.groups)}
    hours = [after_seconds(views.now_ms, -age_s) for age_s in range(RECENT_S, 0, -HOUR_S)]
    counts = await views.find.failed_by_hour(command.name, fingerprints, hours)
    return _with_hours(jobs, counts), _with_hours(runs, counts)


def _with_hours(failed: Failed, counts: dict[str, list[int]]) -> Failed:
    groups = [one.model_copy(update={"hours": counts.get(one.fingerprint, [])}) for one in failed.groups]
    return failed._replace(groups=groups)


async def _matching(views: Views, kind: FailureKind, command: ListFailures, before: int | None) -> Failed:
    """Return a page of the groups that match a command, whose newest jobID or runID is below ``before``."""
    error_type, sought = command.error_type, (command.text or "").casefold()
    for _ in range(20):  # 1,000 groups
        page = await _page(views, kind, command.name, command.fingerprint, before)
        groups = [
            group
            for group in page.groups
            if error_type in (None, group.error_type) and sought in group.line.casefold()
        ]
        is_all = error_type is None and not sought
        if groups or is_all or page.following is None or command.fingerprint is not None:
            break
        before = page.following
    return page._replace(groups=groups)


async def _page(
    views: Views, kind: FailureKind, pattern: str | None, fingerprint: str | None, before: int | None
) -> Failed:
    limit = JOB_ID_MAX if before is None else before
    if fingerprint is None:
        rows, more = await views.find.failed_alike(kind, pattern, None, limit, GROUPS_SHOWN)
        fingerprints = [row[0] for row in rows]
        listed, _ = await _failures(views, kind, pattern, fingerprints, JOB_ID_MAX, LISTED_OF_GROUP)
        following = rows[-1][4] if more else None
    else:
        rows, _ = await views.find.failed_alike(kind, pattern, fingerprint, JOB_ID_MAX, 1)
        listed, more = await _failures(views, kind, pattern, [fingerprint], limit, 100)
        following = listed[fingerprint][-1].id if more else None
    now = views.now_ms if limit == JOB_ID_MAX else ""
    mutes = await views.mutes()
    groups = [_group(row, listed[row[0]], now, mutes) for row in rows if row[0] in listed]
    return Failed(sorted(groups, key=lambda group: not group.unseen), following)


class _Listed(FailureReply):
    """A failure with its state."""

    state: str
    error_type: str


async def _failures(
    views: Views, kind: FailureKind, pattern: str | None, fingerprints: list[str], before: int, members: int
) -> tuple[dict[str, list[_Listed]], bool]:
    """Return the newest failures of each group, and whether the first group has more."""
    if not fingerprints:
        return {}, False
    rows = await views.find.newest_failed(kind, pattern, fingerprints, before, members + 1)
    groups: dict[str, list[_Listed]] = {}
    for fingerprint, state, name, number, at, error, worker, started, seen, by in rows:
        # Maximum characters of a listed error; the run has the whole error.
        listed = _Listed(
            id=number,
            name=name,
            at=at,
            line=line_of(error),
            error=shortened(error, 2_000),
            worker=worker,
            started=started,
            seen=seen,
            seen_by=by,
            state=state,
            error_type=type_of_error(error),
        )
        groups.setdefault(fingerprint, []).append(listed)
    more = len(groups.get(fingerprints[0], ())) > members
    return {fingerprint: listed[:members] for fingerprint, listed in groups.items()}, more


def trend_of(first: str, newest: list[str], count: int, now: str) -> str:
    """Return how a group of ``count`` failures develops: ``new``, ``growing``, ``quiet`` or empty.

    ``first`` is the time of its oldest failure; ``newest`` are the times of its newest ones, latest first.
    """
    ages = [max(age_s(at, now), 0) for at in newest if at]
    if not ages or ages[0] > RECENT_S:
        return "quiet"
    if not first or age_s(first, now) <= RECENT_S:
        return "new"
    recent = sum(age <= GROWTH_S for age in ages)
    recent_s = GROWTH_S if recent < len(ages) else max(ages[-1], 1)  # otherwise more than these may be recent
    earlier_s = max(age_s(first, now) - recent_s, recent_s)
    grows = recent / recent_s > 2 * (count - recent) / earlier_s
    return "growing" if recent > 2 and grows else ""  # two may fail together by chance


def _group(row: tuple[Any, ...], listed: list[_Listed], now: str, mutes: Sequence[Mute]) -> FailureGroupReply:
    fingerprint, count, names, unseen, _, _, first = row
    newest = listed[0]
    mute = next((m for m in mutes if m.fingerprint == fingerprint and glob(newest.name, m.pattern)), None)
    if mute is not None:
        trend = "came back" if unseen and not mute.until else "muted"
    else:
        trend = trend_of(first, [one.at for one in listed], count, now) if now else ""
    return FailureGroupReply(
        fingerprint=fingerprint,
        state=newest.state,
        name=newest.name,
        names=names,
        line=newest.line,
        error_type=newest.error_type,
        count=count,
        unseen=unseen,
        trend=trend,
        muted=mute
        and MuteReply(name=mute.pattern, reason=mute.reason, by=mute.by, since=mute.since, until=mute.until),
        first=first,
        last=newest.at,
        failures=[FailureReply(**one.model_dump(exclude={"state", "error_type"})) for one in listed],
    )


@handles(ListFailures)
async def list_failures(views: Views, command: ListFailures) -> Answer:
    """List failures by group."""
    jobs, runs = await failed_alike(views, command)
    reply = FailuresReply(
        jobs=jobs.groups, runs=runs.groups, before=jobs.following, runs_before=runs.following
    )
    return Answer(jsontext.dump(reply.model_dump(by_alias=True)))
