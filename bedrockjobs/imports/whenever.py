"""Import the schedules of whenever (Ruby) from the declarative part of ``config/schedule.rb``.

whenever writes a crontab. So each entry becomes the crontab line that whenever would write, which is read by
the rules of the chosen cron. Ruby that is not declarative, such as ``if`` or ``job_type``, is refused with
its line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from bedrockjobs.base.jsontext import NumberTooLong, whole_number
from bedrockjobs.imports import crontab
from bedrockjobs.imports.imported import (
    WEEKDAYS,
    ImportedSchedule,
    NoExpression,
    Refused,
    Unreadable,
    check_count,
    check_size,
    distinct,
    kept_or_rewritten,
    name_of,
    shortened,
)
from bedrockjobs.schedule import cron

SHORTCUTS = {
    ":reboot": "@reboot",
    ":year": "@annually",
    ":yearly": "@annually",
    ":month": "@monthly",
    ":monthly": "@monthly",
    ":week": "@weekly",
    ":weekly": "@weekly",
    ":day": "@daily",
    ":daily": "@daily",
    ":midnight": "@midnight",
    ":hour": "@hourly",
    ":hourly": "@hourly",
}
UNIT_MINUTES = {"minute": 1, "hour": 60, "day": 1440, "week": 10080}

_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\#]|#(?!\{)|\\.)*\""
_VALUE = rf"{_STRING}|:\w+|\d+"
_ITEM = rf"{_VALUE}|\d+\.\w+"
_LIST = rf"\[\s*(?:{_VALUE})(?:\s*,\s*(?:{_VALUE}))*\s*\]"
_AT = rf"(?::at\s*=>|at:)\s*(?P<at>{_VALUE}|{_LIST})"
_EVERY = re.compile(rf"every\s*\(?\s*(?P<time>{_ITEM}|{_LIST})\s*(?:,\s*{_AT}\s*)?\)?\s*do")
_SET = re.compile(rf"set\s*\(?\s*:(?P<name>\w+)\s*,\s*(?P<value>{_VALUE}|nil|true|false)\s*\)?")
_ENV = re.compile(rf"env\s*\(?\s*(?P<name>:\w+|{_STRING})\s*,\s*(?P<value>{_VALUE})\s*\)?")
_OUTPUT = rf"(?::output\s*=>|output:)\s*(?:{_STRING}|nil|false)"
_JOB = re.compile(
    rf"(?P<kind>command|rake|runner|script)\s*\(?\s*(?P<task>{_STRING})\s*(?:,\s*{_OUTPUT}\s*)?\)?"
)
_SET_OUTPUT = re.compile(r"set\s*\(?\s*:output\s*,.+")
_NUMBER = re.compile(r"(?P<count>\d+)\.(?P<unit>minute|hour|day|week|month)s?")
_CLOCK = re.compile(r"(?P<hour>\d\d?)(?::(?P<minute>\d\d))?\s*(?P<half>[ap]m)?")
_BLOCK = re.compile(
    r"(?!.*\bend$)(?:(?:if|unless|case|while|until|begin|def|class|module|for)\b.*|.*\bdo(?:\s*\|[^|]*\|)?)"
)
_CODE = re.compile(rf"(?:{_STRING}|[^#])*")
_LITERAL = re.compile(_VALUE)


@dataclass
class _Settings:
    """The values that ``set`` and ``env`` have given in the lines read so far."""

    values: dict[str, str | None]
    variables: dict[str, str] = field(default_factory=dict)

    def script(self, kind: str, task: str) -> str:
        """Return the shell command of a job; raises Refused."""
        path = self.values.get("path")
        if kind == "command":
            return task
        if not path:
            raise Refused(f"{kind}: expected --path, or set :path before it")
        environment, bundle = self.values["environment"], self.values["bundle_command"]
        variable = f"{self.values['environment_variable']}={environment}"
        prefix = f"cd {shlex.quote(path)} && "
        if kind == "rake":
            return f"{prefix}{_words(variable, bundle, 'rake', task, '--silent')}"
        if kind == "script":
            return f"{prefix}{_words(variable, bundle, f'script/{task}')}"
        runner = self.values["runner_command"]
        return f"{prefix}{_words(bundle, runner, '-e', environment, shlex.quote(task))}"

    def with_variables(self, entry: ImportedSchedule) -> ImportedSchedule:
        """Return an entry with the variables of the whole file, which apply to earlier lines too."""
        if not self.variables or entry.refused:
            return entry
        assignments = [f"{name}={value}" for name, value in self.variables.items()]
        return entry._replace(options={"argv": ["env", *assignments, *entry.options["argv"]]})


def _words(*words: str | None) -> str:
    return " ".join(filter(None, words))


def parse_whenever(
    text: str,
    *,
    zone: str = "UTC",
    by: crontab.Cron | None = None,
    path: str = "",
    environment: str = "production",
) -> list[ImportedSchedule]:
    """Parse a ``schedule.rb``; ``zone`` is the machine's time zone, ``path`` the application's folder.

    ``by`` is the cron that ran the crontab. Without ``by``, Debian's cron and cronie must agree on a
    schedule. Raises Unreadable if an ``end`` is missing.
    """
    check_size(text)
    settings = _Settings(
        {
            "path": path,
            "environment": environment,
            "environment_variable": "RAILS_ENV",
            "bundle_command": "bundle exec",
            "runner_command": "bin/rails runner",
        }
    )
    found: list[ImportedSchedule] = []
    warnings: list[str] = []
    times: list[str] | str = ""
    """The crontab expressions of the ``every`` that is open, or a text that says why it is refused."""
    depth = 0
    """Number of open blocks: 1 in an ``every``, more in a block that is refused."""
    refused_at = opened = 0
    for number, line in enumerate(text.splitlines(), 1):
        code = _CODE.match(line)[0].strip()  # type: ignore[index]  # it matches the empty text too
        place = f"line {number}"
        if not code:
            continue
        if depth and code == "end":
            depth -= 1
            refused_at = refused_at if depth >= refused_at else 0
        elif refused_at:
            depth += bool(_BLOCK.fullmatch(code))
        elif depth and (job := _JOB.fullmatch(code)):
            for said in times if isinstance(times, list) else [""]:
                entry = ImportedSchedule(place.replace(" ", "-"), place, said, zone=zone)
                why = times if isinstance(times, str) else ""
                found.append(_entry(entry, job, settings, by, why))
                check_count(found, place)
        elif not depth and (every := _EVERY.fullmatch(code)):
            depth, opened = 1, number
            try:
                times = list(times_of(every["time"], every["at"]))
            except (Refused, NumberTooLong) as error:
                times = str(error)
        elif not depth and _stated(code, settings, warnings, place):
            continue
        else:
            expected = "set, env, or every with command, rake, runner or script in lines of their own"
            why = f"{place}: expected {expected}, not {shortened(line.strip())}"
            found.append(ImportedSchedule(place.replace(" ", "-"), place, "", refused=why))
            check_count(found, place)
            if _BLOCK.fullmatch(code):
                depth += 1
                refused_at, opened = depth, number
    if depth:
        raise Unreadable(f"line {opened}: expected end")
    if found and warnings:
        found[0] = found[0].with_warning(*warnings)
    found = [settings.with_variables(entry) for entry in found]
    names = distinct(entry.name for entry in found)
    return [entry._replace(name=name) for entry, name in zip(found, names, strict=True)]


def _stated(code: str, settings: _Settings, warnings: list[str], place: str) -> bool:
    """Apply a line with ``set`` or ``env``; return whether the line is one of these."""
    if stated := _SET_OUTPUT.fullmatch(code):
        warnings.append(f"{place}: set :output is left out: the server keeps the output of each run")
        return True
    if stated := _SET.fullmatch(code):
        name, value = stated["name"], stated["value"]
        if name in settings.values:
            settings.values[name] = None if value in ("nil", "false") else _literal(value)
        else:
            warnings.append(f"{place}: set :{name} is left out")
        return True
    if stated := _ENV.fullmatch(code):
        name, value = _literal(stated["name"]), _literal(stated["value"])
        if name.upper() == "MAILTO":
            warnings.append(f"{place}: MAILTO is left out: use a notification rule")
        else:
            settings.variables[name] = value
        return True
    return False


def _entry(
    entry: ImportedSchedule, job: re.Match[str], settings: _Settings, by: crontab.Cron | None, why: str
) -> ImportedSchedule:
    task = _literal(job["task"])
    name = _name_of_ruby(task) if job["kind"] == "runner" else name_of(task)
    entry = entry._replace(name=name or entry.name, refused=why)
    if why:
        return entry
    try:
        script = settings.script(job["kind"], task)
        old, notes = crontab.meaning(entry.source_text, by)
        expression = kept_or_rewritten(entry.source_text, old)
    except (Refused, cron.BadSchedule) as error:
        return entry._replace(refused=str(error))
    except NoExpression as error:
        return entry._replace(refused=f"no expression of ours has {error}")
    argv = ["/bin/bash", "-l", "-c", script]
    return entry._replace(options={"argv": argv}).with_reading(old, expression, notes)


def _name_of_ruby(code: str) -> str:
    """Return the call at the beginning of Ruby code: ``Report.send_daily`` of ``Report.send_daily(1)``."""
    found = re.match(r"[A-Za-z_][\w:]*(?:\.\w+)?", code)
    return found[0][:60] if found else ""


def _literal(text: str) -> str:
    """Return the value of a Ruby string, symbol or number."""
    if text[0] == "'":
        return re.sub(r"\\(['\\])", r"\1", text[1:-1])
    if text[0] == '"':
        return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text[1:-1])
    return text.removeprefix(":")


def times_of(time: str, at: str | None) -> Iterator[str]:
    """Yield the crontab expressions that whenever writes for ``every``; raises Refused."""
    for one in _items(time):
        for moment in _items(at) if at else [None]:
            yield _expression(one, moment)


def _items(text: str) -> list[str]:
    """Return the items of a Ruby list, or the comma-separated parts of a string that has no cron fields."""
    if text[0] == "[":
        return _LITERAL.findall(text)
    if text[0] in "'\"" and len(_literal(text).split(" ")) < 5:
        return [repr(item.strip()) for item in _literal(text).split(",")]
    return [text]


def _expression(time: str, at: str | None) -> str:
    said = _literal(time)
    if time[0] in "'\"" and len(said.split()) >= 5:
        if at is not None:
            raise Refused("at: expected none beside a cron expression")
        return said
    if time in SHORTCUTS:
        if at is not None:
            raise Refused(f"at: whenever refuses it beside the shortcut {time}; write 1.day")
        return SHORTCUTS[time]
    if not (found := _NUMBER.fullmatch(time)):
        return _on_weekday(said, at)
    unit, count = found["unit"], whole_number(found["count"])
    if unit == "month":
        if at is not None:
            raise Refused("at: its day is the one on which whenever runs, if every is in months")
        if not 1 <= count <= 11:
            raise Refused("every: expected 1 to 11 months")
        return f"0 0 1 {_each(count, 12, 1)} *"
    minutes = count * UNIT_MINUTES[unit]
    if not 1 <= minutes < 30 * 1440:
        raise Refused("every: expected 1.minute to 29.days, or months")
    if minutes < 60:
        if at is not None:
            raise Refused("at: expected none beside minutes")
        return f"{_each(minutes, 59, 0)} * * * *"
    step, kind = (60, "hours") if minutes < 1440 else (1440, "days")
    if minutes % step:
        raise Refused(f"every: expected whole {kind}")
    hour, minute = _clock(at, number_is_hour=kind == "days")
    if kind == "hours":
        return f"{minute} {_each(minutes // step, 23, 0)} * * *"
    return f"{minute} {hour} {_each(minutes // step, 31, 1)} * *"


def _each(step: int, last: int, first: int) -> str:
    """Return the field that whenever writes for a value in every ``step``."""
    if step == 1:
        return "*"
    if step > (last + 1) // 2:
        return str(step)
    begin = first if first or (last + 1) % step == 0 else step
    count = (2 * last + step) // (2 * step) + (first == 0)
    return ",".join(map(str, islice(range(begin, last + 1, step), count)))


def _on_weekday(said: str, at: str | None) -> str:
    hour, minute = _clock(at, number_is_hour=None)
    word = said.lower()
    if "weekday" in word:
        return f"{minute} {hour} * * 1-5"
    if "weekend" in word:
        return f"{minute} {hour} * * 6,0"
    for number, day in enumerate(WEEKDAYS):
        if day in word:
            return f"{minute} {hour} * * {number}"
    raise Refused(
        f"every: expected a duration, a shortcut, a weekday or a cron expression, not {said[:40]!r}"
    )


def _clock(at: str | None, *, number_is_hour: bool | None) -> tuple[int, int]:
    """Return the hour and the minute of ``at``; a bare number is either of the two. Raises Refused."""
    if at is None:
        return 0, 0
    if at.isdigit() and number_is_hour is not None:
        hour, minute = (whole_number(at), 0) if number_is_hour else (0, whole_number(at))
    elif _literal(at).strip().lower() in ("noon", "midnight"):
        hour, minute = 12 * (_literal(at).strip().lower() == "noon"), 0
    elif found := _CLOCK.fullmatch(_literal(at).strip().lower()):
        hour, minute = int(found["hour"]), int(found["minute"] or 0)
        if found["half"]:
            if not 1 <= hour <= 12:
                raise Refused(f"at: expected 1 to 12 before am or pm, not {hour}")
            hour = hour % 12 + 12 * (found["half"] == "pm")
        elif not found["minute"] or (hour <= 12 and not re.match("0[0-9]", found["hour"])):
            raise Refused(f"at: {_literal(at)!r} is before or after noon, as whenever runs: write am or pm")
    else:
        raise Refused(f"at: expected a time of day such as '4:30 am', not {_literal(at)[:40]!r}")
    if hour > 23 or minute > 59:
        raise Refused(f"at: there is no {hour}:{minute:02}")
    return hour, minute
