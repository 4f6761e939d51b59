"""Clock changes: Debian's rule, by cases, by brute force and against cronsim.

A schedule with fixed minutes and hours fires once, right after a gap that holds its time, and once in a
repeated stretch; one with ``*`` in minute or hour follows real time.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from bedrockjobs.schedule.cron import BadSchedule, next_tick, parse, split_zone
from tests.effort import examples

BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"
APIA = "Pacific/Apia"

CHANGES = {
    BERLIN: ("2024-03-31", "2024-10-27"),
    NEW_YORK: ("2024-03-10", "2024-11-03"),
    LORD_HOWE: ("2024-10-06", "2024-04-07"),
    APIA: ("2011-12-30", "2011-04-02"),
    "America/Sao_Paulo": ("2018-11-04", "2018-02-18"),
    "Africa/Cairo": ("2024-04-26", "2024-10-31"),
    "Antarctica/Troll": ("2024-03-31", "2024-10-27"),
    "Europe/Dublin": ("2024-03-31", "2024-10-27"),
}


def ticks(text: str, zone: str, start: str, count: int) -> list[str]:
    """Return the next local times from a local time on, with their offset."""
    found, at = [], datetime.fromisoformat(start).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    for _ in range(count):
        tick = next_tick(text, at, zone)
        assert tick is not None
        found.append(tick.astimezone(ZoneInfo(zone)).strftime("%d %H:%M %z"))
        at = tick
    return found


@pytest.mark.parametrize(
    ("text", "zone", "start", "expected"),
    [
        # Berlin, forward: 02:00 to 03:00 does not exist on 31 March 2024.
        ("30 2 * * *", BERLIN, "2024-03-30 12:00", ["31 03:00 +0200", "01 02:30 +0200"]),
        ("0 2,3 * * *", BERLIN, "2024-03-30 12:00", ["31 03:00 +0200", "01 02:00 +0200"]),
        ("10,50 2 * * *", BERLIN, "2024-03-31 00:00", ["31 03:00 +0200", "01 02:10 +0200"]),
        ("30 2,3 * * *", BERLIN, "2024-03-31 00:00", ["31 03:00 +0200", "31 03:30 +0200"]),
        ("*/10 30 2 * * *", BERLIN, "2024-03-31 00:00", ["31 03:00 +0200", "01 02:30 +0200"]),
        ("30 2 31 3 *", BERLIN, "2024-03-31 00:00", ["31 03:00 +0200", "31 02:30 +0200"]),
        ("*/30 2 * * *", BERLIN, "2024-03-30 12:00", ["01 02:00 +0200", "01 02:30 +0200"]),
        ("30 */2 * * *", BERLIN, "2024-03-31 00:00", ["31 00:30 +0100", "31 04:30 +0200"]),
        ("@hourly", BERLIN, "2024-03-31 00:30", ["31 01:00 +0100", "31 03:00 +0200"]),
        # Berlin, back: 02:00 to 03:00 happens twice on 27 October 2024.
        ("30 2 * * *", BERLIN, "2024-10-26 12:00", ["27 02:30 +0200", "28 02:30 +0100"]),
        ("0 0-23 * * *", BERLIN, "2024-10-27 00:30", ["27 01:00 +0200", "27 02:00 +0200", "27 03:00 +0100"]),
        ("0 * * * *", BERLIN, "2024-10-27 01:30", ["27 02:00 +0200", "27 02:00 +0100", "27 03:00 +0100"]),
        ("*/30 2 * * *", BERLIN, "2024-10-27 02:15", ["27 02:30 +0200", "27 02:00 +0100", "27 02:30 +0100"]),
        ("30 */2 * * *", BERLIN, "2024-10-27 01:00", ["27 02:30 +0200", "27 02:30 +0100", "27 04:30 +0100"]),
        ("*/20 30 2 * * *", BERLIN, "2024-10-27 02:31", ["28 02:30 +0100"]),
        ("30m", BERLIN, "2024-10-27 02:15", ["27 02:30 +0200", "27 02:00 +0100", "27 02:30 +0100"]),
        # New York: 02:00 to 03:00 is skipped, 01:00 to 02:00 repeated.
        ("5 2 * * *", NEW_YORK, "2024-03-10 00:00", ["10 03:00 -0400", "11 02:05 -0400"]),
        ("59 1 * * *", NEW_YORK, "2024-03-10 00:00", ["10 01:59 -0500", "11 01:59 -0400"]),
        ("0 3 * * *", NEW_YORK, "2024-03-10 00:00", ["10 03:00 -0400", "11 03:00 -0400"]),
        ("15 1 * * *", NEW_YORK, "2024-11-03 00:00", ["03 01:15 -0400", "04 01:15 -0500"]),
        ("0 2 * * *", NEW_YORK, "2024-11-03 00:00", ["03 02:00 -0500", "04 02:00 -0500"]),
        ("@daily", NEW_YORK, "2024-11-02 12:00", ["03 00:00 -0400", "04 00:00 -0500"]),
        # Lord Howe changes by half an hour: 02:00 to 02:30 is skipped, 01:30 to 02:00 repeated.
        ("15 2 * * *", LORD_HOWE, "2024-10-05 12:00", ["06 02:30 +1100", "07 02:15 +1100"]),
        ("45 2 * * *", LORD_HOWE, "2024-10-05 12:00", ["06 02:45 +1100", "07 02:45 +1100"]),
        (
            "*/15 2 * * *",
            LORD_HOWE,
            "2024-10-06 00:00",
            ["06 02:30 +1100", "06 02:45 +1100", "07 02:00 +1100"],
        ),
        ("* 7 * * *", LORD_HOWE, "2024-10-05 12:00", ["06 07:00 +1100", "06 07:01 +1100"]),
        ("45 1 * * *", LORD_HOWE, "2024-04-06 12:00", ["07 01:45 +1100", "08 01:45 +1030"]),
        ("45 * * * *", LORD_HOWE, "2024-04-07 01:00", ["07 01:45 +1100", "07 01:45 +1030", "07 02:45 +1030"]),
        # Apia had no 30 December 2011, a Friday: a fixed time of that day fires when the 31st begins.
        ("0 9 * * *", APIA, "2011-12-29 00:00", ["29 09:00 -1000", "31 00:00 +1400", "31 09:00 +1400"]),
        ("0 9 * * 5", APIA, "2011-12-28 00:00", ["31 00:00 +1400", "06 09:00 +1400"]),
        ("0 9 * * sat", APIA, "2011-12-28 00:00", ["31 09:00 +1400", "07 09:00 +1400"]),
        ("0 */12 * * *", APIA, "2011-12-29 09:00", ["29 12:00 -1000", "31 00:00 +1400"]),
        ("* * 30 12 *", APIA, "2011-12-29 09:00", ["30 00:00 +1400"]),
        # Sao Paulo's gap began at midnight.
        ("@daily", "America/Sao_Paulo", "2018-11-03 12:00", ["04 01:00 -0200", "05 00:00 -0200"]),
    ],
)
def test_change_of_the_clock(text: str, zone: str, start: str, expected: list[str]) -> None:
    assert ticks(text, zone, start, len(expected)) == expected


def _expression(rng: random.Random) -> str:
    minute = rng.choice(("*", "*/5", "*/20", "0", "7", "0,30", "10-50/20", "59", "0-59"))
    hour = rng.choice(("*", "*/2", "*/3", "0", "1", "2", "3", "1-3", "0-23", "0,2,12", "1/2", "23"))
    return (
        f"{minute} {hour} {rng.choice(('*', '*', '30', '31', '1-7'))} * {rng.choice(('*', '*', '0', '5,6'))}"
    )


def _brute_force(text: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Step through real time minute by minute; then move fixed times out of gaps and repetitions."""
    local = ZoneInfo(zone)
    schedule = parse(text)
    found = set()
    at = start
    while at < end:
        wall = at.astimezone(local).replace(tzinfo=None)
        if (wall.fold == 0 or schedule.wild) and schedule.first_from(wall.replace(fold=0)) == wall.replace(
            fold=0
        ):
            found.add(at)
        skipped = wall.replace(fold=0) - (at - timedelta(minutes=1)).astimezone(local).replace(
            tzinfo=None, fold=0
        )
        if skipped > timedelta(minutes=1) and not schedule.wild:
            gap_start = wall.replace(fold=0) - skipped + timedelta(minutes=1)
            in_gap = schedule.first_from(gap_start)
            if in_gap is not None and in_gap < wall.replace(fold=0):
                found.add(at)
        at += timedelta(minutes=1)
    return sorted(found)


@pytest.mark.parametrize("zone", CHANGES)
def test_every_tick_around_a_change_by_brute_force(zone: str) -> None:
    rng = random.Random(zone)
    for day in CHANGES[zone]:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(hours=30)
        end = start + timedelta(hours=66)
        for _ in range(examples(1, night=8)):
            text = _expression(rng)
            expected = _brute_force(text, zone, start, end)
            found, at = [], start - timedelta(seconds=1)
            while (tick := next_tick(text, at, zone)) and tick < end:
                assert tick > at
                found.append(tick)
                at = tick
            assert found == expected, (text, zone)
            # From any moment, also the second pass of a repeated hour, the next is the first one after it.
            for _ in range(20):
                at = start + timedelta(seconds=rng.randrange(60 * 3600), microseconds=rng.choice((0, 1)))
                later = [tick for tick in expected if tick > at]
                if later:
                    assert next_tick(text, at, zone) == later[0], (text, zone, at)


def test_fixed_times_against_cronsim() -> None:
    """cronsim knows Debian's rule for five fields; asked from a repeated hour it forgets the pass."""
    rng = random.Random(11)
    asked = 0
    while asked < examples(150, night=3_000):
        zone = rng.choice(list(CHANGES))
        local = ZoneInfo(zone)
        text = f"{rng.randrange(60)},{rng.randrange(60)} {rng.randrange(4)}-{rng.randrange(4, 24)} * * *"
        day = datetime.fromisoformat(rng.choice(CHANGES[zone])).replace(tzinfo=UTC)
        after = (day + timedelta(minutes=rng.randrange(-1440, 2880))).astimezone(local)
        if after.replace(fold=0).utcoffset() != after.replace(fold=1).utcoffset():
            continue
        asked += 1
        theirs = next(CronSim(text, after)).astimezone(UTC)
        assert next_tick(text, after, zone) == theirs, (text, zone, str(after))


def test_an_answer_is_in_utc_and_later_than_asked_in_both_passes() -> None:
    at = datetime(2024, 10, 26, 22, tzinfo=UTC)
    found = []
    for _ in range(20):
        tick = next_tick("*/15 * * * *", at, BERLIN)
        assert tick is not None
        assert tick.tzinfo is UTC
        found.append(tick - at)
        at = tick
    assert set(found) == {timedelta(minutes=15)}


@pytest.mark.parametrize(
    "zone", ["Nowhere/Land", "", "Europe", "../etc/passwd", "Europe/Berlin\0", "x" * 100]
)
def test_a_zone_that_does_not_exist(zone: str) -> None:
    with pytest.raises(BadSchedule, match="the name of a time zone such as Europe/Berlin") as caught:
        next_tick("* * * * *", datetime(2024, 1, 1, tzinfo=UTC), zone)
    assert (caught.value.field, caught.value.value) == ("zone", zone)


def test_a_zone_has_a_longest_name() -> None:
    with pytest.raises(BadSchedule, match=r"^zone .*: expected at most 100 characters"):
        split_zone("CRON TZ=" + "a/" * 1_000 + " 0 9 * * *")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CRON TZ=Europe/Berlin 0 9 * * 1-5", ("Europe/Berlin", "0 9 * * 1-5")),
        ("CRON 0 9 * * 1-5", ("UTC", "0 9 * * 1-5")),
        ("  cron   tz=Asia/Tokyo   @daily ", ("Asia/Tokyo", "@daily")),
        ("CRON_TZ=America/New_York 5m", ("America/New_York", "5m")),
        ("0 9 * * *", ("UTC", "0 9 * * *")),
        ("CRON", ("UTC", "")),
    ],
)
def test_split_zone(text: str, expected: tuple[str, str]) -> None:
    assert split_zone(text) == expected


@pytest.mark.parametrize("text", ["CRON TZ= 0 9 * * *", "CRON TZ=Mars/Base 0 9 * * *"])
def test_split_zone_refuses_an_unknown_zone(text: str) -> None:
    with pytest.raises(BadSchedule, match=r"^zone "):
        split_zone(text)
