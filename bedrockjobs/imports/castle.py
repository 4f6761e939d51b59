"""Reading castle-cron's jobs: its Job structs as JSON, or the ``castle-cron add`` lines that made them.

What its ``list`` prints is not enough: it has no schedules.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from bedrockjobs.imports import gorhill
from bedrockjobs.imports.found import Found, Unreadable
from bedrockjobs.schedule import cron

FORMS = (
    "Job structs as JSON (one, a list, or one a line), or lines `castle-cron add NAME SCHEDULE CMD [ARG ...]`"
)

_PROGRAM = "castle-cron"
_VERBS = ("add", "upd")


def read(text: str, *, zone: str = "UTC") -> list[Found]:
    """Read jobs; ``zone`` is the servers' own, by which castle-cron goes. Raises Unreadable."""
    jobs = _structs(text) if text.lstrip()[:1] in ("{", "[") else _lines(text)
    found: dict[str, Found] = {}
    for place, job in jobs:
        entry = _job(job, place, zone)
        found[entry.name] = entry
    return list(found.values())


def _structs(text: str) -> list[tuple[str, dict[str, Any]]]:
    decoder = json.JSONDecoder()
    values: list[Any] = []
    at = 0
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            values += value if isinstance(value, list) else [value]
            at = end + len(text[end:]) - len(text[end:].lstrip())
    except ValueError as error:
        raise Unreadable(f"expected {FORMS}: {error}") from None
    if not all(isinstance(value, dict) for value in values):
        raise Unreadable(f"expected {FORMS}")
    return [(f"job {number}", value) for number, value in enumerate(values, 1)]


def _lines(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
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
        found.append((f"line {number}", job))
    return found


def _job(job: dict[str, Any], place: str, zone: str) -> Found:
    given = {key.lower(): value for key, value in job.items()}
    name, command, said = (given.get(key) for key in ("name", "cmd", "schedule"))
    arguments = given.get("args") or []
    found = Found(str(name or place.replace(" ", "-")), place, str(said or ""), zone=zone)
    if not (
        isinstance(name, str) and name and isinstance(command, str) and command and isinstance(said, str)
    ):
        return replace(found, refused="expected Name, Cmd, Args and Schedule")
    if not isinstance(arguments, list) or not all(isinstance(item, str) for item in arguments):
        return replace(found, refused="Args: expected a list of strings")
    if given.get("haserror"):
        return replace(
            found, refused="HasError is set: castle-cron does not run it (a bad schedule, or deleted)"
        )
    try:
        old, expression = gorhill.read(said)
    except cron.BadSchedule as error:
        return replace(found, refused=str(error))
    found = replace(found, old=old, expression=expression, options={"argv": [command, *arguments]})
    if len(said.split()) == 6:
        found = found.with_warning(
            "6 fields: the minute comes first and a year last, as castle-cron reads them"
        )
    return found
