"""`bedrockjobs import`: old and new times side by side, what is refused, and what is written and sent."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from cli_fake import FakeServer, fake_server, run, sent

from bedrockjobs.cli.import_ import import_
from bedrockjobs.definitions import read
from tests.effort import crossed, examples

NOTHING = {"added": [], "changed": [], "removed": [], "unchanged": ["a"]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """Return a server that records its requests."""
    return fake_server(monkeypatch)


CRONKEN = json.dumps(
    {
        "report": {
            "cron_args": {"cronstring": "0 9 * * 0"},
            "job_args": {"cmd": "make", "lock": True, "ttl": 10},
        },
        "held": {
            "cron_args": {"minute": "*/5"},
            "job_args": {"cmd": "x", "lock": False, "ttl": 90},
            "job_state": {"paused": True},
        },
    }
)
BAD = "0 9 * * * good\n@reboot bad\n"
LUCI = 'job { id: "a b" schedule: "with 10s interval" url_fetch { url: "https://x" timeout_sec: 5 } }'
AFTER = ("--after", "2026-11-21 12:00:00")


def test_old_and_new_times_side_by_side(server: FakeServer, folder: Path) -> None:
    """With the differences and their reasons."""
    Path("jobs.json").write_text(CRONKEN)
    result = run("import", "cronken", "jobs.json", *AFTER, "--times", "2")
    assert result.exit_code == 0, result.stderr
    assert (
        result.stdout
        == """\
report (job 1, line 1)
  there: 0 9 * * 0
  here:  CRON 0 9 * * 0
  there (UTC)          here (UTC)
  2026-11-23 09:00:00  2026-11-22 09:00:00  differs
  2026-11-30 09:00:00  2026-11-29 09:00:00  differs
  warning: Cronken takes 0 for Monday and requires both day fields to match; read as crontab(5) does. \
--weekday-0 monday keeps the days on which it ran

held (job 2, line 1)
  there: {"minute": "*/5"}
  here:  CRON */5 * * * *
  there (UTC)          here (UTC)
  2026-11-21 12:05:00  2026-11-21 12:05:00
  2026-11-21 12:10:00  2026-11-21 12:10:00
  warning: it is paused in Cronken, and is added paused
"""
    )
    assert server.asked == []


def test_the_report_as_json(server: FakeServer, folder: Path) -> None:
    """The same content as JSON."""
    result = run(
        "import", "cronken", "-", "--weekday-0", "monday", *AFTER, "--times", "1", "-o", "json", stdin=CRONKEN
    )
    first = json.loads(result.stdout)[0]
    assert first == {
        "name": "report",
        "place": "job 1, line 1",
        "was": "0 9 * * 0",
        "repeat": "CRON 0 9 * * MON",
        "there": ["2026-11-23 09:00:00"],
        "here": ["2026-11-23 09:00:00"],
        "differs": False,
        "warnings": [],
        "refused": "",
    }


def test_what_is_written_can_be_applied(server: FakeServer, folder: Path) -> None:
    """Including comments, pauses and options; an existing file is replaced only on request."""
    Path("jobs.json").write_text(CRONKEN)
    arguments = ("import", "cronken", "jobs.json", "--zone", "Europe/Berlin", "--to", "new.toml")
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "Wrote new.toml" in result.stderr
    text = Path("new.toml").read_text()
    assert "# Cronken takes 0 for Monday" in text
    found = read(text, "toml", "new.toml")
    assert found.source == "jobs.json"
    assert [entry.given for entry in found.schedules] == [
        {"name": "report", "cmd": "make", "repeat": "CRON TZ=Europe/Berlin 0 9 * * 0"},
        {
            "name": "held",
            "cmd": "x",
            "lease": 90,
            "hosts": "all",
            "repeat": "CRON TZ=Europe/Berlin */5 * * * *",
        },
    ]
    assert [entry.paused for entry in found.schedules] == [False, True]
    assert "--force" in run(*arguments).stderr
    assert run(*arguments, "--force").exit_code == 0


def test_one_that_cannot_be_imported_holds_up_all(server: FakeServer, folder: Path) -> None:
    """Unless `--skip-bad` leaves it out."""
    Path("tab").write_text(BAD)
    result = run("import", "crontab", "tab", "--to", "new.toml", "--apply", "--yes")
    assert result.exit_code == 1
    assert "1 of 2 cannot be imported" in result.stderr
    assert "refused: @reboot has no time" in result.stdout
    assert not Path("new.toml").exists()
    assert server.asked == []
    result = run("import", "crontab", "tab", "--to", "new.toml", "--skip-bad")
    assert result.exit_code == 0
    assert [entry["name"] for entry in tomllib.loads(Path("new.toml").read_text())["schedules"]] == ["good"]


def test_a_column_of_users_is_seen_unless_denied(server: FakeServer, folder: Path) -> None:
    """It is detected by the path or by the users' names, and reported."""
    Path("cron.d").mkdir()
    Path("cron.d/app").write_text("17 * * * * deploy /opt/a b\n")
    Path("tab").write_text("17 * * * * root /opt/a b\n")
    for file, user in (("cron.d/app", "deploy"), ("tab", "root")):
        seen = run("import", "crontab", file, "--to", "new.toml", "--force")
        assert "The sixth column is read as users; --no-system" in seen.stderr
        assert f"warning: cron runs it as {user}" in seen.stdout
        assert tomllib.loads(Path("new.toml").read_text())["schedules"][0]["cmd"] == "/opt/a b"
        denied = run("import", "crontab", file, "--no-system", "--to", "new.toml", "--force")
        assert "column" not in denied.stderr
        assert tomllib.loads(Path("new.toml").read_text())["schedules"][0]["cmd"] == f"{user} /opt/a b"
    told = run("import", "crontab", "tab", "--system", "-o", "json")
    assert "column" not in told.stderr
    assert run("import", "crontab", "tab", "--system", "--cron", "supercronic").exit_code == 2


def test_each_cron_is_read_by_its_rule(server: FakeServer, folder: Path) -> None:
    """--cron names the implementation that ran the file."""
    Path("tab").write_text("*/5 * * * * * * beat\n")
    refused = run("import", "crontab", "tab")
    assert refused.exit_code == 1
    assert "--cron supercronic" in refused.stdout
    taken = json.loads(run("import", "crontab", "tab", "--cron", "supercronic", "-o", "json").stdout)
    assert [entry["repeat"] for entry in taken] == ["CRON */5 * * * * * *"]


def test_what_was_left_out_is_never_removed(server: FakeServer, folder: Path) -> None:
    """Neither by the import nor by the file that it writes, which lists what it lacks."""
    Path("tab").write_text(BAD)
    server.will("SyncSchedules", {**NOTHING, "added": ["good"]}, {**NOTHING, "added": ["good"]})
    result = run("import", "crontab", "tab", "--skip-bad", "--to", "new.toml", "--apply", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "Nothing was removed" in result.stderr
    assert [given["prune"] for given in sent(server, "SyncSchedules")] == [False, False]
    text = Path("new.toml").read_text()
    assert "# left out: bad (line 2): @reboot has no time" in text
    assert read(text, "toml", "new.toml").prune is False
    server.will("SyncSchedules", {**NOTHING, "unchanged": ["good"]})
    assert run("apply", "new.toml", "--yes").exit_code == 0
    assert sent(server, "SyncSchedules")[-1]["prune"] is False


def test_a_file_without_any_schedule_changes_nothing(server: FakeServer, folder: Path) -> None:
    """It may be the wrong file, and all schedules of the source would be removed."""
    Path("other").write_text("# nothing\n")
    for way in (("--apply", "--yes"), ("--to", "new.toml")):
        result = run("import", "crontab", "other", *way)
        assert result.exit_code == 1
        assert "other has no schedule of crontab. Nothing was written." in result.stderr
    assert server.asked == []
    assert not Path("new.toml").exists()


HOSTILE = {
    "lists": "[" * 50_000,
    "objects": "{" * 50_000,
    "blocks": "a {" * 50_000,
    "blanks": " " * examples(3_000_000, night=15_000_000),
}


@pytest.mark.parametrize(("kind", "text"), crossed(sorted(import_.commands), HOSTILE))
def test_no_import_ends_in_a_traceback(server: FakeServer, folder: Path, kind: str, text: str) -> None:
    """Input that is too deep or too long gives an error message."""
    Path("hostile").write_text(HOSTILE[text])
    result = run("import", kind, "hostile", "--apply", "--yes")
    assert result.exit_code in (1, 2)
    assert "Error: " in result.stderr
    assert server.asked == []


def test_import_applies(server: FakeServer, folder: Path) -> None:
    """Like apply, with its own source."""
    Path("jobs.json").write_text(CRONKEN)
    server.will("SyncSchedules", {**NOTHING, "added": ["held", "report"]}, {**NOTHING, "added": ["held"]})
    result = run("import", "cronken", "jobs.json", "--apply", "--yes", "--source", "old", "-o", "name")
    assert result.exit_code == 0, result.stderr
    assert [given["source"] for given in sent(server, "SyncSchedules")] == ["old", "old"]
    assert [given["name"] for given in sent(server, "PauseJobs")] == ["held"]


def test_a_loop_is_a_job_and_no_schedule(server: FakeServer, folder: Path) -> None:
    """It is created as a job; a comment in the file shows the command."""
    Path("luci.cfg").write_text(LUCI)
    server.will("SyncSchedules", {**NOTHING, "unchanged": []})
    server.will("CreateJob", {"jobID": 7})
    result = run("import", "luci", "luci.cfg", "--apply", "--yes", "--to", "new.toml")
    assert result.exit_code == 0, result.stderr
    assert "here:  FINISHED, +10 SECONDS" in result.stdout
    assert "Job 7 is a b" in result.stderr
    given = sent(server, "CreateJob")
    assert given == [
        {
            "name": "a b",
            "repeat": "FINISHED, +10 SECONDS",
            "unique": True,
            "url": {"url": "https://x", "timeout": 5},
        }
    ]
    text = Path("new.toml").read_text()
    assert read(text, "toml", "new.toml").schedules == []
    line = next(line for line in text.splitlines() if "CreateJob" in line)
    server.will("CreateJob", {"jobID": 7})
    assert run(*shlex.split(line.removeprefix("# "))[1:]).exit_code == 0
    assert sent(server, "CreateJob")[1] == given[0]


def test_what_no_definition_can_say_is_refused(server: FakeServer, folder: Path) -> None:
    """Such as names that are too long, or used twice."""
    lines = [f"castle-cron add {name} '@daily' x\n" for name in ("x" * 256, "a", "a")]
    Path("jobs.sh").write_text("".join(lines))
    result = run("import", "castle", "jobs.sh")
    assert result.exit_code == 1
    assert "refused: name: expected at most 255 characters" in result.stdout
    assert "a (line 3)\n  there: @daily\n  refused: line 2 and line 3 have one name" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "why"),
    [
        (("cronken", "-"), "[]", "JSON object of jobs"),
        (("castle", "-"), "castle-cron list", "line 1: expected Job structs"),
        (("kubernetes", "-"), "a: {{ b }}", "line 1"),
        (("luci", "-"), "job {", "line 1: expected }"),
        (("crontab", "missing"), "", "cannot read missing"),
        (("crontab", "-", "--zone", "Nowhere"), "", "--zone"),
        (("crontab", "-", "--after", "soon"), "", "--after"),
        (("crontab", "-", "--times", "101"), "", "--times"),
    ],
)
def test_imports_that_cannot_begin(
    server: FakeServer, folder: Path, arguments: tuple[str, ...], text: str, why: str
) -> None:
    """They are usage errors, with a message."""
    result = run("import", *arguments, stdin=text)
    assert result.exit_code == 2
    assert why in result.stderr


def test_the_other_readers(server: FakeServer, folder: Path) -> None:
    """Each reader has a subcommand with its own options."""
    crontab = run("import", "crontab", "-", "--system", "--zone", "Asia/Tokyo", stdin="0 9 * * * root x\n")
    assert "here:  CRON TZ=Asia/Tokyo 0 9 * * *" in crontab.stdout
    castle = run("import", "castle", "-", "--zone", "Asia/Tokyo", stdin="castle-cron add a '0 9 * * *' x")
    assert "here:  CRON TZ=Asia/Tokyo 0 9 * * *" in castle.stdout
    ftl = run("import", "ftl", "-", stdin="package a\n//ftl:cron Mon\nfunc B(ctx context.Context) error {\n")
    assert "a.b (line 2)\n  there: Mon\n  here:  CRON Mon\n" in ftl.stdout
    assert run("import", "ftl", "-", stdin="").stderr == "No schedules.\n"
