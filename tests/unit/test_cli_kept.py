"""`bedrockjobs kept`: what is sent, and how what is kept is shown."""

from __future__ import annotations

import json

from cli_fake import FakeServer, run, sent

from bedrockjobs.base.duration import DAY_S, days_text
from bedrockjobs.base.errors import NotFound

ONE = {
    "name": "mail/*", "kind": "runs", "seconds": 30 * DAY_S, "bytes": None, "most": None, "count": 50_000,
    "used": 400_123, "more": True, "oldest": "2026-10-23 03:00:00.120", "by": "ada",
    "since": "2026-11-20 10:00:00",
}  # fmt: skip


def test_what_is_kept_is_limited_and_freed(fake: FakeServer) -> None:
    done = run("kept", "set", "mail/*", "--runs-for", "30d", "--output-bytes", "100000", "--by", "ann")
    assert done.stdout == "Limited what is kept of mail/*.\n"
    assert sent(fake, "SetRetention") == [
        {"name": "mail/*", "runs": 30 * DAY_S, "outputBytes": 100_000, "by": "ann"}
    ]
    assert run("kept", "remove", "mail/*", "--by", "ann").stdout == "mail/* has no such limit any more.\n"
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
        "0s", "1m", "1h", "1d", "24h1m"
    ]  # fmt: skip
