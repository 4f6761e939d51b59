"""The worker's log: the beginning of a line, and its JSON format."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator

import pytest
from bedrock_worker.log import WorkerJSONRenderer, event

from bedrockjobs.observe.logs import TextLines


@pytest.fixture
def in_chicago(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the process have another time zone, as a module with Django's settings makes it."""
    monkeypatch.setenv("TZ", "America/Chicago")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_chicago")
def test_lines_have_their_moment_in_utc_whatever_the_time_zone() -> None:
    assert time.localtime(0).tm_hour == 18, "the zone is in force"
    ours = TextLines()
    for moment, shown in (
        (0.0, "1970-01-01T00:00:00.000Z"),
        (0.9994, "1970-01-01T00:00:00.999Z"),
        (1_700_000_000.25, "2023-11-14T22:13:20.250Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500Z"),
        (5.25, "1970-01-01T00:00:05.250Z"),
    ):
        for more, words in (({}, "100 %d of"), ({"args": (3,)}, "100 3 of")):
            given = {"msg": "100 %d of", "args": None, "levelname": "INFO", "created": moment}
            record = logging.makeLogRecord({**given, "msecs": moment % 1 * 1_000, **more})
            assert ours.format(record) == f"{shown} INFO {words}"


def test_an_event_is_one_line_whatever_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bedrock_worker")
    event(logging.INFO, "100 %d", job=1, left=None, name="a b", how='"%s"\n')
    event(logging.DEBUG, "not shown")
    assert caplog.messages == ['100 %d job=1 name="a b" how="\\"%s\\"\\\\n"']


@pytest.mark.usefixtures("in_chicago")
def test_an_event_as_json(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bedrock_worker")
    event(logging.ERROR, "ended", job=1, left=None, error="a\nb\udc80", how=ValueError("x"))
    logging.getLogger("bedrock_worker").warning("plain %s", "text")
    lines = [WorkerJSONRenderer().format(record) for record in caplog.records]
    assert all(len(line.splitlines()) == 1 for line in lines)
    first, second = map(json.loads, lines)
    assert first.pop("ts").endswith("Z")
    expected = {"level": "error", "source": "bedrock_worker", "event": "ended", "job": 1, "how": "x"}
    assert first == {**expected, "error": "a\nb\udc80"}
    assert (second["event"], second["level"]) == ("plain text", "warning")
