"""Notification rules: the events and conditions that they are about, when they send, and their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import moment_of, span, timestamp
from bedrockjobs.base.glob import glob
from bedrockjobs.base.vocabulary import CONDITIONS, OVER
from bedrockjobs.commands import RuleReply
from bedrockjobs.commands.rules import CONDITIONS_MAX
from bedrockjobs.engine.render import printed_detail
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


# The text and data of a message: what happened, the last output, links and next steps.
#
# Pure functions of events and their runs, which have the form of the commands' replies.


EVENTS_SHOWN = 20
"""Maximum number of events that a message describes; further events are only counted."""

_WORDS = {
    "failed": "failed",
    "recovered": "has recovered",
    "retried": "failed and is retried",
    "timeout": "took too long",
    "lost": "was lost with its worker",
    "expired": "was not started in time",
    "missed": "did not run in time",
    "damaged": "was damaged in the file",
    "worker left": "(worker) is gone",
    "server left": "(server) is gone",
    "late": "has been waiting too long",
    "late over": "waits no longer",
    "no worker": "is taken by no worker",
    "no worker over": "is taken again",
    "backlog": "has a backlog",
    "backlog over": "no longer has a backlog",
    "disk low": "is low on disk space",
    "disk low over": "has enough disk space again",
    "new address": "(token) was used from a new address",
    "message lost": "(rule) could not send its messages for a day",
}
"""The predicate for each kind of event in a message; it follows the name of the job, worker, server, token or
rule."""


class NotifiedEvent(NamedTuple):
    """An event and the run that it is about, or None if it is not about a run."""

    event: Mapping[str, Any]
    run: Mapping[str, Any] | None


def without_output(event: Mapping[str, Any], run: Mapping[str, Any] | None) -> NotifiedEvent:
    """Return an event without what the job's command printed: no output, and only the type of an error."""
    detail = printed_detail(event["kind"], event["detail"])
    return NotifiedEvent({**event, "detail": detail}, None if run is None else {**run, "output": []})


class Message(NamedTuple):
    """A notification."""

    rule: str
    first: int
    """The ``seq`` of the first event in the message."""
    last: int
    subject: str
    text: str
    data: dict[str, Any]
    """The contents of the message in structured form, for programs."""
    at: str
    """The timestamp of the last event in the message."""
    repeated: bool
    """Whether the message may be a duplicate, because an earlier attempt to send it was interrupted."""

    @property
    def key(self) -> str:
        """Return the idempotency key, which is the same for each attempt to send this message."""
        about = "test" if self.data["test"] else self.first
        return f"{self.rule}/{about}-{self.last}"


def message_of(
    rule: str, items: Sequence[NotifiedEvent], url: str, *, repeated: bool = False, test: bool = False
) -> Message:
    """Return the message of a rule about events, oldest first; ``url`` is the base URL of the web pages."""
    first, last = items[0].event, items[-1].event
    shown, more = items[:EVENTS_SHOWN], max(len(items) - EVENTS_SHOWN, 0)
    subject = _head(first)
    if len(items) > 1:
        subject = f"{subject}, and {len(items) - 1} more"
    if test:
        subject = f"Test: {subject}"
    parts = [_paragraph(each, url) for each in shown]
    if more:
        parts.append(f"and {more} more.")
    if repeated:
        parts.append("This message may be a duplicate: the server ended while it was sent.")
    data = {
        "rule": rule,
        "count": len(items),
        "test": test,
        "repeated": repeated,
        "events": [_entry(each, url) for each in shown],
    }
    return Message(
        rule, first["seq"], last["seq"], subject, "\n\n".join(parts) + "\n", data, last["at"], repeated
    )


def _head(event: Mapping[str, Any]) -> str:
    name = event["name"] or ("the queue" if event["kind"].startswith("backlog") else "the server")
    return f"{name} {_WORDS.get(event['kind'], event['kind'])}"


def _paragraph(item: NotifiedEvent, url: str) -> str:
    event, run = item
    lines = [f"{_head(event)} at {event['at'][:19]} UTC"]
    detail = event["detail"].splitlines()
    if run is not None and _output(run):
        detail = detail[:1]  # workers append the last lines of output
    lines += [f"  {line}" for line in detail]
    if run is not None:
        how = [f"run {run['runID']}", f"attempt {run['attempt']}", f"on {run['worker']}"]
        how.append(f"begun {run['started'][:19]} UTC")
        if run["exitCode"] is not None:
            how.append(f"exit status {run['exitCode']}")
        lines.append(f"  {', '.join(how)}")
        lines += [f"  | {line}" for line in _output(run)]
    if link := _link(event, url):
        lines.append(f"  {link}")
    if todo := _todo(event):
        lines.append(f"  What to do: {todo}")
    return "\n".join(lines)


def _entry(item: NotifiedEvent, url: str) -> dict[str, Any]:
    event, run = item
    entry: dict[str, Any] = {**event, "link": _link(event, url)}
    if run is not None:
        keys = ("attempt", "status", "exitCode", "worker", "started", "ended")
        entry["run"] = {**{key: run[key] for key in keys}, "output": _output(run)}
    return entry


def _output(run: Mapping[str, Any]) -> list[str]:
    lines = run["output"]
    return list(jsontext.parse(lines) if isinstance(lines, str) else lines)[-20:]  # a traceback's end fits


def _link(event: Mapping[str, Any], url: str) -> str:
    if not url:
        return ""
    if event["runID"]:
        return f"{url}/ui/runs/{event['runID']}"
    return f"{url}/ui/jobs/{event['jobID']}" if event["jobID"] else f"{url}/ui"


def _todo(event: Mapping[str, Any]) -> str:
    if event["kind"] in ("failed", "timeout", "lost") and event["jobID"]:
        logs_hint = (
            f"`bedrockjobs run logs {event['runID']}` shows what it printed, " if event["runID"] else ""
        )
        return f"{logs_hint}`bedrockjobs job explain {event['jobID']}` what comes next."
    return ""
