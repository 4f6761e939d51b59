"""Formatting of values on pages: timestamps in sentences, names, errors, failures in a row."""

from __future__ import annotations

from typing import Any

import pytest

from bedrockjobs.base.errors import split_frames
from bedrockjobs.pages import formatting, overview
from bedrockjobs.pages.schedules import failed_in_a_row


@pytest.mark.parametrize(
    ("sentence", "moments"),
    [
        ("it is due at 2026-11-21 19:09:58.332", ["2026-11-21 19:09:58.332"]),
        (
            "a has been paused since 2026-11-21 19:09:58, until 2026-11-22 00:00:00: x",
            ["2026-11-21 19:09:58", "2026-11-22 00:00:00"],
        ),
        (
            "a has been paused since 2026-11-21 19:09:58: moved on 2026-11-20 10:00:00",
            ["2026-11-21 19:09:58"],
        ),
        ("until 2026-11-22 00:00:00 UTC", []),
        ("until 2026-11-22", []),
        ("", []),
    ],
)
def test_the_servers_timestamps_are_found_in_its_sentences(sentence: str, moments: list[str]) -> None:
    parts = formatting.moments(sentence)
    assert "".join(parts) == sentence
    assert parts[1::2] == moments


def test_a_long_name_loses_its_middle_but_not_its_text() -> None:
    whole = "a" * 44
    assert formatting.breakable(whole) == whole
    cut = formatting.breakable(f"<{whole}>")
    assert 'class="cut"' in cut
    assert f'title="&lt;{whole}&gt;"' in cut
    assert cut.striptags() == f"<{whole}>"
    assert f"<span>{whole[:11]}&gt;</span>" in cut


def hourly(**counts: int) -> list[int]:
    """Return the counts of 24 hours; h3 is the hour that ended three hours ago."""
    return [counts.get(f"h{ago}", 0) for ago in reversed(range(24))]


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (hourly(h0=1), "1 in 24 h, in the last hour"),
        (hourly(h23=2), "2 in 24 h, 23 to 24 h ago"),
        (hourly(h0=12, h1=1_200, h9=100), "1,312 in 24 h, most 1 to 2 h ago: 1,200"),
        (hourly(h4=7, h8=7), "14 in 24 h, most 4 to 5 h ago: 7"),
    ],
)
def test_a_sparkline_is_told_in_words(hours: list[int], words: str) -> None:
    assert formatting.spark_text(hours) == words


def test_a_sparkline_has_a_bar_for_each_hour_that_is_not_empty() -> None:
    assert formatting.spark(hourly(h23=1, h22=1_000, h0=500)) == "M0 20v-2h3V20M4 20v-20h3V20M92 20v-10h3V20"


def test_frames_of_libraries_are_split_from_the_others() -> None:
    own = '  File "/srv/a.py", line 1, in f\n    g()'
    library = '  File "/v/site-packages/b.py", line 2, in g\n    raise E'
    error = f"Traceback (most recent call last):\n{own}\n{library}\nE: no"
    parts = split_frames(error)
    assert [of_library for of_library, _ in parts] == [False, True, False]
    assert parts[1][1] == library
    assert "\n".join(lines for _, lines in parts) == error


def _tick(count: int, failed: int, outcome: str = "fired") -> dict[str, Any]:
    return {"count": count, "failed": failed, "outcome": outcome}


@pytest.mark.parametrize(
    ("rows", "statuses", "most"),
    [
        ([], [], 0),
        ([_tick(1, 0)], ["success"], 0),
        ([_tick(54, 54)], ["fail"] * 30, 54),
        ([_tick(1, 1), _tick(2, 0, "skipped"), _tick(3, 3), _tick(1, 0)], [], 4),
        ([_tick(30, 3)], ["running", "fail", "timeout", "fail", "success", "fail"], 3),
    ],
)
def test_failures_in_a_row_are_counted(rows: list[dict[str, Any]], statuses: list[str], most: int) -> None:
    runs = [
        {"ended": "" if status == "running" else "now", "status": status, "scheduledFor": str(number)}
        for number, status in enumerate(statuses)
    ]
    assert failed_in_a_row(rows, runs) == most


@pytest.mark.parametrize(
    ("names", "said"),
    [(("a", "b"), "2 names have no worker"), (("a", "b", ""), "More than 2 names have no worker")],
)
def test_a_row_of_several_problems_counts_no_more_than_it_knows(names: tuple[str, ...], said: str) -> None:
    """The problem without a name stands for the names beyond the limit."""
    notices = [overview.Notice("no worker", name, "problem", "…", "ui/queues", {}) for name in names]
    (need,) = overview._folded(notices)
    assert (need.title, need.notices) == (said, notices)
