"""The last days of a schedule: each tick counts on its day in the schedule's zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bedrockjobs.base.clock import timestamp
from bedrockjobs.pages import schedules as days
from bedrockjobs.pages.schedules import Day, TickHistoryRow, bars_of, days_of, next_ticks

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
DAILY = "CRON 30 2 * * *"


def row(
    tick: str, until: str = "", count: int = 1, outcome: str = "fired", reason: str = ""
) -> TickHistoryRow:
    """Return a row of the tick history."""
    return TickHistoryRow(tick, until or tick, count, outcome, reason, 0, 0)


def told(found: list[Day]) -> dict[str, tuple[int, int, int, int]]:
    """Return the days that had ticks: ran, failed, missed and skipped."""
    return {f"{day.day:%m-%d}": (day.ran, day.failed, day.missed, day.skipped) for day in found if day.total}


def test_each_day_has_its_ticks_by_what_became_of_them() -> None:
    found = days_of(
        [
            row("2026-11-20 02:30:00", outcome="skipped", reason="server down"),
            row("2026-11-19 02:30:00", outcome="skipped", reason="paused"),
            row("2026-11-18 02:30:00", outcome="caught up"),
            row("2026-09-01 02:30:00"),
        ],
        [],
        DAILY,
        UTC,
        NOW,
    )
    assert len(found) == 30
    assert (found[-1].day, found[0].day) == (NOW.date(), NOW.date() - timedelta(days=29))
    assert told(found) == {"11-18": (1, 0, 0, 0), "11-19": (0, 0, 0, 1), "11-20": (0, 0, 1, 0)}
    assert found[-2].summary == "Fri 2026-11-20: 1 missed"
    assert found[-1].summary == "Sat 2026-11-21: no tick"


def test_neighbours_that_share_a_row_are_told_apart() -> None:
    ticks = ("2026-11-17 02:30:00", "2026-11-20 02:30:00")
    assert told(days_of([row(*ticks, 4)], [], DAILY, UTC, NOW)) == {
        f"11-{day}": (1, 0, 0, 0) for day in (17, 18, 19, 20)
    }


def test_a_row_that_began_before_the_first_day_counts_from_there_on() -> None:
    found = days_of([row("2026-10-01 02:30:00", "2026-10-24 02:30:00", 24)], [], DAILY, UTC, NOW)
    assert told(found) == {"10-23": (1, 0, 0, 0), "10-24": (1, 0, 0, 0)}


def test_days_are_those_of_the_schedules_zone() -> None:
    found = days_of([row("2026-11-20 16:00:00")], [], "CRON x", ZoneInfo("Asia/Tokyo"), NOW)
    assert told(found) == {"11-21": (1, 0, 0, 0)}
    later = datetime(2026, 11, 21, 16, tzinfo=UTC)
    assert days_of([], [], "CRON x", ZoneInfo("Asia/Tokyo"), later)[-1].day.day == 22


def test_a_tick_failed_whose_newest_run_did() -> None:
    ledger = [row("2026-11-19 02:30:00", "2026-11-20 02:30:00", 2)]
    runs = [
        ("2026-11-20 02:30:00.000", "manual", "fail"),
        ("2026-11-20 02:30:00.000", "retry", "success"),
        ("2026-11-20 02:30:00.000", "schedule", "fail"),
        ("2026-11-19 02:30:00.000", "retry", "timeout"),
        ("2026-11-19 02:30:00.000", "schedule", "fail"),
        ("2026-08-19 02:30:00.000", "schedule", "fail"),
    ]
    assert told(days_of(ledger, runs, DAILY, UTC, NOW)) == {"11-19": (0, 1, 0, 0), "11-20": (1, 0, 0, 0)}


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_very_many_are_spread_and_none_is_lost(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = NOW - timedelta(days=10)
    ticks = [
        timestamp(tick) for tick, _ in zip(next_ticks("CRON */5 * * * *", begin), range(2_500), strict=False)
    ]
    exact = days_of([row(tick) for tick in ticks], [], "CRON */5 * * * *", ZoneInfo(zone), NOW)
    given = [row(ticks[0], ticks[-1], len(ticks))]
    assert len(ticks) > days.TICKS_PLACED_MAX
    spread = days_of(given, [], "CRON */5 * * * *", ZoneInfo(zone), NOW)
    assert sum(day.ran for day in spread) == len(ticks)
    assert told(spread) == told(exact)
    assert [day.summary.partition(": ")[2][:5] for day in spread if day.total] == ["about"] * len(told(exact))
    monkeypatch.setattr(days, "TICKS_PLACED_MAX", 10_000)
    assert not any(day.about for day in days_of(given, [], "CRON */5 * * * *", ZoneInfo(zone), NOW))


def test_a_row_of_another_expression_is_spread() -> None:
    found = days_of([row("2026-11-19 00:00:00", "2026-11-20 23:00:00", 48)], [], DAILY, UTC, NOW)
    assert told(found) == {"11-19": (24, 0, 0, 0), "11-20": (24, 0, 0, 0)}
    assert found[-2].about


def test_a_bar_is_as_high_as_its_day_has_ticks() -> None:
    bars = bars_of([Day(NOW.date(), ran=3, failed=1), Day(NOW.date(), missed=2), Day(NOW.date())])
    assert [[part.kind for part in bar.parts] for bar in bars] == [["ran", "failed"], ["missed"], []]
    assert bars[0].parts[1].y == pytest.approx(15)
    assert bars[1].parts[0].height == pytest.approx((days.MONTH_HEIGHT - 20) / 2)
