"""Timestamps and durations as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime

import click
import pytest

from bedrockjobs.cli.output import (
    countdown_text,
    is_timestamp,
    local_text,
    moment_text,
    rough_text,
    took_text,
    zone_now,
)
from bedrockjobs.cli.parameters import bounds_of


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """Set another local time zone."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "timestamp", "text"),
    [
        ("UTC", "2026-11-23 08:00:00", "2026-11-23 08:00 UTC"),
        ("UTC", "2026-11-23 08:00:05.250", "2026-11-23 08:00:05 UTC"),
        ("Europe/Berlin", "2026-11-23 08:00:00", "2026-11-23 09:00 CET (08:00 UTC)"),
        ("Europe/Berlin", "2026-07-01 08:00:30", "2026-07-01 10:00:30 CEST (08:00:30 UTC)"),
        ("America/New_York", "2026-11-23 02:00:00", "2026-11-22 21:00 EST (2026-11-23 02:00 UTC)"),
        ("Asia/Tokyo", "9999-12-31 23:59:59", "never"),
        ("UTC", "", ""),
    ],
    indirect=["zone"],
)
def test_local_time_stands_before_utc(zone: str, timestamp: str, text: str) -> None:
    assert local_text(timestamp) == text


@pytest.mark.parametrize(
    ("then", "text"),
    [
        ("2026-11-21 12:00:00", "due"),
        ("2026-11-21 12:00:12", "in 12s"),
        ("2026-11-21 13:30:05", "in 1h30m"),
        ("2026-11-23 12:00:01", "in 2d"),
        ("2026-11-21 11:59:00", "due for 1m"),
        ("9999-12-31 23:59:59", "never"),
        ("", ""),
    ],
)
def test_a_countdown(then: str, text: str) -> None:
    assert countdown_text("2026-11-21 12:00:00", then) == text


def test_how_long_something_took() -> None:
    assert took_text("2026-11-21 12:00:00.250", "2026-11-21 12:00:01.500") == "1.2s"
    assert took_text("2026-11-21 12:00:00", "2026-11-21 13:30:00.400") == "1h30m"
    assert took_text("2026-11-21 12:00:00", "") == ""
    assert rough_text(93_784) == "1d2h"


@pytest.mark.parametrize(
    ("timestamp", "whole", "text"),
    [
        ("2026-11-23 11:57:00.250", False, "12:57:00 (2m ago)"),
        ("2026-11-23 11:57:00", True, "2026-11-23 12:57:00 (3m ago)"),
        ("2026-11-22 23:30:00", False, "00:30:00 (12h ago)"),
        ("2026-11-22 22:30:00", False, "2026-11-22 23:30:00 (13h ago)"),
        ("2026-11-25 12:00:00", False, "2026-11-25 13:00:00 (in 2d)"),
        ("2026-11-23 12:00:00", False, "13:00:00 (now)"),
        ("2026-07-01 08:00:00", False, "2026-07-01 10:00:00 CEST (145d ago)"),
        ("9999-12-31 23:59:59", False, "never"),
    ],
)
def test_a_moment_in_a_table(timestamp: str, whole: bool, text: str, berlin: None) -> None:
    """With the date unless it is today, and the zone if it differs from the present one."""
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert moment_text(timestamp, now, whole=whole) == text
    assert zone_now(now) == "CET"


def test_what_is_no_timestamp_is_none() -> None:
    assert is_timestamp("2026-11-23 11:57:00.250")
    assert not any(map(is_timestamp, ("", "2026-11-23", "soon", "2026-11-23T11:57:00Z")))


@pytest.mark.parametrize(
    ("zone", "day", "begin", "end"),
    [
        ("UTC", "today", "2026-11-23 00:00:00", "2026-11-24 00:00:00"),
        ("Asia/Tokyo", "yesterday", "2026-11-22 15:00:00", "2026-11-23 15:00:00"),
        ("Europe/Berlin", date(2026, 10, 25), "2026-10-24 22:00:00", "2026-10-25 23:00:00"),
        ("Europe/Berlin", date(2026, 3, 29), "2026-03-28 23:00:00", "2026-03-29 22:00:00"),
    ],
    indirect=["zone"],
)
def test_a_day_is_local_and_may_be_longer_or_shorter(
    zone: str, day: str | date, begin: str, end: str
) -> None:
    assert bounds_of(day, datetime(2026, 11, 23, 16, 0, tzinfo=UTC)) == (begin, end), zone


def test_the_last_day_of_all_has_no_end() -> None:
    with pytest.raises(click.UsageError, match="--on: expected today, yesterday, or a day"):
        bounds_of(date(9999, 12, 31), datetime(2026, 11, 23, tzinfo=UTC))
