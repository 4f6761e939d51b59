"""Finds each setting: in an option, or else in an environment variable, the settings file, or its default.

All errors are reported together, without passwords; each error names the place where the setting was set.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from bedrockjobs.base.clock import WORDS, seconds_of
from bedrockjobs.base.settings import Settings, is_duration, without_passwords
from bedrockjobs.base.settings_file import (
    VARIABLE,
    SettingsFileError,
    TableEntry,
    read_table,
    unknown_key,
    usual_file,
)
from bedrockjobs.base.wire import bound_text
from bedrockjobs.cli.output import printable

DEFAULT = "default"


class BadSettings(click.UsageError):
    """Invalid settings; the exit status is 78 (EX_CONFIG) if the settings file is wrong, and 2 otherwise."""

    def __init__(self, problems: Sequence[str], *, of_file: bool = False, status: int | None = None) -> None:
        """List all problems, a line each; ``status``, if given, is the exit status."""
        super().__init__("\n".join(map(printable, problems)))
        if of_file or status is not None:
            self.exit_code = os.EX_CONFIG if status is None else status  # type: ignore[misc]  # click means its class


@dataclass(frozen=True)
class FromFile:
    """The valid server settings of a file, by field, and the problems of the file."""

    good: Mapping[str, TableEntry]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class LayeredSettings:
    """The settings, and the place where each was set: an option, a variable, ``file:line`` or ``default``."""

    settings: Settings
    origins: Mapping[str, str]


def option_name(field: str) -> str:
    """Return the option of a setting: ``--head-bytes-max`` for ``head_bytes_max``."""
    return f"--{field.replace('_', '-')}"


def variable_name(field: str) -> str:
    """Return the environment variable of a setting."""
    return f"BEDROCKJOBS_{field}".upper()


def file_in_use(named: Path | None) -> Path | None:
    """Return the settings file: the given one, or that of the environment, or one in a default location."""
    variable = os.environ.get(VARIABLE, "")
    return named or (Path(variable) if variable else usual_file())


def settings_from(values: Mapping[str, Any], file: Path | None = None) -> Settings:
    """Return the settings as ``found_settings`` does, but without their origins."""
    return found_settings(values, file).settings


def file_alone(database: str) -> Path:
    """Return the path of a database file; other settings do not matter. Raises UsageError."""
    try:
        return Settings(database=database).database_path()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def found_settings(values: Mapping[str, Any], file: Path | None = None) -> LayeredSettings:
    """Return the settings: from ``values``, or else the environment, the settings file, or the defaults.

    If ``file`` is None, the settings file is the one in the environment or in a default location. Raises
    BadSettings, which names for each problem the option, the variable or the line of the file, and what was
    expected.
    """
    named = file_in_use(file)
    read = FromFile({}, ()) if named is None else read_settings(named)
    environment = {name.upper(): value for name, value in os.environ.items()}
    found = dict(read.good)
    for field in Settings.model_fields:
        name = variable_name(field)
        if values.get(field) is not None:
            found[field] = TableEntry(values[field], option_name(field))
        elif name in environment:
            found[field] = TableEntry(environment[name], name)
    origins = dict.fromkeys(Settings.model_fields, DEFAULT) | {
        field: entry.place for field, entry in found.items()
    }
    problems = list(read.problems)
    try:
        settings = Settings(**{field: _seconds(field, entry.value) for field, entry in found.items()})
    except ValidationError as error:
        faults = [_complaint(fault, origins) for fault in error.errors()]
        raise BadSettings([*problems, *faults], of_file=bool(problems)) from None
    if fault := _disagreement(settings):
        field = fault.partition(":")[0]
        of_file = field in found and found[field] is read.good.get(field)
        problems.append(f"{origins[field]}: {fault}" if of_file else fault)
    if problems:
        raise BadSettings(problems, of_file=bool(read.problems) or problems[-1] != fault)
    return LayeredSettings(settings, origins)


def read_settings(path: Path) -> FromFile:
    """Return the valid server settings of a file, and a problem for each setting that is invalid."""
    try:
        table = read_table(path, "server")
    except SettingsFileError as error:
        return FromFile({}, (str(error),))
    problems, good = list(table.problems), dict[str, TableEntry]()
    for key, entry in table.entries.items():
        problem = _fault_of(key, entry.value)
        if problem:
            problems.append(f"{entry.place}: {key}: {problem}")
        else:
            good[key] = TableEntry(_seconds(key, entry.value), entry.place)
    try:
        settings = Settings(**{key: entry.value for key, entry in good.items()})
    except ValidationError as error:
        for fault in error.errors():
            key = str(fault["loc"][0])
            problems.append(_complaint(fault, {key: f"{good.pop(key).place}: {key}"}))
    else:
        # If the file does not set the database, it may still be PostgreSQL.
        if "database" in good and (disagreement := _disagreement(settings, wholly=True)):
            place = good.pop(disagreement.partition(":")[0]).place
            problems.append(f"{place}: {disagreement}")
    return FromFile(good, tuple(problems))


def _disagreement(settings: Settings, *, wholly: bool = False) -> str:
    """Return the setting that is incompatible with the database, and why; empty if all are compatible.

    With ``wholly``, settings that a server on PostgreSQL would refuse when it starts are checked too.
    """
    try:
        if not settings.on_postgresql:
            settings.database_path()
        elif wholly:
            settings.check_postgresql()
    except ValueError as error:
        return str(error)
    return ""


def _fault_of(key: str, value: Any) -> str:
    """Return what is wrong with a key or with the type of its value, which is shown without passwords."""
    info = Settings.model_fields.get(key)
    if info is None:
        return unknown_key(key, Settings.model_fields)
    kinds: set[type]
    if is_duration(key):
        kinds, expected = {int, float, str}, WORDS
    elif info.annotation is bool:
        kinds, expected = {bool}, "true or false"
    elif info.annotation is int:
        kinds, expected = {int}, "a whole number"
    elif info.annotation is float:
        kinds, expected = {int, float}, "a number"
    else:
        kinds, expected = {str}, "text in quotes"
    good = type(value) in kinds and not (isinstance(value, float) and not math.isfinite(value))
    if good and is_duration(key) and isinstance(value, str):
        good = seconds_of(value) is not None
    return "" if good else f"expected {expected}, got {_shown(value)}"


def _seconds(field: str, value: Any) -> Any:
    seconds = seconds_of(value) if is_duration(field) and isinstance(value, str) else None
    return value if seconds is None else seconds


_NUMBERS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
"""Descriptions of the numbers that are expected, by the type of a validation error."""

ROLES_EXPECTED = "a comma list of the roles read, produce, work, operate and admin"
PATTERNS = {
    "unix_role": ROLES_EXPECTED,
    "proxy_role": ROLES_EXPECTED,
    "trusted_proxies": "a comma list of addresses and networks such as 10.0.0.2,fd00::/64; unix as the last",
    "proxy_user_header": "the name of a header such as X-Forwarded-User",
    "root_path": "a path such as /queue",
    "public_hosts": "a comma list of names of hosts such as jobs.example.com",
    "database_schema": "a name of lower-case letters, digits and _",
    "database_read": "a URL such as postgresql://host/name",
    "server_name": "a name of letters, digits and ._%@:-",
    "heartbeat_url": "a URL such as https://watch.example.com/4f6e",
    "public_url": "a URL such as https://jobs.example.com",
    "smtp": "a mail server such as smtp://host:25, smtps://user:password@host:465 or smtp+starttls://host:587",
    "mail_from": "a mail address such as jobs@example.com",
}
"""Descriptions of the texts that are expected, by setting; these settings have a pattern."""

SECRET = frozenset({"heartbeat_url"})
"""Settings with secrets, whose values are never shown."""

_HIDDEN = SECRET | {"smtp"}
"""Settings whose invalid values are not shown, because they may contain a password or a secret."""


def _complaint(fault: Any, origins: Mapping[str, str]) -> str:
    expected = bound_text(fault["msg"])
    field, kind = str(fault["loc"][0]), fault["type"]
    if kind in _NUMBERS:
        expected = WORDS if is_duration(field) else _NUMBERS[kind]
    elif kind == "string_pattern_mismatch":
        expected = PATTERNS[field]
    got = "something else, which is not shown" if field in _HIDDEN else _shown(fault["input"])
    return f"{origins[field]}: expected {expected}, got {got}"


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "a list"
    return repr(without_passwords(str(value))[:100])  # characters of a bad value that its error message shows
