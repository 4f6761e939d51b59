"""gorhill/cronexpr, the dialect of castle-cron and of LUCI."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from croniter import croniter

from bedrockjobs.imports import gorhill
from bedrockjobs.imports.imported import ImportedSchedule, same_schedule
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
        ("@daily", "@daily"),
    ],
)
def test_the_minute_comes_first_unless_there_are_seven_fields(said: str, ours: str) -> None:
    """The sixth field is a year."""
    old, expression, notes = gorhill.parse_gorhill(said)
    assert (expression, notes) == (ours, ())
    assert same_schedule(cron.parse(expression), old)


@pytest.mark.parametrize(
    ("said", "library", "ours", "note"),
    [
        ("0 0 * * 0-7", gorhill.GORHILL, "0 0 * * SUN", "day-of-week 0-7: gorhill/cronexpr reads 7 as 0"),
        ("0 0 * * 7/2", gorhill.GORHILL, "0 0 * * TUE,THU,SAT,SUN", "reads 7 as 0"),
        ("0 0 * * 03", gorhill.GORHILL, "0 0 * * SUN", "reads 03 as 0"),
        ("0 0 * * 03L", gorhill.GORHILL, "0 0 * * 0L", "reads 03 as 0"),
        ("0 0 1 * 6-7", gorhill.GORHILL, "0 0 1 * *", "finds no value in 6-0"),
        ("0 22-2,5 * * *", gorhill.GORHILL, "0 5 * * *", "hour 22-2: gorhill/cronexpr finds no value"),
        ("0 0 1 1 * 2030 x", gorhill.GORHILL, None, "day-of-week '2030'"),
        ("0 0 0 1 1 * 2030 x", gorhill.GORHILL, "0 0 0 1 1 * 2030", "ignores what follows the seventh field"),
        ("0 0 * * 1-7", gorhill.HASHICORP, "0 0 * * MON-SAT", "ends with 0 end with 6"),
        ("0 0-0 * * *", gorhill.HASHICORP, "0 0-6 * * *", "hour 0-0"),
        ("0 0 * * 6-7", gorhill.GORHILL, None, "would never fire (day-of-week 6-7: gorhill/cronexpr reads 7"),
        ("0 22-2 * * *", gorhill.GORHILL, None, "finds no value in it and fails"),
        ("0 0 1 03 *", gorhill.GORHILL, None, "reads one as month 0 and fails"),
        ("0 0 1 1 * 2100", gorhill.GORHILL, None, "a number in 1970-2099"),
        ("0 0 * * 6-7/1", gorhill.SUPERCRONIC, None, "supercronic refuses it"),
        ("0 0 0 1 1 * 2030 x", gorhill.SUPERCRONIC, None, "5 to 7 fields"),
    ],
)
def test_what_the_libraries_read_otherwise(
    said: str, library: gorhill.Library, ours: str | None, note: str
) -> None:
    """It is rewritten with a warning, or refused."""
    if ours is None:
        with pytest.raises(cron.BadSchedule) as caught:
            gorhill.parse_gorhill(said, library)
        assert note in str(caught.value)
        return
    reading = gorhill.parse_gorhill(said, library)
    assert reading.expression == ours
    assert note in reading.notes[0]
    assert same_schedule(cron.parse(ours), reading.schedule)


@pytest.mark.parametrize("said", ["0 */3 * * *", "0 1/3 * * *", "0 2,10,18 * * *", "0 0 1 * 1", "0 0 * * 5L"])
def test_five_fields_are_as_croniter_has_them(said: str) -> None:
    """One matching day field is enough."""
    old, expression, _ = gorhill.parse_gorhill(said)
    found = ImportedSchedule("a", "line 1", said, expression, old=old)
    oracle = croniter(said.replace("5L", "L5"), NOW)  # as croniter spells it
    assert found.old_times(NOW, 5) == found.our_times(NOW, 5) == [oracle.get_next(datetime) for _ in range(5)]


@pytest.mark.parametrize("said", ["", "0 9 * *", "@Daily", "@reboot", "@minutely", "Mon", "5m"])
def test_what_gorhill_does_not_know_is_refused(said: str) -> None:
    """Also extensions of our own dialect."""
    with pytest.raises(cron.BadSchedule, match="5 to 7 fields"):
        gorhill.parse_gorhill(said)
