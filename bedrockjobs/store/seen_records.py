"""What is noted of failures: what they are grouped by, and which of them somebody has looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bedrockjobs.base.config import SEEN_MAX


class SeenRecords:
    """Failures, as the open transaction sees them."""

    _execute: Callable[..., Any]
    _sql: Mapping[str, str]

    def put_fingerprint(self, kind: str, number: int, fingerprint: str) -> None:
        """Note what a failed ``job`` or ``run`` is grouped by."""
        self._execute(self._sql[f"fingerprint_{kind}"], (fingerprint, number))

    def last_failed_run(self, job_id: int) -> int | None:
        """Return the run that made a job FAILED; None if that is not known."""
        found = self._execute(self._sql["last_failed_run"], (job_id,)).fetchone()
        return int(found[0]) if found is not None and found[1] else None

    def put_seen(self, kind: str, number: int, by: str, now: str) -> None:
        """Note who has seen a failed ``job`` or ``run`` first, and when."""
        self._execute(self._sql["put_seen"], (kind, number, by, now))

    def delete_seen(self, kind: str, number: int) -> None:
        """Let a failure count as new."""
        self._execute(self._sql["delete_seen"], (kind, number))

    def trim_seen(self, kind: str) -> None:
        """Let the oldest beyond ``SEEN_MAX`` count as new."""
        self._execute(self._sql["trim_seen"], (kind, kind, SEEN_MAX))
