"""Rules as code: the tables ``[[notify]]`` of a file of definitions, read into what SyncRules takes."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import command_error, wire_name
from bedrockjobs.commands.rules import RuleSpec

NOTIFY = "notify"
"""The key of the list of rules in a file."""

KEYS = {
    "group": "groupFor",
    **{key: wire_name(field) for field in RuleSpec.model_fields for key in (field, wire_name(field))},
}
"""What a rule may hold: each spelling, with the parameter that it stands for."""


def rules_of(given: Any, file: str) -> list[dict[str, Any]]:
    """Read the rules of a file; raises ValueError with the file, the rule and the key."""
    if not isinstance(given, list) or not all(isinstance(entry, dict) for entry in given):
        raise ValueError(f"{file}: {NOTIFY}: expected a list of rules")
    found: list[dict[str, Any]] = []
    for number, entry in enumerate(given, 1):
        label = entry.get("name")
        rule = _rule_of(entry, f"{file}: rule {label if isinstance(label, str) and label else number}")
        if any(rule["name"] == other["name"] for other in found):
            raise ValueError(f"{file}: rule {rule['name']}: two have this name")
        found.append(rule)
    return found


def _rule_of(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    wire: dict[str, Any] = {}
    for key, value in entry.items():
        name = KEYS.get(key)
        if name is None:
            near = get_close_matches(key, KEYS, 1)
            raise ValueError(f"{where}: unknown key {key!r}{f', expected {near[0]}' if near else ''}")
        if name in wire:
            raise ValueError(f"{where}: {key}: it is given twice, in two spellings")
        if value is not None:
            wire[name] = value
    try:
        RuleSpec.model_validate(wire)
    except ValidationError as error:
        refused = command_error(error)
        raise ValueError(f"{where}: {refused.detail or refused.reason}") from None
    except CommandError as refused:
        raise ValueError(f"{where}: {refused.detail or refused.reason}") from None
    return wire
