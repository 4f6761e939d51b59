"""Schedules and notification rules as code: parses a definitions file in TOML, YAML or JSON.

The results are the parameters of SyncSchedules and SyncRules. The functions get the text of a file; they open
no files and need no server.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, get_args

from pydantic import ValidationError

from bedrockjobs.base.config import JSON_DEPTH_MAX, SCHEDULE_FILE_CHARS_MAX, TOML_KEY_PARTS_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.jsontext import toml_document
from bedrockjobs.base.wire import command_errors, wire_name
from bedrockjobs.commands.create import JobSpec
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.commands.rules import RuleSpec
from bedrockjobs.imports import json_items
from bedrockjobs.imports.imported import Position
from bedrockjobs.schedule import cron, repeat

# Problems of a definitions file: all of them are collected, each with its line.


PROBLEMS_SHOWN = 100
"""Maximum number of problems reported per file, so that messages stay readable; further problems are only
counted. Also the number of problems after which no similar key is suggested, which takes time."""


class BadDefinitions(ValueError):
    """A definitions file is invalid; each problem names the file, the entry, the key, and any known line."""

    def __init__(self, *problems: str) -> None:
        """Join the problems, one per line, as the message."""
        super().__init__("\n".join(problems))
        self.problems = problems


class Faults:
    """Collects the problems of one definitions file."""

    def __init__(self, file: str) -> None:
        """Start without problems; ``file`` is the file's name in messages."""
        self._file = file
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Return the number of problems."""
        return len(self._found)

    def add(self, what: str, line: int = 0) -> None:
        """Add a problem; ``line`` is its line in the file, or 0 if that is unknown."""
        self._found.append((line, self.text(what, line)))

    def text(self, what: str, line: int = 0) -> str:
        """Return the message for a problem."""
        at = f"{self._file}: line {line}: " if line else f"{self._file}: " if self._file else ""
        return f"{at}{what}"

    def check(self) -> None:
        """Raise BadDefinitions with all problems, sorted by line, if there are any."""
        if self._found:
            texts = [text for _, text in sorted(self._found, key=lambda fault: fault[0])]
            if len(texts) > PROBLEMS_SHOWN:
                texts[PROBLEMS_SHOWN:] = [f"{self._file}: and {len(texts) - PROBLEMS_SHOWN} more"]
            raise BadDefinitions(*texts)


class DefinitionEntry(NamedTuple):
    """One schedule or rule of a file, with methods that report its problems."""

    faults: Faults
    label: str
    """How messages call the entry, such as ``schedule backup``; an entry without a name gets its number."""
    place: Position | None = None

    @property
    def line(self) -> int:
        """Return the first line of the entry, or 0 if that is unknown."""
        return self.place.line if self.place else 0

    def wrong(self, what: str, key: str = "") -> None:
        """Add a problem with the line of ``key``, or of the entry if no key is given."""
        self.faults.add(f"{self.label}: {what}", self._line_of(key))

    def text(self, what: str, *keys: str) -> str:
        """Return the message for a problem, with the line of the first of ``keys`` that the entry has."""
        lines = (self._line_of(key) for key in keys if self.place and key in self.place.keys)
        return self.faults.text(f"{self.label}: {what}", next(lines, self.line))

    def _line_of(self, key: str) -> int:
        return self.place.keys.get(key, self.place.line) if self.place else 0

    def unknown(self, key: str, known: Iterable[str]) -> None:
        """Add a problem for an unknown key, and suggest the most similar key in ``known``."""
        near = get_close_matches(key, list(known), 1) if len(self.faults) < PROBLEMS_SHOWN else []
        self.wrong(f"unknown key {key!r}{f', expected {near[0]}' if near else ''}", key)

    def refused(self, error: ValidationError | CommandError, spelled: Mapping[str, str]) -> None:
        """Add the validation errors of a command class; ``spelled`` maps parameters to keys in the file."""
        if not isinstance(error, ValidationError):
            self.wrong(error.detail or error.reason)
            return
        for parameter, refusal in command_errors(error):
            self.wrong(refusal.detail or refusal.reason, spelled.get(parameter, parameter))


# Parsing of TOML, YAML and JSON, with the positions of entries and limits on length, depth and size.


Format = Literal["toml", "yaml", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)

SCHEDULES, NOTIFY = LISTS = ("schedules", "notify")
"""The keys of the lists whose entries have line numbers."""

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
    """The contents of a definitions file, before they are validated."""

    value: Any
    places: dict[str, list[Position]]
    """The positions of the entries of each list, by the key of the list. A list is empty if its positions are
    unknown."""


def parsed(text: str, form: Format) -> Parsed:
    """Parse the text of a file; raises ValueError, which says what is wrong and at which line."""
    if len(text) > SCHEDULE_FILE_CHARS_MAX:
        raise ValueError(f"expected at most {SCHEDULE_FILE_CHARS_MAX} characters, not {len(text)}")
    if form == "toml":
        places = _TomlPlaces().find_positions(text)
        return Parsed(toml_document(text), places)
    if form == "json":
        return Parsed(*json_items.document(text, LISTS))
    from bedrockjobs.imports import yaml_items  # imported only for YAML files, to start faster

    return Parsed(*yaml_items.document(text, LISTS))


class _TomlPlaces:
    """Finds the lines of entries in a TOML text, which tomllib does not report, and refuses deep nesting."""

    def __init__(self) -> None:
        self._line, self._depth, self._dots = 1, 0, 0
        self._entries: dict[str, list[Position]] = {key: [] for key in LISTS}
        """Positions of ``[[schedules]]`` entries."""
        self._tables: dict[str, list[Position]] = {key: [] for key in LISTS}
        """Positions of ``[schedules.name]`` tables."""
        self._current: Position | None = None

    def find_positions(self, text: str) -> dict[str, list[Position]]:
        """Return the positions of entries; raises ValueError, which names the line, if nested too deep."""
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
                self._begin_table(match)
            if kind != "line":
                self._depth += piece.count("[") + piece.count("{") - piece.count("]") - piece.count("}")
            if self._depth > JSON_DEPTH_MAX:
                raise ValueError(f"line {self._line}: nested deeper than {JSON_DEPTH_MAX} levels")

    def _begin_table(self, match: re.Match[str]) -> None:
        """Start a table at ``[``, unless the bracket is inside a value, where it opens a list."""
        if self._depth == 0:
            self._current = None
            if match["list"] is not None:
                self._current = Position(self._line, {})
                places = self._tables if match[0].endswith(".") else self._entries
                places[match["list"]].append(self._current)


# Definitions: schedules, and notification rules under ``notify``.


SUFFIXES: dict[str, Format] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}

VALUES_MAX = 1_000_000
"""Maximum number of values in one file: nested YAML aliases can expand to far more than the file's size."""

NEVER = "CRON @never"
"""A schedule that never fires. It replaces an invalid schedule, so that the rest of the definition is
checked."""

_UNCOMMENTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOP = ("source", "prune", "schedules", NOTIFY)
_OWN = ("schedule", "zone", "paused")
_TAKEN = ("name", "repeat", "data", "job_priority", "priority", *JobOptions.model_fields)
KEYS = {spelling: field for field in (*_OWN, *_TAKEN) for spelling in (field, wire_name(field))}
"""The accepted spellings of a schedule's keys, each with the field that it sets."""

RULE_KEYS = {
    "group": "group_for",
    **{spelling: field for field in RuleSpec.model_fields for spelling in (field, wire_name(field))},
}
"""The accepted spellings of a rule's keys, each with the field that it sets."""


@dataclass(frozen=True)
class Definition:
    """The desired state of one schedule or rule."""

    name: str
    given: dict[str, Any]
    """Parameters of CreateJob or PutRule, by wire name."""
    paused: bool = False
    """Whether to create the schedule paused; has no effect on a schedule that exists."""
    entry: DefinitionEntry | None = field(default=None, compare=False, repr=False)
    """The entry in the file from which the definition was read, to report errors of the server with a
    line."""


@dataclass(frozen=True)
class Definitions:
    """The contents of a definitions file."""

    source: str
    """The source that owns the schedules and rules; empty if the file names none."""
    schedules: list[Definition]
    prune: bool = True
    """Whether to remove schedules and rules of this source that are not in the file."""
    rules: list[Definition] | None = None
    """The notification rules; None if the file has no ``notify``."""


def format_of(file: str) -> Format | None:
    """Return the format for the suffix of a file name, or None if the suffix is unknown."""
    return next((form for suffix, form in SUFFIXES.items() if file.lower().endswith(suffix)), None)


def read(text: str, form: Format, file: str) -> Definitions:
    """Parse a definitions file; ``file`` is its name in messages.

    Raises BadDefinitions: for a syntax error, with that error alone; otherwise with all problems, sorted by
    line.
    """
    document, places = _parsed_and_checked(text, form, file)
    faults = Faults(file)
    if isinstance(document, list):
        document = {SCHEDULES: document}
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadDefinitions(f"{file}: expected a list of schedules, or an object with schedules")
    for key in document:
        if key not in _TOP:
            faults.add(f"unknown key {key!r}, expected one of {', '.join(_TOP)}")
    source = document.get("source", "")
    if not isinstance(source, str):
        faults.add("source: expected a string")
    prune = document.get("prune", True)
    if not isinstance(prune, bool):
        faults.add("prune: expected true or false")
    rules = None
    if NOTIFY in document:
        rules = _rules_of(document[NOTIFY], places[NOTIFY], faults)
    entries = document.get(SCHEDULES, [] if NOTIFY in document else None)
    schedules = _schedules_of(entries, places[SCHEDULES], faults)
    faults.check()
    return Definitions(source, schedules, prune, rules)


def document_of(text: str, form: Format, file: str) -> Any:
    """Parse a file, but do not check its keys; raises BadDefinitions, also for values that JSON lacks."""
    return _parsed_and_checked(text, form, file).value


def _parsed_and_checked(text: str, form: Format, file: str) -> Parsed:
    try:
        found = parsed(text, form)
    except ValueError as error:
        raise BadDefinitions(f"{file}: {error}") from None
    faults = Faults(file)
    _check_values(found.value, faults)
    faults.check()
    return found


def _check_values(document: Any, faults: Faults) -> None:
    """Report values that JSON cannot represent: dates, huge numbers, keys that are not text, deep nesting."""
    pending: list[tuple[Any, str, int]] = [(document, "", 0)]
    count = 0
    while pending:
        value, where, depth = pending.pop()
        count += 1
        # Maximum number of characters of a value's path in a message.
        where = where[:100]  # cut a long key here, since messages about nested values repeat it
        at = f"{where}: " if where else ""
        if depth > JSON_DEPTH_MAX:
            faults.add(f"{at}nested deeper than {JSON_DEPTH_MAX} levels")
            return
        if count > VALUES_MAX:
            faults.add(f"more than {VALUES_MAX} values")
            return
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    faults.add(f"{at}the key {key!r}: expected a string; put it in quotes")
                pending.append((item, f"{where}.{key}".lstrip("."), depth + 1))
        elif isinstance(value, list):
            pending += [(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value, 1)]
        elif isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
            faults.add(f"{at}expected a number that a double can hold")
        elif value is not None and not isinstance(value, (str, int, float)):
            faults.add(f"{at}expected a string, a number, true or false; put a date in quotes")


def _schedules_of(schedules: Any, places: list[Position], faults: Faults) -> list[Definition]:
    """Return the schedules of ``schedules``: a list, or a table whose keys are the names of schedules."""
    if schedules is None:
        faults.add("schedules is missing: expected a list, also an empty one")
    elif isinstance(schedules, dict):
        return _all_defined("schedule", list(schedules.items()), places, faults, _schedule)
    elif isinstance(schedules, list):
        return _all_defined("schedule", [(None, entry) for entry in schedules], places, faults, _schedule)
    else:
        faults.add("schedules: expected a list, or a table by name")
    return []


def _rules_of(rules: Any, places: list[Position], faults: Faults) -> list[Definition]:
    if not isinstance(rules, list):
        faults.add("notify: expected a list of rules")
        return []
    return _all_defined("rule", [(None, entry) for entry in rules], places, faults, _rule)


def _all_defined(
    what: str,
    entries: list[tuple[str | None, Any]],
    places: list[Position],
    faults: Faults,
    define: Callable[[DefinitionEntry, Mapping[str, Any]], Definition | None],
) -> list[Definition]:
    """Return the definitions of the valid entries, and report the problems of all others.

    ``entries`` are pairs of a name and the values. The name is the entry's key in a table, or None in a list.
    """
    told = len(places) == len(entries)
    found: list[Definition] = []
    first: dict[str, int] = {}
    for number, (name, values) in enumerate(entries, 1):
        label = values.get("name") if isinstance(values, dict) and name is None else name
        entry = DefinitionEntry(
            faults,
            f"{what} {label if isinstance(label, str) and label else number}",
            places[number - 1] if told else None,
        )
        if isinstance(values, dict):
            if name is not None and "name" in values:
                entry.wrong("name: expected only as the key of the table", "name")
            definition = define(entry, values if name is None else {**values, "name": name})
            if definition is not None:
                found.append(definition)
        else:
            entry.wrong("expected its keys and values")
        if isinstance(label, str):
            if label in first:
                before = first[label]
                entry.wrong("two have this name" + (f", the first one at line {before}" if before else ""))
            first.setdefault(label, entry.line)
    return found


def definition_of(values: Mapping[str, Any], where: str) -> Definition:
    """Return one schedule; each message begins with ``where``. Raises BadDefinitions with all problems."""
    faults = Faults("")
    definition = _schedule(DefinitionEntry(faults, where), values)
    faults.check()
    assert definition is not None
    return definition


def _schedule(entry: DefinitionEntry, values: Mapping[str, Any]) -> Definition | None:
    """Return one schedule, or None if it is invalid; problems are added to the entry."""
    fields, spelled = _fields_of(entry, values, KEYS)
    paused = fields.pop("paused", False)
    if not isinstance(paused, bool):
        entry.wrong("paused: expected true or false", "paused")
    fields["repeat"] = _repeat(fields, entry)
    found = _validated(entry, fields, spelled, _job_spec)
    if found is None:
        return None
    commands = [key for key in ("cmd", "argv", "url") if key in found.given]
    for second in commands[1:]:
        entry.wrong(f"{second}: expected one of cmd, argv and url, not also {commands[0]}", second)
    return replace(found, paused=paused)


def _rule(entry: DefinitionEntry, values: Mapping[str, Any]) -> Definition | None:
    """Return one rule, or None if it is invalid; problems are added to the entry."""
    return _validated(entry, *_fields_of(entry, values, RULE_KEYS), RuleSpec.model_validate)


def _fields_of(
    entry: DefinitionEntry, values: Mapping[str, Any], keys: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of an entry by field, and by wire name the key that the file uses for a parameter."""
    fields: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, value in values.items():
        field = keys.get(key)
        if field is None:
            entry.unknown(key, keys)
        elif field in fields:
            entry.wrong(f"{key}: it is given twice, in two spellings", key)
        else:
            fields[field] = value
            spelled[wire_name(field)] = key
    return fields, spelled


def _validated(
    entry: DefinitionEntry,
    fields: Mapping[str, Any],
    spelled: Mapping[str, str],
    validate: Callable[[dict[str, Any]], JobSpec | RuleSpec],
) -> Definition | None:
    wire = {wire_name(field): value for field, value in fields.items() if value is not None}
    try:
        spec = validate(wire)
    except (ValidationError, CommandError) as error:
        entry.refused(error, spelled)
        return None
    return Definition(spec.name, wire, entry=entry)


def _job_spec(wire: dict[str, Any]) -> JobSpec:
    spec = JobSpec.model_validate(wire)
    spec.wanted_priority  # noqa: B018  raises for an unknown priority
    return spec


def _repeat(fields: dict[str, Any], entry: DefinitionEntry) -> str:
    """Remove ``schedule``, ``zone`` and ``repeat`` from the fields, and return the repeat that they mean.

    If these values are invalid, report that and return ``NEVER``, so that further problems are found too.
    """
    schedule, zone, full_repeat = (fields.pop(key, None) for key in ("schedule", "zone", "repeat"))
    wrong = len(entry.faults)
    for key, value in (("schedule", schedule), ("zone", zone), ("repeat", full_repeat)):
        if value is not None and not isinstance(value, str):
            entry.wrong(f"{key}: expected a string; put it in quotes", key)
    if (schedule is None) == (full_repeat is None):
        entry.wrong("expected either schedule or repeat")
    if isinstance(full_repeat, str) and not repeat.is_cron(full_repeat):
        entry.wrong("repeat: expected CRON and an expression, such as CRON 0 9 * * 1-5", "repeat")
    if len(entry.faults) > wrong:
        return NEVER
    key, text = ("repeat", full_repeat) if schedule is None else ("schedule", schedule)
    try:
        own_zone, expression = cron.split_zone(text)
        if zone is not None:
            if "=" in text.removesuffix(expression):
                entry.wrong(f"zone: {key} names one already", "zone")
            own_zone, _ = cron.split_zone(f"TZ={zone} {expression}")
        cron.parse(expression)
    except cron.BadSchedule as error:
        entry.wrong(f"{key}: {error}", key)
        return NEVER
    return f"CRON {expression}" if own_zone == "UTC" else f"CRON TZ={own_zone} {expression}"


# --- writing ---------------------------------------------------------------------------------------------


def toml_entry(entry: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    """Return one schedule as a ``[[schedules]]`` table of a definitions file, after comment lines."""
    lines = [toml_comment(line) for comment in comments for line in comment.splitlines()]
    lines.append("[[schedules]]")
    lines += [f"{key} = {_toml(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def toml_comment(text: str) -> str:
    """Return a text as a one-line TOML comment, without characters that TOML forbids."""
    return f"# {_UNCOMMENTABLE.sub(' ', text)}"


def toml_text(value: str) -> str:
    """Return a text as a TOML string."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_text(key)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return toml_text(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(value)
