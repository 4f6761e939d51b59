"""The text of a file of definitions, in TOML, YAML or JSON: its value, and the line of each schedule.

It bounds what reading may cost: length, depth, values. It does not know what a definition is.
"""

from __future__ import annotations

import re
import tomllib
import warnings
from typing import Any, Literal, NamedTuple, get_args

from bedrockjobs.base.config import (
    JSON_DEPTH_MAX,
    SCHEDULE_FILE_CHARS_MAX,
    TOML_KEY_PARTS_MAX,
    YAML_NODES_MAX,
)
from bedrockjobs.imports import json_items

Format = Literal["toml", "yaml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

SCHEDULES = "schedules"
"""The key of the list of which the lines are told."""

_TOML = re.compile(
    r'''(?P<skip>"""(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)|\'\'\'(?:[^']|'(?!''))*+(?:'{3,5}|\Z)'''
    r"""|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|\#[^\n]*)"""
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
    return _parsed_yaml(text)


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


def _parsed_yaml(text: str) -> Parsed:
    from ruamel.yaml import YAML, composer, nodes  # only YAML pays for loading it
    from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError

    lines: list[int] = []

    class Composer(composer.Composer):
        """Composes no more than there may be, and notes where schedules begin."""

        levels_open = values_seen = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.levels_open += 1
            self.values_seen += 1
            deep = self.levels_open > JSON_DEPTH_MAX + 1  # the last one is a value
            if deep or self.values_seen > YAML_NODES_MAX:
                line = self.parser.peek_event().start_mark.line + 1
                too_deep = f"nested deeper than {JSON_DEPTH_MAX} levels"
                too_many = f"expected at most {YAML_NODES_MAX} values; TOML and JSON have no such limit"
                raise ValueError(f"line {line}: {too_deep if deep else too_many}")
            found = super().compose_node(parent, index)
            self.levels_open -= 1
            return found

        def get_single_node(self) -> Any:
            root = top = super().get_single_node()
            if isinstance(root, nodes.MappingNode):
                top = next((value for key, value in root.value if key.value == SCHEDULES), None)
            if isinstance(top, nodes.SequenceNode):
                lines.extend(item.start_mark.line + 1 for item in top.value)
            elif isinstance(top, nodes.MappingNode):
                lines.extend(key.start_mark.line + 1 for key, _ in top.value)
            return root

    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = Composer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # YAML allows it: the last one counts
            return Parsed(yaml.load(text), lines)
    except MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        alias = "alias" in f"{error.context} {error.problem}"
        hint = "; a value that begins with * needs quotes" if alias else ""
        raise ValueError(f"{line}{error.problem}{hint}") from None
    except YAMLError as error:
        raise ValueError(str(error)) from None
