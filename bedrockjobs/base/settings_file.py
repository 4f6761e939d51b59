"""Reading one table of a settings file (TOML), with the line of each value.

Callers validate the values.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from bedrockjobs.base.jsontext import toml_document

VARIABLE = "BEDROCKJOBS_CONFIG"
"""The environment variable that names the file."""

OWN_PLACE, SYSTEM_PLACE = Path("bedrockjobs/config.toml"), Path("/etc/bedrockjobs/config.toml")
"""Default locations of the file: in the user's configuration folder, then system-wide."""

SETTINGS_FILE_BYTES_MAX = 65_536
"""Maximum size of a settings file: several times the size of one that sets and explains every setting."""

SETTING_LINES_MAX = 100
"""Maximum number of lines of one value in a settings file: finding the lines of later values takes quadratic
time."""

TABLES = ("server", "worker")
"""The tables that a settings file may have: one for each program."""

_LINE_OF_FAULT = re.compile(r" \(at line (\d+), column \d+\)$")


class SettingsFileError(ValueError):
    """The file cannot be read or is not TOML; the text names the file and, if known, the line."""


@dataclass(frozen=True)
class TableEntry:
    """One value of the table and its location: ``file:line``, or only the file."""

    value: Any
    place: str


@dataclass(frozen=True)
class TOMLTable:
    """The entries of one table by key, and the problems in other parts of the file, a sentence each."""

    entries: Mapping[str, TableEntry]
    problems: tuple[str, ...]


def usual_file() -> Path | None:
    """Return the default settings file that exists; None if there is none.

    The user's own file comes first: in ``XDG_CONFIG_HOME``, or in ``.config`` of ``HOME``.
    """
    home = os.environ.get("HOME", "")
    own = os.environ.get("XDG_CONFIG_HOME", "")
    folders = [own if own.startswith("/") else f"{home}/.config" if home.startswith("/") else ""]
    places = [*(Path(folder) / OWN_PLACE for folder in folders if folder), SYSTEM_PLACE]
    return next((place for place in places if os.path.lexists(place)), None)


def read_table(path: Path, table: str) -> TOMLTable:
    """Return a table of the file, empty if the file does not have it; raises SettingsFileError."""
    text = _text_of(path)
    try:
        document = toml_document(text)
    except tomllib.TOMLDecodeError as error:
        match = _LINE_OF_FAULT.search(str(error))
        place = f"{path}:{match[1]}" if match else str(path)
        raise SettingsFileError(f"{place}: expected TOML: {_LINE_OF_FAULT.sub('', str(error))}") from None
    except RecursionError:
        raise SettingsFileError(f"{path}: expected TOML: it nests too deep") from None
    lines = _lines_of(text)

    def at(*keys: str) -> str:
        return f"{path}:{lines[keys]}" if keys in lines else str(path)

    problems = [
        f"{at(key)}: {key}: expected the table [server] or [worker], with the settings in it"
        for key, value in document.items()
        if key not in TABLES or not isinstance(value, dict)
    ]
    inside = document.get(table)
    values = inside if isinstance(inside, dict) else {}
    entries = {key: TableEntry(value, at(table, key)) for key, value in values.items()}
    return TOMLTable(entries, tuple(problems))


def unknown_key(key: str, known: Iterable[str]) -> str:
    """Return the text of the problem that a key is no setting, with a suggestion."""
    near = get_close_matches(key.replace("-", "_"), known, 1)
    return f"there is no such setting{f', did you mean {near[0]}?' if near else ''}"


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(SETTINGS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > SETTINGS_FILE_BYTES_MAX:
        raise SettingsFileError(f"{path}: expected at most {SETTINGS_FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingsFileError(f"{path}: expected UTF-8") from None


def _lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Return the first line of the statement of each key, for the first two levels of keys.

    A statement is the smallest number of lines that are valid TOML on their own.
    """
    lines_by_key: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement.append(line)
        if len(statement) > SETTING_LINES_MAX:
            break
        try:
            read = toml_document("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue
        begin, header = number - len(statement) + 1, statement[0].lstrip().startswith("[")
        statement = []
        keys = _first_keys(read)
        if header:
            table = keys
        elif keys:
            keys = (*table, *keys)
        for length in range(1, min(len(keys), 2) + 1):
            lines_by_key.setdefault(keys[:length], begin)
    return lines_by_key


def _first_keys(read: Any) -> tuple[str, ...]:
    keys: list[str] = []
    while isinstance(read, dict) and read and len(keys) < 2:
        key = next(iter(read))
        keys.append(key)
        read = read[key]
    return tuple(keys)
