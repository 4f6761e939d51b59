"""Which failures somebody has looked at, as the open transaction sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedrockjobs.base.config import SEEN_MAX


class SeenRecords:
    """Failures that were seen."""

    _execute: Callable[..., Any]
    _sql: Mapping[str, str]

    def put_seen(self, kind: str, number: int, by: str, now: str) -> None:
        """Note who has seen a failed ``job`` or ``run`` first, and when."""
        self._execute(self._sql["put_seen"], (kind, number, by, now))

    def delete_seen(self, kind: str, number: int) -> None:
        """Let a failure count as new."""
        self._execute(self._sql["delete_seen"], (kind, number))

    def trim_seen(self, kind: str) -> None:
        """Let the oldest beyond ``SEEN_MAX`` count as new."""
        self._execute(self._sql["trim_seen"], (kind, kind, SEEN_MAX))
