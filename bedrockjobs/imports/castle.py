"""Import castle-cron jobs from Job structs as JSON, or from ``castle-cron add`` command lines.

The output of ``castle-cron list`` is not enough, since it has no schedules.
"""

from __future__ import annotations

import shlex
from itertools import islice
from typing import Any, NamedTuple

from bedrockjobs.base.config import SCHEDULES_PER_SYNC_MAX
from bedrockjobs.imports import gorhill, json_items
from bedrockjobs.imports.imported import ImportedSchedule, Unreadable, check_count, check_size, once
from bedrockjobs.schedule import cron

FORMS = (
    "Job structs as JSON (one, a list, or one a line), or lines `castle-cron add NAME SCHEDULE CMD [ARG ...]`"
)

_PROGRAM = "castle-cron"
_VERBS = ("add", "upd")


class _Job(NamedTuple):
    """A Job struct or an ``add`` or ``upd`` command, and its place in the text."""

    number: int
    place: str
    values: dict[str, Any]
    updates: bool = False
    """Whether this job updates an earlier job (an ``upd`` command)."""


def parse_castle(text: str, *, zone: str = "UTC") -> list[ImportedSchedule]:
    """Parse jobs; ``zone`` is the time zone of the servers, in which castle-cron runs. Raises Unreadable.

    Jobs with the same name are refused with their locations, except that an ``upd`` changes the job of an
    earlier ``add``.
    """
    check_size(text)
    jobs = _structs(text) if text.lstrip()[:1] in ("{", "[") else _lines(text)
    return once([_imported(job, before, zone) for job, before in _final_jobs(jobs)])


def _final_jobs(jobs: list[_Job]) -> list[tuple[_Job, _Job | None]]:
    """Return the jobs that remain after all updates, each with the earlier job that it updates, if any."""
    jobs_found: list[tuple[_Job, _Job | None]] = []
    places: dict[str, int] = {}
    for job in jobs:
        name = str(job.values.get("Name"))
        if job.updates and name in places:
            jobs_found[places[name]] = (job, jobs_found[places[name]][0])
        else:
            places[name] = len(jobs_found)
            jobs_found.append((job, None))
    return jobs_found


def _imported(job: _Job, before: _Job | None, zone: str) -> ImportedSchedule:
    schedule = _job(job, zone)
    if before is None or schedule.refused:
        return schedule
    return schedule.with_warning(f"it changes the job of {before.place}")


def _structs(text: str) -> list[_Job]:
    try:
        items = list(islice(json_items.values(text), SCHEDULES_PER_SYNC_MAX + 1))
    except ValueError as error:
        raise Unreadable(f"expected {FORMS}: {error}") from None
    for item in items:
        if not isinstance(item.value, dict):
            raise Unreadable(f"line {item.line}: expected {FORMS}")
    check_count(items, f"line {items[-1].line if items else 1}")
    return [
        _Job(number, f"job {number}, line {item.line}", item.value) for number, item in enumerate(items, 1)
    ]


def _lines(text: str) -> list[_Job]:
    jobs: list[_Job] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise Unreadable(f"line {number}: {error}") from None
        program = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == _PROGRAM), None)
        if not words:
            continue
        verb = next((at for at, word in enumerate(words) if word in _VERBS), None)
        if program is None or verb is None or verb < program or len(words) < verb + 4:
            raise Unreadable(f"line {number}: expected {FORMS}")
        name, schedule, command, *arguments = words[verb + 1 :]
        job = {"Name": name, "Schedule": schedule, "Cmd": command, "Args": arguments}
        jobs.append(_Job(number, f"line {number}", job, updates=words[verb] == "upd"))
        check_count(jobs, f"line {number}")
    return jobs


def _job(job: _Job, zone: str) -> ImportedSchedule:
    values: dict[str, Any] = {}
    unnamed = ImportedSchedule(f"job-{job.number}", job.place, "", zone=zone)
    for key, value in job.values.items():
        if key.lower() in values:
            return unnamed._replace(refused=f"{key}: it is given twice, in two spellings")
        values[key.lower()] = value
    name, command, expression = (values.get(key) for key in ("name", "cmd", "schedule"))
    arguments = values.get("args") or []
    schedule = ImportedSchedule(str(name or unnamed.name), job.place, str(expression or ""), zone=zone)
    if not (
        isinstance(name, str)
        and name
        and isinstance(command, str)
        and command
        and isinstance(expression, str)
    ):
        return schedule._replace(refused="expected Name, Cmd, Args and Schedule")
    if not isinstance(arguments, list) or not all(isinstance(item, str) for item in arguments):
        return schedule._replace(refused="Args: expected a list of strings")
    if values.get("haserror"):
        return schedule._replace(
            refused="HasError is set: castle-cron does not run it (a bad schedule, or deleted)"
        )
    try:
        reading = gorhill.parse_gorhill(expression)
    except cron.BadSchedule as error:
        return schedule._replace(refused=str(error))
    schedule = schedule._replace(options={"argv": [command, *arguments]}).with_reading(*reading)
    if len(expression.split()) == 6:
        schedule = schedule.with_warning(
            "6 fields: the minute comes first and a year last, as castle-cron reads them"
        )
    return schedule
