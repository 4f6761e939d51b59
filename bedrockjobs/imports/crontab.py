"""Import crontabs of Debian's cron, cronie or supercronic, with variables, macros, users and ``%``.

A line that Debian's cron and cronie interpret differently is refused unless the caller says which of the two
ran it. Syntax that only one of them supports is accepted with a warning.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal

from bedrockjobs.base.config import CRONTAB_VARIABLES_CHARS_MAX
from bedrockjobs.imports import gorhill
from bedrockjobs.imports.imported import (
    MACROS,
    READ_MAX,
    ImportedSchedule,
    NoExpression,
    check_count,
    check_size,
    distinct,
    here,
    kept_or_rewritten,
    name_of,
    same_schedule,
)
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron import expression as fields
from bedrockjobs.schedule.cron import words_for
from bedrockjobs.schedule.cron.expression import CronField, check_length
from bedrockjobs.schedule.cron.plan import (
    EVERY_DAY,
    EVERY_YEAR,
    YEAR_MIN,
    DayField,
    DayRule,
    Schedule,
    find_zone,
)

Cron = Literal["debian", "cronie", "supercronic"]

NAMES: dict[Cron, str] = {"debian": "Debian's cron", "cronie": "cronie", "supercronic": "supercronic"}

SUPERCRONIC_FIELDS = (7, 6, 5, 1)
"""The numbers of words at the beginning of a line that supercronic tries to read as a schedule, in this
order."""

ACCOUNTS = frozenset({"root", "www-data", "nobody", "daemon"})
"""Names of users that are not also names of commands: if one of them is in the sixth column, it is a user
column."""

_BLANKS = re.compile("[ \t]+")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]*\$?")
_SETTING = re.compile(
    r"""(?:(?P<quote>["'])(?P<quoted>[^=]*?)(?P=quote)|(?P<bare>[^\s="'][^\s=]*))\s*=\s*(?P<value>.*)"""
)
_SUPERCRONIC_SETTING = re.compile(r"(?P<name>[^\s=]+)\s*=\s*(?P<value>.*)")
_PERCENT = re.compile(r"(?<!\\)%")
_SHELLS = ("/bin/sh", "sh", "")
_TERM = re.compile(
    "(?:(?P<all>[*])|(?P<first>[A-Za-z0-9]+)(?:-(?P<last>[A-Za-z0-9]+))?)(?:/(?P<step>[A-Za-z0-9]+))?"
)
_DIGITS = re.compile("[0-9]{1,9}")
_WEEK = frozenset(range(7))
_EVERY_DAY = DayField(EVERY_DAY, every=True)
_EVERY_WEEKDAY = DayField(weekdays=0x7F, every=True)
_CRONS: tuple[Cron, ...] = ("debian", "cronie")
_FIELDS = (fields.MINUTE, fields.HOUR, fields.MONTH_DAY, fields.MONTH, fields.WEEK_DAY)


@dataclass
class _Variables:
    """The variables that the lines read so far have set."""

    zone: str
    shell: str = ""
    jitter: str = ""
    others: dict[str, str] = field(default_factory=dict)
    exports: str = ""
    """Shell commands that export the variables in ``others``."""
    of_zone: str = ""
    """A warning about the time zone that each following entry gets; empty if there is none."""
    once: list[str] = field(default_factory=list)
    """Warnings that only the next entry gets."""


def parse_crontab(
    text: str, *, zone: str = "UTC", system: bool = False, by: Cron | None = None
) -> list[ImportedSchedule]:
    """Parse a crontab; with ``system`` it has a user column. ``zone`` is the machine's time zone.

    ``by`` is the cron that ran it. Without ``by``, lines on which Debian's cron and cronie disagree are
    refused. Invalid lines are returned as refused. Raises Unreadable if the text is too long.
    """
    check_size(text)
    inner = enumerate(map(_inner, text.split("\n")), 1)
    lines = [(number, line) for number, line in inner if line and line[0] != "#"]
    entries = _by_supercronic(lines, zone) if by == "supercronic" else _by_cron(lines, zone, system, by)
    names = distinct(entry.name for entry in entries)
    return [entry._replace(name=name) for entry, name in zip(entries, names, strict=True)]


def has_users(text: str, file: str = "") -> bool:
    """Return whether a crontab has a user column, to judge by its path, or by the words in that column."""
    path = PurePath(file)
    if path.parent.name == "cron.d" or path.name.endswith(".cron.d") or path.parts[-2:] == ("etc", "crontab"):
        return True
    users = []
    for line in map(_inner, text.split("\n")):
        if not line or line[0] == "#" or _setting(line):
            continue
        words = _BLANKS.split(line, 2 if line[0] == "@" else 6)
        if len(words) < (3 if line[0] == "@" else 7) or not _USER.fullmatch(words[-2]):
            return False
        users.append(words[-2])
    return any(user in ACCOUNTS for user in users)


def _inner(line: str) -> str:
    return line.lstrip(" \t").rstrip()


# --- Debian's cron and cronie ------------------------------------------------------------------------------


def _by_cron(
    lines: list[tuple[int, str]], zone: str, system: bool, by: Cron | None
) -> list[ImportedSchedule]:
    variables = _Variables(zone)
    entries: list[ImportedSchedule] = []
    for number, line in lines:
        place = f"line {number}"
        if setting := _setting(line):
            if problem := _set(variables, *setting, by, empty=line.endswith("=")):
                entries.append(ImportedSchedule(setting[0], place, line, refused=problem))
        else:
            entries.append(_entry(line, place, variables, system, by))
        check_count(entries, place)
    return entries


def _setting(line: str) -> tuple[str, str] | None:
    """Return the name and the value of the variable that a line sets; None for other lines."""
    match = _SETTING.fullmatch(line)
    if match is None:
        return None
    name, value = match["quoted"] if match["quote"] else match["bare"], match["value"]
    if value[:1] in ("'", '"'):
        inner, end, rest = value[1:].partition(value[0])
        return (name, inner) if end and not rest.strip() else None
    return name, value


def _set(variables: _Variables, name: str, value: str, by: Cron | None, *, empty: bool) -> str:
    """Set a variable; return an error message if the line is refused, or else an empty text."""
    if empty and by == "debian":
        return f'expected {name}="", which is how Debian\'s cron takes an empty value'
    if empty and by is None:
        variables.once.append(f'only cronie accepts {name}=; Debian\'s cron requires {name}=""')
    if name == "CRON_TZ":
        return _set_zone(variables, value, by)
    if name == "RANDOM_DELAY" and by != "debian":
        if not (_DIGITS.fullmatch(value) and int(value) <= 1440):
            return f"RANDOM_DELAY {value!r}: expected a whole number of minutes, at most 1440"
        variables.jitter = "" if int(value) == 0 else f"{int(value)}m"
    elif name == "SHELL":
        variables.shell = value
    elif name == "MAILTO":
        variables.once = [note for note in variables.once if not note.startswith("cron mails")]
        if value:
            variables.once.append(f"cron mails output to {value}; here it is kept with the run")
    else:
        return _export(variables, name, value)
    return ""


def _set_zone(variables: _Variables, value: str, by: Cron | None) -> str:
    try:
        find_zone(value)
    except cron.BadSchedule as error:
        return str(error)
    if by == "debian":
        variables.of_zone = f"Debian's cron ignores CRON_TZ={value} and goes by the machine's clock"
        return ""
    variables.zone = value
    if by is None:
        variables.of_zone = (
            f"only cronie obeys CRON_TZ={value}; Debian's cron ignores it: --cron debian --zone ZONE"
        )
    return ""


def _export(variables: _Variables, name: str, value: str, *, moves: bool = True) -> str:
    """Set a variable for the following commands; return why it is refused, or an empty text.

    With ``moves``, setting HOME also changes the working directory.
    """
    if not _NAME.fullmatch(name):
        return f"variable {name[:40]!r}: expected a name of letters, digits and _, which a shell can export"
    line = f"export {name}={shlex.quote(value)}\n"
    if name == "HOME" and moves:
        line += f"cd {shlex.quote(value)} || exit\n"
    if len(line) > CRONTAB_VARIABLES_CHARS_MAX:
        return f"{name}: expected at most {CRONTAB_VARIABLES_CHARS_MAX} characters in all variables"
    others = {**variables.others, name: line}
    exports = "".join(others.values())
    if len(exports) > CRONTAB_VARIABLES_CHARS_MAX:
        return f"{name}: expected at most {CRONTAB_VARIABLES_CHARS_MAX} characters in all variables"
    variables.others, variables.exports = others, exports
    return ""


def _entry(line: str, place: str, variables: _Variables, system: bool, by: Cron | None) -> ImportedSchedule:
    warnings: list[str] = []
    unnamed = ImportedSchedule(place.replace(" ", "-"), place, line, zone=variables.zone)
    if line[0] == "-":
        if by == "debian":
            return unnamed._replace(refused="minute '-': Debian's cron accepts no - before a time")
        line = line[1:]
        if by is None:
            warnings.append("only cronie accepts a - before the time; Debian's cron refuses the line")
    count = (1 if line.startswith("@") else 5) + system
    words = _BLANKS.split(line, count)
    if len(words) <= count or not words[count]:
        wanted = "a time, a user and a command" if system else "a time and a command"
        return unnamed._replace(refused=f"expected {wanted}")
    said, command = " ".join(words[: count - system]), words[count]
    if words[count - system].startswith("*"):
        where = "a user" if system else "a command"
        return unnamed._replace(
            source_text=said,
            refused=f"expected {where}, not {words[count - system][:40]!r}, which cron refuses; a time of"
            " six or seven fields is supercronic's: --cron supercronic",
        )
    if command.startswith("-") and by != "debian":
        option, _, command = command.partition(" ")
        if option != "-n" or not command.strip():
            return unnamed._replace(
                source_text=said, refused=f"command {option[:40]!r}: cronie has no such option"
            )
        command = command.lstrip()
        warnings.append("cronie mails output only of a run that fails (-n); here all output is kept")
        if by is None:
            warnings.append("only cronie has the option -n; Debian's cron takes it for the command")
    schedule = ImportedSchedule(_name(command, place), place, said, zone=variables.zone)
    if said.lower() == "@reboot":
        why = "@reboot has no time: start it with the worker, by systemd or the like"
        return schedule._replace(refused=why)
    try:
        old, notes = meaning(said, by)
    except cron.BadSchedule as error:
        return schedule._replace(refused=str(error))
    try:
        expression = kept_or_rewritten(said, old)
    except NoExpression as error:
        return schedule._replace(old=old, refused=f"no expression of ours has {error}")
    if not notes and expression != said:
        notes = (_difference(said),)
    if system:
        warnings.append(f"cron runs it as {words[count - 1]}; here the worker's own user does")
    warnings += [*variables.once, *filter(None, [variables.of_zone])]
    variables.once = []
    schedule = schedule._replace(options=_options(_script(command), variables))
    return schedule.with_reading(old, expression, notes).with_warning(*warnings)


def _difference(expression: str) -> str:
    """Return why the five fields of ``expression`` mean different times in cron and in bedrockjobs."""
    words = expression.split(" ")
    if any(word.startswith("*") != ("*" in word.split(",")) for word in (words[2], words[4])):
        return "cron requires both day fields to match if one begins with *, otherwise only one of them"
    return "cron follows real time through a change of the clock if minute or hour begins with *"


@lru_cache(maxsize=READ_MAX)
def meaning(expression: str, by: Cron | None = None) -> tuple[Schedule, tuple[str, ...]]:
    """Return the schedule that a cron reads in five fields or a macro, and notes on surprising readings.

    Without ``by``, Debian's cron and cronie must agree. Raises BadSchedule, also if the schedule never fires.
    """
    check_length(expression)
    if expression.startswith("@"):
        if expression not in MACROS:
            raise cron.BadSchedule("expression", expression, f"one of {', '.join(MACROS)}")
        return cron.parse(expression), ()
    if by != "debian" and "~" in expression:
        kind, text = next(
            pair for pair in zip(_FIELDS, expression.split(" "), strict=False) if "~" in pair[1]
        )
        raise kind.bad(text, "a time that stays; cronie draws one at its start, which jitter does here")
    if by is not None:
        return _schedule(expression, by)
    readings: dict[Cron, tuple[Schedule, tuple[str, ...]]] = {}
    problems: list[cron.BadSchedule] = []
    by_cron: list[str] = []
    for each in _CRONS:
        try:
            readings[each] = _schedule(expression, each)
        except cron.BadSchedule as error:
            problems.append(error)
            by_cron.append(f"{NAMES[each]} cannot run {error.field} {error.value}")
    if not readings:
        raise problems[0]
    if problems or not same_schedule(*(schedule for schedule, _ in readings.values())):
        by_cron += [f"{NAMES[each]} runs it {words_for(pair)}" for each, (pair, _) in readings.items()]
        expected = f"what both crons read the same way, or --cron: {', '.join(by_cron)}"
        raise cron.BadSchedule("expression", expression, expected)
    return readings["debian"]


def _schedule(expression: str, by: Cron) -> tuple[Schedule, tuple[str, ...]]:
    """Return the schedule that the given cron reads in five fields, and notes on surprising readings."""
    words = expression.split(" ")
    if len(words) != len(_FIELDS):
        raise cron.BadSchedule("expression", expression, "five fields")
    notes: list[str] = []
    minute, hour, month_day, month, week_day = (
        _values(kind, text, by, notes) for kind, text in zip(_FIELDS, words, strict=True)
    )
    one = DayField(gorhill.bits_of(month_day), every=len(month_day) == 31)
    other = DayField(
        weekdays=gorhill.bits_of((day - 1) % 7 for day in week_day),
        every={day % 7 for day in week_day} == _WEEK,
    )
    either = not (words[2].startswith("*") or words[4].startswith("*"))
    if either and bool(month_day) != bool(week_day):  # an empty day field leaves the choice to the other
        days = DayRule(one if month_day else _EVERY_DAY, other if week_day else _EVERY_WEEKDAY, either=False)
    else:
        days = DayRule(one, other, either)
    wild = words[0].startswith("*") or words[1].startswith("*")
    schedule = Schedule(
        1, gorhill.bits_of(minute), gorhill.bits_of(hour), days, gorhill.bits_of(month), EVERY_YEAR, wild
    )
    ever = minute and hour and month and schedule.first_from(datetime(YEAR_MIN, 1, 1))
    if not ever:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise cron.BadSchedule("expression", expression, f"a time that comes; it would never fire{why}")
    return schedule, tuple(notes)


def _values(kind: CronField, text: str, by: Cron, notes: list[str]) -> set[int]:
    """Return the values that a cron reads in one field; surprising readings are added to ``notes``."""
    result: set[int] = set()
    at = 0
    while True:
        term = _TERM.match(text, at)
        if term is None:
            raise kind.bad(text[at:] or text, _expected(kind))
        rest = text[term.end() :]
        unended = (rest[:1] == "/" and not term["step"]) or (
            rest[:1] == "-" and term["first"] and not term["last"]
        )
        if unended or (by == "cronie" and rest[:1] not in ("", ",")):
            raise kind.bad(text[at:], _expected(kind))
        values = _range(kind, term, by)
        meant = frozenset(day % 7 for day in values) if kind is fields.WEEK_DAY else frozenset(values)
        if meant != here(kind, term[0]):
            shown = ",".join(map(str, sorted(meant))) or "no value at all"
            notes.append(f"{kind.name} {term[0]}: {NAMES[by]} reads it as {shown}")
        result |= values
        if rest[:1] != ",":
            break
        at = term.end() + 1
    if rest:
        notes.append(f"{kind.name} {text}: {NAMES[by]} ignores {rest}")
    return result


def _range(kind: CronField, term: re.Match[str], by: Cron) -> set[int]:
    """Return the values of one term: ``*``, ``x`` or ``x-y``; ``*`` and ``x-y`` may have a step."""
    step = 1
    if term["step"]:
        if not _DIGITS.fullmatch(term["step"]) or not (step := int(term["step"])):
            raise kind.bad(term[0], "a step of at least 1")
        if term["first"] and not term["last"]:
            raise kind.bad(term[0], f"* or a range before the step, such as {term['first']}-{kind.high}")
    first, last = kind.low, kind.high
    if term["first"]:
        first = _number(kind, term["first"], term[0])
        last = _number(kind, term["last"], term[0]) if term["last"] else first
    if by == "cronie" and last == 0 < first and not term["step"]:
        last = 7  # intended for weekdays, but applied to every field
    values = set(range(first, last + 1, step))
    ends = values if by == "cronie" else {first, last}
    if not ends <= set(range(kind.low, kind.high + 1)):
        raise kind.bad(term[0], f"numbers in {kind.range}")
    return values


def _number(kind: CronField, text: str, term: str) -> int:
    named = kind.names.get(text.lower()) if len(text) == 3 else None
    if named is None and not _DIGITS.fullmatch(text):
        raise kind.bad(term, _expected(kind))
    return int(text) if named is None else named


def _expected(kind: CronField) -> str:
    names = " or the first three letters of a name" if kind.names else ""
    return f"*, numbers in {kind.range}{names}, and ranges of them"


# --- supercronic -------------------------------------------------------------------------------------------


def _by_supercronic(lines: list[tuple[int, str]], zone: str) -> list[ImportedSchedule]:
    """Read all variables before any schedule, since supercronic applies a variable to previous lines too."""
    variables = _Variables(zone)
    schedules: list[ImportedSchedule] = []
    entries: list[tuple[str, str]] = []
    for number, line in lines:
        place = f"line {number}"
        setting = _SUPERCRONIC_SETTING.fullmatch(line)
        if setting is None:
            entries.append((place, line))
            continue
        name, value = setting["name"], setting["value"]
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if problem := _set_for_supercronic(variables, name, value):
            schedules.append(ImportedSchedule(name, place, line, refused=problem))
            check_count(schedules, place)
    for place, line in entries:
        schedules.append(_supercronic_entry(line, place, variables))
        check_count(schedules, place)
    return schedules


def _set_for_supercronic(variables: _Variables, name: str, value: str) -> str:
    if name == "SHELL":
        variables.shell = value
    if name == "CRON_TZ":
        try:
            find_zone(value)
        except cron.BadSchedule as error:
            return str(error)
        variables.zone = value
    return _export(variables, name, value, moves=False)


def _supercronic_entry(line: str, place: str, variables: _Variables) -> ImportedSchedule:
    schedule = ImportedSchedule(place.replace(" ", "-"), place, line, zone=variables.zone)
    problem = "expected a time and a command"
    for count in SUPERCRONIC_FIELDS:
        words = re.fullmatch(rf"(\S+(?:\s+\S+){{{count - 1}}})\s+(\S.*)", line)
        if words is None:
            continue
        expression, command = words[1], words[2]
        try:
            reading = gorhill.parse_gorhill(expression, gorhill.SUPERCRONIC)
        except gorhill.NeverFires as error:
            return schedule._replace(source_text=expression, refused=str(error))
        except cron.BadSchedule as error:
            problem = str(error) if count == 5 else problem
            continue
        name = name_of(command) or schedule.name
        options = _options(command, variables)
        return schedule._replace(name=name, source_text=expression, options=options).with_reading(*reading)
    return schedule._replace(refused=problem)


# --- commands ----------------------------------------------------------------------------------------------


def _options(command: str, variables: _Variables) -> dict[str, Any]:
    """Return the job options that run a shell command with the current variables."""
    script = variables.exports + command
    options: dict[str, Any] = {"cmd": script}
    if variables.shell not in _SHELLS:
        options = {"argv": [variables.shell, "-c", script]}
    if variables.jitter:
        options["jitter"] = variables.jitter
    return options


def _script(command: str) -> str:
    """Return a shell script for a crontab command; the text after its first ``%`` is the standard input."""
    lines = [part.replace("\\%", "%") for part in _PERCENT.split(command)]
    if len(lines) == 1:
        return lines[0]
    end = "END_OF_INPUT"
    taken = frozenset(lines[1:])
    while end in taken:
        end += "_"
    return "\n".join([f"{{ {lines[0].rstrip()}", f"}} <<'{end}'", *lines[1:], end])


def _name(command: str, place: str) -> str:
    """Return a name derived from the command, or else from its place in the file."""
    return name_of(_PERCENT.split(command)[0]) or place.replace(" ", "-")
