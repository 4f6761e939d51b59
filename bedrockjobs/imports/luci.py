"""Import job definitions of LUCI's scheduler (its cron service) from ``luci-scheduler.cfg``.

Its cron schedules use gorhill's syntax, in UTC. Its relative schedules count from the end of a run, like a
repeat in Bedrock. Definitions that LUCI's validation would refuse are refused, with their line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from bedrockjobs.imports import gorhill, textproto
from bedrockjobs.imports.found import ImportedSchedule, Unreadable, check_count, once, shortened
from bedrockjobs.imports.luci_schema import CONFIG, JOB_TASKS, TASKS, Block, Mismatch, checked
from bedrockjobs.imports.textproto import Message
from bedrockjobs.schedule import cron

DELAY_S_MAX = 99_999_999
"""Maximum seconds between two runs: eight digits in a repeat."""

FETCH_TIMEOUT_S = 60
"""LUCI's default timeout of a fetch, which equals ours."""

FETCH_TIMEOUT_S_MAX = 480
"""LUCI's maximum timeout of a fetch."""

LOG_BASE_MIN = 1.0001
"""LUCI's minimum base for logarithmic batching."""

DEFAULTS = {"job": "triggered", "trigger": "with 30s interval"}
"""Default schedules, by the name of the block."""

_ID = re.compile(r"[0-9A-Za-z_\-. )(]{1,100}")
_REALM = re.compile(r"[a-z0-9_.\-/]{1,400}|@root|@legacy")
_INTERVAL = re.compile(r"with (\S+) interval")
_DURATION = re.compile(
    r"[-+]?(?:0|(?:(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:ns|us|µs|μs|ms|s|m|h)){1,20})"
)
_PART = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_TAGS = ("scheduler_invocation_id", "scheduler_job_id", "user_agent")
"""Keys of tags that LUCI sets itself."""


class _Refused(ValueError):
    """A definition is invalid; the others are still imported."""


def read(text: str) -> list[ImportedSchedule]:
    """Parse ``job`` and ``trigger`` blocks; raises Unreadable if the text is not a valid file."""
    fields = textproto.parse(text)
    blocks: list[tuple[str, int, Message]] = []
    for name, value, line in fields:
        if name in DEFAULTS and isinstance(value, list):
            blocks.append((name, line, value))
            check_count(blocks, f"line {line}")
            continue
        try:
            checked([textproto.Field(name, value, line)], CONFIG, line)
        except Mismatch as error:
            raise Unreadable(str(error)) from None
    known = {identity for _, _, value in blocks if (identity := _enabled(value))}
    return once([_block(name, line, value, known) for name, line, value in blocks])


def _enabled(fields: Message) -> str:
    """Return the id of a block that is not disabled, which triggers may refer to."""
    given = {name: value for name, value, _ in fields}
    return "" if given.get("disabled") in ("true", "True", "t", 1) else str(given.get("id", ""))


def _block(kind: str, line: int, fields: Message, known: set[str]) -> ImportedSchedule:
    identity = next((value for name, value, _ in fields if name == "id" and isinstance(value, str)), "")
    said = next((value for name, value, _ in fields if name == "schedule" and isinstance(value, str)), "")
    found = ImportedSchedule(identity or f"line-{line}", f"line {line}", said or DEFAULTS[kind])
    schema = (CONFIG.fields or {})[kind]
    try:
        block = checked(fields, schema, line)
        _check_names(block)
        found = _with_schedule(found, block.lines.get("schedule", line))
        _check_triggers(block, known)
        _check_policy(block)
        task, place = _task(block)
        _check_task(task, place, block)
        return _taken(found, block, task, place)
    except (Mismatch, _Refused) as error:
        return found._replace(refused=str(error), expression="", repeat_after="")


# --- LUCI's validation -------------------------------------------------------------------------------------


def _refuse(line: int, what: str, expected: str, found: object = None) -> _Refused:
    shown = "" if found is None else f", not {shortened(str(found))}"
    return _Refused(f"line {line}: {what}: expected {expected}{shown}")


def _check_names(block: Block) -> None:
    identity, realm = block.values.get("id", ""), block.values.get("realm", "")
    if not identity:
        raise _refuse(block.line, "id", "a text")
    if not _ID.fullmatch(identity):
        raise _refuse(block.lines["id"], "id", "at most 100 letters, digits, blanks and _-.()", identity)
    if realm and not _REALM.fullmatch(realm):
        expected = "small letters, digits and _.-/, or @root or @legacy"
        raise _refuse(block.lines["realm"], "realm", expected, realm)


def _check_triggers(block: Block, known: set[str]) -> None:
    for name in block.values.get("triggers", ()):
        if name not in known:
            raise _refuse(block.lines["triggers"], "triggers", "jobs of this file that are enabled", name)


def _check_policy(block: Block) -> None:
    policy = block.values.get("triggering_policy")
    if policy is None:
        return
    for name in ("max_concurrent_invocations", "max_batch_size"):
        if policy.values.get(name, 0) < 0:
            raise _refuse(policy.lines[name], name, "a number of at least 0", policy.values[name])
    logarithmic = policy.values.get("kind") == "LOGARITHMIC_BATCHING"
    if logarithmic and not policy.values.get("log_base", 0) >= LOG_BASE_MIN:
        line = policy.lines.get("log_base", policy.line)
        raise _refuse(line, "log_base", f"a number of at least {LOG_BASE_MIN}")
    timeout = policy.values.get("pending_timeout")
    if timeout is not None and (timeout.values.get("seconds", 0) < 0 or timeout.values.get("nanos", 0) < 0):
        raise _refuse(timeout.line, "pending_timeout", "a duration of at least 0")


def _task(block: Block) -> tuple[str, Block]:
    """Return the name and the block of a job's only task."""
    inside = block.values.get("task")
    found = [
        (name, place.values[name])
        for place in (block, *([inside] if inside is not None else []))
        for name in TASKS
        if name in place.values
    ]
    for (_, one), (name, other) in pairwise(sorted(found, key=lambda task: task[1].line)):
        raise _refuse(other.line, name, f"one task in a job; line {one.line} has one already")
    if not found:
        raise _refuse(block.line, "task", f"one of {', '.join(JOB_TASKS)}")
    return found[0]


def _check_task(kind: str, task: Block, block: Block) -> None:
    if kind == "url_fetch":
        _check_fetch(task)
    elif kind == "buildbucket":
        _check_build(task, block)
    elif kind == "gitiles" and not _absolute(task.values.get("repo", "")):
        raise _refuse(task.lines.get("repo", task.line), "gitiles.repo", "an absolute URL")


def _check_fetch(task: Block) -> None:
    given, lines = task.values, task.lines
    if given.get("method", "") not in ("", "GET"):
        raise _refuse(
            lines["method"], "url_fetch.method", "GET, which is all that LUCI does", given["method"]
        )
    if not given.get("url"):
        raise _refuse(lines.get("url", task.line), "url_fetch.url", "a url")
    if not _absolute(given["url"]):
        raise _refuse(lines["url"], "url_fetch.url", "an absolute url", given["url"])
    if given.get("timeout_sec") and not 1 <= given["timeout_sec"] <= FETCH_TIMEOUT_S_MAX:
        expected = f"1 to {FETCH_TIMEOUT_S_MAX} seconds"
        raise _refuse(lines["timeout_sec"], "url_fetch.timeout_sec", expected, given["timeout_sec"])


def _check_build(task: Block, block: Block) -> None:
    given, lines = task.values, task.lines
    server = given.get("server", "")
    if not server or "/" in server:
        raise _refuse(lines.get("server", task.line), "buildbucket.server", "the name of a host", server)
    if not given.get("bucket") and block.values.get("realm", "") in ("", "@root", "@legacy"):
        raise _refuse(lines.get("bucket", task.line), "buildbucket.bucket", "a bucket, or a realm of the job")
    if not given.get("builder"):
        raise _refuse(lines.get("builder", task.line), "buildbucket.builder", "a builder")
    for name in ("properties", "tags"):
        for pair in given.get(name, ()):
            key, colon, _ = pair.partition(":")
            if not colon or not key:
                raise _refuse(lines[name], f"buildbucket.{name}", "key:value", pair)
            if name == "tags" and key in _DEFAULT_TAGS:
                raise _refuse(lines[name], "buildbucket.tags", "no tag that LUCI writes itself", pair)


def _absolute(url: str) -> bool:
    if _CONTROL.search(url):
        return False
    try:
        return bool(urlsplit(url).scheme)
    except ValueError:
        return False


# --- conversion --------------------------------------------------------------------------------------------


def _with_schedule(found: ImportedSchedule, line: int) -> ImportedSchedule:
    said = found.said
    if said == "triggered":
        return found._replace(old=cron.parse("@never"), expression="@never")
    relative = _INTERVAL.fullmatch(said)
    if relative or said == "continuously":
        seconds = _seconds(relative[1]) if relative else 0
        if seconds is None:
            expected = f"a duration such as 10s or 1h30m, at most {DELAY_S_MAX} s"
            raise _refuse(line, "with ... interval", expected, said)
        if seconds != int(seconds):
            found = found.with_warning("an interval has whole seconds here")
        found = found._replace(repeat_after=f"FINISHED, +{max(1, round(seconds)) if seconds else 0} SECONDS")
        return found.with_warning("a run that fails ends the loop here: RetryJob with revive starts it again")
    try:
        reading = gorhill.read(said)
    except cron.BadSchedule as error:
        raise _Refused(f"line {line}: schedule: {error}") from None
    return found.with_reading(*reading)


def _seconds(text: str) -> float | None:
    """Return the seconds of a Go duration; None if it is invalid, negative or too long."""
    if not _DURATION.fullmatch(text):
        return None
    seconds: float = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return None if seconds > DELAY_S_MAX or (text.startswith("-") and seconds) else seconds


def _taken(found: ImportedSchedule, block: Block, task: str, given: Block) -> ImportedSchedule:
    if block.values.get("disabled"):
        raise _Refused(f"line {block.lines['disabled']}: it is disabled there")
    if task == "gitiles":
        raise _Refused(f"line {given.line}: nothing here watches a repository (gitiles)")
    if task == "noop":
        found = found._replace(options={"argv": ["true"]})
        for name in ("sleep_ms", "triggers_count"):
            if given.values.get(name):
                found = found.with_warning(f"noop.{name} is left out")
    elif task == "url_fetch":
        found = found._replace(options=_fetch(given.values))
    else:
        found = found.with_warning(f"a {task} task is not known here: a worker has to take jobs of this name")
    for name, what in (("triggers", "starts other jobs"), ("triggering_policy", "has a triggering policy")):
        if name in block.values:
            found = found.with_warning(f"it {what} ({name}), which is left out")
    return found


def _fetch(given: dict[str, Any]) -> dict[str, Any]:
    timeout = given.get("timeout_sec") or FETCH_TIMEOUT_S
    url = given["url"]
    return {"url": url if timeout == FETCH_TIMEOUT_S else {"url": url, "timeout": timeout}}
