"""The command line against a real server: servers, schedules, runs, workers, files."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from live_server import DEADLINE_S, Running, clean_environment, start, stop
from program import Program, asked, made, process_of

from tests.cli import warm

ROOT = Path(__file__).parents[2]


def test_backup_and_migrate_with_a_running_server(
    server: Running, bedrockjobs: Program, tmp_path: Path
) -> None:
    job_id = made(bedrockjobs, "kept", "--data", '{"a":2.50}')
    copy = tmp_path / "copy.db"
    backup = bedrockjobs("backup", str(copy), "--database", str(server.database))
    assert backup.returncode == 0, backup.stderr
    with closing(sqlite3.connect(copy)) as connection:
        row = connection.execute("SELECT name, data FROM jobs WHERE jobID = ?", (job_id,)).fetchone()
    assert row == ("kept", '{"a":2.50}')

    migrate = bedrockjobs("migrate", "--database", str(server.database))
    assert (migrate.returncode, f"pid {server.pid}" in migrate.stderr) == (4, True)

    restored = start(copy)
    try:
        again = bedrockjobs("job", "show", job_id, "-s", restored.address, "-o", "json")
        assert json.loads(again.stdout)["name"] == "kept"
    finally:
        assert stop(restored.process) == 0
    assert bedrockjobs("migrate", "--database", str(copy)).returncode == 0


def test_a_second_server_exits_69_and_names_the_first(server: Running) -> None:
    second = process_of("serve", "--port", "0", "--database", str(server.database))
    assert (second.returncode, second.stdout) == (69, "")
    assert f"pid {server.pid}" in second.stderr


def test_a_server_takes_its_settings_from_the_environment(bedrockjobs: Program, tmp_path: Path) -> None:
    running = start(tmp_path / "jobs.db", "--durability", "relaxed")
    try:
        assert json.loads(bedrockjobs("status", "-s", running.address, "-o", "json").stdout)[
            "durability"
        ] == ("relaxed")
    finally:
        assert stop(running.process) == 0
    refused = process_of("serve", BEDROCKJOBS_HOST="0.0.0.0", BEDROCKJOBS_PORT="0")
    assert (refused.returncode, "--insecure" in refused.stderr) == (2, True)


def test_hup_reloads_the_settings_file(bedrockjobs: Program, tmp_path: Path) -> None:
    file = tmp_path / "bedrockjobs.toml"
    file.write_text('[server]\nkeep_audit_s = "10d"\nquery_s = 2\n')
    running = start(tmp_path / "jobs.db", "--config", str(file), stderr=subprocess.PIPE)
    log = running.process.stderr
    assert log is not None

    def told(text: str) -> str:
        file.write_text(text)
        running.process.send_signal(signal.SIGHUP)
        while "settings" not in (line := log.readline()):
            assert line, "it has ended"
        return line.partition("settings")[2].strip()

    try:
        assert told('[server]\nkeep_audit_s = "20d"\nquery_s = 3\n') == (
            ": changed: keep_audit_s; different, but only after a restart: query_s"
        )
        shown = json.loads(bedrockjobs("kept", "list", "-s", running.address, "-o", "json").stdout)
        assert next(one["seconds"] for one in shown if one["kind"] == "audit") == 20 * 86_400
        assert log.readline().endswith("settings reloaded\n")
        refused = told("[server]\nprot = 1\nkeep_audit_s = true\n")
        assert refused.startswith("not reloaded, the previous ones stay in use: ")
        assert f"{file}:2: prot: " in refused
        assert f"; {file}:3: keep_audit_s: expected" in refused
    finally:
        assert stop(running.process) == 0


def test_a_schedule_by_its_name(bedrockjobs: Program) -> None:
    added = asked(bedrockjobs, "schedule", "add", "live/cron", "0 9 * * 1-5", "--zone", "Europe/Berlin")
    assert bedrockjobs("schedule", "add", "live/cron", "@daily").returncode == 4
    assert bedrockjobs("schedule", "add", "live/other", "61 * * * *").returncode == 2
    assert bedrockjobs("schedule", "update", "live/none", "@daily").returncode == 3
    asked(bedrockjobs, "schedule", "update", "live/cron", "30 9 * * *", "--retries", "2")
    [listed] = asked(bedrockjobs, "schedule", "list", "live/c*")
    assert (listed["jobID"], listed["repeat"]) == (added["jobID"], "CRON TZ=Europe/Berlin 30 9 * * *")
    page = asked(bedrockjobs, "schedule", "show", "live/cron")
    assert (page["job"]["retries"], page["runs"], len(page["next"])) == (2, [], 5)
    assert page["next"] == asked(bedrockjobs, "schedule", "next", "live/cron")["next"]

    assert bedrockjobs("schedule", "pause").returncode == 2
    assert bedrockjobs("schedule", "pause", "live/cron", "--reason", "disks", "--until", "2h").returncode == 0
    assert asked(bedrockjobs, "schedule", "list", "live/cron")[0]["paused"]
    assert "It is paused" in bedrockjobs("job", "explain", str(added["jobID"])).stdout
    assert bedrockjobs("schedule", "resume", "live/none").returncode == 3
    assert bedrockjobs("schedule", "resume", "live/cron").stdout == "Resumed live/cron.\n"
    assert bedrockjobs("schedule", "delete", "live/cron").returncode == 0
    assert bedrockjobs("schedule", "list", "live/c*").stderr == "No schedules.\n"


def test_a_run_is_followed_and_stopped(server: Running, bedrockjobs: Program) -> None:
    asked(bedrockjobs, "schedule", "add", "live/run", "@yearly")
    assert asked(bedrockjobs, "schedule", "trigger", "live/run")["pending"] is False
    taken = asked(bedrockjobs, "call", "GetJob", "name=live/run", "worker=hand")
    run_id, job_id = str(taken["runID"]), str(taken["jobID"])
    asked(bedrockjobs, "call", "AppendOutput", f"runID={run_id}", "seq=1", 'lines=["one","two"]')
    following = subprocess.Popen(
        [warm.program("bedrockjobs"), "run", "logs", run_id, "-f", "--exit-status", "-s", server.address],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "one\n"
    asked(bedrockjobs, "call", "AppendOutput", f"runID={run_id}", "seq=3", 'lines=["three"]')
    frame = bedrockjobs("top", "--once").stdout
    assert "live/run" in frame
    assert asked(bedrockjobs, "run", "terminate", run_id, "--reason", "enough")["signal"] == "TERM"
    asked(bedrockjobs, "call", "FailJob", f"jobID={job_id}", f"runID={run_id}", "error=stopped")
    guard = threading.Timer(DEADLINE_S, following.kill)
    guard.start()
    with following.stdout as rest:  # read as before: communicate() does not know what readline() has kept
        assert rest.read() == "two\nthree\n"
    guard.cancel()
    assert following.wait(DEADLINE_S) == 1
    assert asked(bedrockjobs, "run", "show", run_id)["status"] == "terminated"
    assert [each["runID"] for each in asked(bedrockjobs, "run", "list", "--name", "live/run")] == [
        int(run_id)
    ]
    kinds = [each["kind"] for each in asked(bedrockjobs, "events", "--name", "live/run")]
    assert kinds == ["triggered", "stop", "failed"]


def test_a_run_is_followed_until_it_is_returned(server: Running, bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "live/back")
    run_id = str(asked(bedrockjobs, "call", "GetJob", "name=live/back", "worker=hand")["runID"])
    asked(bedrockjobs, "call", "AppendOutput", f"runID={run_id}", "seq=1", 'lines=["one"]')
    following = subprocess.Popen(
        [warm.program("bedrockjobs"), "run", "logs", run_id, "-f", "-s", server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    guard = threading.Timer(DEADLINE_S, following.kill)
    guard.start()
    assert following.stdout is not None
    assert following.stderr is not None
    with following.stdout as lines, following.stderr as said:
        assert lines.readline() == "one\n"
        assert bedrockjobs("job", "retry", job_id, "--returned").returncode == 0
        assert said.read() == (f"Run {run_id} was returned: its job is queued as if it had not been taken.\n")
    guard.cancel()
    assert following.wait(DEADLINE_S) == 0


def test_doctor_reports_pauses(bedrockjobs: Program) -> None:
    assert bedrockjobs("schedule", "pause", "live/held", "--by", "ann", "--reason", "disks").returncode == 0
    assert bedrockjobs("schedule", "pause", "live/until", "--by", "ann", "--until", "2h").returncode == 0
    found = [each for each in asked(bedrockjobs, "doctor") if each["check"] == "paused"]
    assert [each["level"] for each in found] == ["warn", "warn"]
    assert found[0]["finding"].startswith("live/held has been paused by ann since 20")
    assert found[0]["finding"].endswith(" UTC: nothing waits; reason: disks")
    assert bedrockjobs("schedule", "resume", "--all", "--yes").returncode == 0
    (well,) = [each for each in asked(bedrockjobs, "doctor") if each["check"] == "paused"]
    assert well == {"check": "paused", "level": "ok", "finding": "nothing is paused", "advice": ""}


def test_a_worker_is_drained(bedrockjobs: Program) -> None:
    made(bedrockjobs, "live/drain")
    asked(bedrockjobs, "call", "Heartbeat", "worker=drained", "slots=1")
    taken = asked(bedrockjobs, "call", "GetJob", "name=live/drain", "worker=drained", "heartbeat=true")
    waiting = bedrockjobs("worker", "drain", "drained", "--wait", "--timeout", "0.1s")
    assert (waiting.returncode, waiting.stderr.splitlines()[0]) == (124, "1 run left")
    assert bedrockjobs("call", "FinishJob", f"jobID={taken['jobID']}").returncode == 0
    assert bedrockjobs("worker", "drain", "drained", "--wait").stdout == "Worker drained is drained.\n"
    assert bedrockjobs("worker", "quiet", "drained", "--undo").returncode == 0
    assert bedrockjobs("worker", "drain", "nobody").returncode == 3


def test_a_file_is_applied_and_pruned(bedrockjobs: Program, tmp_path: Path) -> None:
    asked(bedrockjobs, "schedule", "add", "live/hand", "@daily")
    file = tmp_path / "live.json"

    def defined(**schedules: Any) -> None:
        file.write_text(json.dumps({"source": "live", "schedules": schedules}), encoding="utf-8")

    defined(
        **{
            "live/a": {"schedule": "@daily", "retries": 1, "data": {"x": 1}, "paused": True},
            "live/b": {"schedule": "5m", "url": "https://example.org/"},
        }
    )
    applied = "Schedules of live: 2 added, 0 changed, 0 removed, 0 unchanged.\n"
    assert bedrockjobs("apply", str(file), "--yes").stdout == applied
    assert bedrockjobs("apply", str(file)).stdout == "Nothing to change: 2 schedules unchanged.\n"
    assert asked(bedrockjobs, "schedule", "list", "live/a")[0]["paused"]

    defined(**{"live/a": {"schedule": "@daily", "retries": 2}})
    shown = "~ live/a\n    retries: 1 -> 2\n- live/b\n0 schedules unchanged.\n"
    assert bedrockjobs("apply", str(file), "--dry-run").stdout == shown
    assert asked(bedrockjobs, "apply", str(file), "--yes")["removed"] == ["live/b"]
    names = bedrockjobs("schedule", "list", "live/*", "-o", "name").stdout.split()
    assert {"live/a", "live/hand"} <= set(names)
    assert "live/b" not in names

    defined(**{"live/hand": {"schedule": "@daily"}})
    refused = bedrockjobs("apply", str(file), "--yes")
    assert (refused.returncode, "live/hand" in refused.stderr) == (4, True)
    file.write_text("[", encoding="utf-8")
    assert bedrockjobs("apply", str(file)).returncode == 2


def test_a_crontab_is_imported(bedrockjobs: Program, tmp_path: Path) -> None:
    crontab, definitions = tmp_path / "crontab", tmp_path / "jobs.toml"
    crontab.write_text("*/5 * * * * live-import --all\n", encoding="utf-8")
    shown = bedrockjobs("import", "crontab", str(crontab), "--to", str(definitions))
    assert (shown.returncode, shown.stderr) == (0, f"Wrote {definitions}; `bedrockjobs apply` applies it.\n")
    assert asked(bedrockjobs, "apply", str(definitions), "-y")["added"] == ["live-import"]
    again = bedrockjobs("import", "crontab", str(crontab), "--apply", "--times", "0", "-o", "name")
    assert again.returncode == 0
    assert "live-import" in again.stdout
