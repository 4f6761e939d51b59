"""The pages that show tables: queues, workers, failures, events, retention, limits, rules and access."""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.config import (
    LIST_MAX,
    NAME_CHARS_MAX,
    PER_SECOND_MAX,
    QUEUED_LIMIT_MAX,
    RUNNING_LIMIT_MAX,
    SEEN_AT_ONCE_MAX,
    STARTS_MAX,
)
from bedrockjobs.base.glob import glob, literal
from bedrockjobs.base.vocabulary import EVENT_KINDS, FAILED_STATUSES
from bedrockjobs.commands import (
    Events,
    ListAudit,
    ListFailures,
    ListLimits,
    ListQueues,
    ListRetention,
    ListRules,
    ListRuns,
    ListServers,
    ListTokens,
    ListWorkers,
    QueueHistory,
)
from bedrockjobs.commands.overview import FailureGroupReply
from bedrockjobs.job.eligibility import HOLD_PATTERN, hold_text
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.rows import PauseRow
from bedrockjobs.pages.formatting import number
from bedrockjobs.pages.overview import RANGES, STEPS, range_of
from bedrockjobs.pages.site import (
    MATCHING_SLICE,
    ROWS,
    Pages,
    Site,
    cursor,
    filters_of,
    follow_tokens,
    json_answer,
    rows_asked,
    slice_answer,
)
from bedrockjobs.views.failures import LISTED_MAX, Failed, failed_alike
from bedrockjobs.views.name_tree import Fold
from bedrockjobs.views.problems import pause_text, why_idle

# The queues page: backlog, throughput, latency and workers by name.
#
# Names are grouped at their slashes, one level per page; names that match a pattern are listed one by one.


async def queues(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the queue by name."""
    filters = filters_of(request, "name", "under")
    command = ListQueues.read({"name": filters["name"]} if filters["name"] else {})
    under = filters["under"] if filters["under"].endswith("/") and not command.name else ""
    folder, limit = site.views.folder, rows_asked(request, ROWS)
    if command.name or under:
        pattern = command.name or ListQueues.read({"name": f"{literal(under)}*"}).name or ""
        folds = await folder.some(pattern, under, limit)
    else:
        folds = await folder.all(limit)
    return await site.show(
        request,
        "queues.html",
        title="Queues",
        pauses=await pauses_in_force(site),
        rows=folds.rows,
        left_out=folds.left_out,
        more=folds.more,
        age=folds.age,
        patterns={
            fold.label: f"{literal(fold.label)}*" if fold.folded else literal(fold.label)
            for fold in folds.rows
        },
        filters={"name": command.name or "", "under": under},
        above=_above(under),
    )


async def queue(site: Site, request: web.Request) -> web.StreamResponse:
    """Show one name: its counts now, who takes it, its limits, and its history as charts."""
    name = QueueHistory.read({"name": request.query.get("name", "")}).name
    chosen, pattern = range_of(request), literal(name)
    found = await site.views.folder.some(pattern, "", 1)
    history = await site.views.histories.of_name(name, chosen)
    limits = (await site.read(ListLimits()))["limits"] if site.may("ListLimits") else []
    return await site.show(
        request,
        "queue.html",
        title=name,
        name=name,
        pattern=pattern,
        row=found.rows[0] if found.rows else Fold(name),
        age=found.age,
        limits=[{**limit, "most": _most(limit)} for limit in limits if glob(name, limit["name"])],
        sums=history.total,
        ranges=RANGES,
        chosen=chosen,
        step=STEPS[history.step],
    )


def _most(limit: dict[str, Any]) -> list[str]:
    """Return in words each thing that a limit allows."""
    words = {
        "queued": f"{number(limit['queued'])} queued",
        "perSecond": f"{number(limit['perSecond'])} created a second",
        "running": f"{number(limit['running'])} at once ({number(limit['runs'])} now)",
        "starts": f"{limit['starts']} starts",
        "fair": "one of each key or name in turn",
    }
    return [text for key, text in words.items() if limit[key]]


async def pauses_in_force(site: Site) -> list[tuple[PauseRow, str]]:
    """Return each pause, except those made by limits, with its description."""
    return [
        (pause, hold_text(pause) if pause.pattern == HOLD_PATTERN else pause_text(pause))
        for pause in await site.views.queues.pauses()
        if pause.by != AT_LIMIT
    ]


def _above(under: str) -> list[str]:
    """Return the parent groups of a group, outermost first."""
    parts = under.split("/")[:-1]
    return ["/".join(parts[: number + 1]) + "/" for number in range(len(parts))]


# The workers page: patterns, load and idle reason of each live worker, and a button to drain it.
#
# On PostgreSQL it also lists the servers that share the database.


async def workers(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of workers."""
    filters = filters_of(request, "name", "after")
    command = ListWorkers(name=filters["name"] or None, after=filters["after"], limit=ROWS + 1)
    fitting = (await site.read(command))["workers"]
    shown = fitting[:ROWS]
    runs = (await site.read(ListRuns(status="running", limit=LIST_MAX)))["runs"] if shown else []
    live = site.service.presence.workers
    resting = [live[row["name"]] for row in shown if row["name"] in live and _rests(row)]
    servers = (await site.read(ListServers()))["servers"] if site.settings.on_postgresql else []
    return await site.show(
        request,
        "workers.html",
        servers=servers,
        title="Workers",
        rows=shown,
        there=len(live),
        busy=sum(len(worker.runs) for worker in live.values()),
        slots=sum(worker.slots for worker in live.values()),
        runs={run["runID"]: run for run in runs},
        runs_shown=10,  # of each worker; further runs are only counted
        why=await why_idle(site.views.queues, resting) if resting else {},
        filters=filters,
        following=shown[-1]["name"] if len(fitting) > ROWS else None,
    )


def _rests(worker: dict[str, Any]) -> bool:
    """Return whether a worker is idle or takes no jobs."""
    return not worker["runIDs"] or worker["status"] != "active"


# The failures page: FAILED jobs and failed runs, grouped by fingerprint.
#
# Groups that were marked as seen are collapsed below the others. Each group has a page of all its failures.


FAILURE_TOKENS = {"name": "name", "error": "text", "text": "text", "type": "errorType"}
"""The words before a colon in the search box, each with its query parameter."""


class Shown(NamedTuple):
    """A page of failures: unseen groups, seen groups, and the cursor of the next page."""

    groups: list[FailureGroupReply]
    seen: list[FailureGroupReply]
    following: int | None


async def failures(site: Site, request: web.Request) -> web.StreamResponse:
    """Show failures by group."""
    follow_tokens(request, FAILURE_TOKENS)
    names = ("name", "fingerprint", "errorType", "text")
    filters = filters_of(request, *names, "before", "runsBefore")
    wanted = {name: filters[name] for name in names if filters[name]}
    before, runs_before = cursor(request, "before", "a jobID"), cursor(request, "runsBefore", "a runID")
    command = ListFailures.read({**wanted, "before": before or 0, "runsBefore": runs_before or 0})
    jobs, runs = await failed_alike(site.views, command, LISTED_MAX)
    return await site.show(
        request,
        "failures.html",
        title="Failures",
        jobs=_rows(jobs),
        runs=_rows(runs),
        failures=FAILED_STATUSES,
        filters=filters,
        seen_at_once=SEEN_AT_ONCE_MAX,
    )


async def failure_members(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with a slice of the FAILED jobs, or with ``of=runs`` of the failed runs, of a group."""
    filters = filters_of(request, "name", "fingerprint")
    command = ListFailures.read({name: value for name, value in filters.items() if value})
    kind = "run" if request.query.get("of") == "runs" else "job"
    found, more = await site.views.find.all_failed_alike(
        kind, command.name, command.fingerprint or "", cursor(request, "before", "a number"), MATCHING_SLICE
    )
    return slice_answer(found, found[-1][0] if more else None)


async def failure_count(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with the number of failed jobs that are not acknowledged, for the navigation of all pages."""
    count = await site.views.standings.unseen_failures()
    return json_answer({"count": count, "text": number(count)})


def _rows(failures: Failed) -> Shown:
    unseen = [group for group in failures.groups if group.unseen]
    return Shown(unseen, [group for group in failures.groups if not group.unseen], failures.following)


# The events page: newest first, filtered by kind and name.
#
# The search is bounded in time; the page says how far it got.


async def events(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of events."""
    follow_tokens(request, {"name": "name", "kind": "kind"})
    filters = filters_of(request, "kind", "name", "before")
    wanted = Events.read({name: filters[name] for name in ("kind", "name") if filters[name]})
    # ``limit``: maximum events on a page.
    page = await site.views.find.events(
        before=cursor(request, "before", "the number of an event"),
        kind=wanted.kind,
        pattern=wanted.name,
        limit=100,
    )
    return await site.show(
        request,
        "events.html",
        title="Events",
        rows=[
            dict(zip(("seq", "at", "kind", "name", "jobID", "runID", "by", "detail"), row, strict=True))
            for row in page.rows
        ],
        kinds=sorted(EVENT_KINDS),
        filters=filters,
        following=None if page.ended else page.reached,
    )


# The retention page: the limits of the server and of patterns, with current usage.


KEPT_KINDS = {
    "runs": "Runs",
    "output": "Output",
    "events": "Events",
    "ticks": "History of schedules",
    "audit": "Changes by operators",
    "keys": "Idempotency keys",
}
"""The label of each kind of rows that have a retention limit."""


async def retention(site: Site, request: web.Request) -> web.StreamResponse:
    """Show retention limits."""
    rows = (await site.read(ListRetention()))["kept"]
    return await site.show(request, "kept.html", title="Retention", rows=rows, kinds=KEPT_KINDS)


# The limits page: what holds jobs back by name, and forms that change it.


LIMIT_FIELDS = (
    ("running", "Running at once", RUNNING_LIMIT_MAX),
    ("starts", "Starts in a time", 0),
    ("burst", "Starts at once, if none were before", STARTS_MAX),
    ("queued", "Queued", QUEUED_LIMIT_MAX),
    ("perSecond", "Created a second", PER_SECOND_MAX),
)
"""The fields of a limit: name, label, and the maximum number, or 0 for a field of text."""


async def limits(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the limits and the pauses in force."""
    return await site.show(
        request,
        "limits.html",
        title="Limits",
        rows=(await site.read(ListLimits()))["limits"],
        pauses=await pauses_in_force(site),
        fields=LIMIT_FIELDS,
        name_chars=NAME_CHARS_MAX,
    )


# The notifications page: the rules, of which there are few, with the state of their deliveries.


async def notifications(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the notification rules."""
    rows = (await site.read(ListRules()))["rules"]
    return await site.show(request, "notifications.html", title="Notifications", rows=rows)


# The access page: the tokens, and below them what operators and admins changed.


TOKEN_ROWS = 100
"""Maximum tokens on a page."""


async def access(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the tokens and the audit."""
    filters = filters_of(request, "after", "who", "command", "name", "before")
    wanted = {name: filters[name] for name in ("who", "command", "name") if filters[name]}
    before = cursor(request, "before", "the number of a change")
    audit = ListAudit.read({**wanted, "before": before, "limit": ROWS + 1})
    listed = ListTokens.read({"after": filters["after"], "limit": TOKEN_ROWS + 1})
    tokens = (await site.read(listed))["tokens"]
    entries = (await site.read(audit))["entries"]
    return await site.show(
        request,
        "access.html",
        title="Access",
        tokens=tokens[:TOKEN_ROWS],
        more_tokens=tokens[TOKEN_ROWS - 1]["name"] if len(tokens) > TOKEN_ROWS else None,
        entries=[{**entry, "changes": _changes(entry)} for entry in entries[:ROWS]],
        following=entries[ROWS - 1]["seq"] if len(entries) > ROWS else None,
        filters=filters,
        value_chars=200,  # enough for a reason, and for the beginning of a long list
    )


def _changes(entry: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the changed keys of an audited change of a schedule, each with the value before and after."""
    before, after = entry["before"], entry["after"]
    if before is None or after is None:
        return []
    return [
        (key, before.get(key, ""), after.get(key, ""))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


PAGES: Pages = (
    ("/ui/queues", queues),
    ("/ui/queue", queue),
    ("/ui/workers", workers),
    ("/ui/failures", failures),
    ("/ui/failures/count", failure_count),
    ("/ui/failures/members", failure_members),
    ("/ui/events", events),
    ("/ui/kept", retention),
    ("/ui/limits", limits),
    ("/ui/notifications", notifications),
    ("/ui/access", access),
)
