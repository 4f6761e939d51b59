"""Searches for jobs, runs and events, newest first, each page within a time limit.

A search scans stretches of rows, one after the other, until it has found enough or its time is up, and tells
how far it got. Within a scope, it searches once for each pattern of the scope, since each may have an index
of its own, and merges the pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import JOB_ID_MAX
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.vocabulary import CLOCK_SET
from bedrockjobs.engine.render import error_kind, event_as_unseen, job_as_unseen, job_without_data
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Reader
from bedrockjobs.store.schema import error_in
from bedrockjobs.views.queues import OLDEST_MAX
from bedrockjobs.views.render import (
    filter_of,
    in_scope,
    name_range,
    patterns_of,
    prefix_of_all,
    raised,
    visible_pattern,
)

FIND_S = 0.05
"""Seconds after which a search scans no further stretch: half of the time that a page may take."""

STRETCH_MIN = 500
"""Jobs in the first stretch: few, since the data of each may have megabytes."""

STRETCH_MAX = 50_000
"""Maximum jobs in a stretch: while a search is fast, each stretch is longer than the one before."""

FEW = 10_000
"""Maximum matching jobs or runs for which sorting them is cheaper than scanning all rows in order."""

NAMES_WALKED = 5_000
"""Maximum names scanned for each pattern of a scope; reading them takes 5 ms."""

_ERROR = 4
"""The column of the error in a row of ``newest_failed``."""

_ANY_FINGERPRINT = "~"
"""A text that sorts after every fingerprint."""

_ASIDE = frozenset({"FAILED", "PAUSED"})
_WHERE_FEW = {
    "QUEUED": ("count_queued", "find_queued"),
    "FINISHED": ("count_children", "find_children"),
    "CANCELLED": ("count_cancelled", "find_cancelled"),
}
"""For each state, the statement that counts its jobs, and one that searches few jobs by the state's index."""
_JOB_ID = Job._fields.index("job_id")
_EVENT_KIND, _EVENT_NAME = 2, 3

TimeField = Literal["created", "next", "last"]
"""The timestamp of a job by which a search filters."""


class JobMatches(NamedTuple):
    """Matching jobs, newest first; the lowest jobID that was examined; whether no lower one exists."""

    jobs: list[Job]
    reached: int
    ended: bool

    def without_data(self) -> JobMatches:
        """Return the jobs without their data, which frees memory if only other columns are needed."""
        return self._replace(jobs=list(map(job_without_data, self.jobs)))


class RowMatches(NamedTuple):
    """Matching rows, with the same fields as ``JobMatches``."""

    rows: list[tuple[Any, ...]]
    reached: int
    ended: bool


class RunFound(NamedTuple):
    """A run in a list; ``output`` is a JSON array of its last lines of output."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    status: str
    started: str
    ended: str
    worker: str
    exit_code: int | None
    error: str
    output: str


class RunsFound(NamedTuple):
    """Matching runs, with the same fields as ``JobMatches``."""

    runs: list[RunFound]
    reached: int
    ended: bool


class ScheduleAhead(NamedTuple):
    """A schedule that is not FAILED; ``paused`` is the pattern of the pause that applies to it, or empty."""

    job_id: int
    name: str
    state: str
    repeat: str
    next_run: str
    paused: str


class Finder:
    """Searches jobs, runs, events and schedules, and finds only those within a scope."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Search through ``reader``; without ``data``, hide job data, output and error texts."""
        self._reader = reader
        self._scope = scope
        self._data = data
        self._visible = filter_of(scope)

    async def jobs(
        self,
        *,
        before: int | None = None,
        state: str | None = None,
        pattern: str | None = None,
        text: str | None = None,
        moment: TimeField = "created",
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
        within_s: float | None = None,
    ) -> JobMatches:
        """Return jobs with a jobID below ``before``, a state, a matching name, and ``text`` in their data.

        RUNNING includes RUNQUEUED. The timestamp chosen by ``moment`` is at least ``since`` and before
        ``until``. Raises TimedOut if a single stretch exceeds the query timeout, and Forbidden if the token
        may not search data.
        """
        self._check_text(text)
        # ``most``: maximum open runs examined to find running jobs, more than any installation has at a time.
        filters: dict[str, Any] = {
            "before": JOB_ID_MAX if before is None else before,
            "state": state,
            "text": text,
            "moment": moment,
            "since": since,
            "until": until,
            "most": 10_000,
            "oldest": OLDEST_MAX,
        }

        async def search(one: str | None, within_s: float) -> RowMatches:
            parameters = {**filters, "pattern": one, **name_range(literal_prefix(one or ""))}
            return await self._search(
                await self._statement(state, one, parameters), parameters, _JOB_ID, limit, within_s
            )

        page = await self._together(pattern, search, _JOB_ID, limit, within_s)
        return JobMatches(self._shown(page.rows), page.reached, page.ended)

    async def runs(
        self,
        *,
        before: int | None = None,
        statuses: Collection[str] = (),
        pattern: str | None = None,
        worker: str | None = None,
        text: str | None = None,
        since: str | None = None,
        until: str | None = None,
        error_type: str | None = None,
        only_kept: bool = False,
        limit: int,
        within_s: float | None = None,
    ) -> RunsFound:
        """Return runs with a runID below ``before``, one of the statuses, and a matching name and worker.

        Their error or last lines of output contain ``text``, and their error names ``error_type``; they
        began at ``since`` or later and before ``until``. With ``only_kept``, returns only runs of finished
        jobs that are kept. Raises Forbidden if the token may not search data.
        """
        self._check_text(text)
        self._check_text(error_type, "errorType")
        filters = {
            **raised(error_type),
            "before": JOB_ID_MAX if before is None else before,
            "statuses": " ".join(statuses) or None,
            "worker": worker,
            "text": text and jsontext.dump(text)[1:-1],
            "since": since,
            "until": until,
            "kept": "kept" if only_kept else None,
        }

        async def search(one: str | None, within_s: float) -> RowMatches:
            prefix = literal_prefix(one or "")
            parameters = {**filters, "pattern": one, **name_range(prefix)}
            statement = "find_runs"
            if one is not None and prefix == one:
                statement = "find_runs_of_name"
            elif only_kept and await self._are_few("count_kept"):
                statement = "find_runs_kept"
            elif prefix and await self._are_few("count_runs", parameters):
                statement = "find_few_runs"
            return await self._search(statement, parameters, 0, limit, within_s)

        page = await self._together(pattern, search, 0, limit, within_s)
        runs = [RunFound._make(row) for row in page.rows]
        if not self._data:
            runs = [run._replace(output="[]", error=error_kind(run.error)) for run in runs]
        return RunsFound(runs, page.reached, page.ended)

    async def events(
        self, *, before: int | None = None, kind: str | None = None, pattern: str | None = None, limit: int
    ) -> RowMatches:
        """Return events (as in EventReply) of a kind with a number below ``before`` and a matching name."""
        filters = {"before": JOB_ID_MAX if before is None else before, "kind": kind}

        async def search(one: str | None, within_s: float) -> RowMatches:
            return await self._search("find_events", {**filters, "pattern": one}, 0, limit, within_s)

        page = await self._together(pattern, search, 0, limit, None)
        return page if self._data else page._replace(rows=list(map(event_as_unseen, page.rows)))

    async def schedules_ahead(
        self, pattern: str | None, now: str, limit: int
    ) -> tuple[list[ScheduleAhead], bool]:
        """Return the schedules that are due next, the soonest first, and whether there are more."""
        parameters = {"pattern": pattern, "now": now, **self._among(pattern)}
        page = await self._reader.view("schedules_ahead", parameters, limit, scans=True)
        schedules = [
            one._replace(paused=visible_pattern(one.paused, self._scope)) if one.paused else one
            for one in map(ScheduleAhead._make, page.rows)
        ]
        return schedules, page.more

    async def schedules_that_failed(self, limit: int) -> list[str]:
        """Return the names of schedules whose last run failed."""
        parameters = {"most": 10_000, **self._among(None)}  # read in 10 to 15 ms
        rows = (await self._reader.view("schedules_that_failed", parameters, limit, scans=True)).rows
        return [row[0] for row in rows]

    def _shown(self, rows: Iterable[tuple[Any, ...]]) -> list[Job]:
        """Return jobs from rows, without their data if the token may not see data."""
        jobs = map(job_from, rows)
        return list(jobs if self._data else map(job_as_unseen, jobs))

    def _check_text(self, text: str | None, place: str = "text") -> None:
        """Raise Forbidden for a search in hidden data, since a match would reveal it."""
        if text and not self._data:
            raise Forbidden(detail=f"{place}: this token may not see the data that would be searched")

    def _among(self, pattern: str | None) -> dict[str, Any]:
        """Return the parameters that limit a statement to names of a pattern's prefix and the scope."""
        return {**name_range(prefix_of_all(pattern, self._scope)), "visible": self._visible}

    async def _together(
        self,
        pattern: str | None,
        search: Callable[[str | None, float], Awaitable[RowMatches]],
        number: int,
        limit: int,
        within_s: float | None,
    ) -> RowMatches:
        """Search once for each pattern of the scope, each in an equal share of the time, and merge the pages.

        Leaves out rows whose numbers not every search has reached.
        """
        patterns = patterns_of(pattern, self._scope)
        if not patterns:
            return RowMatches([], 0, ended=True)
        within_s = (FIND_S if within_s is None else within_s) / len(patterns)
        pages = [await search(one, within_s) for one in patterns]
        if len(pages) == 1:
            return pages[0]
        reached = max((page.reached for page in pages if not page.ended), default=0)
        rows_by_number = {row[number]: row for page in pages for row in page.rows if row[number] >= reached}
        rows = [rows_by_number[key] for key in sorted(rows_by_number, reverse=True)]
        if len(rows) > limit:
            return RowMatches(rows[:limit], rows[limit - 1][number], ended=False)
        return RowMatches(rows, reached, ended=all(page.ended for page in pages))

    async def _search(
        self, statement: str, parameters: dict[str, Any], number: int, limit: int, within_s: float
    ) -> RowMatches:
        """Scan stretches, one after the other; ``number`` is the column by which rows are ordered."""
        loop = asyncio.get_running_loop()
        deadline, stretch = loop.time() + within_s, STRETCH_MIN
        found: list[tuple[Any, ...]] = []
        while True:
            began = loop.time()
            parameters["stretch"] = stretch
            page = await self._reader.view(statement, parameters, limit - len(found), scans=True)
            lowest, looked = page.rows[0][:2]
            found += [row[2:] for row in page.rows if row[2] is not None]
            if page.more:
                return RowMatches(found, found[-1][number], ended=False)
            reached = parameters["before"] if lowest is None else lowest
            now = loop.time()
            if looked < stretch or len(found) == limit or now >= deadline:
                return RowMatches(found, reached, ended=looked < stretch)
            parameters["before"] = reached
            if now - began < within_s / 8:
                stretch = min(stretch * 4, STRETCH_MAX)

    async def _statement(self, state: str | None, pattern: str | None, parameters: dict[str, Any]) -> str:
        """Return the name of the statement that scans the fewest jobs."""
        if pattern is not None and parameters["low"] == pattern:
            return "find_named"
        if state in _ASIDE:
            return "find_aside"
        if state == "RUNNING":
            return "find_running"
        if parameters["low"] and await self._are_few("count_names", parameters):
            return "find_few"
        if state in _WHERE_FEW and await self._are_few(_WHERE_FEW[state][0]):
            return _WHERE_FEW[state][1]
        return "find_any"

    async def _are_few(self, statement: str, parameters: Mapping[str, Any] | None = None) -> bool:
        """Return whether a statement counts at most ``FEW`` rows."""
        counted = await self._reader.view(statement, {**(parameters or {}), "most": FEW + 1}, 1)
        return bool(counted.rows[0][0] <= FEW)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first names that begin with ``prefix``."""
        if self._scope is not None:
            return await self._visible_names(prefix, limit, self._scope)
        page = await self._reader.view("names", name_range(prefix), limit)
        return [row[0] for row in page.rows]

    async def _visible_names(self, prefix: str, limit: int, scope: Scope) -> list[str]:
        names: set[str] = set()
        for pattern in scope.patterns:
            low = max(prefix, literal_prefix(pattern), key=len)
            parameters = {"pattern": pattern, "after": "", **name_range(low), "walked": NAMES_WALKED}
            rows = (await self._reader.view("names_of_jobs", parameters, limit, scans=True)).rows
            names.update(row[0] for row in rows if row[0].startswith(prefix) and scope.covers(row[0]))
        return sorted(names)[:limit]

    async def failed_alike(
        self, kind: str, pattern: str | None, fingerprint: str | None, before: int, limit: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Return groups of failures whose newest jobID or runID is below ``before``, and whether more follow.

        A row has the fingerprint, how many failures, names and unseen failures there are, the newest and the
        oldest jobID or runID, and when the oldest one failed.
        """
        parameters = {
            "pattern": pattern,
            "visible": self._visible,
            "before": before,
            "low": fingerprint or "",
            "high": fingerprint or _ANY_FINGERPRINT,
        }
        page = await self._reader.view(f"failed_{kind}s_alike", parameters, limit, scans=True)
        return page.rows, page.more

    async def all_failed_alike(
        self, kind: str, pattern: str | None, fingerprint: str, before: int | None, limit: int
    ) -> tuple[list[tuple[int, str]], bool]:
        """Return jobID or runID and name of failures below ``before``, newest first; whether more follow."""
        parameters = {
            "fingerprint": fingerprint,
            "pattern": pattern,
            "visible": self._visible,
            "before": JOB_ID_MAX if before is None else before,
        }
        page = await self._reader.view(f"all_failed_{kind}s_alike", parameters, limit, scans=True)
        return [(number, name) for number, name in page.rows], page.more

    async def newest_failed(
        self, kind: str, pattern: str | None, fingerprints: list[str], before: int, members: int, told: int
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Return the newest ``members`` failures of each group with a jobID or runID below ``before``.

        A row has the state, name, jobID or runID, time of failure, error, worker and start, and when and by
        whom it was acknowledged. Only the first ``told`` of a group have their error, since reading it takes
        time.
        """
        parameters = {
            "groups": jsontext.dump(fingerprints),
            "pattern": pattern,
            "visible": self._visible,
            "before": before,
            "members": members,
        }
        limit = len(fingerprints) * members
        groups: dict[str, list[tuple[Any, ...]]] = {}
        page = await self._reader.view(f"newest_failed_{kind}s", parameters, limit, scans=True)
        for fingerprint, *row in page.rows:
            newest = groups.setdefault(fingerprint, [])
            error = row[_ERROR] if len(newest) < told else ""
            if kind == "job" and error:
                error = error_in(error)
            row[_ERROR] = error if self._data else error_kind(error)
            newest.append(tuple(row))
        return groups

    async def failed_by_hour(
        self, pattern: str | None, fingerprints: Collection[str], hours: Sequence[str]
    ) -> dict[str, list[int]]:
        """Return for some groups the number of failed runs that started in each of some hours.

        ``hours`` are timestamps, the oldest first; each hour ends where the next begins, and the last one is
        open. A group without such runs is left out. The last run of a FAILED job counts too. If the clock was
        set back, runs of that time may count in an hour next to theirs.
        """
        parameters = {
            "groups": jsontext.dump(list(fingerprints)),
            "hours": jsontext.dump(list(hours)),
            "pattern": pattern,
            "visible": self._visible,
        }
        limit = len(fingerprints) * len(hours)
        counts: dict[str, list[int]] = {fingerprint: [] for fingerprint in fingerprints}
        page = await self._reader.view("failed_by_hour", parameters, limit, scans=True)
        for fingerprint, _, count in page.rows:
            counts[fingerprint].append(count)
        return {fingerprint: each for fingerprint, each in counts.items() if any(each)}

    async def seen(self, kind: str, numbers: Collection[int]) -> dict[int, str]:
        """Return when each ``job`` or ``run`` was acknowledged; others are left out."""
        parameters = {"kind": kind, "numbers": jsontext.dump(list(numbers))}
        page = await self._reader.view("seen_of", parameters, len(numbers))
        return dict(page.rows)

    async def events_of(self, job_id: int) -> list[tuple[Any, ...]]:
        """Return the newest events of a job and of the clock (as in EventReply), newest first.

        Every scope sees that the clock was set: otherwise, the times of other events would look out of order.
        """
        page = await self._reader.view("events_of_job", {"jobID": job_id}, 100, scans=True)
        rows = [
            row
            for row in page.rows
            if row[_EVENT_KIND] == CLOCK_SET or in_scope(self._scope, row[_EVENT_NAME])
        ]
        return rows if self._data else list(map(event_as_unseen, rows))

    async def history_of(self, job_id: int, ticks: int, runs: int) -> tuple[list[Any], list[Any]]:
        """Return up to ``ticks`` rows of a schedule's tick history and up to ``runs`` runs, newest first."""
        history = await self._reader.view("ticks", {"jobID": job_id, "before": "~"}, ticks)
        tries = await self._reader.view("tries_of_schedule", {"jobID": job_id}, runs)
        return history.rows, tries.rows
