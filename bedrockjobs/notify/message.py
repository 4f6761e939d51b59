"""The text and data of a notification: what happened, the last output, links and next steps.

Pure functions of events and their runs, which have the form of the commands' replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.engine.render import printed_detail

EVENTS_SHOWN = 20
"""Maximum number of events that a message describes; further events are only counted."""

OUTPUT_LINES_SHOWN = 20
"""Maximum number of output lines of a run in a message; the end of a traceback fits."""

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
    return list(jsontext.parse(lines) if isinstance(lines, str) else lines)[-OUTPUT_LINES_SHOWN:]


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
