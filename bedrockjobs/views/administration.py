"""ListTokens, ListAudit, ListRules and ListRetention: what operators have configured and changed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import (
    COUNTED_KEPT_MAX,
    EVENTS_KEPT_MAX,
    JOB_ID_MAX,
    OUTPUT_KEPT_S,
    RUNS_KEPT_MAX,
    TICK_ROWS_MAX,
)
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import stamped, wire_name
from bedrockjobs.commands import ListAudit, ListRetention, ListRules, ListTokens
from bedrockjobs.engine.handlers.access import shown_token
from bedrockjobs.engine.handlers.context import Answer, handles
from bedrockjobs.job.delivery import delivery_of
from bedrockjobs.job.limits import Retention, retention_from
from bedrockjobs.job.rows import RuleRow, TokenRow
from bedrockjobs.views import Views
from bedrockjobs.views.render import name_range


@handles(ListTokens)
async def list_tokens(views: Views, command: ListTokens) -> Answer:
    """List tokens by name."""
    page = await views.page("tokens", {"after": command.after}, command.limit)
    return Answer(jsontext.dump({"tokens": [shown_token(TokenRow._make(row)) for row in page.rows]}))


@handles(ListAudit)
async def list_audit(views: Views, command: ListAudit) -> Answer:
    """List audit entries, newest first."""
    parameters = {
        "before": JOB_ID_MAX if command.before is None else command.before,
        "who": command.who,
        "command": command.command,
        "pattern": command.name,
        "since": stamped(command.since, views.now_ms) or None,
    }
    page = await views.page("audit", parameters, command.limit, scans=True)
    return Answer(f'{{"entries":[{",".join(map(_entry, page.rows))}]}}')


def _entry(row: tuple[Any, ...]) -> str:
    seq, at, by, address, command, name, job_id, detail, before, after = row
    shown = {
        "seq": seq,
        "at": at,
        "by": by,
        "address": address,
        "command": command,
        "name": name,
        "jobID": job_id,
    }
    return jsontext.with_members(
        jsontext.dump(shown), {"detail": detail, "before": before or "null", "after": after or "null"}
    )


# ListRules: notification rules with the status of their delivery.


@handles(ListRules)
async def list_rules(views: Views, command: ListRules) -> Answer:
    """List notification rules by name."""
    page = await views.page("rules", {"after": command.after}, command.limit)
    return Answer(f'{{"rules":[{",".join(_shown(RuleRow._make(row)) for row in page.rows)}]}}')


def _shown(row: RuleRow) -> str:
    delivery = {wire_name(field): value for field, value in delivery_of(row)._asdict().items()}
    more = {"name": row.name, "by": row.by, "created": row.created, "cursor": row.cursor, **delivery}
    return jsontext.join(
        {**jsontext.members(row.rule), **{key: jsontext.dump(value) for key, value in more.items()}}
    )


# ListRetention: retention limits and current usage.


ALL = "*"
"""The pattern under which the server-wide limits are stored."""


class _Limits(NamedTuple):
    """Retention limits of one kind of rows."""

    seconds: int | None = None
    bytes: int | None = None
    most: int | None = None

    def replaced_by(self, seconds: int | None, size: int | None) -> _Limits:
        """Return these limits, with the given seconds and bytes unless they are None."""
        return _Limits(
            self.seconds if seconds is None else seconds, self.bytes if size is None else size, self.most
        )


@handles(ListRetention)
async def list_retention(views: Views, _: ListRetention) -> Answer:
    """List the server-wide retention limits, then the limits of patterns."""
    page = await views.rows("retention", {})
    rows = {row.pattern: row for row in (retention_from(page.rows[0][0]) if page.rows else ())}
    own = rows.pop(ALL, Retention(ALL, "", ""))
    retention = [
        await _kept(views, own, kind, limits) for kind, limits in _of_the_server(views.settings, own).items()
    ]
    for row in rows.values():
        for kind, limits in _of_pattern(row).items():
            if limits != _Limits():
                retention.append(await _kept(views, row, kind, limits))
    return Answer(jsontext.dump({"kept": retention}))


def _of_the_server(settings: Settings, own: Retention) -> dict[str, _Limits]:
    set_by_hand = _of_pattern(own)
    default = {
        "runs": _Limits(most=RUNS_KEPT_MAX),
        "output": _Limits(OUTPUT_KEPT_S, settings.output_bytes),
        "events": _Limits(most=EVENTS_KEPT_MAX),
        "ticks": _Limits(most=TICK_ROWS_MAX),
        "audit": _Limits(int(settings.keep_audit_s)),
        "keys": _Limits(int(settings.keep_keys_s)),
    }
    return {
        kind: limits.replaced_by(*set_by_hand[kind][:2]) if kind in set_by_hand else limits
        for kind, limits in default.items()
    }


def _of_pattern(row: Retention) -> dict[str, _Limits]:
    return {
        "runs": _Limits(row.runs, row.runs_bytes),
        "output": _Limits(row.output, row.output_bytes),
        "events": _Limits(row.events, row.events_bytes),
        "ticks": _Limits(row.ticks, row.ticks_bytes),
    }


async def _kept(views: Views, row: Retention, kind: str, limits: _Limits) -> dict[str, Any]:
    pattern = None if row.pattern == ALL else row.pattern
    parameters = {"pattern": pattern, **name_range(literal_prefix(pattern or "")), "most": COUNTED_KEPT_MAX}
    count, used, oldest, more = 0, 0, "", True
    with suppress(TimedOut):
        count, used, oldest = (await views.page(f"use_of_{kind}", parameters, 1, scans=True)).rows[0]
        more = count >= COUNTED_KEPT_MAX
    return {
        "name": row.pattern,
        "kind": kind,
        **limits._asdict(),
        "count": count,
        "used": used,
        "more": more,
        "oldest": oldest,
        "by": row.by,
        "since": row.since,
    }
