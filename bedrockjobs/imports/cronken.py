"""Import Cronken jobs from the hash ``{cronken}:jobs`` as a JSON object.

APScheduler ran a ``cronstring`` with 0 as Monday and required both day fields to match, although Cronken's
page calls it a cron expression. The caller chooses between the two interpretations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import json_items
from bedrockjobs.imports.imported import (
    ImportedSchedule,
    NoExpression,
    Refused,
    Unreadable,
    check_count,
    check_size,
    expression_for,
    kept_or_rewritten,
    once,
)
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.plan import Schedule, find_zone

FirstDay = Literal["monday", "sunday"]

_CRONSTRING = ("minute", "hour", "day", "month", "day_of_week")
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
}
_MIXED = re.compile("[a-z]-[0-9]|[0-9]-[a-z]", re.IGNORECASE)
_SECTIONS = ("cron_args", "job_args", "job_state")
_JOB_ARGS = ("cmd", "lock", "ttl")


def parse_cronken(text: str, *, zone: str = "UTC", weekday_0: FirstDay = "sunday") -> list[ImportedSchedule]:
    """Parse a JSON object with a job definition for each name; a definition may be JSON text, as in Redis.

    ``zone`` is the time zone of the servers. A cronstring fires as it did in Cronken if ``weekday_0`` is
    monday, and as in crontab(5) if it is sunday. Jobs with the same name are refused with their locations.
    Raises Unreadable if the text is not a JSON object.
    """
    check_size(text)
    try:
        items = list(islice(json_items.members(text), SCHEDULES_PER_SYNC_MAX + 1))
    except ValueError as error:
        raise Unreadable(f"expected a JSON object of jobs by name: {error}") from None
    check_count(items, f"line {items[-1].line if items else 1}")
    return once(
        [
            _job(
                ImportedSchedule(item.key, f"job {number}, line {item.line}", ""), item.value, zone, weekday_0
            )
            for number, item in enumerate(items, 1)
        ]
    )


def _job(schedule: ImportedSchedule, value: Any, zone: str, weekday_0: FirstDay) -> ImportedSchedule:
    try:
        definition = _object(
            "the definition", json_items.value_of(value) if isinstance(value, str) else value
        )
        schedule = schedule._replace(source_text=_arguments_of(definition.get("cron_args")))
        return _read_job(schedule, definition, zone, weekday_0)
    except (Refused, cron.BadSchedule) as error:
        return schedule._replace(refused=str(error))
    except ValueError as error:
        return schedule._replace(refused=f"expected a JSON object: {error}")


def _arguments_of(arguments: Any) -> str:
    if isinstance(arguments, dict) and set(arguments) == {"cronstring"}:
        return str(arguments["cronstring"])
    return json.dumps(arguments, ensure_ascii=False)


def _object(what: str, value: Any, keys: tuple[str, ...] = _SECTIONS) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{what}: expected an object with {', '.join(keys)}")
    for key in value:
        if key not in (*keys, "validation_errors"):
            raise Refused(f"{what}: unknown key {key!r}, expected {', '.join(keys)}")
    return value


def _read_job(
    schedule: ImportedSchedule, definition: dict[str, Any], zone: str, weekday_0: FirstDay
) -> ImportedSchedule:
    arguments = definition.get("cron_args")
    if not isinstance(arguments, dict):
        raise Refused("cron_args: expected an object")
    job = _object("job_args", definition.get("job_args"), _JOB_ARGS)
    state = _object("job_state", definition.get("job_state") or {}, ("paused",))
    schedule = schedule._replace(
        zone=str(arguments.get("timezone") or zone), paused=bool(state.get("paused"))
    )
    find_zone(schedule.zone)
    schedule = _with_command(schedule, job)
    if jitter := arguments.get("jitter"):
        schedule = schedule._replace(options={**schedule.options, "jitter": jitter})
    if "cronstring" in arguments:
        schedule = _with_cronstring(schedule, arguments, weekday_0)
    else:
        old = _as_it_ran(arguments)
        schedule = schedule._replace(old=old, expression=_expression(old, arguments))
    if schedule.paused:
        schedule = schedule.with_warning("it is paused in Cronken, and is added paused")
    return schedule


def _with_cronstring(
    schedule: ImportedSchedule, arguments: Mapping[str, Any], weekday_0: FirstDay
) -> ImportedSchedule:
    text = str(arguments["cronstring"]).strip()
    if text.lower() == "@never":
        return schedule._replace(old=cron.parse(text), expression="@never")
    others = {
        key: value for key, value in arguments.items() if key not in ("cronstring", "jitter", "timezone")
    }
    if others:
        raise Refused(f"cronstring: expected no {next(iter(others))} in addition")
    words = _MACROS.get(text.lower(), text).split()
    if len(words) != len(_CRONSTRING):
        raise cron.BadSchedule(
            "cronstring", text, f"five fields, or one of {', '.join([*_MACROS, '@never'])}"
        )
    old: Schedule | None = None
    problem = ""
    try:
        old = _as_it_ran(dict(zip(_CRONSTRING, words, strict=True)))
    except cron.BadSchedule as error:
        problem = str(error)
    if weekday_0 == "monday":
        if old is None:
            raise Refused(problem)
        fields = dict(zip(_CRONSTRING, words, strict=True))
        return schedule._replace(old=old, expression=_expression(old, fields, text))
    cron.parse(text)
    schedule = schedule._replace(old=old, expression=text)
    if old is None:
        return schedule.with_warning(f"Cronken cannot read it ({problem}); read as crontab(5) does")
    if schedule.differs:
        return schedule.with_warning(
            "Cronken takes 0 for Monday and requires both day fields to match; read as crontab(5) does."
            " --weekday-0 monday keeps the days on which it ran"
        )
    return schedule


def _as_it_ran(arguments: Mapping[str, Any]) -> Schedule:
    """Return the schedule as APScheduler ran it; raises cron.BadSchedule.

    APScheduler ignored a number after a name (``feb-12``), and did not run a job with a name after a number
    (``2-dec``). In a ``repeat`` of bedrockjobs both are ranges.
    """
    for name, value in arguments.items():
        for term in str(value).split(","):
            if name in _CRONSTRING and _MIXED.search(term):
                raise cron.BadSchedule(name, term, "a range between two names or two numbers")
    return cron.parse(arguments)


def _expression(schedule: Schedule, arguments: Mapping[str, Any], text: str = "") -> str:
    """Return an equivalent expression, or the arguments as JSON if there is none."""
    try:
        return kept_or_rewritten(text, schedule) if text else expression_for(schedule)
    except NoExpression:
        cron_args = {key: value for key, value in arguments.items() if key not in ("jitter", "timezone")}
        return json.dumps(cron_args)


def _with_command(schedule: ImportedSchedule, job: Mapping[str, Any]) -> ImportedSchedule:
    command, lock, ttl = (job.get(key) for key in _JOB_ARGS)
    if not isinstance(command, str) or not command:
        raise Refused("job_args.cmd: expected a shell command")
    if not isinstance(lock, (bool, str)):
        raise Refused("job_args.lock: expected true, false or a name")
    if isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 0:
        raise Refused("job_args.ttl: expected a whole number of seconds")
    options: dict[str, Any] = {"cmd": command}
    if isinstance(lock, str) and lock:
        options["lock"] = lock
    # Cronken considers a run frozen after 45 s without a heartbeat, which is the default lease here too.
    if ttl > 45:
        options["lease"] = ttl
    schedule = schedule._replace(options=options)
    if not lock:  # without a lock, every server of Cronken runs it
        options["hosts"] = "all"
    return schedule
