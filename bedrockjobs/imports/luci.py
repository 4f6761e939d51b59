"""Reading the job definitions of LUCI's scheduler (its cron service), ``luci-scheduler.cfg``.

Its cron schedules are gorhill's, in UTC. The relative ones count from the end of a run, as a repeat of
Bedrock's does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from bedrockjobs.imports import gorhill, textproto
from bedrockjobs.imports.found import Found
from bedrockjobs.imports.textproto import Message, Value
from bedrockjobs.schedule import cron

DELAY_S_MAX = 99_999_999
"""Seconds between two runs: eight digits in a repeat."""

FETCH_TIMEOUT_S = 60
"""What LUCI gives a fetch that names no time-out; ours is the same."""

_INTERVAL = re.compile(r"with\s+(\S+)\s+interval", re.IGNORECASE)
_DURATION = re.compile(
    r"(?:(\d{1,6}(?:\.\d+)?)h)?(?:(\d{1,8}(?:\.\d+)?)m(?!s))?(?:(\d{1,8}(?:\.\d+)?)s)?(?:(\d{1,9})ms)?"
)
_ACCESS = ("acls", "acl_sets", "realm", "service_account")
"""Who may do what there; here, that is not kept with a job."""

_TASKS = ("url_fetch", "noop", "buildbucket", "swarming", "swarming_task", "dm", "gitiles")


def read(text: str) -> list[Found]:
    """Read ``job`` and ``trigger`` blocks; raises Unreadable where the text is no text-format proto."""
    found = []
    for name, value, line in textproto.parse(text):
        if name in ("job", "trigger") and isinstance(value, list):
            found.append(_job(value, f"line {line}"))
    return found


def _job(fields: Message, place: str) -> Found:
    given: dict[str, Value] = {name: value for name, value, _ in fields}
    found = Found(
        str(given.get("id") or place.replace(" ", "-")), place, str(given.get("schedule", "triggered"))
    )
    if not isinstance(given.get("id"), str):
        return replace(found, refused="expected an id")
    if given.get("disabled") is True:
        return replace(found, refused="it is disabled there")
    if "gitiles" in given:
        return replace(found, refused="nothing here watches a repository (gitiles)")
    found = _with_schedule(found)
    if found.refused:
        return found
    found = _with_task(found, given)
    for name, what in (("triggers", "starts other jobs"), ("triggering_policy", "has a triggering policy")):
        if name in given:
            found = found.with_warning(f"it {what} ({name}), which is left out")
    for name in given:
        if name not in (
            "id",
            "schedule",
            "disabled",
            "task",
            "triggers",
            "triggering_policy",
            *_ACCESS,
            *_TASKS,
        ):
            found = found.with_warning(f"{name} is left out")
    return found


def _with_schedule(found: Found) -> Found:
    said = " ".join(found.said.split())
    if said == "triggered":
        return replace(found, old=cron.parse("@never"), expression="@never")
    relative = _INTERVAL.fullmatch(said)
    if relative or said == "continuously":
        seconds = _seconds(relative[1]) if relative else 0
        if seconds is None:
            return replace(found, refused="with ... interval: expected a duration such as 10s or 1h30m")
        if seconds != int(seconds):
            found = found.with_warning("an interval has whole seconds here")
        found = replace(found, repeat_after=f"FINISHED, +{max(1, round(seconds)) if seconds else 0} SECONDS")
        return found.with_warning("a run that fails ends the loop here: RetryJob with revive starts it again")
    try:
        old, expression = gorhill.read(said)
    except cron.BadSchedule as error:
        return replace(found, refused=str(error))
    return replace(found, old=old, expression=expression)


def _seconds(text: str) -> float | None:
    """Return the seconds of a duration in Go's spelling."""
    parts = _DURATION.fullmatch(text)
    if parts is None or not text:
        return None
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in parts.groups())
    found = hours * 3_600 + minutes * 60 + seconds + milliseconds / 1_000
    return found if found <= DELAY_S_MAX else None


def _with_task(found: Found, given: dict[str, Value]) -> Found:
    inside = given.get("task")
    tasks = dict(given)
    if isinstance(inside, list):
        tasks |= {name: value for name, value, _ in inside}
    kind = next((name for name in _TASKS if name in tasks), "")
    if kind == "noop":
        return replace(found, options={"argv": ["true"]})
    if kind == "url_fetch":
        return _with_fetch(found, tasks[kind])
    what = f"a {kind} task is not known here" if kind else "it has no task that is known here"
    return found.with_warning(f"{what}: a worker has to take jobs of this name")


def _with_fetch(found: Found, task: Value) -> Found:
    given = {name: value for name, value, _ in task} if isinstance(task, list) else {}
    url = given.get("url")
    if not isinstance(url, str):
        return replace(found, refused="url_fetch: expected a url")
    fetch: dict[str, Any] = {"url": url}
    if (method := given.get("method", "GET")) != "GET":
        fetch["method"] = method
    if (timeout := given.get("timeout_sec", FETCH_TIMEOUT_S)) != FETCH_TIMEOUT_S:
        fetch["timeout"] = timeout
    return replace(found, options={"url": url if len(fetch) == 1 else fetch})
