"""The worker's log: what a line begins with."""

from __future__ import annotations

import logging

import pytest
from bedrock_worker.log import LogFormatter, event


def test_lines_are_those_of_any_formatter() -> None:
    ours, any_other = LogFormatter(), logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    for moment in (0.0, 0.9994, 1_700_000_000.001, 1_700_000_000.5, 1_700_000_001.0, 5.25):
        for more in ({}, {"args": ("of %s",)}, {"exc_info": (ValueError, ValueError("x"), None)}):
            given = {"msg": "ready %s" if "args" in more else "100 %d of", "args": None, "levelname": "INFO"}
            given |= {"created": moment, "msecs": moment % 1 * 1_000, **more}
            record = logging.makeLogRecord(given)
            assert ours.format(record) == any_other.format(record)


def test_an_event_is_one_line_whatever_it_says(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "bedrock_worker")
    event(logging.INFO, "100 %d", job=1, left=None, name="a b", how='"%s"\n')
    event(logging.DEBUG, "not shown")
    assert caplog.messages == ['100 %d job=1 name="a b" how="\\"%s\\"\\\\n"']
