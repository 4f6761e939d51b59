"""The overview page: problems, current counts, and throughput over the last hour, day or week.

The views limit what is counted, and the charts come from stored statistics: no table is counted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.clock import moment_of
from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.glob import literal
from bedrockjobs.commands import overview as overview_command
from bedrockjobs.commands.overview import OverviewReply, QueueHistoryReply, QueueStep
from bedrockjobs.pages.formatting import number
from bedrockjobs.pages.site import NEEDED, Pages, Site, json_answer
from bedrockjobs.views.problems import short

RANGES = ("15m", "1h", "24h", "7d", "30d")
"""The ranges of ``HISTORY_RANGES`` that the charts offer."""

STEPS = {60: "a minute", 600: "per 10 minutes", 3_600: "an hour", 14_400: "per 4 hours"}
"""The words for each step of a history in titles, by its seconds."""

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
"""For each kind of problem, the page that has details, and the query of its URL."""

_OF_NAMES: dict[str, Callable[[str], str]] = {"no worker": literal, "own command": literal, "paused": str}
"""The kinds of problems that link to the queues page, and how their name becomes the pattern of the link."""

NOTICES = frozenset({"paused", "drained", "blocked"})
"""Kinds of problems that are intended, or that end by themselves."""

NEEDS_SHOWN = 4
"""Maximum rows of problems, one for each kind: a longer list would hide the first ones."""

_OF_SEVERAL = {
    "no worker": "{} names have no worker",
    "own command": "{} names have no worker that runs commands of jobs",
    "blocked": "{} locks hold jobs back",
    "messages": "{} notification rules fail to send",
    "drained": "{} workers take no jobs: they are drained",
    "paused": "{} pauses are in force",
}
"""The text of a row for several problems of a kind, with a place for their number."""

_SERIES = tuple(name for name in QueueStep.model_fields if name != "at")
"""The names of the series in the data of the charts."""


class Notice(NamedTuple):
    """A problem or notice: a sentence, and the page with details."""

    kind: str
    name: str
    weight: str
    sentence: str
    path: str
    query: dict[str, str]


class Need(NamedTuple):
    """A row of the overview: the problems of one kind, or of all kinds that have no row."""

    title: str
    """What the problems have in common; empty for a single problem."""
    notices: list[Notice]
    path: str
    query: dict[str, str]

    @property
    def weight(self) -> str:
        """Return ``problem`` if one of the notices has this weight, else ``notice``."""
        return min((notice.weight for notice in self.notices), key=lambda weight: weight != "problem")


async def overview(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the overview."""
    chosen = range_of(request)
    reply = await site.views.standings.overview(ahead=False)
    history = None if site.caller.scope is not None else await site.views.histories.of_all(chosen)
    changes = {} if history is None else _changes(reply, await site.views.histories.of_all("1h"))
    problems = _problems(reply, 0 if history is None else history.total.lost, chosen)
    return await site.show(
        request,
        "overview.html",
        title="Overview",
        counts=_counts(reply),
        changes=changes,
        found=reply,
        needs=_folded(problems),
        summary=_status(problems),
        needed=NEEDED,
        sums=None if history is None else history.total,
        ranges=RANGES,
        chosen=chosen,
        step=None if history is None else STEPS[history.step],
    )


async def chart(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with the data of the charts of a name, or of all names together."""
    chosen, name = range_of(request), request.query.get("name")
    histories = site.views.histories
    history = await (histories.of_name(name, chosen) if name else histories.of_all(chosen))
    return json_answer(arrays(history))


PAGES: Pages = (("/ui/", overview), ("/ui/chart", chart))


def arrays(history: QueueHistoryReply) -> dict[str, list[Any]]:
    """Return a history as arrays of equal length; ``at`` has Unix times."""
    return {
        "at": [int(moment_of(step.at).timestamp()) for step in history.steps],
        **{name: [getattr(step, name) for step in history.steps] for name in _SERIES},
    }


def range_of(request: web.Request) -> str:
    """Return the range of time that a page shows; raises BadArguments."""
    chosen = request.query.get("range") or "1h"
    if chosen not in RANGES:
        raise BadArguments("Malformed range", f"range: expected one of {', '.join(RANGES)}")
    return chosen


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


def _changes(reply: OverviewReply, hour: QueueHistoryReply) -> dict[str, int]:
    """Return how many more jobs than an hour ago are queued and have failed, without unknown numbers."""
    changes = {"failed": max(hour.total.failed - hour.total.retried, 0)}
    # A count of the next 15 minutes may stand for the count of an hour ago.
    before = [step.depth for step in hour.steps[:15] if step.depth is not None]
    if before:
        now = reply.ready + reply.later + reply.paused + reply.blocked + reply.mocked
        changes["queued"] = now - before[0]
    return changes


def _problems(reply: OverviewReply, lost: int, chosen: str) -> list[Notice]:
    """Return the problems, then the notices; ``lost`` runs in the range are a problem."""
    problems = [_shown(problem) for problem in reply.problems]
    if lost:
        runs = "1 run was" if lost == 1 else f"{number(lost)} runs were"
        sentence = f"{runs} lost in the last {chosen}: a worker fell silent."
        problems.append(Notice("lost", "", "problem", sentence, "ui/failures", {}))
    return sorted(problems, key=lambda problem: problem.weight != "problem")


def _status(problems: list[Notice]) -> tuple[str, str]:
    """Return the mark and the text of the status line: how many problems need attention."""
    broken = sum(problem.weight == "problem" for problem in problems)
    if broken:
        return "problem", "1 thing needs you" if broken == 1 else f"{broken} things need you"
    if problems:
        return "notice", "1 thing to know" if len(problems) == 1 else f"{len(problems)} things to know"
    return "well", "Nothing is wrong."


def _folded(problems: list[Notice]) -> list[Need]:
    """Return a row for each kind of problem; beyond ``NEEDS_SHOWN``, one row for all other kinds."""
    kinds: dict[str, list[Notice]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    needs = []
    for kind, notices in kinds.items():
        if len(notices) == 1:
            needs.append(Need("", notices, notices[0].path, notices[0].query))
        else:
            # One without a name stands for those beyond the limit of problems.
            named = sum(1 for notice in notices if notice.name)
            several = str(named) if named == len(notices) else f"More than {named}"
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
