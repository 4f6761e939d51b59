"""Small things that are true of a whole database, each read once and asked for very often."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bedrockjobs.store.statements import STATEMENTS as SQL


class Facts:
    """Whether there are families, when the next job expires, and which names are on the crash list."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        """Read over the writer's connection."""
        self._execute = execute
        self.any_family: bool | None = None
        """Whether any job may have a child; None: not known yet."""
        self._expiry: str | None = None
        self._expiry_known = False
        self._crash_patterns: tuple[str, ...] | None = None

    def families(self) -> bool:
        """Tell whether any job may have a child; most databases have none at all."""
        if self.any_family is None:
            self.any_family = self._execute(SQL["has_families"]).fetchone() is not None
        return self.any_family

    def note_family(self) -> None:
        """Note that a child is inserted."""
        self.any_family = True

    def next_expiry(self) -> str | None:
        """Return a stamp before which no job expires; None: none does."""
        if not self._expiry_known:
            self._expiry = self._execute(SQL["next_expiry"]).fetchone()[0]
            self._expiry_known = True
        return self._expiry

    def note_expiry(self, stamp: str) -> None:
        """Note a job that expires at a stamp."""
        if self._expiry_known and (self._expiry is None or stamp < self._expiry):
            self._expiry = stamp

    def look_for_expiry(self) -> None:
        """Look anew for the next job that expires."""
        self._expiry_known = False

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            found = self._execute(SQL["get_meta"], ("crashPatterns",)).fetchone()
            self._crash_patterns = tuple(json.loads(found[0])) if found else ()
        return self._crash_patterns

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Nothing is needed: all of it is quickly read anew."""

    def undo(self, mark: None) -> None:
        """Read anew."""
        self.forget()

    def forget(self) -> None:
        """Read anew what is asked for."""
        self.any_family = self._crash_patterns = None
        self._expiry_known = False
