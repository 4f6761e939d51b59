"""What would change of a schedule or a rule: its definition beside what a server has.

It knows no server and no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import PRIORITY_DEFAULT
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.output import Record, cell
from bedrockjobs.cli.verbs import option_text
from bedrockjobs.commands.create import JobSpec
from bedrockjobs.commands.options import OPTIONS
from bedrockjobs.commands.rules import RuleSpec
from bedrockjobs.definitions import Definition

LINE_CHARS = 80
"""Length up to which an old and a new value stand on one line; nothing is cut."""

Values = Mapping[str, str | None]
"""Texts of JSON by wire name; None where a value is left out."""


def attributes_added(definition: Definition) -> list[str]:
    """Return a line for each attribute of a schedule that is new: ``retries: 2``."""
    wanted = _wanted(definition)
    usual = {"priority": str(PRIORITY_DEFAULT), "data": "{}"}
    return [f"{key}: {_shown(key, text)}" for key, text in wanted.items() if usual.get(key) != text]


def attributes_changed(definition: Definition, job: Record) -> list[str]:
    """Return a line for each attribute that would change: ``retries: 2 -> 3``."""
    wanted = _wanted(definition)
    present = {key: job[key] for key in job if key in wanted or key in OPTIONS}
    return _changes(wanted, present)


def rule_added(rule: Mapping[str, Any]) -> list[str]:
    """Return a line for each value of a rule that is new."""
    return [f"{key}: {cell(RawJSON(text))}" for key, text in _wanted_rule(rule).items() if key in rule]


def rule_changed(rule: Mapping[str, Any], there: Record) -> list[str]:
    """Return a line for each value of a rule that would change."""
    wanted = _wanted_rule(rule)
    present = {key: jsontext.dump(jsontext.parse(there[key])) for key in wanted if key in there}
    return _changes({key: wanted[key] for key in wanted if key in rule or key in present}, present)


def _wanted(definition: Definition) -> dict[str, str]:
    spec = JobSpec.model_validate(definition.given)
    wanted = {"repeat": jsontext.dump(spec.repeat), "priority": str(spec.wanted_priority), **spec.chosen()}
    wanted = {key: text for key, text in wanted.items() if text != "null"}
    if "data" in spec.model_fields_set:
        wanted["data"] = spec.data
    return wanted


def _wanted_rule(rule: Mapping[str, Any]) -> dict[str, str]:
    found = RuleSpec.model_validate(dict(rule)).model_dump(by_alias=True)
    return {key: jsontext.dump(value) for key, value in found.items() if key != "name"}


def _changes(wanted: Values, present: Values) -> list[str]:
    return list(
        _lines(
            (key, _shown(key, present.get(key)), _shown(key, wanted.get(key)))
            for key in dict.fromkeys((*wanted, *present))
            if present.get(key) != wanted.get(key)
        )
    )


def _lines(changes: Iterable[tuple[str, str, str]]) -> Iterable[str]:
    for key, old, new in changes:
        if len(key) + len(old) + len(new) <= LINE_CHARS:
            yield f"{key}: {old} -> {new}"
        else:
            yield f"{key}: {old}"
            yield f"{' ' * len(key)}  -> {new}"


def _shown(key: str, text: str | None) -> str:
    return "left out" if text is None else cell(option_text(key, RawJSON(text)))
