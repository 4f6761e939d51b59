"""The pages of what operators and admins have set and done: limits, notification rules, tokens, the audit."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from bedrockjobs.base.config import (
    NAME_CHARS_MAX,
    PER_SECOND_MAX,
    QUEUED_LIMIT_MAX,
    RUNNING_LIMIT_MAX,
    STARTS_MAX,
)
from bedrockjobs.commands import ListAudit, ListLimits, ListRules, ListTokens
from bedrockjobs.pages.site import Pages, Site, cursor, filters_of
from bedrockjobs.pages.tables import pauses_in_force

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

AUDIT_ROWS = 50
"""Maximum changes on a page."""


async def access(site: Site, request: web.Request) -> web.StreamResponse:
    """Show the tokens and the audit."""
    filters = filters_of(request, "after", "who", "command", "name", "before")
    wanted = {name: filters[name] for name in ("who", "command", "name") if filters[name]}
    before = cursor(request, "before", "the number of a change")
    audit = ListAudit.read({**wanted, "before": before, "limit": AUDIT_ROWS + 1})
    listed = ListTokens.read({"after": filters["after"], "limit": TOKEN_ROWS + 1})
    tokens = (await site.read(listed))["tokens"]
    entries = (await site.read(audit))["entries"]
    return await site.show(
        request,
        "access.html",
        title="Access",
        tokens=tokens[:TOKEN_ROWS],
        more_tokens=tokens[TOKEN_ROWS - 1]["name"] if len(tokens) > TOKEN_ROWS else None,
        entries=[{**entry, "changes": _changes(entry)} for entry in entries[:AUDIT_ROWS]],
        following=entries[AUDIT_ROWS - 1]["seq"] if len(entries) > AUDIT_ROWS else None,
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


PAGES: Pages = (("/ui/limits", limits), ("/ui/notifications", notifications), ("/ui/access", access))
