"""The log: lines for people, and JSON lines with the same keys in each and no job's data."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bedrockjobs.observe import logs

log = logging.getLogger("bedrockjobs.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Return the stream of the log; restore the test run's log afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    yield io.StringIO()
    root.handlers = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the parsed lines of the log."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def broken(value: str) -> None:
    """Raise an error whose message contains a client's data."""
    raise ValueError(f"cannot read {value}")


def test_a_sentence_for_stdout_has_the_form_of_the_log() -> None:
    assert logs.sentence("text", "bedrockjobs.server", "it\nlistens") == "it\nlistens"
    found = json.loads(logs.sentence("json", "bedrockjobs.server", "it 100%s\nlistens"))
    assert tuple(found) == logs.KEYS
    assert (found["level"], found["source"]) == ("info", "bedrockjobs.server")
    assert found["event"] == "it 100%s\nlistens"


def test_text_is_a_moment_a_level_and_a_sentence(stream: io.StringIO) -> None:
    logs.configure("text", stream)
    log.info("stopping %s", "now")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO stopping now\n", stream.getvalue())


def test_json_has_the_same_keys_in_each_line(stream: io.StringIO) -> None:
    logs.configure("json", stream)
    log.warning("no room for %s bytes", 5)
    log.error('two\nlines, a "quote" and \ud800')
    first, second = lines(stream)
    assert tuple(first) == tuple(second) == logs.KEYS
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["ts"])
    assert (first["level"], first["source"]) == ("warning", "bedrockjobs.test")
    assert (first["event"], first["error"], first["stack"]) == ("no room for 5 bytes", "", [])
    assert second["event"].startswith("two\nlines")


def test_an_error_is_one_line_with_where_it_came_from_and_without_its_words(stream: io.StringIO) -> None:
    logs.configure("json", stream)
    try:
        broken("a secret")
    except ValueError:
        log.exception("a command failed")
    (line,) = lines(stream)
    assert line["error"] == "ValueError"
    assert [call.split(" ")[1] for call in line["stack"]] == [
        "test_an_error_is_one_line_with_where_it_came_from_and_without_its_words",
        "broken",
    ]
    assert re.match(r"test_logs\.py:\d+ ", line["stack"][0])
    assert "secret" not in stream.getvalue()


def test_an_error_of_a_library_is_named_with_its_module(stream: io.StringIO) -> None:
    logs.configure("json", stream)
    log.error("failed", exc_info=json.JSONDecodeError("no", "", 0))
    assert lines(stream)[0]["error"] == "json.decoder.JSONDecodeError"


def test_a_deep_stack_is_cut_on_the_outside(stream: io.StringIO) -> None:
    def down(depth: int) -> None:
        if depth:
            down(depth - 1)
        broken("")

    logs.configure("json", stream)
    try:
        down(40)
    except ValueError:
        log.exception("a command failed")
    (line,) = lines(stream)
    assert len(line["stack"]) == 20
    assert line["stack"][-1].endswith(" broken")


def test_what_is_below_info_is_not_written(stream: io.StringIO) -> None:
    logs.configure("json", stream)
    log.debug("too much")
    assert stream.getvalue() == ""


def test_configured_twice_writes_once(stream: io.StringIO) -> None:
    logs.configure("text", stream)
    logs.configure("json", stream)
    log.info("once")
    assert len(lines(stream)) == 1
