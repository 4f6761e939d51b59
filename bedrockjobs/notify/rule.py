"""Evaluation of notification rules: matching events, conditions, and the time until the next message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bedrockjobs.base.clock import moment_of, span, timestamp
from bedrockjobs.base.glob import glob
from bedrockjobs.base.vocabulary import CONDITIONS, OVER
from bedrockjobs.commands import RuleReply
from bedrockjobs.commands.rules import CONDITIONS_MAX
from bedrockjobs.job.delivery import author_for
from bedrockjobs.job.eligibility import need_of
from bedrockjobs.views.problems import age_s, low_space_warning
from bedrockjobs.views.queues import QueuedGroup, QueueSnapshot


def is_about(rule: RuleReply, event: Mapping[str, Any]) -> bool:
    """Return whether a rule matches an event."""
    condition = condition_of(event["kind"])
    if condition:
        return condition in rule.on and event["by"] == author_for(rule.name)
    if event["kind"] not in rule.on:
        return False
    return not rule.names or any(glob(event["name"], pattern) for pattern in rule.names)


def condition_of(kind: str) -> str:
    """Return the condition whose begin or end the event kind marks; empty for other kinds."""
    condition = kind.removesuffix(OVER)
    return condition if condition in CONDITIONS else ""


def is_muted(rule: RuleReply, now: datetime) -> bool:
    """Return whether a rule is muted at present."""
    return bool(rule.muted_until) and rule.muted_until > timestamp(now)


def wait_s(rule: RuleReply, now: datetime) -> float:
    """Return the seconds until a rule may send its next message; 0 if it may send now."""
    moments = [rule.next_try]
    if rule.last_sent and rule.group_for and not rule.tries:
        moments.append(timestamp(moment_of(rule.last_sent) + timedelta(seconds=rule.group_for)))
    seconds = [(moment_of(moment) - now).total_seconds() for moment in moments if moment]
    return max([0.0, quiet_s(rule.quiet, now), *seconds])


def quiet_s(quiet: str, now: datetime) -> float:
    """Return how many seconds of the current quiet hours are left; 0 outside of them.

    ``quiet`` is empty or such as ``22:00-07:00 Europe/Berlin``; without a zone it is in UTC.
    """
    if not quiet:
        return 0.0
    hours, _, zone = quiet.partition(" ")
    begin, end = (timedelta(hours=int(text[:2]), minutes=int(text[3:])) for text in hours.split("-"))
    local = now.astimezone(ZoneInfo(zone or "UTC"))
    day = timedelta(days=1)
    clock = timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
    length, since = (end - begin) % day, (clock - begin) % day
    return (length - since).total_seconds() if since < length else 0.0


# Conditions that rules can watch: late, no worker, backlog, disk low. Computed from a queue snapshot.
#
# The start of a condition is an event of that kind, the end an event ``<kind> over``. Both belong to the one
# rule whose limits they concern; ``by`` names it.


Found = dict[str, dict[str, str]]
"""Active conditions: for each kind, a description by the name of the jobs. The name is empty if the condition
is about all jobs."""


def asks_for_conditions(rule: RuleReply) -> bool:
    """Return whether a rule watches any condition."""
    return not CONDITIONS.isdisjoint(rule.on)


def conditions(rule: RuleReply, snapshot: QueueSnapshot, free_bytes: int | None) -> Found:
    """Return the active conditions that a rule watches; ``free_bytes`` is None if it is unknown."""
    groups = [group for group in snapshot.groups if group.due and _is_about(rule, group.name)]
    ready = [group for group in groups if snapshot.held.standing(group, due=True) == "ready"]
    current: Found = {}
    if "late" in rule.on:
        current["late"] = _waiting(rule, snapshot, [group for group in ready if _takers(snapshot, group)])
    if "no worker" in rule.on:
        current["no worker"] = _waiting(
            rule, snapshot, [group for group in ready if not _takers(snapshot, group)]
        )
    if "backlog" in rule.on:
        count = sum(group.due for group in ready)
        more = "at least " if any(group.more_due for group in ready) or snapshot.more else ""
        text = f"{more}{count:,} jobs are ready, the limit is {rule.over:,}"
        current["backlog"] = {_all_of(rule): text} if count > rule.over else {}
    if "disk low" in rule.on and free_bytes is not None:
        text = low_space_warning(free_bytes)
        current["disk low"] = {"": text} if text else {}
    return {kind: names for kind, names in current.items() if names}


def _is_about(rule: RuleReply, name: str) -> bool:
    return not rule.names or any(glob(name, pattern) for pattern in rule.names)


def _all_of(rule: RuleReply) -> str:
    return rule.names[0] if len(rule.names) == 1 else ""


def _takers(snapshot: QueueSnapshot, group: QueuedGroup) -> bool:
    return snapshot.held.takers.any_eligible(group.name, need_of(group.lane))


def _waiting(rule: RuleReply, snapshot: QueueSnapshot, groups: Iterable[QueuedGroup]) -> dict[str, str]:
    """Return a text for each name whose oldest ready job has waited too long, the longest wait first."""
    oldest: dict[str, QueuedGroup] = {}
    for group in groups:
        if group.oldest and age_s(group.oldest, snapshot.held.now) > rule.older:
            known = oldest.get(group.name)
            if known is None or group.oldest < known.oldest:
                oldest[group.name] = group
    waiting = {}
    for group in sorted(oldest.values(), key=lambda one: one.oldest)[:CONDITIONS_MAX]:
        text = f"its oldest ready job has waited for {span(age_s(group.oldest, snapshot.held.now))}"
        if not _takers(snapshot, group):
            text = f"{text}: {snapshot.held.takers.why_none_eligible(group.name, need_of(group.lane))}"
        waiting[group.name] = text
    return waiting
