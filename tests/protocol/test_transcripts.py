"""Recorded sessions with Bedrock and their replies here, against a live server, whole and byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from bedrockjobs.base.clock import ManualClock
from tests.conftest import Serve
from tests.engines import sqlite_only
from tests.protocol.talk import Reply
from tests.protocol.transcript import FOLDER, compatibility, difference, play, read

TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))
ON_SQLITE = {
    "00-sample-session": sqlite_only("`SELECT *` shows PostgreSQL's additional columns"),
    "11-framing": sqlite_only("it uses `GLOB` in SQL"),
}
"""Transcripts with SQL of one engine."""
PLAYED = [
    pytest.param(path, marks=[mark] if (mark := ON_SQLITE.get(path.stem)) else [], id=path.stem)
    for path in TRANSCRIPTS
]


@pytest.mark.parametrize("dripping", [False, True], ids=["whole", "byte-by-byte"])
@pytest.mark.parametrize("path", PLAYED)
async def test_transcript(path: Path, dripping: bool, serve: Serve, clock: ManualClock) -> None:
    steps = read(path)
    live = await serve(clock, compatibility=compatibility(steps))
    await play(steps, live, dripping=dripping)


def test_every_part_of_the_recording_has_a_transcript() -> None:
    parts = {int(path.stem.split("-")[0]) for path in TRANSCRIPTS}
    assert parts >= set(range(13))


@pytest.mark.parametrize(
    ("expected", "same"),
    [
        (("200 OK", "Content-Length: {length}", "", '{"a":2.50,"t":"{time}"}'), True),
        (("200 OK", "Content-Length: {length}", "", '{"a":2.5,"t":"{time}"}'), False),
        (("200 OK", "Content-Length: {length}", "", '{"t":"{time}","a":2.50}'), False),
        (("200 OK", "Content-Length: {length}", "", '{"a":2.50,"t":"{time_ms}"}'), False),
        (("200 OK", "Content-Length: 3", "", '{"a":2.50,"t":"{any}"}'), False),
        (("200 Fine", "Content-Length: {length}", "", "{any}"), False),
        (("200 OK", "Content-Length: {length}", "", '{"a":2.50,"t":"{any}","b":1}'), False),
        (("200 OK", "", '{"a":2.50,"t":"{time}"}'), False),
    ],
)
def test_the_comparison_finds_differences(expected: tuple[str, ...], same: bool) -> None:
    body = '{"a":2.50,"t":"2026-11-21 03:29:56"}'
    reply = Reply("200 OK", (f"Content-Length: {len(body)}", "error: a hint"), body)
    assert (difference(expected, reply) is None) is same
