"""Helpers for tests of schedules: a schedule of each minute, its ticks, rows of its tick history."""

from __future__ import annotations

from tests.runs.rig import Site


async def every_minute(site: Site, **more: object) -> int:
    """Create a schedule whose first tick is at 03:30."""
    return await site.create("s", repeat="CRON * * * * *", **more)


def at(minute: int) -> str:
    """Return a tick."""
    return f"2026-11-21 03:{minute:02d}:00"


def row(first: int, last: int, outcome: str, reason: str = "") -> tuple[str, str, int, str, str]:
    """Return a row of the ledger."""
    return at(first), at(last), last - first + 1, outcome, reason


def outcomes(ledger: list[tuple[str, str, int, str, str]]) -> tuple[list[int], set[str]]:
    """Return the minutes that a ledger names and its outcomes; neighbours may share a row or not."""
    minutes: list[int] = []
    for tick, until, count, _, _ in ledger:
        found = list(range(int(tick[14:16]), int(until[14:16]) + 1))
        assert len(found) == count
        minutes += found
    return minutes, {outcome for _, _, _, outcome, _ in ledger}
