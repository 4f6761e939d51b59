"""gorhill/cronexpr, the dialect of castle-cron and of LUCI."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import croniter

from bedrockjobs.imports import gorhill
from bedrockjobs.imports.found import Found
from bedrockjobs.schedule import cron

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("0 */3 * * *", "0 */3 * * *"),
        ("0 */3 * * * *", "0 */3 * * *"),
        ("0 9 * * 1-5 2030", "0 0 9 * * 1-5 2030"),
        ("30 0 9 * * 1-5 *", "30 0 9 * * 1-5 *"),
        ("0 0 ? * 5L", "0 0 * * 5L"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 1 * * ?", "0 0 1 * *"),
        ("5 0 0 1 * ? *", "5 0 0 1 * * *"),
        ("@Daily", "@daily"),
    ],
)
def test_the_minute_comes_first_unless_there_are_seven_fields(said: str, ours: str) -> None:
    """A sixth field is a year."""
    old, expression = gorhill.read(said)
    assert expression == ours
    assert cron.parse(expression) == old


@pytest.mark.parametrize("said", ["0 */3 * * *", "0 1/3 * * *", "0 2,10,18 * * *", "0 0 1 * 1", "0 0 * * 5L"])
def test_five_fields_are_as_croniter_has_them(said: str) -> None:
    """Either day field is enough."""
    old, expression = gorhill.read(said)
    found = Found("a", "line 1", said, expression, old=old)
    oracle = croniter(said.replace("5L", "L5"), NOW)  # as croniter spells it
    assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == [oracle.get_next(datetime) for _ in range(5)]


@pytest.mark.parametrize("said", ["", "0 9 * *", "1 2 3 4 5 6 7 8", "@reboot", "@minutely", "Mon", "5m"])
def test_what_gorhill_does_not_know_is_refused(said: str) -> None:
    """Also what our own dialect has beyond it."""
    with pytest.raises(cron.BadSchedule, match="5 to 7 fields"):
        gorhill.read(said)
