"""The overview page: problems, current counts, and throughput over the last hour, day or week.

Counts are bounded by the views, and charts come from per-minute statistics, so no table is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import moment_of, timestamp
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.glob import literal
from bedrockjobs.base.jsontext import dump
from bedrockjobs.commands import overview as overview_command
from bedrockjobs.commands.overview import OverviewReply
from bedrockjobs.pages.formatting import number
from bedrockjobs.pages.site import HEADERS, NEEDED, Pages, Site
from bedrockjobs.views.problems import short

RANGES = {"1h": (3_600, 60), "24h": (86_400, 600), "7d": (604_800, 3_600)}
"""Ranges of the charts: their length and step in seconds (60, 144, 168 steps)."""

STEPS = {60: "a minute", 600: "per 10 minutes", 3_600: "an hour"}
"""Names of the steps, for titles."""

PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "disk low": ("ui/kept", {}),
    "no worker": ("ui/workers", {}),
    "own command": ("ui/workers", {}),
    "drained": ("ui/workers", {}),
    "late": ("ui/jobs", {"state": "QUEUED"}),
    "blocked": ("ui/jobs", {"state": "RUNNING"}),
    "failed": ("ui/failures", {}),
    "last run failed": ("ui/schedules", {}),
    "messages": ("ui/events", {"kind": "message lost"}),
    "held": ("ui/jobs", {"state": "QUEUED"}),
    "paused": ("ui/queues", {}),
}
"""The page with details about each kind of problem."""

_OF_NAMES: dict[str, Callable[[str], str]] = {"no worker": literal, "own command": literal, "paused": str}
"""Kinds of problems about a name or pattern, which link to the queues page."""

NOTICES = frozenset({"paused", "drained", "blocked"})
"""Kinds of problems that are intended, or resolve themselves."""

NEEDS_SHOWN = 4
"""Rows of problems, one for each kind: a longer list hides the first ones."""

_OF_SEVERAL = {
    "no worker": "{} names have no worker",
    "own command": "{} names have no worker that runs commands of jobs",
    "blocked": "{} locks hold jobs back",
    "messages": "{} notification rules fail to send",
    "drained": "{} workers take no jobs: they are drained",
    "paused": "{} pauses are in force",
}
"""What a row says of several problems of a kind."""

_SERIES = ("created", "taken", "finished", "failed", "retried", "lost")


class Notice(NamedTuple):
    """A problem or notice: a sentence, and the page with details."""

    kind: str
    name: str
    weight: str
    sentence: str
    path: str
    query: dict[str, str]


class Need(NamedTuple):
    """A row of the overview: the problems of one kind, or those left over."""

    title: str
    """What they have in common; empty for a single problem."""
    notices: list[Notice]
    path: str
    query: dict[str, str]

    @property
    def weight(self) -> str:
        """Return the greatest weight of its problems."""
        return min((notice.weight for notice in self.notices), key=lambda weight: weight != "problem")


async def overview(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the overview."""
    chosen = _range(request)
    reply = await site.views.standings.overview(ahead=False)
    rows = await _steps(site, chosen) if site.caller.scope is None else []
    sums = {name: sum(row[name] for row in rows) for name in _SERIES}
    problems = _problems(reply, sums, chosen)
    return await site.show(
        request,
        "overview.html",
        title="Overview",
        counts=_counts(reply),
        found=reply,
        needs=_folded(problems),
        summary=_status(problems),
        needed=NEEDED,
        sums=sums,
        ranges=tuple(RANGES),
        chosen=chosen,
        step=STEPS[RANGES[chosen][1]],
    )


async def chart(site: Site, request: web.Request) -> web.StreamResponse:
    """Return the data of a chart: arrays of equal length, the first of Unix times."""
    rows = await _steps(site, _range(request))
    series: dict[str, list[Any]] = {"at": [int(moment_of(row["minute"]).timestamp()) for row in rows]}
    for name in (*_SERIES, "wait_ms"):
        series[name] = [row[name] for row in rows]
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(text=dump(series), content_type="application/json", headers=headers)


PAGES: Pages = (("/ui/", overview), ("/ui/chart", chart))


def _range(request: web.Request) -> str:
    chosen = request.query.get("range") or "1h"
    if chosen not in RANGES:
        raise BadArguments("Malformed range", f"range: expected one of {', '.join(RANGES)}")
    return chosen


async def _steps(site: Site, chosen: str) -> list[dict[str, Any]]:
    """Return a row for each step of a range, including empty ones, oldest first."""
    back_s, step_s = RANGES[chosen]
    now = int(site.now().timestamp())
    first = now - now % step_s - back_s + step_s
    rows = await site.views.stats(_timestamp(first), step_s)
    by_minute = {row["minute"]: row for row in rows}
    nothing = {**dict.fromkeys(_SERIES, 0), "wait_ms": None}
    return [
        by_minute.get(_timestamp(at), {"minute": _timestamp(at), **nothing})
        for at in range(first, now + 1, step_s)
    ]


def _timestamp(at: int) -> str:
    return timestamp(datetime.fromtimestamp(at, UTC))


def _counts(reply: OverviewReply) -> dict[str, tuple[int, bool]]:
    """Return each count, and whether it is a lower bound."""
    names = (
        "ready",
        "later",
        "running",
        "paused",
        "blocked",
        "mocked",
        "children",
        "failed",
        "unseen",
        "repeating",
    )
    return {name: (getattr(reply, name), name in reply.more) for name in names}


def _problems(reply: OverviewReply, sums: dict[str, int], chosen: str) -> list[Notice]:
    """Return problems before notices, and lost runs among the problems."""
    problems = [_shown(problem) for problem in reply.problems]
    if sums["lost"]:
        runs = "1 run was" if sums["lost"] == 1 else f"{number(sums['lost'])} runs were"
        sentence = f"{runs} lost in the last {chosen}: a worker fell silent."
        problems.append(Notice("lost", "", "problem", sentence, "ui/failures", {}))
    return sorted(problems, key=lambda problem: problem.weight != "problem")


def _status(problems: list[Notice]) -> tuple[str, str]:
    """Return the status line with its mark: how many problems need attention."""
    broken = sum(problem.weight == "problem" for problem in problems)
    if broken:
        return "problem", "1 thing needs you" if broken == 1 else f"{broken} things need you"
    if problems:
        return "notice", "1 thing to know" if len(problems) == 1 else f"{len(problems)} things to know"
    return "well", "Nothing is wrong."


def _folded(problems: list[Notice]) -> list[Need]:
    """Return a row for each kind of problem, and one for the kinds that are too many."""
    kinds: dict[str, list[Notice]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    needs = []
    for kind, notices in kinds.items():
        if len(notices) == 1:
            needs.append(Need("", notices, notices[0].path, notices[0].query))
        else:
            # The last one may stand for those beyond the limit of problems; it has no name then.
            several = str(len(notices)) if notices[-1].name else f"More than {len(notices) - 1}"
            needs.append(Need(_OF_SEVERAL[kind].format(several), notices, *PLACES[kind]))
    if len(needs) <= NEEDS_SHOWN:
        return needs
    first, rest = needs[: NEEDS_SHOWN - 1], needs[NEEDS_SHOWN - 1 :]
    left = [notice for need in rest for notice in need.notices]
    return [*first, Need(f"{len(left)} more", left, "", {})]


def _shown(problem: overview_command.Trouble) -> Notice:
    path, query = PLACES[problem.kind]
    if problem.name and problem.kind in _OF_NAMES:
        path, query = "ui/queues", {"name": _OF_NAMES[problem.kind](problem.name)}
    if problem.kind == "drained" and problem.name:
        query = {"name": literal(problem.name)}
    if problem.kind == "last run failed" and problem.count == 1:
        query = {"name": literal(problem.name)}
    weight = "notice" if problem.kind in NOTICES else "problem"
    begins_with_a_name = problem.name and problem.detail.startswith(short(problem.name))
    detail = problem.detail if begins_with_a_name else f"{problem.detail[:1].upper()}{problem.detail[1:]}"
    return Notice(problem.kind, problem.name, weight, f"{detail}.", path, query)
