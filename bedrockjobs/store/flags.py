"""Cached flags of a whole database, each read once and used very often."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bedrockjobs.store.statements import STATEMENTS as SQL


class CachedFlags:
    """Whether any job has children, when the next job expires, and the crash list."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute
        self.any_family: bool | None = None
        """Whether any job may have children; None if unknown."""
        self._expiry: str | None = None
        self._expiry_known = False
        self._crash_patterns: tuple[str, ...] | None = None

    def families(self) -> bool:
        """Return whether any job may have children; most databases have none."""
        if self.any_family is None:
            self.any_family = self._execute(SQL["has_families"]).fetchone() is not None
        return self.any_family

    def set_family(self) -> None:
        """Record that a job with a parent was inserted."""
        self.any_family = True

    def next_expiry(self) -> str | None:
        """Return a lower bound for the next expiry, or None if no job expires."""
        if not self._expiry_known:
            self._expiry = self._execute(SQL["next_expiry"]).fetchone()[0]
            self._expiry_known = True
        return self._expiry

    def add_expiry(self, timestamp: str) -> None:
        """Record the expiry of a written job, if it is earlier than the next expiry."""
        if self._expiry_known and (self._expiry is None or timestamp < self._expiry):
            self._expiry = timestamp

    def drop_expiry(self) -> None:
        """Drop the cached next expiry, so that it is read again when it is needed."""
        self._expiry_known = False

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            found = self._execute(SQL["get_meta"], ("crashPatterns",)).fetchone()
            self._crash_patterns = tuple(json.loads(found[0])) if found else ()
        return self._crash_patterns

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Return None: ``undo`` drops the flags, which are cheap to read again."""

    def undo(self, mark: None) -> None:
        """Drop all flags."""
        self.forget()

    def forget(self) -> None:
        """Drop all flags."""
        self.any_family = self._crash_patterns = None
        self._expiry_known = False
