"""What is to become of a source's schedules and rules, and what would change of them, as a server says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import wire_name
from bedrockjobs.cli.output import Record, text_of
from bedrockjobs.cli.session import records_in
from bedrockjobs.commands import JobSpec
from bedrockjobs.definitions import Definition, Entry

CHANGES = (("added", "+", "green"), ("changed", "~", "yellow"), ("removed", "-", "red"))
"""Parts of a difference: the key of the answer, its sign and its colour."""

KEYS = (*(key for key, _, _ in CHANGES), "unchanged")


@dataclass(frozen=True)
class Wanted:
    """What is to become of a source."""

    source: str
    schedules: list[Definition]
    rules: list[dict[str, Any]] | None = None
    """None where the files say nothing of rules."""
    prune: bool = True
    by: str = ""
    take_over: bool = False
    """Whether it gets schedules and rules of these names that another source has."""
    rule_entries: list[Entry] = field(default_factory=list)
    """Where each rule stands; none where that is not known."""

    def schedules_command(self, *, dry_run: bool) -> dict[str, Any]:
        """Return the parameters of SyncSchedules."""
        return self._command(dry_run=dry_run, schedules=[definition.given for definition in self.schedules])

    def rules_command(self, *, dry_run: bool) -> dict[str, Any]:
        """Return the parameters of SyncRules."""
        return self._command(dry_run=dry_run, rules=self.rules)

    def _command(self, *, dry_run: bool, **entries: Any) -> dict[str, Any]:
        more: dict[str, Any] = {} if self.prune else {"prune": False}
        if self.take_over:
            more["takeOver"] = True
        return {"source": self.source, **entries, "by": self.by or None, "dryRun": dry_run or None, **more}


@dataclass(frozen=True)
class SyncPlan:
    """What would change of a source, as the server says."""

    wanted: Wanted
    schedules: Record
    rules: Record | None = field(default=None)

    def names(self, key: str) -> list[str]:
        """Return the names of schedules with this change."""
        return list(jsontext.parse(self.schedules[key]))

    def rule_names(self, key: str) -> list[str]:
        """Return the names of rules with this change."""
        return list(jsontext.parse(self.rules[key])) if self.rules is not None else []

    def problems(self) -> list[str]:
        """Return what the server would refuse, each with its line."""
        return self._told("problems")

    def warnings(self) -> list[str]:
        """Return what the server takes but finds doubtful, each with its line."""
        return self._told("warnings")

    def _told(self, key: str) -> list[str]:
        schedules = [definition.entry for definition in self.wanted.schedules]
        both = ((self.schedules, schedules, "schedule"), (self.rules or {}, self.wanted.rule_entries, "rule"))
        return [
            _told(problem, entries, what)
            for reply, entries, what in both
            for problem in records_in(reply.get(key, "[]"))
        ]

    @property
    def changes(self) -> bool:
        """Tell whether anything would change."""
        return any(self.names(key) or self.rule_names(key) for key, _, _ in CHANGES)

    def record(self) -> Record:
        """Return it as one record: of the schedules, with that of the rules inside."""
        return self.schedules if self.rules is None else {**self.schedules, "rules": self.rules}

    def sentences(self) -> list[str]:
        """Return what was changed in words, of schedules and of rules."""
        found = [("Schedules", self.names)] + ([("Rules", self.rule_names)] if self.rules is not None else [])
        return [
            f"{what} of {self.wanted.source}: {', '.join(f'{len(names(key))} {key}' for key in KEYS)}."
            for what, names in found
        ]


def _told(problem: Record, entries: Sequence[Entry | None], what: str) -> str:
    """Return what the server says is wrong with an entry, with the line of its key."""
    place, detail = int(problem["place"]), text_of(problem, "detail").replace("; takeOver ", "; --take-over ")
    entry = entries[place] if place < len(entries) else None
    if entry is None:
        return f"{what} {text_of(problem, 'name')}: {detail}"
    key = detail.partition(":")[0]
    field_name = next((name for name in JobSpec.model_fields if wire_name(name) == key), key)
    return entry.text(detail, key, field_name, *(("schedule",) if key == "repeat" else ()))
