"""How a person finds jobs, failed runs and events: page by page, each page within a time.

A search looks at one stretch after the other, the newest first, until it has found enough or its time is
over, and says how far it got. For somebody who sees some names only it searches by each pattern that is left
of what was wanted, and puts the pages together. It knows no page and no protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.caller import Scope
from bedrockjobs.base.config import JOB_ID_MAX, NAME_CHARS_MAX
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.engine.render import error_kind, event_as_unseen, job_as_unseen, job_without_data
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.base import Reader
from bedrockjobs.store.schema import error_in
from bedrockjobs.views.queues import OLDEST_MAX
from bedrockjobs.views.visible import filter_of, patterns_of, prefix_of_all, sees, visible_pattern

FIND_S = 0.05
"""Time after which a search looks at no further stretch: half of what a page may take."""

STRETCH_MIN = 500
"""Jobs of the first stretch: few, because a job's data may be megabytes."""

STRETCH_MAX = 50_000
"""Jobs of the longest stretch."""

FEW = 10_000
"""Jobs, or runs, with a common beginning of their names that are sorted rather than sought among all."""

EVENTS_SHOWN = 100
"""The newest events of a job that are shown."""

OPEN_MAX = 10_000
"""Open runs, the newest, whose jobs are found as running: more than machines have workers."""

NAMES_WALKED = 5_000
"""Names that are looked at for those that match one pattern of whoever sees some only: 5 ms of the reader."""

SCHEDULES_LOOKED_AT = 10_000
"""Schedules that are looked at for one in trouble: 10 to 15 ms of the reader."""

_ERROR = 5
"""Where a row of ``newest_failed`` has its error."""

_ANY_FINGERPRINT = "~"
"""A text that comes after every fingerprint."""

_HIGHEST = "\U0010ffff" * NAME_CHARS_MAX
_ASIDE = frozenset({"FAILED", "PAUSED"})
_WHERE_FEW = {
    "QUEUED": ("count_queued", "find_queued"),
    "FINISHED": ("count_children", "find_children"),
    "CANCELLED": ("count_children", "find_children"),
}
"""States whose jobs an index has: what counts them, and what goes through them where they are few."""
_FOUND_FROM = 2
_JOB_ID = Job._fields.index("job_id")
_EVENT_NAME = 3

Moment = Literal["created", "next", "last"]
"""A time of a job: when it was created, its next run, its last run."""


class Found(NamedTuple):
    """Jobs, the newest first; the jobID down to which was looked; whether there are none below it."""

    jobs: list[Job]
    reached: int
    ended: bool

    def without_data(self) -> Found:
        """Return the same for whoever shows no data, so that it is not kept until the rest is found."""
        return self._replace(jobs=list(map(job_without_data, self.jobs)))


class Rows(NamedTuple):
    """The same of rows, the newest first."""

    rows: list[tuple[Any, ...]]
    reached: int
    ended: bool


class RunFound(NamedTuple):
    """A run in a list; ``output`` is a JSON array of its last lines."""

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
    """The same of runs."""

    runs: list[RunFound]
    reached: int
    ended: bool


class ScheduleAhead(NamedTuple):
    """A schedule that has not FAILED; ``paused`` is a pattern that pauses it, or empty."""

    job_id: int
    name: str
    state: str
    repeat: str
    next_run: str
    paused: str


class Finder:
    """The searches of one server."""

    def __init__(self, reader: Reader, scope: Scope | None = None, *, data: bool = True) -> None:
        """Search with ``reader``, for somebody who sees the names of ``scope``, and ``data`` or not."""
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
        moment: Moment = "created",
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
        within_s: float | None = None,
    ) -> Found:
        """Return jobs below ``before`` in a state, whose name matches a GLOB and whose data holds ``text``.

        RUNNING stands for RUNQUEUED too. ``moment`` is the time that must be at ``since`` or later and before
        ``until``, both of them stamps.
        Raises TimedOut where one stretch alone took longer than a Query may, and Forbidden for the text.
        """
        self._check_text(text)
        given: dict[str, Any] = {
            "before": JOB_ID_MAX if before is None else before,
            "state": state,
            "text": text,
            "moment": moment,
            "since": since,
            "until": until,
            "most": OPEN_MAX,
            "oldest": OLDEST_MAX,
        }

        async def search(one: str | None, within_s: float) -> Rows:
            prefix = literal_prefix(one or "")
            asked = {**given, "pattern": one, "low": prefix, "high": prefix + _HIGHEST}
            return await self._search(
                await self._statement(state, one, asked), asked, _JOB_ID, limit, within_s
            )

        found = await self._together(pattern, search, _JOB_ID, limit, within_s)
        return Found(self._shown(found.rows), found.reached, found.ended)

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
        kept: bool = False,
        limit: int,
    ) -> RunsFound:
        """Return runs below ``before`` with one of some statuses, whose name and worker match GLOBs.

        ``text`` stands in their error or in the last lines of their output; they began at ``since`` or later
        and before ``until``. With ``kept`` they are of jobs that ended well and are kept for a time.
        Raises Forbidden for the text.
        """
        self._check_text(text)
        given = {
            "before": JOB_ID_MAX if before is None else before,
            "statuses": " ".join(statuses) or None,
            "worker": worker,
            "text": text and jsontext.dump(text)[1:-1],
            "since": since,
            "until": until,
            "kept": "kept" if kept else None,
        }

        async def search(one: str | None, within_s: float) -> Rows:
            prefix = literal_prefix(one or "")
            asked = {**given, "pattern": one, "low": prefix, "high": prefix + _HIGHEST}
            statement = "find_runs"
            if one is not None and prefix == one:
                statement = "find_runs_of_name"
            elif kept and await self._are_few("count_kept"):
                statement = "find_runs_kept"
            elif prefix and await self._are_few("count_runs", asked):
                statement = "find_few_runs"
            return await self._search(statement, asked, 0, limit, within_s)

        found = await self._together(pattern, search, 0, limit, None)
        runs = [RunFound._make(row) for row in found.rows]
        if not self._data:
            runs = [run._replace(output="[]", error=error_kind(run.error)) for run in runs]
        return RunsFound(runs, found.reached, found.ended)

    async def events(
        self, *, before: int | None = None, kind: str | None = None, pattern: str | None = None, limit: int
    ) -> Rows:
        """Return events (as in EventReply) below ``before``, of a kind, whose name matches a GLOB."""
        given = {"before": JOB_ID_MAX if before is None else before, "kind": kind}

        async def search(one: str | None, within_s: float) -> Rows:
            return await self._search("find_events", {**given, "pattern": one}, 0, limit, within_s)

        found = await self._together(pattern, search, 0, limit, None)
        return found if self._data else found._replace(rows=list(map(event_as_unseen, found.rows)))

    async def schedules_ahead(
        self, pattern: str | None, now: str, limit: int
    ) -> tuple[list[ScheduleAhead], bool]:
        """Return the schedules that run next, and whether there are others behind them."""
        given = {"pattern": pattern, "now": now, **self._among(pattern)}
        page = await self._reader.view("schedules_ahead", given, limit, scans=True)
        found = [
            one._replace(paused=visible_pattern(one.paused, self._scope)) if one.paused else one
            for one in map(ScheduleAhead._make, page.rows)
        ]
        return found, page.more

    async def schedules_that_failed(self, limit: int) -> list[str]:
        """Return the names of schedules whose last run failed."""
        given = {"most": SCHEDULES_LOOKED_AT, **self._among(None)}
        rows = (await self._reader.view("schedules_that_failed", given, limit, scans=True)).rows
        return [row[0] for row in rows]

    def _shown(self, rows: Iterable[tuple[Any, ...]]) -> list[Job]:
        """Return jobs with what may be seen of them."""
        found = map(job_from, rows)
        return list(found if self._data else map(job_as_unseen, found))

    def _check_text(self, text: str | None) -> None:
        """Refuse to search in what is not seen: whether it is found would tell of it."""
        if text and not self._data:
            raise Forbidden(detail="text: what would be searched is not shown to this token")

    def _among(self, pattern: str | None) -> dict[str, Any]:
        """Return what a statement is given to find the names that are seen, by their beginning first."""
        prefix = prefix_of_all(pattern, self._scope)
        return {"low": prefix, "high": prefix + _HIGHEST, "visible": self._visible}

    async def _together(
        self,
        pattern: str | None,
        search: Callable[[str | None, float], Awaitable[Rows]],
        number: int,
        limit: int,
        within_s: float | None,
    ) -> Rows:
        """Search by each pattern that is left of what was wanted, each in its part of the time.

        Of what was found comes what lies above the lowest number that all of them have reached.
        """
        patterns = patterns_of(pattern, self._scope)
        if not patterns:
            return Rows([], 0, ended=True)
        within_s = (FIND_S if within_s is None else within_s) / len(patterns)
        pages = [await search(one, within_s) for one in patterns]
        if len(pages) == 1:
            return pages[0]
        reached = max((page.reached for page in pages if not page.ended), default=0)
        found = {row[number]: row for page in pages for row in page.rows if row[number] >= reached}
        rows = [found[key] for key in sorted(found, reverse=True)]
        if len(rows) > limit:
            return Rows(rows[:limit], rows[limit - 1][number], ended=False)
        return Rows(rows, reached, ended=all(page.ended for page in pages))

    async def _search(
        self, statement: str, given: dict[str, Any], number: int, limit: int, within_s: float
    ) -> Rows:
        """Look at one stretch after the other; ``number`` is the column that says how far a row is."""
        loop = asyncio.get_running_loop()
        deadline, stretch = loop.time() + within_s, STRETCH_MIN
        found: list[tuple[Any, ...]] = []
        while True:
            began = loop.time()
            given["stretch"] = stretch
            page = await self._reader.view(statement, given, limit - len(found), scans=True)
            lowest, looked = page.rows[0][:_FOUND_FROM]
            found += [row[_FOUND_FROM:] for row in page.rows if row[_FOUND_FROM] is not None]
            if page.more:
                return Rows(found, found[-1][number], ended=False)
            reached = given["before"] if lowest is None else lowest
            now = loop.time()
            if looked < stretch or len(found) == limit or now >= deadline:
                return Rows(found, reached, ended=looked < stretch)
            given["before"] = reached
            if now - began < within_s / 8:
                stretch = min(stretch * 4, STRETCH_MAX)

    async def _statement(self, state: str | None, pattern: str | None, given: dict[str, Any]) -> str:
        """Return the statement that has to look at the fewest jobs."""
        if pattern is not None and given["low"] == pattern:
            return "find_named"
        if state in _ASIDE:
            return "find_aside"
        if state == "RUNNING":
            return "find_running"
        if given["low"] and await self._are_few("count_names", given):
            return "find_few"
        if state in _WHERE_FEW and await self._are_few(_WHERE_FEW[state][0]):
            return _WHERE_FEW[state][1]
        return "find_any"

    async def _are_few(self, statement: str, given: Mapping[str, Any] | None = None) -> bool:
        """Tell whether what a statement counts is little enough to be sorted."""
        counted = await self._reader.view(statement, {**(given or {}), "most": FEW + 1}, 1)
        return bool(counted.rows[0][0] <= FEW)

    async def names(self, prefix: str, limit: int) -> list[str]:
        """Return the first names that begin with ``prefix``."""
        if self._scope is not None:
            return await self._visible_names(prefix, limit, self._scope)
        page = await self._reader.view("names", {"low": prefix, "high": prefix + _HIGHEST}, limit)
        return [row[0] for row in page.rows]

    async def _visible_names(self, prefix: str, limit: int, scope: Scope) -> list[str]:
        found: set[str] = set()
        for pattern in scope.patterns:
            low = max(prefix, literal_prefix(pattern), key=len)
            given = {
                "pattern": pattern, "after": "", "low": low, "high": low + _HIGHEST, "walked": NAMES_WALKED,
            }  # fmt: skip
            rows = (await self._reader.view("names_of_jobs", given, limit, scans=True)).rows
            found.update(row[0] for row in rows if row[0].startswith(prefix) and scope.sees(row[0]))
        return sorted(found)[:limit]

    async def failed_alike(
        self, kind: str, pattern: str | None, fingerprint: str | None, before: int, limit: int
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Return groups of failed jobs or runs whose newest number is below ``before``; whether more follow.

        A row is a fingerprint, how many failed, of how many names, how many of them nobody has seen, the
        newest and the oldest number, and when the oldest one failed.
        """
        given = {
            "pattern": pattern, "visible": self._visible, "before": before,
            "low": fingerprint or "", "high": fingerprint or _ANY_FINGERPRINT,
        }  # fmt: skip
        page = await self._reader.view(f"failed_{kind}s_alike", given, limit, scans=True)
        return page.rows, page.more

    async def newest_failed(
        self, kind: str, pattern: str | None, fingerprints: list[str], before: int, members: int
    ) -> list[tuple[Any, ...]]:
        """Return the newest ``members`` failures below ``before`` of some groups, the newest first.

        A row is a fingerprint, a state, a name, a number, when it failed, its error, worker and start, and
        when and by whom it was seen.
        """
        given = {
            "groups": jsontext.dump(fingerprints), "pattern": pattern, "visible": self._visible,
            "before": before, "members": members,
        }  # fmt: skip
        limit = len(fingerprints) * members
        rows = (await self._reader.view(f"newest_failed_{kind}s", given, limit, scans=True)).rows
        if kind == "job":
            rows = [(*row[:_ERROR], error_in(row[_ERROR]), *row[_ERROR + 1 :]) for row in rows]
        if self._data:
            return rows
        return [(*row[:_ERROR], error_kind(row[_ERROR]), *row[_ERROR + 1 :]) for row in rows]

    async def events_of(self, job_id: int) -> list[tuple[Any, ...]]:
        """Return the newest events of a job (as in EventReply), the newest first."""
        page = await self._reader.view("events_of_job", {"jobID": job_id}, EVENTS_SHOWN, scans=True)
        rows = [row for row in page.rows if sees(self._scope, row[_EVENT_NAME])]
        return rows if self._data else list(map(event_as_unseen, rows))

    async def history_of(self, job_id: int, ticks: int, runs: int) -> tuple[list[Any], list[Any]]:
        """Return the last lines of the ledger of a schedule that may be seen, and its newest runs."""
        ledger = await self._reader.view("ticks", {"jobID": job_id, "before": "~"}, ticks)
        tries = await self._reader.view("tries_of_schedule", {"jobID": job_id}, runs)
        return ledger.rows, tries.rows
