"""The text of a file of definitions, in TOML, YAML or JSON: its value, and the line of each schedule.

It bounds what reading may cost: length, depth, values. It does not know what a definition is.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Literal, NamedTuple, get_args

from bedrockjobs.base.config import (
    JSON_DEPTH_MAX,
    SCHEDULE_FILE_CHARS_MAX,
    TOML_KEY_PARTS_MAX,
)
from bedrockjobs.imports import json_items

Format = Literal["toml", "yaml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

SCHEDULES = "schedules"
"""The key of the list of which the lines are told."""

_TOML = re.compile(
    r'''(?P<skip>"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"{3,5}|\\?\Z)'''
    r"""|\'\'\'[^']*(?:'(?!'')[^']*)*(?:'{3,5}|\Z)"""
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\n]*'?|\#[^\n]*)"""
    r"""|(?P<header>^[ \t]*\[{1,2}[ \t]*schedules[ \t]*"""
    r"""(?:\]\]|\.(?=[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\])))"""
    r"""|(?P<open>[\[{])|(?P<close>[\]}])|(?P<dot>\.)|(?P<line>\n)|(?P<other>[=,])""",
    re.DOTALL | re.MULTILINE,
)


class Parsed(NamedTuple):
    """What a text holds."""

    value: Any
    lines: list[int]
    """Where each schedule begins; empty where that cannot be told."""


def parsed(text: str, form: Format) -> Parsed:
    """Read a text; raises ValueError with what is wrong with it, and its line."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise ValueError(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")
    if form == "toml":
        lines = _toml_lines(text)
        return Parsed(tomllib.loads(text), lines)
    if form == "json":
        return Parsed(*json_items.document(text, SCHEDULES))
    from bedrockjobs.imports import yaml_items  # only YAML pays for loading its reader

    return Parsed(*yaml_items.document(text, SCHEDULES))


def _toml_lines(text: str) -> list[int]:
    """Return the lines of tables of schedules; raises ValueError for what Python's reader would not bear."""
    entries: list[int] = []
    tables: list[int] = []
    line, depth, dots = 1, 0, 0
    for match in _TOML.finditer(text):
        kind, piece = match.lastgroup, match[0]
        if kind == "dot":
            dots += 1
            if dots >= TOML_KEY_PARTS_MAX:
                raise ValueError(f"line {line}: expected a key of at most {TOML_KEY_PARTS_MAX} parts")
        elif kind == "skip":
            line += piece.count("\n")
        else:
            dots = 0
            line += kind == "line"
            if kind == "open" or kind == "header":
                depth += piece.count("[") + piece.count("{") - piece.count("]")
                if kind == "header":
                    (tables if piece.endswith(".") else entries).append(line)
            elif kind == "close":
                depth -= 1
            if depth > JSON_DEPTH_MAX:
                raise ValueError(f"line {line}: nested deeper than {JSON_DEPTH_MAX} levels")
    return entries or tables
