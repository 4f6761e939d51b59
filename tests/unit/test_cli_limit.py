"""`bedrockjobs limit`: the commands it sends, and how limits are shown."""

from __future__ import annotations

import json

from cli_fake import FakeServer, run, sent

from bedrockjobs.base.errors import NotFound

ONE = {
    "name": "mail/*",
    "queued": 3,
    "perSecond": 0,
    "running": 2,
    "perKey": False,
    "starts": "100/1m",
    "burst": 5,
    "fair": False,
    "runs": 1,
    "refused": 12,
    "lastRefused": "2026-11-21 03:29:56",
    "by": "ann",
    "since": "2026-11-21 03:00:00",
}


def test_a_limit_is_set_and_removed(fake: FakeServer) -> None:
    assert run("limit", "set", "mail/*", "--queued", "3", "--by", "ann").stdout == "Limited mail/*.\n"
    assert sent(fake, "SetLimit") == [{"name": "mail/*", "queued": 3, "by": "ann"}]
    run("limit", "set", "mail/*", "--running", "2", "--by", "ann")
    assert sent(fake, "SetLimit")[-1] == {"name": "mail/*", "running": 2, "by": "ann"}
    run("limit", "set", "mail/*", "--running", "2", "--per-key", "--by", "ann")
    assert sent(fake, "SetLimit")[-1] == {"name": "mail/*", "running": 2, "perKey": True, "by": "ann"}
    assert run("limit", "remove", "mail/*", "--by", "ann").stdout == "Removed the limit of mail/*.\n"
    assert sent(fake, "RemoveLimit") == [{"name": "mail/*", "by": "ann"}]
    fake.will("RemoveLimit", NotFound("No such limit"))
    assert run("limit", "remove", "mail/*").exit_code == 3
    many = run("limit", "set", "mail/*", "--queued", "many")
    assert (many.exit_code, "'many' is not a valid whole number." in many.stderr) == (2, True)
    run("limit", "set", "mail/*", "--fair", "--by", "ann")
    assert sent(fake, "SetLimit")[-1] == {"name": "mail/*", "fair": True, "by": "ann"}
    nothing = run("limit", "set", "mail/*")
    needed = "--queued, --per-second, --running, --starts or --fair"
    assert (nothing.exit_code, needed in nothing.stderr) == (2, True)


def test_limits_are_listed(fake: FakeServer) -> None:
    fake.will("ListLimits", {"limits": [ONE]}, {"limits": [ONE]}, {"limits": []})
    shown = run("limit", "list").stdout
    assert shown.split("\n", 1)[0].split()[1:10] == [
        *("queued", "perSecond", "running", "perKey", "runs", "starts", "burst", "fair", "refused")
    ]
    assert " ".join(shown.splitlines()[1].split()).startswith("mail/* 3 - 2 1 100/1m 5 12 "), (
        "no limit is not 0"
    )
    assert "ann" in shown
    assert json.loads(run("limit", "list", "-o", "json").stdout) == [ONE]
    none = run("limit", "list")
    assert "No limits: " in none.stdout + none.stderr
