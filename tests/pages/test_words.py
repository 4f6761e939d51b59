"""Formatting of values on pages: which parts of a sentence are timestamps."""

from __future__ import annotations

import pytest

from bedrockjobs.pages import formatting


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
