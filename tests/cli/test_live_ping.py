"""``bedrockjobs ping``: a crontab line between two pings, with and without a server."""

from __future__ import annotations

import json
import sys

from program import Program


def expecting(bedrockjobs: Program, name: str) -> str:
    """Create a schedule that expects pings; return its name."""
    options = ("--expect", "ping", "--ping-grace", "30m")
    added = bedrockjobs("schedule", "add", name, "0 3 * * *", *options)
    assert added.returncode == 0, added.stderr
    return name


def test_a_command_between_two_pings(bedrockjobs: Program) -> None:
    expected = expecting(bedrockjobs, "nas/backup")
    script = "import sys; print('copied'); print('disk full', file=sys.stderr); sys.exit(3)"
    done = bedrockjobs("ping", expected, "--", sys.executable, "-c", script)
    assert (done.returncode, done.stderr) == (3, "")
    assert sorted(done.stdout.split("\n")) == ["", "copied", "disk full"]
    (run,) = json.loads(bedrockjobs("run", "list", "--name", expected, "-o", "json").stdout)
    assert (run["status"], run["exitCode"], sorted(run["output"])) == ("fail", 3, ["copied", "disk full"])
    missing = bedrockjobs("ping", expected, "--", "there-is-no-such-program")
    assert missing.returncode == 127
    assert bedrockjobs("ping", expected, "--fail").stdout.endswith("of nas/backup has failed.\n")
    assert bedrockjobs("ping", expected).stdout.endswith("of nas/backup has succeeded.\n")
    runs = json.loads(bedrockjobs("run", "list", "--name", expected, "-o", "json").stdout)
    assert [one["exitCode"] for one in runs] == [None, None, 127, 3]
    url = bedrockjobs("schedule", "ping-url", expected).stdout
    assert "/ping/bjp_" in url


def test_a_killed_command_and_a_missing_server(bedrockjobs: Program) -> None:
    expected = expecting(bedrockjobs, "nas/other")
    script = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    assert bedrockjobs("ping", expected, "--", sys.executable, "-c", script).returncode == 143
    alone = bedrockjobs("-s", "127.0.0.1:1", "ping", expected, "--", "echo", "done all the same")
    assert (alone.returncode, alone.stdout) == (0, "done all the same\n")
    assert alone.stderr.count("cannot report nas/other") == 2
    assert bedrockjobs("ping", "nas/none").returncode == 3
    assert bedrockjobs("ping", "--start").returncode == 2
    assert bedrockjobs("ping").stdout.startswith("127.0.0.1:"), "without a name it is the server's own"
