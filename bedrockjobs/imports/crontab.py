"""Reading crontab(5), as Debian's cron and cronie understand it: variables, macros, users, ``%``.

Their one difference in dates is kept: where a day field begins with ``*``, also ``*/2``, both day fields
must hold.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from bedrockjobs.base.config import CRONTAB_VARIABLES_CHARS_MAX
from bedrockjobs.imports.command_name import name_of
from bedrockjobs.imports.found import Found, check_count, check_size, distinct
from bedrockjobs.imports.rewrite import NoExpression, kept_or_rewritten
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.days import DayRule
from bedrockjobs.schedule.cron.plan import Schedule
from bedrockjobs.schedule.cron.zones import find_zone

MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")

_VARIABLE = re.compile(r"""\s*(?P<quote>["']?)([A-Za-z_][A-Za-z0-9_]*)(?P=quote)\s*=\s*(.*)""")
_PERCENT = re.compile(r"(?<!\\)%")
_SHELLS = ("/bin/sh", "sh", "")


@dataclass
class _Variables:
    """What the lines above have set."""

    zone: str
    shell: str = ""
    jitter: str = ""
    mail: str = ""
    others: dict[str, str] = field(default_factory=dict)
    exports: str = ""
    """What ``others`` become in a script."""


def read(text: str, *, zone: str = "UTC", system: bool = False) -> list[Found]:
    """Read a crontab; ``system`` says that it has a column of users, ``zone`` is the machine's.

    A line that cannot be a schedule is returned as refused. Raises Unreadable for a text that is too long.
    """
    check_size(text)
    variables = _Variables(zone)
    found: list[Found] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if not line.startswith("@") and (variable := _VARIABLE.fullmatch(line)):
            if problem := _set(variables, variable[2], _unquoted(variable[3])):
                found.append(Found(variable[2], f"line {number}", line, refused=problem))
        else:
            found.append(_entry(line, f"line {number}", variables, system))
        check_count(found, f"line {number}")
    names = distinct(entry.name for entry in found)
    return [entry._replace(name=name) for entry, name in zip(found, names, strict=True)]


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


def _set(variables: _Variables, name: str, value: str) -> str:
    """Note a variable; return why it cannot be, if so."""
    if name == "CRON_TZ":
        try:
            find_zone(value)
        except cron.BadSchedule as error:
            return str(error)
        variables.zone = value
    elif name == "RANDOM_DELAY":
        if not (value.isascii() and value.isdigit()):
            return f"RANDOM_DELAY {value!r}: expected a whole number of minutes"
        variables.jitter = "" if int(value) == 0 else f"{int(value)}m"
    elif name == "SHELL":
        variables.shell = value
    elif name == "MAILTO":
        variables.mail = value
    else:
        return _export(variables, name, value)
    return ""


def _export(variables: _Variables, name: str, value: str) -> str:
    """Note a variable of the commands below; return why it cannot be, if so."""
    line = f"export {name}={shlex.quote(value)}\n"
    if len(line) > CRONTAB_VARIABLES_CHARS_MAX:
        return f"{name}: expected at most {CRONTAB_VARIABLES_CHARS_MAX} characters in all variables"
    others = {**variables.others, name: line}
    exports = "".join(others.values())
    if len(exports) > CRONTAB_VARIABLES_CHARS_MAX:
        return f"{name}: expected at most {CRONTAB_VARIABLES_CHARS_MAX} characters in all variables"
    variables.others, variables.exports = others, exports
    return ""


def _entry(line: str, place: str, variables: _Variables, system: bool) -> Found:
    line = line.removeprefix("-")  # cronie: do not log this one
    count = (1 if line.startswith("@") else 5) + system
    words = line.split(None, count)
    if len(words) <= count:
        wanted = "a time, a user and a command" if system else "a time and a command"
        return Found(place.replace(" ", "-"), place, line, refused=f"expected {wanted}")
    said, command = " ".join(words[: count - system]), words[count]
    found = Found(_name(command, place), place, said, zone=variables.zone)
    if said.lower() == "@reboot":
        why = "@reboot has no time: start it with the worker, by systemd or the like"
        return found._replace(refused=why)
    try:
        old = meaning(said)
    except cron.BadSchedule as error:
        return found._replace(refused=str(error))
    try:
        expression = kept_or_rewritten(said, old)
    except NoExpression as error:
        return found._replace(old=old, refused=f"no expression of ours has {error}")
    warnings = []
    if expression != said:
        warnings.append("cron wants both day fields to hold where one begins with *; written so that they do")
    if system and words[count - 1] != "root":
        warnings.append(f"cron runs it as {words[count - 1]}; here the worker's own user does")
    elif system:
        warnings.append("cron runs it as root; here the worker's own user does")
    if variables.mail:
        warnings.append(f"cron mails output to {variables.mail}; here it is kept with the run")
        variables.mail = ""
    return found._replace(
        old=old, expression=expression, options=_options(command, variables), warnings=tuple(warnings)
    )


def meaning(said: str) -> Schedule:
    """Return what cron understands by five fields or a macro; raises BadSchedule."""
    words = said.split()
    if said.startswith("@"):
        if said.lower() not in MACROS:
            raise cron.BadSchedule("expression", said, f"one of {', '.join(MACROS)}")
        return cron.parse(said)
    if len(words) != 5:
        raise cron.BadSchedule("expression", said, "five fields")
    schedule = cron.parse(said)
    if not (words[2].startswith("*") or words[4].startswith("*")):
        return schedule
    both = DayRule(schedule.days.month_day, schedule.days.week_day, either=False)
    return replace(schedule, days=both)


def _options(command: str, variables: _Variables) -> dict[str, Any]:
    script = variables.exports + _script(command)
    options: dict[str, Any] = {"cmd": script}
    if variables.shell not in _SHELLS:
        options = {"argv": [variables.shell, "-c", script]}
    if variables.jitter:
        options["jitter"] = variables.jitter
    return options


def _script(command: str) -> str:
    """Return a shell script for what stands in a crontab, where ``%`` begins what is sent to stdin."""
    lines = [part.replace("\\%", "%") for part in _PERCENT.split(command)]
    if len(lines) == 1:
        return lines[0]
    end = "END_OF_INPUT"
    taken = frozenset(lines[1:])
    while end in taken:
        end += "_"
    return "\n".join([f"{{ {lines[0].rstrip()}", f"}} <<'{end}'", *lines[1:], end])


def _name(command: str, place: str) -> str:
    """Return a name out of the command's words, or the line where they say none."""
    return name_of(_PERCENT.split(command)[0]) or place.replace(" ", "-")
