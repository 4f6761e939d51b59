"""`bedrockjobs kept`: the commands it sends, and how retention is shown."""

from __future__ import annotations

import json

import pytest
from cli_fake import FakeServer, run, sent

from bedrockjobs.base.clock import DAY_S, days_text
from bedrockjobs.base.errors import NotFound

ONE = {
    "name": "mail/*",
    "kind": "runs",
    "seconds": 30 * DAY_S,
    "bytes": None,
    "most": None,
    "count": 50_000,
    "used": 400_123,
    "more": True,
    "oldest": "2026-10-23 03:00:00.120",
    "by": "ada",
    "since": "2026-11-20 10:00:00",
}


def test_what_is_kept_is_limited_and_freed(fake: FakeServer) -> None:
    done = run("kept", "set", "mail/*", "--runs-for", "30d", "--output-bytes", "100k", "--by", "ann")
    assert done.stdout == "Set the retention of mail/*.\n"
    assert sent(fake, "SetRetention") == [
        {"name": "mail/*", "runs": 30 * DAY_S, "outputBytes": 100_000, "by": "ann"}
    ]
    assert run("kept", "remove", "mail/*", "--by", "ann").stdout == "Removed the retention of mail/*.\n"
    assert sent(fake, "RemoveRetention") == [{"name": "mail/*", "by": "ann"}]
    fake.will("RemoveRetention", NotFound("No such limit"))
    assert run("kept", "remove", "mail/*").exit_code == 3
    assert run("kept", "set", "mail/*").exit_code == 2
    assert run("kept", "set", "mail/*", "--runs-for", "soon").exit_code == 2


def test_it_is_listed(fake: FakeServer) -> None:
    few = {**ONE, "name": "b", "seconds": None, "count": 7, "more": False}
    fake.will("ListRetention", {"kept": [ONE, few]}, {"kept": [ONE]})
    shown = run("kept", "list").stdout
    assert all(word in shown for word in ("mail/*", "30d", "50000+", "ada", "7"))
    assert "7+" not in shown
    assert json.loads(run("kept", "list", "-o", "json").stdout) == [ONE]


def test_long_times_are_days() -> None:
    assert [days_text(seconds) for seconds in (0, 60, 3_600, DAY_S, DAY_S + 60)] == [
        "0s",
        "1m",
        "1h",
        "1d",
        "24h1m",
    ]


@pytest.mark.parametrize(
    ("typed", "size"), [("0", 0), ("500", 500), ("20k", 20_000), ("10M", 10_000_000), ("2g", 2 * 10**9)]
)
def test_room_is_typed_in_bytes_or_more(fake: FakeServer, typed: str, size: int) -> None:
    assert run("kept", "set", "a", "--events-bytes", typed, "--ticks-bytes", typed).exit_code == 0
    (given,) = sent(fake, "SetRetention")
    assert (given["eventsBytes"], given["ticksBytes"]) == (size, size)


@pytest.mark.parametrize("typed", ["much", "-1", "1.5G", "10 MB"])
def test_what_is_no_room_is_refused(fake: FakeServer, typed: str) -> None:
    refused = run("kept", "set", "a", f"--runs-bytes={typed}")
    assert (refused.exit_code, "expected bytes, such as" in refused.stderr, fake.asked) == (2, True, [])
