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

LISTED_MAX = 100
"""Failures that the web page lists in all groups of jobs together, and in all groups of runs; at least one in
each. Each costs 0.1 ms."""

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


async def failed_alike(
    views: Views, command: ListFailures, listed_max: int = GROUPS_SHOWN * LISTED_OF_GROUP
) -> tuple[Failed, Failed]:
    """Return a page of groups of failed jobs, and one of failed runs, those with the newest failures first.

    With a ``fingerprint``, these are pages of that group's failures, each with an ID lower than ``before`` or
    ``runs_before``. With an ``error_type`` or a ``text``, up to 20 pages are read to find some groups.
    Without a ``fingerprint``, the groups share ``listed_max`` listed failures evenly, at least one each.
    """
    jobs = await _matching(views, "job", command, command.before or None, listed_max)
    runs = await _matching(views, "run", command, command.runs_before or None, listed_max)
    if command.fingerprint is not None and (command.before or command.runs_before):
        return jobs, runs  # a later page of one group
    fingerprints = {group.fingerprint for group in (*jobs.groups, *runs.groups)}
    hours = [after_seconds(views.now_ms, -age_s) for age_s in range(RECENT_S, 0, -HOUR_S)]
    counts = await views.find.failed_by_hour(command.name, fingerprints, hours)
    return _with_hours(jobs, counts), _with_hours(runs, counts)


def _with_hours(failed: Failed, counts: dict[str, list[int]]) -> Failed:
    groups = [one.model_copy(update={"hours": counts.get(one.fingerprint, [])}) for one in failed.groups]
    return failed._replace(groups=groups)


async def _matching(
    views: Views, kind: FailureKind, command: ListFailures, before: int | None, listed_max: int
) -> Failed:
    """Return a page of the groups that match a command, whose newest jobID or runID is below ``before``."""
    error_type, sought = command.error_type, (command.text or "").casefold()
    for _ in range(20):  # 1,000 groups
        page = await _page(views, kind, command.name, command.fingerprint, before, listed_max)
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
    views: Views,
    kind: FailureKind,
    pattern: str | None,
    fingerprint: str | None,
    before: int | None,
    listed_max: int,
) -> Failed:
    limit = JOB_ID_MAX if before is None else before
    if fingerprint is None:
        rows, more = await views.find.failed_alike(kind, pattern, None, limit, GROUPS_SHOWN)
        fingerprints = [row[0] for row in rows]
        listed_of_each = min(max(listed_max // max(len(rows), 1), 1), LISTED_OF_GROUP)
        newest, _ = await _newest(
            views, kind, pattern, fingerprints, JOB_ID_MAX, LISTED_OF_GROUP, listed_of_each
        )
        following = rows[-1][4] if more else None
    else:
        listed_of_each = 100
        rows, _ = await views.find.failed_alike(kind, pattern, fingerprint, JOB_ID_MAX, 1)
        newest, more = await _newest(
            views, kind, pattern, [fingerprint], limit, listed_of_each, listed_of_each
        )
        following = newest[fingerprint][-1].id if more else None
    now = views.now_ms if limit == JOB_ID_MAX else ""
    mutes = await views.mutes()
    groups = [_group(row, newest[row[0]], listed_of_each, now, mutes) for row in rows if row[0] in newest]
    return Failed(sorted(groups, key=lambda group: not group.unseen), following)


class _Newest(NamedTuple):
    """A failure with its state, as ``Finder.newest_failed`` returns it."""

    state: str
    name: str
    id: int
    at: str
    error: str
    worker: str
    started: str
    seen: str
    seen_by: str

    def listed(self) -> FailureReply:
        """Return the failure as it is listed."""
        # Maximum characters of a listed error; the run has the whole error.
        error = shortened(self.error, 2_000)
        given = self._asdict() | {"line": line_of(self.error), "error": error}
        del given["state"]
        return FailureReply(**given)


async def _newest(
    views: Views,
    kind: FailureKind,
    pattern: str | None,
    fingerprints: list[str],
    before: int,
    members: int,
    listed: int,
) -> tuple[dict[str, list[_Newest]], bool]:
    """Return the newest ``members`` failures of each group, and whether the first group has more.

    Only the first ``listed`` of each have their error.
    """
    if not fingerprints:
        return {}, False
    rows = await views.find.newest_failed(kind, pattern, fingerprints, before, members + 1, listed)
    groups = {fingerprint: list(map(_Newest._make, newest)) for fingerprint, newest in rows.items()}
    more = len(groups.get(fingerprints[0], ())) > members
    return {fingerprint: newest[:members] for fingerprint, newest in groups.items()}, more


def trend_of(first: str, newest: list[str], count: int, now: str) -> str:
    """Return how a group of ``count`` failures develops: ``new``, ``growing``, ``quiet`` or empty.

    ``first`` is the time of its oldest failure; ``newest`` are the times of its newest ones, latest first.
    """
    known = list(filter(None, newest))
    if not known or age_s(known[0], now) > RECENT_S:
        return "quiet"
    if not first or age_s(first, now) <= RECENT_S:
        return "new"
    ages = [max(age_s(at, now), 0) for at in known]
    recent = sum(age <= GROWTH_S for age in ages)
    recent_s = GROWTH_S if recent < len(ages) else max(ages[-1], 1)  # otherwise more than these may be recent
    earlier_s = max(age_s(first, now) - recent_s, recent_s)
    grows = recent / recent_s > 2 * (count - recent) / earlier_s
    return "growing" if recent > 2 and grows else ""  # two may fail together by chance


def _group(
    row: tuple[Any, ...], newest: list[_Newest], listed_max: int, now: str, mutes: Sequence[Mute]
) -> FailureGroupReply:
    fingerprint, count, names, unseen, _, _, first = row
    latest, listed = newest[0], [one.listed() for one in newest[:listed_max]]
    mute = next((m for m in mutes if m.fingerprint == fingerprint and glob(latest.name, m.pattern)), None)
    if mute is not None:
        trend = "came back" if unseen and not mute.until else "muted"
    else:
        trend = trend_of(first, [one.at for one in newest], count, now) if now else ""
    return FailureGroupReply(
        fingerprint=fingerprint,
        state=latest.state,
        name=latest.name,
        names=names,
        line=listed[0].line,
        error_type=type_of_error(latest.error),
        count=count,
        unseen=unseen,
        trend=trend,
        muted=mute
        and MuteReply(name=mute.pattern, reason=mute.reason, by=mute.by, since=mute.since, until=mute.until),
        first=first,
        last=latest.at,
        failures=listed,
    )


@handles(ListFailures)
async def list_failures(views: Views, command: ListFailures) -> Answer:
    """List failures by group."""
    jobs, runs = await failed_alike(views, command)
    reply = FailuresReply(
        jobs=jobs.groups, runs=runs.groups, before=jobs.following, runs_before=runs.following
    )
    return Answer(jsontext.dump(reply.model_dump(by_alias=True)))
