"""What a rule says to the server that sends its messages: which events are told, and when nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from bedrockjobs.base.event_kinds import CONDITIONS, OVER
from bedrockjobs.base.glob import glob
from bedrockjobs.base.wire import moment_of, stamp
from bedrockjobs.commands import RuleReply
from bedrockjobs.job.rules import noted_for


def is_about(rule: RuleReply, event: Mapping[str, Any]) -> bool:
    """Tell whether a rule is about an event."""
    condition = condition_of(event["kind"])
    if condition:
        return condition in rule.on and event["by"] == noted_for(rule.name)
    if event["kind"] not in rule.on:
        return False
    return not rule.names or any(glob(event["name"], pattern) for pattern in rule.names)


def condition_of(kind: str) -> str:
    """Return which condition a kind of event is about, that began or is over; empty for other kinds."""
    condition = kind.removesuffix(OVER)
    return condition if condition in CONDITIONS else ""


def is_muted(rule: RuleReply, now: datetime) -> bool:
    """Tell whether what happens now is not to be told."""
    return bool(rule.muted_until) and rule.muted_until > stamp(now)


def wait_s(rule: RuleReply, now: datetime) -> float:
    """Return the seconds until a rule may send its next message; 0 where it may now."""
    moments = [rule.next_try]
    if rule.last_sent and rule.group_for and not rule.tries:
        moments.append(stamp(moment_of(rule.last_sent) + timedelta(seconds=rule.group_for)))
    seconds = [(moment_of(moment) - now).total_seconds() for moment in moments if moment]
    return max([0.0, quiet_s(rule.quiet, now), *seconds])


def quiet_s(quiet: str, now: datetime) -> float:
    """Return the seconds for which hours such as ``22:00-07:00 Europe/Berlin`` are still quiet."""
    if not quiet:
        return 0.0
    hours, _, zone = quiet.partition(" ")
    begin, end = (timedelta(hours=int(text[:2]), minutes=int(text[3:])) for text in hours.split("-"))
    local = now.astimezone(ZoneInfo(zone or "UTC"))
    day = timedelta(days=1)
    clock = timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
    length, since = (end - begin) % day, (clock - begin) % day
    return (length - since).total_seconds() if since < length else 0.0
