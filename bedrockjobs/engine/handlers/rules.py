"""Notification rules, delivery of notifications, retention and limits.

A message is claimed in a commit before it is sent, and a commit afterwards records its events as handled. So
it is delivered at least once, even if a server fails in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeVar

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import days_text
from bedrockjobs.base.config import LIMITS_MAX
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany, WrongState
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.base.vocabulary import OVER
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import (
    ClaimMessage,
    ListLimits,
    MuteRule,
    PutRule,
    RemoveLimit,
    RemoveRetention,
    RemoveRule,
    ReportConditions,
    ReportDelivery,
    SetLimit,
    SetRetention,
    SyncRules,
)
from bedrockjobs.commands.rules import RULES_MAX, RuleSpec
from bedrockjobs.engine.events import RulesChanged
from bedrockjobs.engine.handlers import families
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.sync import Problems, synced
from bedrockjobs.engine.rate_limits import RateLimit
from bedrockjobs.job.delivery import ERROR_CHARS_KEPT, author_for, delivery_of, source_of, with_delivery
from bedrockjobs.job.limits import AT_LIMIT, Limit, Retention, ahead_of, per_key
from bedrockjobs.job.rows import RuleRow
from bedrockjobs.store.base import AccessPlan

_CONTROL = AccessPlan(control=True)


@handles(PutRule, plan=lambda _: _CONTROL)
def put_rule(context: Context, command: PutRule) -> Answer:
    """Create or change a rule; a new rule gets later events only, a changed one continues where it was."""
    rules = {rule.name: rule for rule in context.unit.records.rules()}
    before = rules.get(command.name)
    if before is None and len(rules) >= RULES_MAX:
        raise TooMany("Too many rules", f"name: expected at most {RULES_MAX} rules")
    _put(context, command, before, "" if before is None else source_of(before), command.by)
    return Answer()


@handles(SyncRules, plan=lambda _: _CONTROL)
def sync_rules(context: Context, command: SyncRules) -> Answer:
    """Add, change and remove a source's rules; reply with their names."""
    rules = {rule.name: rule for rule in context.unit.records.rules()}
    ours = {name for name, row in rules.items() if source_of(row) == command.source}
    specs: dict[str, RuleSpec] = {}
    problems = Problems("rules")
    for place, spec in enumerate(command.rules):
        with problems.collecting(place, spec.name):
            if spec.name in specs:
                raise BadArguments("Malformed rules", "name: expected a name once")
            if spec.name in rules and spec.name not in ours:
                if command.take_over:
                    ours.add(spec.name)
                else:
                    owner = source_of(rules[spec.name])
                    owned = f"it belongs to the source {owner!r}" if owner else "it was added by hand"
                    raise WrongState("Name is taken", f"name: {owned}; takeOver moves it to this source")
        specs.setdefault(spec.name, spec)
    if not command.dry_run:
        problems.check()
    added = [name for name in specs if name not in ours]
    removed = sorted(ours - specs.keys()) if command.prune else []
    texts = {name: _text(spec, command.source) for name, spec in specs.items()}
    changed = [name for name in specs if name in ours and rules[name].rule != texts[name]]
    if len(rules) + len(added) - len(removed) > RULES_MAX:
        raise TooMany("Too many rules", f"rules: expected at most {RULES_MAX} rules")
    if not command.dry_run:
        for name in removed:
            context.unit.records.delete_rule(name)
        for name in (*added, *changed):
            _put(context, specs[name], rules.get(name), command.source, command.by)
        if removed:
            context.emit(RulesChanged())
    unchanged = [name for name in specs if name in ours and name not in changed]
    return synced(added, changed, removed, unchanged, problems)


def _text(spec: RuleSpec, source: str) -> str:
    more = {"noData": True} if spec.no_data else {}
    return jsontext.dump(
        {
            "source": source,
            "on": spec.on,
            "names": spec.names,
            "tags": spec.tags or [],
            "to": spec.to,
            "secret": spec.secret,
            "groupFor": spec.group_for,
            "quiet": spec.quiet,
            "over": spec.over,
            "older": spec.older,
            **more,
        }
    )


def _put(context: Context, spec: RuleSpec, before: RuleRow | None, source: str, by: str) -> None:
    text = _text(spec, source)
    if before is None:
        row = RuleRow(spec.name, text, by, context.now, context.unit.records.last_event(), "{}")
    else:
        row = with_delivery(before._replace(rule=text, by=by), delivery_of(before).renewed())
    _write(context, row)


@handles(RemoveRule, plan=lambda _: _CONTROL)
def remove_rule(context: Context, command: RemoveRule) -> Answer:
    """Delete a rule."""
    context.unit.records.delete_rule(_existing(context, command.name).name)
    context.emit(RulesChanged())
    return Answer()


@handles(MuteRule, plan=lambda _: _CONTROL)
def mute_rule(context: Context, command: MuteRule) -> Answer:
    """Mute a rule until a given time."""
    row = _existing(context, command.name)
    _write(
        context,
        with_delivery(row, delivery_of(row)._replace(muted_until=stamped(command.until, context.now_ms))),
    )
    return Answer()


@handles(ClaimMessage, plan=lambda _: _CONTROL)
def claim_message(context: Context, command: ClaimMessage) -> Answer:
    """Claim a message for sending, unless another server has claimed it."""
    row = _existing(context, command.name)
    delivery = delivery_of(row)
    others = delivery.claimed_by_another(command.sender, context.now)
    another = delivery.up_to > row.cursor and delivery.up_to != command.up_to
    if command.up_to <= row.cursor or another or (others and not command.alone):
        raise WrongState(
            "Message is claimed", f"upTo: {delivery.sender or 'a server'} sends it, or has sent it"
        )
    if delivery.muted_until > context.now:  # muted after the server read the rule
        raise WrongState("Rule is muted", f"name: {command.name} sends nothing until {delivery.muted_until}")
    context.unit.records.put_rule(
        with_delivery(row, delivery.claimed(command.sender, command.up_to, context.now))
    )
    return Answer()


@handles(ReportDelivery, plan=lambda _: _CONTROL)
def report_delivery(context: Context, command: ReportDelivery) -> Answer:
    """Record the result of a delivery; a message that was retried for a day is given up as lost."""
    row = _existing(context, command.name)
    delivery = delivery_of(row)
    if command.muted and not delivery.claimed_by_another(command.sender, context.now):
        if command.events and not delivery.muted_until:  # unmuted after the server read the rule
            raise WrongState("Rule is not muted", f"name: {command.name} sends its events")
        delivery = delivery._replace(up_to=command.up_to, sender=command.sender)
    if (delivery.sender, delivery.up_to) != (command.sender, command.up_to) or command.up_to <= row.cursor:
        raise WrongState("Message is claimed", f"sender: it is {delivery.sender or 'nobody'}")
    cursor = command.up_to
    if command.muted:
        delivery = delivery.skipped_when_muted(command.events)
    elif command.error is None or command.partly:
        delivery = delivery.arrived(context.now, command.error or "")
    elif delivery.is_too_old(context.now):
        delivery = delivery.failed(command.error, context.now).given_up(command.events)
        context.note(
            "message lost", name=row.name, detail=f"{command.events} events; ListRules has the reason"
        )
    else:
        delivery, cursor = delivery.failed(command.error, context.now), row.cursor
    if cursor == command.up_to:
        delivery = delivery._replace(dropped=delivery.dropped + command.silenced)
    context.unit.records.put_rule(with_delivery(row, delivery, cursor))
    return Answer()


@handles(ReportConditions, plan=lambda _: _CONTROL)
def report_conditions(context: Context, command: ReportConditions) -> Answer:
    """Record events for conditions of a rule that began or ended since the last report."""
    row = _existing(context, command.name)
    delivery, by = delivery_of(row), author_for(row.name)
    now: dict[str, dict[str, str]] = {}
    for kind, names in command.conditions.items():
        known = delivery.conditions.get(kind, {})
        now[kind] = {name: known.get(name, context.now) for name in names}
        for name, text in names.items():
            if name not in known:
                context.note(kind, name=name, by=by, detail=text[:ERROR_CHARS_KEPT])
    for kind, begun in delivery.conditions.items():
        for name, since in begun.items():
            if name not in now.get(kind, {}):
                context.note(f"{kind}{OVER}", name=name, by=by, detail=f"it had begun at {since} UTC")
    if now != delivery.conditions:
        context.unit.records.put_rule(with_delivery(row, delivery._replace(conditions=now)))
    return Answer()


def _existing(context: Context, name: str) -> RuleRow:
    for row in context.unit.records.rules():
        if row.name == name:
            return row
    raise NotFound("No such rule", f"name: there is no rule {name}")


def _write(context: Context, row: RuleRow) -> None:
    context.unit.records.put_rule(row)
    context.emit(RulesChanged())


# Retention and limits have one row for each pattern.


LimitT = TypeVar("LimitT", Limit, Retention)


def _with(rows: Sequence[LimitT], row: LimitT) -> tuple[LimitT, ...]:
    """Return the rows by pattern, with ``row`` in place of any other of its pattern; raises TooMany."""
    others = [other for other in rows if other.pattern != row.pattern]
    if len(others) >= LIMITS_MAX:
        raise TooMany("Too many limits", f"name: expected at most {LIMITS_MAX} patterns in all")
    others.append(row)
    return tuple(sorted(others, key=attrgetter("pattern")))


def _without(rows: Sequence[LimitT], pattern: str) -> tuple[LimitT, ...]:
    left = tuple(row for row in rows if row.pattern != pattern)
    if len(left) == len(rows):
        raise NotFound("No such limit", f"name: the pattern {pattern} has none")
    return left


# SetRetention and RemoveRetention. Maintenance and AppendOutput apply the retention.


@handles(SetRetention, plan=lambda _: AccessPlan(control=True))
def set_retention(context: Context, command: SetRetention) -> Answer:
    """Set the retention of a pattern."""
    records = context.unit.records
    limits = (
        command.runs,
        command.runs_bytes,
        command.output,
        command.output_bytes,
        command.events,
        command.ticks,
        command.events_bytes,
        command.ticks_bytes,
    )
    if all(limit is None for limit in limits):
        raise BadArguments(
            "Missing limit",
            "expected one of runs, runsBytes, output, outputBytes, events, eventsBytes, ticks, ticksBytes",
        )
    row = Retention(command.name, command.by, context.now, *limits)
    records.set_retention(_with(records.retention(), row))
    context.note("retention set", name=command.name, by=command.by, detail=_words(row))
    return Answer()


@handles(RemoveRetention, plan=lambda _: AccessPlan(control=True))
def remove_retention(context: Context, command: RemoveRetention) -> Answer:
    """Remove the retention of a pattern."""
    records = context.unit.records
    records.set_retention(_without(records.retention(), command.name))
    context.note("retention removed", name=command.name, by=command.by)
    return Answer()


def _words(row: Retention) -> str:
    times = {"runs": row.runs, "output": row.output, "events": row.events, "ticks": row.ticks}
    sizes = {
        "runs": row.runs_bytes,
        "output of a run": row.output_bytes,
        "events": row.events_bytes,
        "ticks of a schedule": row.ticks_bytes,
    }
    parts = [f"{kind} for {days_text(time)}" for kind, time in times.items() if time is not None]
    return ", ".join(parts + [f"{kind} {size:,} bytes" for kind, size in sizes.items() if size is not None])


# SetLimit, RemoveLimit and ListLimits.


@handles(SetLimit, plan=lambda _: AccessPlan(control=True))
def set_limit(context: Context, command: SetLimit) -> Answer:
    """Limit how many jobs of a pattern may be created, queued and run."""
    if not (command.queued or command.per_second or command.running or command.starts or command.fair):
        raise BadArguments(
            "Missing limit", "queued, perSecond, running, starts: expected one of them above 0, or fair"
        )
    if command.burst and not command.starts:
        raise BadArguments("Malformed burst", "burst: expected only together with starts")
    if command.per_key and not (command.running or command.starts):
        raise BadArguments("Malformed perKey", "perKey: expected only together with running or starts")
    records = context.unit.records
    limit = Limit(
        command.name,
        command.queued,
        command.per_second,
        command.running,
        command.by,
        context.now,
        command.starts,
        command.burst,
        anchored_regex([command.name]) if command.per_key else "",
        fair=command.fair,
    )
    if limit.starts_by_key:
        limit = limit._replace(ahead_us=ahead_of(limit))
    former = per_key(records.limits())
    if limit.per_key != any(command.name == pattern for pattern, *_ in former) or not limit.starts:
        records.delete_paced(command.name)
    records.set_limits(_with(records.limits(), limit))
    _recheck(context, command.name, former)
    each = " with each key" if command.per_key else ""
    given = {
        "queued": command.queued,
        "created a second": command.per_second,
        f"at once{each}": command.running,
        f"starts{each}": command.starts,
    }
    words = [f"{number} {what}" for what, number in given.items() if number]
    text = ", ".join([*words, "in turn"] if command.fair else words)
    context.note("limit set", name=command.name, by=command.by, detail=text)
    return Answer()


@handles(RemoveLimit, plan=lambda _: AccessPlan(control=True))
def remove_limit(context: Context, command: RemoveLimit) -> Answer:
    """Remove the limit of a pattern."""
    records = context.unit.records
    former = per_key(records.limits())
    records.set_limits(_without(records.limits(), command.name))
    records.delete_paced(command.name)
    context.gates.remove(command.name)
    _recheck(context, command.name, former)
    context.note("limit removed", name=command.name, by=command.by)
    return Answer()


def _recheck(context: Context, pattern: str, former: list[tuple[str, int, str, int]]) -> None:
    """Check the limits of a pattern again after a change; ``former`` are the limits per key before it."""
    if per_key(context.unit.records.limits()) != former:
        context.unit.slots_changed()
    for pause in context.unit.records.pauses():
        if pause.pattern == pattern and pause.by == AT_LIMIT:
            families.recheck_limit(context, pause)


@handles(ListLimits, plan=lambda _: AccessPlan(control=True))
def list_limits(context: Context, _: ListLimits) -> Answer:
    """List the limits, with the number of jobs that this server refused for each."""
    gates = [context.gates.gate(limit) for limit in context.unit.records.limits()]
    return Answer(jsontext.dump({"limits": [_shown(context, gate) for gate in gates]}))


def _shown(context: Context, gate: RateLimit) -> dict[str, str | int]:
    limit = gate.limit
    runs = context.unit.records.running(limit.pattern) if limit.running else 0
    start = families.start_of(context, limit) if limit.starts_together else ""
    return {
        "name": limit.pattern,
        "queued": limit.queued,
        "perSecond": limit.per_second,
        "running": limit.running,
        "perKey": limit.per_key,
        "starts": limit.starts,
        "burst": limit.burst,
        "fair": limit.fair,
        "nextStart": start if start > context.now_ms else "",
        "runs": runs,
        "refused": gate.refused,
        "lastRefused": gate.last_refused,
        "by": limit.by,
        "since": limit.since,
    }
