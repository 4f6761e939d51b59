"""Import the recurring tasks of Solid Queue (Rails) from ``config/recurring.yml``.

Fugit reads the schedules: a cron expression, or English such as ``every day at 9am``. English is accepted if
it has only one meaning. Each task becomes a ``bin/rails runner`` command that does what Solid Queue would do.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

from bedrockjobs.base.jsontext import whole_number
from bedrockjobs.imports import yaml_items
from bedrockjobs.imports.imported import (
    MACROS,
    WEEKDAYS,
    ImportedSchedule,
    Unreadable,
    check_count,
    check_size,
)
from bedrockjobs.imports.yaml_items import Located
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import find_zone

RUNNER = ("bin/rails", "runner")
TASK_KEYS = frozenset({"class", "command", "schedule"})
"""Keys of a task: a mapping with one of these keys is a task, and not the tasks of an environment."""

EVERY = {
    "second": "* * * * * *",
    "minute": "* * * * *",
    "hour": "0 * * * *",
    "day": "0 0 * * *",
    "month": "0 0 1 * *",
    "year": "0 0 1 1 *",
}
STEPS = {"second": (59, "*/{} * * * * *"), "minute": (59, "*/{} * * * *"), "hour": (23, "0 */{} * * *")}
"""Units that may have a count, each with the largest count and the expression for it."""

_CONSTANT = re.compile(r"(?:::)?[A-Z]\w*(?:::[A-Z]\w*)*")
_SYMBOL = re.compile(r"[a-z_]\w*", re.ASCII)
_ZONE = re.compile(r"(?P<rest>.+?)\s+(?:(?:in|on)\s+)?(?P<zone>[A-Z][A-Za-z]+/[A-Z]\w+(?:/[A-Z]\w+)?|UTC)")
_PLAIN = r"\d+|[A-Za-z]{3}"
_TERM = re.compile(rf"\*(?:/(?P<every>\d+))?|(?P<first>{_PLAIN})(?:-(?P<last>{_PLAIN})(?:/(?P<step>\d+))?)?")
_CLOCK = r"(?P<hour>\d\d?)(?::(?P<minute>\d\d))?\s*(?P<half>am|pm)?|(?P<name>noon|midnight)"
_DAYS = r"day|weekday|(?:sun|mon|tues|wednes|thurs|fri|satur)day|sun|mon|tue|wed|thu|fri|sat"
_UNITS = "|".join(EVERY)
_EVERY = re.compile(rf"every\s+(?:(?P<count>\d+)\s+)?(?P<unit>{_UNITS})s?")
_AT = (
    re.compile(rf"every\s+(?P<day>{_DAYS})\s+at\s+(?:{_CLOCK})"),
    re.compile(rf"at\s+(?:{_CLOCK})\s+every\s+(?P<day>{_DAYS})"),
)


def parse_solid_queue(
    text: str, *, zone: str = "UTC", environment: str = "production"
) -> list[ImportedSchedule]:
    """Parse the tasks of an environment; ``zone`` is the application's time zone.

    ``zone`` applies to schedules that name no zone. Raises Unreadable if the text is not YAML, or has no such
    environment.
    """
    check_size(text)
    try:
        documents = yaml_items.documents(text)
    except ValueError as error:
        hint = "; render ERB first" if "<%" in text else ""
        raise Unreadable(f"expected the recurring tasks of Solid Queue in YAML: {error}{hint}") from None
    found: list[ImportedSchedule] = []
    for document in documents:
        for name, item in _tasks(document, environment).items():
            found.append(_schedule(name, item, zone))
            check_count(found, found[-1].place)
    return found


def _tasks(document: Located, environment: str) -> dict[str, Located]:
    """Return the tasks of an environment by name; if the file has no environments, return all its tasks."""
    if document.value is None:
        return {}
    if not isinstance(document.value, dict):
        raise Unreadable(f"line {document.line}: expected tasks, each with its keys")
    first = next(iter(document.value.values()), None)
    if first is None or (isinstance(first.value, dict) and TASK_KEYS & first.value.keys()):
        return document.value
    if environment not in document.value:
        there = ", ".join(name[:40] for name in list(document.value)[:5])
        raise Unreadable(f"line {document.line}: there is no environment {environment}, only {there}")
    tasks = document.value[environment]
    if tasks.value is None:
        return {}
    if not isinstance(tasks.value, dict):
        raise Unreadable(f"line {tasks.line}: expected tasks, each with its keys")
    return tasks.value


def _schedule(name: str, item: Located, zone: str) -> ImportedSchedule:
    place = f"line {item.line}"
    schedule = ImportedSchedule(name or place.replace(" ", "-"), place, "", zone=zone)
    if not isinstance(item.value, dict):
        return schedule._replace(refused="expected a task with class or command, and schedule")
    keys = {key: yaml_items.plain(value) for key, value in item.value.items()}
    said = keys.pop("schedule", None)
    if not isinstance(said, str):
        return schedule._replace(refused="schedule: expected a text")
    try:
        said, schedule = said.strip(), schedule._replace(source_text=said.strip())
        expression, own_zone = expression_of(said)
        find_zone(own_zone or zone)
        old = cron.parse(expression)
        options: dict[str, Any] = {"argv": [*RUNNER, _program(keys)]}
    except (cron.BadSchedule, ValueError) as error:
        return schedule._replace(refused=str(error))
    if note := keys.pop("description", None):
        options["note"] = str(note)
    return schedule._replace(
        zone=own_zone or zone, old=old, expression=expression, options=options
    ).with_warning(*(f"line {item.value[key].line}: {key} is left out" for key in keys))


def _program(keys: dict[str, Any]) -> str:
    """Remove the keys that say what a task does, and return that as Ruby code; raises ValueError."""
    kind, command = keys.pop("class", None), keys.pop("command", None)
    if command is not None and kind is None:
        if not isinstance(command, str):
            raise ValueError("command: expected a text")
        return command
    if not isinstance(kind, str) or not _CONSTANT.fullmatch(kind):
        raise ValueError("class: expected the name of a job's class")
    arguments = keys.pop("args", [])
    given = arguments if isinstance(arguments, list) else [arguments]
    chosen = {key: keys.pop(key) for key in ("queue", "priority") if keys.get(key) is not None}
    job = f"{kind}.set({_members(chosen)})" if chosen else kind
    words = [_ruby(value) for value in given]
    if given and isinstance(given[-1], dict):
        words[-1] = _members(given[-1])
    return f"{job}.perform_later({', '.join(filter(None, words))})"


def _ruby(value: Any) -> str:
    """Return a YAML value as a Ruby literal; raises ValueError."""
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return f"{{ {_members(value)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_ruby, value))}]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return json.dumps(value)
    raise ValueError(f"args: expected texts, numbers, true, false, lists and keys, not {str(value)[:40]}")


def _quoted(text: str) -> str:
    """Return a text as a Ruby string in single quotes, in which Ruby evaluates nothing."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _members(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{key if _SYMBOL.fullmatch(key) else _quoted(key)}: {_ruby(value)}" for key, value in values.items()
    )


def expression_of(said: str) -> tuple[str, str]:
    """Return the cron expression for a schedule, and its zone, or an empty text; raises BadSchedule."""
    zone = ""
    if zoned := _ZONE.fullmatch(said):
        said, zone = zoned["rest"], zoned["zone"]
    if said in MACROS:
        return said, zone
    if len(said.split()) in (5, 6) and not said.lower().startswith(("every", "at")):
        return _checked(said), zone
    words = said.lower()
    if (every := _EVERY.fullmatch(words)) and (expression := _repeated(every)):
        return expression, zone
    for form in _AT:
        if (at := form.fullmatch(words)) and (expression := _at(at)):
            return expression, zone
    expected = (
        "a cron expression, or English such as 'every hour', 'every 5 minutes', 'every day at 9am',"
        " 'every monday at 17:30'"
    )
    raise cron.BadSchedule("schedule", said, expected)


def _repeated(every: re.Match[str]) -> str:
    unit, count = every["unit"], whole_number(every["count"] or "1")
    if count == 1:
        return EVERY[unit]
    largest, form = STEPS.get(unit, (0, ""))
    return form.format(count) if 1 < count <= largest else ""


def _at(found: re.Match[str]) -> str:
    if found["name"]:
        hour, minute = 12 * (found["name"] == "noon"), 0
    else:
        hour, minute = int(found["hour"]), int(found["minute"] or 0)
        if found["half"]:
            if not 1 <= hour <= 12:
                return ""
            hour = hour % 12 + 12 * (found["half"] == "pm")
    if hour > 23 or minute > 59:
        return ""
    day = found["day"]
    days = {"day": "*", "weekday": "1-5"}.get(day) or str(WEEKDAYS.index(day[:3]))
    return f"{minute} {hour} * * {days}"


def _checked(text: str) -> str:
    """Return ``text`` if Fugit and bedrockjobs read its terms alike; raises BadSchedule otherwise."""
    for word in text.split():
        for term in word.split(","):
            found = _TERM.fullmatch(term)
            if found is None or "1" in (found["every"], found["step"]) or (term[0] == "*" and term != word):
                expected = f"*, numbers, names, ranges and steps, not {term[:40]!r}"
                raise cron.BadSchedule("schedule", text, expected)
            first, last = found["first"] or "", found["last"] or ""
            if first.isdigit() and last.isdigit() and whole_number(first) > whole_number(last):
                raise cron.BadSchedule("schedule", text, f"ranges that ascend, not {term[:40]!r}")
    cron.parse(text)
    return text
