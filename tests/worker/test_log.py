"""The worker's log: what a line begins with."""

from __future__ import annotations

import logging

from bedrock_worker.log import LogFormatter


def test_times_are_those_of_any_formatter() -> None:
    ours, any_other = LogFormatter("%(asctime)s %(message)s"), logging.Formatter("%(asctime)s %(message)s")
    for moment in (0.0, 0.9994, 1_700_000_000.001, 1_700_000_000.5, 1_700_000_001.0, 5.25):
        record = logging.makeLogRecord({"msg": "ready", "created": moment, "msecs": moment % 1 * 1_000})
        assert ours.format(record) == any_other.format(record)
