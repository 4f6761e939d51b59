"""What a message says: what happened, the last lines that were printed, where to look, and what to do next.

Pure: it is made of events and of the runs that they tell of, as their commands answer them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.fingerprints import line_of

EVENTS_SHOWN = 20
"""Events that one message tells one by one; the others are counted."""

OUTPUT_LINES_SHOWN = 20
"""Last lines of a run's output in a message: enough for a traceback's end."""

_WORDS = {
    "failed": "failed",
    "recovered": "is well again",
    "retried": "failed and is tried again",
    "timeout": "took too long",
    "lost": "was lost with its worker",
    "expired": "was not started in time",
    "missed": "did not run in time",
    "damaged": "was damaged in the file",
    "worker left": "(worker) is gone",
    "server left": "(server) is gone",
    "late": "waits for too long",
    "late over": "waits no longer",
    "no worker": "is taken by nobody",
    "no worker over": "is taken again",
    "backlog": "has a backlog",
    "backlog over": "has no backlog any more",
    "disk low": "has little room on its disk",
    "disk low over": "has room on its disk again",
    "new address": "(token) was used from a new address",
    "message lost": "(rule) could not send its messages for a day",
}
"""What a person reads of an event, behind its name."""


class NotifiedEvent(NamedTuple):
    """An event, and the run that it tells of, where there is one."""

    event: Mapping[str, Any]
    run: Mapping[str, Any] | None


def without_output(event: Mapping[str, Any], run: Mapping[str, Any] | None) -> NotifiedEvent:
    """Return an event without what was printed, which a worker puts behind the first line of an error."""
    detail = line_of(event["detail"])
    return NotifiedEvent({**event, "detail": detail}, None if run is None else {**run, "output": []})


class Message(NamedTuple):
    """What is sent."""

    rule: str
    first: int
    """The seq of the first of its events."""
    last: int
    subject: str
    text: str
    data: dict[str, Any]
    """The same for programs."""
    at: str
    """When the last of its events happened."""
    repeated: bool
    """Whether it may have been sent before."""

    @property
    def key(self) -> str:
        """Return what is the same for each time that this message is sent."""
        about = "test" if self.data["test"] else self.first
        return f"{self.rule}/{about}-{self.last}"


def message_of(
    rule: str, told: Sequence[NotifiedEvent], url: str, *, repeated: bool = False, test: bool = False
) -> Message:
    """Return the message of a rule about some events, the oldest first; ``url`` is where the pages are."""
    first, last = told[0].event, told[-1].event
    shown, more = told[:EVENTS_SHOWN], max(len(told) - EVENTS_SHOWN, 0)
    subject = _head(first)
    if len(told) > 1:
        subject = f"{subject}, and {len(told) - 1} more"
    if test:
        subject = f"Test: {subject}"
    parts = [_paragraph(each, url) for each in shown]
    if more:
        parts.append(f"and {more} more.")
    if repeated:
        parts.append("This message may have come before: the server ended while it was sent.")
    data = {
        "rule": rule,
        "count": len(told),
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


def _paragraph(told: NotifiedEvent, url: str) -> str:
    event, run = told
    lines = [f"{_head(event)} at {event['at'][:19]} UTC"]
    detail = event["detail"].splitlines()
    if run is not None and _output(run):
        detail = detail[:1]  # a worker puts the last lines of output behind it
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


def _entry(told: NotifiedEvent, url: str) -> dict[str, Any]:
    event, run = told
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
        look = f"`bedrockjobs run logs {event['runID']}` shows what it printed, " if event["runID"] else ""
        return f"{look}`bedrockjobs job explain {event['jobID']}` what comes next."
    return ""
