"""How a group of failures develops: new, growing, quiet or none of these."""

from __future__ import annotations

import pytest

from bedrockjobs.base.clock import after_seconds
from bedrockjobs.views.failures import LISTED_OF_GROUP, trend_of

NOW = "2026-11-21 12:00:00.500"
HOUR, DAY = 3_600, 86_400


def ago(*ages_s: int) -> list[str]:
    """Return timestamps."""
    return [after_seconds(NOW[:19], -age) for age in ages_s]


@pytest.mark.parametrize(
    ("first_s", "newest_s", "count", "trend"),
    [
        (0, [0], 1, "new"),
        (DAY - 1, [60, DAY - 1], 2, "new"),
        (DAY + 60, [DAY - 60, DAY + 60], 2, ""),
        (30 * DAY, [DAY + 1], 900, "quiet"),
        (30 * DAY, [60], 900, ""),
        (10 * DAY, [60, 120, 180, DAY], 10, "growing"),
        (10 * DAY, [60, 120, DAY], 10, ""),
        (10 * DAY, [60, 120, 180, DAY], 10 * 24 * 2, ""),
        (10 * DAY, [169 * (nth + 1) for nth in range(LISTED_OF_GROUP)], 5_100, ""),
        (10 * DAY, list(range(1, 1 + LISTED_OF_GROUP)), 5_100, "growing"),
        (2 * DAY, [-60], 2, ""),
    ],
)
def test_trend(first_s: int, newest_s: list[int], count: int, trend: str) -> None:
    assert trend_of(ago(first_s)[0], ago(*newest_s), count, NOW) == trend


def test_jobs_that_never_ran_have_no_times() -> None:
    assert trend_of("", [""], 1, NOW) == "quiet"
    assert trend_of("", ago(60), 2, NOW) == "new"
