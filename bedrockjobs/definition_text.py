"""The text of a file of definitions, in TOML, YAML or JSON: its value, and where each entry stands.

It bounds what reading may cost: length, depth, values. It does not know what a definition is.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple, get_args

from bedrockjobs.base.config import (
    JSON_DEPTH_MAX,
    SCHEDULE_FILE_CHARS_MAX,
    TOML_KEY_PARTS_MAX,
)
from bedrockjobs.base.json_limits import toml_document
from bedrockjobs.imports import json_items
from bedrockjobs.imports.place import Place

Format = Literal["toml", "yaml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

SCHEDULES, NOTIFY = LISTS = ("schedules", "notify")
"""The keys of the lists of which the lines are told."""

_TOML = re.compile(
    r'''(?P<skip>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"{3,5}|\\?\Z)'''
    r"""|\'\'\'[^']*(?:'(?!'')[^']*)*(?:'{3,5}|\Z)"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\n]*'?|\#[^\n]*)"""
    r"""|(?P<key>^[ \t]*[\w-]+(?=[ \t]*[=.]))"""
    r"""|(?P<header>^[ \t]*\[{1,2}[ \t]*(?P<list>schedules|notify)[ \t]*"""
    r"""(?:\]\]|\.(?=[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\])))"""
    r"""|(?P<table>^[ \t]*\[)"""
    r"""|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<line>\n)|(?P<other>[=,])""",
    re.DOTALL | re.MULTILINE,
)


class Parsed(NamedTuple):
    """What a text holds."""

    value: Any
    places: dict[str, list[Place]]
    """Where each entry of a list stands, by the list's key; a list whose places cannot be told is empty."""


def parsed(text: str, form: Format) -> Parsed:
    """Read a text; raises ValueError with what is wrong with it, and its line."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise ValueError(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")
    if form == "toml":
        places = _TomlPlaces().read(text)
        return Parsed(toml_document(text), places)
    if form == "json":
        return Parsed(*json_items.document(text, LISTS))
    from bedrockjobs.imports import yaml_items  # only YAML pays for loading its reader

    return Parsed(*yaml_items.document(text, LISTS))


class _TomlPlaces:
    """Goes through a text once: for lines that Python's reader does not tell, and what it would not bear."""

    def __init__(self) -> None:
        self._line, self._depth, self._dots = 1, 0, 0
        self._entries: dict[str, list[Place]] = {key: [] for key in LISTS}
        """Of ``[[schedules]]``."""
        self._tables: dict[str, list[Place]] = {key: [] for key in LISTS}
        """Of ``[schedules.name]``."""
        self._current: Place | None = None

    def read(self, text: str) -> dict[str, list[Place]]:
        """Return the places of entries; raises ValueError with a line."""
        for match in _TOML.finditer(text):
            self._take(match)
        return {key: self._entries[key] or self._tables[key] for key in LISTS}

    def _take(self, match: re.Match[str]) -> None:
        kind, piece = match.lastgroup, match[0]
        if kind == "dot":
            self._dots += 1
            if self._dots >= TOML_KEY_PARTS_MAX:
                raise ValueError(f"line {self._line}: expected a key of at most {TOML_KEY_PARTS_MAX} parts")
        elif kind == "skip":
            self._line += piece.count("\n")
        elif kind == "key":
            if self._depth == 0 and self._current is not None:
                self._current.keys.setdefault(piece.strip(), self._line)
        else:
            self._dots = 0
            self._line += kind == "line"
            if match["header"] is not None or kind == "table":
                self._begin(match)
            if kind != "line":
                self._depth += piece.count("[") + piece.count("{") - piece.count("]") - piece.count("}")
            if self._depth > JSON_DEPTH_MAX:
                raise ValueError(f"line {self._line}: nested deeper than {JSON_DEPTH_MAX} levels")

    def _begin(self, match: re.Match[str]) -> None:
        """Begin a table, where this is one: inside of a value it is a list."""
        if self._depth == 0:
            self._current = None
            if match["list"] is not None:
                self._current = Place(self._line, {})
                kept = self._tables if match[0].endswith(".") else self._entries
                kept[match["list"]].append(self._current)
