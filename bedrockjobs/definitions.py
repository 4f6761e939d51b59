"""Schedules as code: a file of definitions in TOML, YAML or JSON, read into what SyncSchedules takes.

Text in, definitions out. It knows no files, no server and no other system's definitions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from bedrockjobs.base.config import JSON_DEPTH_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import command_error, wire_name
from bedrockjobs.commands.create import JobSpec
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.definition_text import FORMATS, SCHEDULES, Format, parsed
from bedrockjobs.rule_definitions import NOTIFY, rules_of
from bedrockjobs.schedule import cron, repeat

__all__ = [
    "FORMATS", "BadDefinitions", "Definition", "Definitions", "Format", "definition_of", "format_of", "read",
    "toml_comment", "toml_entry", "toml_text",
]  # fmt: skip

SUFFIXES: dict[str, Format] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}

VALUES_MAX = 1_000_000
"""Values in one file: aliases of aliases in YAML can mean far more than the file holds."""

WHERE_SHOWN_MAX = 100
"""Characters of a value's place that a message shows."""

_UNCOMMENTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TOP = ("source", "prune", "schedules", NOTIFY)
_OWN = ("schedule", "zone", "paused")
_TAKEN = ("name", "repeat", "data", "job_priority", "priority", *JobOptions.model_fields)
KEYS = {spelling: field for field in (*_OWN, *_TAKEN) for spelling in (field, wire_name(field))}
"""What a definition may hold: each spelling, with the field it stands for."""


class BadDefinitions(ValueError):
    """A file cannot be read; the message names the file, the definition and the key."""


@dataclass(frozen=True)
class Definition:
    """One schedule as it should be."""

    name: str
    given: dict[str, Any]
    """Parameters of CreateJob by wire name."""
    paused: bool = False
    """Whether it is added paused; one that exists is left as it is."""


@dataclass(frozen=True)
class Definitions:
    """What a file says."""

    source: str
    """Whose schedules these are; empty where the file does not say."""
    schedules: list[Definition]
    prune: bool = True
    """Whether the source's schedules and rules that do not stand here are to be removed."""
    rules: list[dict[str, Any]] | None = None
    """Parameters of PutRule for each rule; None where the file says nothing of rules."""


def format_of(file: str) -> Format | None:
    """Return the format that a file's name tells, None where it tells none."""
    return next((form for suffix, form in SUFFIXES.items() if file.lower().endswith(suffix)), None)


def read(text: str, form: Format, file: str) -> Definitions:
    """Read a file of definitions; ``file`` is what messages call it. Raises BadDefinitions."""
    try:
        document, lines = parsed(text, form)
    except ValueError as error:
        raise BadDefinitions(f"{file}: {error}") from None
    _check_values(document, file)
    if isinstance(document, list):
        document = {"schedules": document}
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadDefinitions(f"{file}: expected a list of schedules, or an object with schedules")
    for key in document:
        if key not in _TOP:
            raise BadDefinitions(f"{file}: unknown key {key!r}, expected one of {', '.join(_TOP)}")
    source = document.get("source", "")
    if not isinstance(source, str):
        raise BadDefinitions(f"{file}: source: expected a text")
    prune = document.get("prune", True)
    if not isinstance(prune, bool):
        raise BadDefinitions(f"{file}: prune: expected true or false")
    try:
        rules = rules_of(document[NOTIFY], file) if NOTIFY in document else None
    except ValueError as error:
        raise BadDefinitions(str(error)) from None
    entries = list(_entries(document.get(SCHEDULES, [] if NOTIFY in document else None), file, lines))
    found = [definition_of(given, where) for given, where in entries]
    _check_names(found, [where for _, where in entries])
    return Definitions(source, found, prune, rules)


def _check_values(document: Any, file: str) -> None:
    """Refuse what JSON cannot say: dates, keys that are no text, what nests too deep or without end."""
    pending: list[tuple[Any, str, int]] = [(document, "", 0)]
    count = 0
    while pending:
        value, where, depth = pending.pop()
        count += 1
        where = where[:WHERE_SHOWN_MAX]  # cut here, so that a long key is not copied for all that is below it
        at = f"{file}: {where}: " if where else f"{file}: "
        if depth > JSON_DEPTH_MAX:
            raise BadDefinitions(f"{at}nested deeper than {JSON_DEPTH_MAX} levels")
        if count > VALUES_MAX:
            raise BadDefinitions(f"{file}: more than {VALUES_MAX} values")
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise BadDefinitions(f"{at}the key {key!r}: expected a text; put it in quotes")
                pending.append((item, f"{where}.{key}".lstrip("."), depth + 1))
        elif isinstance(value, list):
            pending += [(item, f"{where}[{number}]", depth + 1) for number, item in enumerate(value, 1)]
        elif value is not None and not isinstance(value, (str, int, float)):
            raise BadDefinitions(f"{at}expected a text, a number, true or false; put a date in quotes")


def _entries(schedules: Any, file: str, lines: list[int]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each entry with the words for where it stands; a table's keys are names."""
    if schedules is None:
        raise BadDefinitions(f"{file}: schedules is missing: expected a list, also an empty one")
    if isinstance(schedules, dict):
        pairs: Iterable[tuple[str | None, Any]] = schedules.items()
    elif isinstance(schedules, list):
        pairs = ((None, entry) for entry in schedules)
    else:
        raise BadDefinitions(f"{file}: schedules: expected a list, or a table by name")
    told = len(lines) == len(schedules)
    for number, (name, entry) in enumerate(pairs, 1):
        where = f"{file}: line {lines[number - 1]}" if told else file
        if not isinstance(entry, dict):
            raise BadDefinitions(f"{where}: schedule {name or number}: expected its keys and values")
        if name is not None:
            if "name" in entry:
                raise BadDefinitions(f"{where}: schedule {name}: name: it stands before it already")
            entry = {"name": name, **entry}
        label = entry.get("name")
        yield entry, f"{where}: schedule {label if isinstance(label, str) and label else number}"


def definition_of(given: Mapping[str, Any], where: str) -> Definition:
    """Read one definition; ``where`` begins each message. Raises BadDefinitions."""
    fields: dict[str, Any] = {}
    for key, value in given.items():
        field = KEYS.get(key)
        if field is None:
            near = get_close_matches(key, KEYS, 1)
            hint = f", expected {near[0]}" if near else ""
            raise BadDefinitions(f"{where}: unknown key {key!r}{hint}")
        if field in fields:
            raise BadDefinitions(f"{where}: {key}: it is given twice, in two spellings")
        fields[field] = value
    paused = fields.pop("paused", False)
    if not isinstance(paused, bool):
        raise BadDefinitions(f"{where}: paused: expected true or false")
    fields["repeat"] = _repeat(fields, where)
    wire = {wire_name(field): value for field, value in fields.items() if value is not None}
    try:
        spec = JobSpec.model_validate(wire)
        spec.wanted_priority  # noqa: B018  # raises for a priority that is none of ours
        commands = [field for field in ("cmd", "argv", "url") if getattr(spec, field) is not None]
    except ValidationError as error:
        refused = command_error(error)
        raise BadDefinitions(f"{where}: {refused.detail or refused.reason}") from None
    except CommandError as refused:
        raise BadDefinitions(f"{where}: {refused.detail or refused.reason}") from None
    if len(commands) > 1:
        raise BadDefinitions(
            f"{where}: {commands[1]}: expected one of cmd, argv and url, not also {commands[0]}"
        )
    return Definition(spec.name, wire, paused)


def _repeat(fields: dict[str, Any], where: str) -> str:
    """Take ``schedule``, ``zone`` and ``repeat`` out of the fields and return a repeat that was read once."""
    schedule, zone, given = (fields.pop(key, None) for key in ("schedule", "zone", "repeat"))
    for key, value in (("schedule", schedule), ("zone", zone), ("repeat", given)):
        if value is not None and not isinstance(value, str):
            raise BadDefinitions(f"{where}: {key}: expected a text; put it in quotes")
    if (schedule is None) == (given is None):
        raise BadDefinitions(f"{where}: expected either schedule or repeat")
    if given is not None and not repeat.is_cron(given):
        raise BadDefinitions(f"{where}: repeat: expected CRON and an expression, such as CRON 0 9 * * 1-5")
    key, text = ("repeat", given) if schedule is None else ("schedule", schedule)
    try:
        found, expression = cron.split_zone(text)
        if zone is not None:
            if "=" in text.removesuffix(expression):
                raise BadDefinitions(f"{where}: zone: {key} names one already")
            found, _ = cron.split_zone(f"TZ={zone} {expression}")
        cron.parse(expression)
    except cron.BadSchedule as error:
        raise BadDefinitions(f"{where}: {key}: {error}") from None
    return f"CRON {expression}" if found == "UTC" else f"CRON TZ={found} {expression}"


def _check_names(found: list[Definition], places: list[str]) -> None:
    seen: dict[str, str] = {}
    for definition, place in zip(found, places, strict=True):
        if definition.name in seen:
            first = seen[definition.name].removesuffix(f": schedule {definition.name}")
            raise BadDefinitions(f"{place}: two have this name, the first one at {first}")
        seen[definition.name] = place


# --- writing ---------------------------------------------------------------------------------------------


def toml_entry(entry: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    """Return one definition, by the names of a definitions file, as a ``[[schedules]]`` table."""
    lines = [toml_comment(line) for comment in comments for line in comment.splitlines()]
    lines.append("[[schedules]]")
    lines += [f"{key} = {_toml(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def toml_comment(text: str) -> str:
    """Return a text as a comment of one line; what TOML forbids in one is left out."""
    return f"# {_UNCOMMENTABLE.sub(' ', text)}"


def toml_text(value: str) -> str:
    """Return a text as TOML has it."""
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
