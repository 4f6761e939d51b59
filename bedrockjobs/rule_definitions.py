"""Rules as code: the tables ``[[notify]]`` of a file of definitions, read into what SyncRules takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.rules import RuleSpec
from bedrockjobs.definition_faults import Entry, Faults
from bedrockjobs.imports.place import Place

KEYS = {
    "group": "groupFor",
    **{key: wire_name(field) for field in RuleSpec.model_fields for key in (field, wire_name(field))},
}
"""What a rule may hold: each spelling, with the parameter that it stands for."""


def rules_of(given: Any, places: list[Place], faults: Faults) -> tuple[list[dict[str, Any]], list[Entry]]:
    """Read the rules of a file, and where each stands.

    What is wrong with them is noted with its line, the rule and the key.
    """
    if not isinstance(given, list):
        faults.add("notify: expected a list of rules")
        return [], []
    told = len(places) == len(given)
    found: list[dict[str, Any]] = []
    entries: list[Entry] = []
    seen: dict[str, int] = {}
    for number, rule in enumerate(given, 1):
        label = rule.get("name") if isinstance(rule, dict) else None
        entry = Entry(
            faults, f"rule {label if isinstance(label, str) and label else number}",
            places[number - 1] if told else None,
        )  # fmt: skip
        if not isinstance(rule, dict):
            entry.wrong("expected its keys and values")
            continue
        found.append(_rule_of(rule, entry))
        entries.append(entry)
        if isinstance(label, str):
            if label in seen:
                line = seen[label]
                entry.wrong("two have this name" + (f", the first one at line {line}" if line else ""))
            seen.setdefault(label, entry.line)
    return found, entries


def _rule_of(given: Mapping[str, Any], entry: Entry) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for key, value in given.items():
        name = KEYS.get(key)
        if name is None:
            entry.unknown(key, KEYS)
        elif name in wire:
            entry.wrong(f"{key}: it is given twice, in two spellings", key)
        elif value is not None:
            wire[name] = value
            spelled[name] = key
    try:
        RuleSpec.model_validate(wire)
    except (ValidationError, CommandError) as error:
        entry.refused(error, spelled)
    return wire
