"""The command line as its users have it, against a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from live_server import BEDROCKJOBS, DEADLINE_S, Running, clean_environment, start, stop
from ruamel.yaml import YAML

from bedrockjobs.cli import main

ROOT = Path(__file__).parents[2]


class Completed(NamedTuple):
    """How a run of the program ended."""

    returncode: int
    stdout: str
    stderr: str


Program = Callable[..., Completed]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server for the tests of a module; it must end well."""
    running = start(tmp_path_factory.mktemp("server") / "jobs.db")
    yield running
    assert stop(running.process) == 0


@pytest.fixture
def bedrockjobs(server: Running, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Run `bedrockjobs` against the module's server, in this process: a process for each takes long."""
    for name in [name for name in os.environ if name.startswith("BEDROCKJOBS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("BEDROCKJOBS_SERVER", server.address)

    def run(*arguments: str, stdin: str = "") -> Completed:
        result = CliRunner().invoke(main, arguments, input=stdin, prog_name="bedrockjobs")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Completed(result.exit_code, result.stdout, result.stderr)

    return run


def process_of(*arguments: str, **environment: str) -> Completed:
    """Run `bedrockjobs` as a process of its own."""
    done = subprocess.run(
        [*BEDROCKJOBS, *arguments],
        capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=clean_environment(**environment),
    )  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr)


def made(bedrockjobs: Program, *arguments: str) -> str:
    """Create a job and return its jobID."""
    result = bedrockjobs("job", "create", *arguments, "-o", "name")
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def shown(bedrockjobs: Program, job_id: str) -> dict[str, Any]:
    """Return what `job show` says of a job."""
    result = bedrockjobs("job", "show", job_id, "-o", "json")
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_the_life_of_a_job(bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "life/one", "--data", '{"value":1.50}', "--repeat", "FINISHED, +1 HOUR")
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"

    taken = bedrockjobs("job", "get", "life/*", "-o", "jsonl")
    assert (taken.returncode, json.loads(taken.stdout)["jobID"]) == (0, int(job_id))
    assert '"data":{"value":1.50}' in taken.stdout, "numbers keep their spelling all the way"
    assert shown(bedrockjobs, job_id)["state"] == "RUNNING"

    assert bedrockjobs("job", "update", job_id, "--data", "-", stdin='{"value":2}').returncode == 0
    assert bedrockjobs("job", "finish", job_id).stdout == f"Finished job {job_id}.\n"
    job = shown(bedrockjobs, job_id)
    assert (job["state"], job["data"]) == ("QUEUED", {"value": 2})
    assert job["nextRun"] > job["lastRun"]

    assert bedrockjobs("job", "delete", job_id).stdout == f"Deleted job {job_id}.\n"
    gone = bedrockjobs("job", "show", job_id)
    assert (gone.returncode, gone.stdout) == (3, "")
    assert gone.stderr.startswith("Error: 404 ")


def test_retry_fail_and_revive(bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "retry")
    assert bedrockjobs("job", "retry", job_id).returncode == 4, "it is not running"
    bedrockjobs("job", "get", "retry")
    assert bedrockjobs("job", "delete", job_id).returncode == 4
    assert bedrockjobs("job", "retry", job_id, "--delay", "1h30m").returncode == 0
    assert bedrockjobs("job", "get", "retry").returncode == 3, "not due for 90 minutes"

    bedrockjobs("job", "update", job_id, "--next-run", "2020-01-01")
    bedrockjobs("job", "get", "retry")
    assert bedrockjobs("job", "fail", job_id, "--error", "no luck").returncode == 0
    assert shown(bedrockjobs, job_id)["state"] == "FAILED"
    assert bedrockjobs("job", "retry", job_id, "--revive").returncode == 0
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"


def test_what_the_alert_of_failed_jobs_tells_to_do_is_not_refused(bedrockjobs: Program) -> None:
    alerts = YAML(typ="safe").load(ROOT / "deploy/prometheus/alerts.yaml")
    rules = {rule["alert"]: rule for rule in alerts["groups"][0]["rules"]}
    action = rules["BedrockjobsFailedJobsGrow"]["annotations"]["action"]
    look, *each = [line.split()[1:] for line in re.findall("`([^`]*)`", action)]
    assert len(each) == 2
    for words in each:
        job_id = made(bedrockjobs, "alerted")
        bedrockjobs("job", "get", "alerted")
        bedrockjobs("job", "fail", job_id)
        assert job_id in bedrockjobs(*look, "-o", "name").stdout.split()
        done = bedrockjobs(*(job_id if word == "JOBID" else word for word in words))
        assert (done.returncode, done.stderr) == (0, "")
        assert job_id not in bedrockjobs(*look, "-o", "name").stdout.split()
        bedrockjobs("job", "delete", job_id)


def test_cancel_a_child_and_what_is_none(bedrockjobs: Program) -> None:
    parent = made(bedrockjobs, "family")
    plain = bedrockjobs("job", "cancel", parent)
    assert plain.returncode == 3
    assert f"`bedrockjobs job delete {parent}`" in plain.stderr
    assert shown(bedrockjobs, parent)["state"] == "QUEUED"

    bedrockjobs("job", "get", "family")
    child = made(bedrockjobs, "family/child", "--parent", parent)
    bedrockjobs("job", "finish", parent)
    assert bedrockjobs("job", "cancel", child).returncode == 0
    assert shown(bedrockjobs, child)["state"] == "CANCELLED"
    assert shown(bedrockjobs, parent)["state"] == "QUEUED"

    other = made(bedrockjobs, "family/other")
    assert bedrockjobs("job", "cancel", other, "--delete").stdout == f"Deleted job {other}.\n"
    assert bedrockjobs("job", "show", other).returncode == 3


def test_a_wait_ends_with_a_job_or_with_124(server: Running, bedrockjobs: Program) -> None:
    late = bedrockjobs("job", "get", "nobody makes this", "--wait", "0.2")
    assert (late.returncode, late.stdout) == (124, "")

    waiting = subprocess.Popen(
        [*BEDROCKJOBS, "job", "get", "awaited", "--wait", "-s", server.address, "-o", "name"],
        stdout=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    until_waiting(bedrockjobs)
    job_id = made(bedrockjobs, "awaited")
    out, _ = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, out.strip()) == (0, job_id)


def test_an_interrupted_wait_takes_nothing(server: Running, bedrockjobs: Program) -> None:
    waiting = subprocess.Popen(
        [*BEDROCKJOBS, "job", "get", "interrupted", "--wait", "-s", server.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    until_waiting(bedrockjobs)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, out, err) == (130, "", "Interrupted.\n")
    job_id = made(bedrockjobs, "interrupted")
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"


def until_waiting(bedrockjobs: Program) -> None:
    """Return when the server has a waiting GetJob; each look is a round trip."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if json.loads(bedrockjobs("status", "-o", "json").stdout)["waiting"]:
            return
    raise AssertionError("expected a waiting GetJob")


def test_lists_and_queries(bedrockjobs: Program) -> None:
    ids = [made(bedrockjobs, f"list/{at}", "--priority", "250") for at in range(3)]
    names = bedrockjobs("job", "list", "--name", "list/*", "-o", "name")
    assert names.stdout.split() == ids
    first = bedrockjobs("job", "list", "--name", "list/*", "--limit", "2", "-o", "name")
    assert (first.stdout.split(), first.stderr) == (ids[:2], f"There may be more: --after {ids[1]}\n")
    rest = bedrockjobs(
        "job", "list", "--name", "list/*", "--after", ids[1], "--state", "queued", "-o", "name"
    )
    assert rest.stdout.split() == ids[2:]
    table = bedrockjobs("job", "list", "--name", "list/*").stdout.splitlines()
    assert [line.split()[:4] for line in table[1:]] == [
        [job_id, "QUEUED", f"list/{at}", "250"] for at, job_id in enumerate(ids)
    ]

    query = "select name, data from jobs where name glob 'list/*' order by jobID limit 1"
    assert json.loads(bedrockjobs("query", query, "-o", "json").stdout) == [{"name": "list/0", "data": {}}]
    refused = bedrockjobs("query", "delete from jobs")
    assert refused.returncode in (1, 2)
    assert refused.stderr.startswith("Error: ")
    assert bedrockjobs("job", "delete", *ids).returncode == 0


def test_call_is_every_command(bedrockjobs: Program, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.json"
    jobs.write_text('[{"name":"call/a"},{"name":"call/b"}]', encoding="utf-8")
    ids = bedrockjobs("call", "createjobs", f"jobs=@{jobs}", "-o", "jsonl").stdout.splitlines()
    assert [list(json.loads(line)) for line in ids] == [["jobIDs"], ["jobIDs"]]
    taken = bedrockjobs("call", "GetJobs", "name=call/*", "NUMRESULTS=5", "-o", "name")
    assert len(taken.stdout.split()) == 2
    done = json.dumps([{"jobID": int(job_id)} for job_id in taken.stdout.split()])
    finished = bedrockjobs("call", "FinishJobs", "jobs=@-", "-o", "jsonl", stdin=done)
    assert [json.loads(line)["code"] for line in finished.stdout.splitlines()] == [200, 200]
    text = bedrockjobs("call", "Query", "query=select 1 as one;", "format=text")
    assert "one" in text.stdout
    assert bedrockjobs("call", "Ping").stdout == "OK\n"
    assert bedrockjobs("call", "GetJob", "name=nothing").returncode == 3
    assert "CreateJob" in bedrockjobs("call", "Help").stdout


def test_ping_and_status(server: Running, bedrockjobs: Program) -> None:
    assert bedrockjobs("ping").stdout.startswith(f"{server.address} answered in ")
    status = json.loads(bedrockjobs("status", "-o", "json").stdout)
    assert (status["pid"], status["durability"]) == (server.process.pid, "full")


def test_nobody_there_is_69(bedrockjobs: Program) -> None:
    result = bedrockjobs("ping", "-s", "127.0.0.1:1")
    assert (result.returncode, result.stdout) == (69, "")
    assert "cannot connect to 127.0.0.1:1" in result.stderr


def test_a_terminal_has_colours_and_a_pipe_has_none(server: Running, bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "terminal")
    environment = clean_environment(TERM="xterm-256color", COLUMNS="100")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    assert "\x1b[" in on_terminal(["job", "show", job_id, "-s", server.address], environment)
    plain = on_terminal(["job", "show", job_id, "-s", server.address], {**environment, "NO_COLOR": "1"})
    assert "QUEUED" in plain
    assert "\x1b[3" not in plain
    assert "\x1b" not in bedrockjobs("job", "show", job_id).stdout


def test_output_on_a_terminal_has_its_colours_and_steers_nothing(
    server: Running, bedrockjobs: Program
) -> None:
    made(bedrockjobs, "coloured")
    run_id = str(asked(bedrockjobs, "call", "GetJob", "name=coloured", "worker=hand")["runID"])
    lines = json.dumps(["\x1b[32mgreen\x1b[2J\rx", {"line": "plain", "stream": "err"}])
    asked(bedrockjobs, "call", "AppendOutput", f"runID={run_id}", "seq=1", f"lines={lines}")
    environment = clean_environment(TERM="xterm-256color")
    environment.pop("NO_COLOR", None)
    arguments = ["run", "logs", run_id, "-s", server.address]
    assert on_terminal(arguments, environment).splitlines() == [
        "\x1b[32mgreen\\u001b[2J\\u000dx\x1b[0m", "\x1b[31mplain\x1b[0m",
    ]  # fmt: skip
    plain = on_terminal(arguments, {**environment, "NO_COLOR": "1"}).splitlines()
    assert plain == ["green\\u001b[2J\\u000dx", "plain"]
    assert bedrockjobs("run", "logs", run_id).stdout == "\x1b[32mgreen\x1b[2J\rx\nplain\n", "a pipe"


def on_terminal(arguments: list[str], environment: dict[str, str]) -> str:
    """Run the program with a terminal as its stdout and return what the terminal got."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*BEDROCKJOBS, *arguments], stdout=theirs, env=environment)
    os.close(theirs)
    pieces: list[bytes] = []
    with open(ours, "rb", buffering=0) as screen:  # noqa: PTH123  a descriptor, no path
        while True:
            try:
                piece = screen.read(65_536)
            except OSError:  # the other side was closed
                break
            if not piece:
                break
            pieces.append(piece)
    assert process.wait(DEADLINE_S) == 0
    return b"".join(pieces).decode()


def test_a_reader_that_leaves_early_is_no_failure(server: Running, bedrockjobs: Program) -> None:
    made(bedrockjobs, "pipe")
    process = subprocess.Popen(
        [*BEDROCKJOBS, "job", "list", "-s", server.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(DEADLINE_S)


def test_backup_and_migrate_beside_a_server(server: Running, bedrockjobs: Program, tmp_path: Path) -> None:
    job_id = made(bedrockjobs, "kept", "--data", '{"a":2.50}')
    copy = tmp_path / "copy.db"
    backup = bedrockjobs("backup", str(copy), "--database", str(server.database))
    assert backup.returncode == 0, backup.stderr
    with closing(sqlite3.connect(copy)) as connection:
        row = connection.execute("SELECT name, data FROM jobs WHERE jobID = ?", (job_id,)).fetchone()
    assert row == ("kept", '{"a":2.50}')

    migrate = bedrockjobs("migrate", "--database", str(server.database))
    assert (migrate.returncode, f"pid {server.process.pid}" in migrate.stderr) == (4, True)

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
    assert f"pid {server.process.pid}" in second.stderr


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


def asked(bedrockjobs: Program, *arguments: str) -> Any:
    """Return what a command answers as JSON; it must end well."""
    result = bedrockjobs(*arguments, "-o", "json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


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
    assert "Somebody paused it" in bedrockjobs("job", "explain", str(added["jobID"])).stdout
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
        [*BEDROCKJOBS, "run", "logs", run_id, "-f", "--exit-status", "-s", server.address],
        stdout=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
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
    assert kinds == ["triggered", "stop"]


def test_a_run_is_followed_until_it_is_handed_back(server: Running, bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "live/back")
    run_id = str(asked(bedrockjobs, "call", "GetJob", "name=live/back", "worker=hand")["runID"])
    asked(bedrockjobs, "call", "AppendOutput", f"runID={run_id}", "seq=1", 'lines=["one"]')
    following = subprocess.Popen(
        [*BEDROCKJOBS, "run", "logs", run_id, "-f", "-s", server.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(),
    )  # fmt: skip
    guard = threading.Timer(DEADLINE_S, following.kill)
    guard.start()
    assert following.stdout is not None
    assert following.stderr is not None
    with following.stdout as lines, following.stderr as said:
        assert lines.readline() == "one\n"
        assert bedrockjobs("job", "retry", job_id, "--returned").returncode == 0
        assert said.read() == (
            f"Run {run_id} was handed back: its job is queued as if it had not been taken.\n"
        )
    guard.cancel()
    assert following.wait(DEADLINE_S) == 0


def test_the_doctor_tells_what_is_paused(bedrockjobs: Program) -> None:
    assert bedrockjobs("schedule", "pause", "live/held", "--by", "ann", "--reason", "disks").returncode == 0
    assert bedrockjobs("schedule", "pause", "live/until", "--by", "ann", "--until", "2h").returncode == 0
    found = [each for each in asked(bedrockjobs, "doctor") if each["check"] == "paused"]
    assert [each["level"] for each in found] == ["warn", "warn"]
    assert found[0]["finding"].startswith("live/held is paused by ann since 20")
    assert found[0]["finding"].endswith(" UTC: nothing waits; reason: disks")
    assert bedrockjobs("schedule", "resume", "--all").returncode == 0
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

    defined(**{"live/a": {"schedule": "@daily", "retries": 1, "data": {"x": 1}, "paused": True},
               "live/b": {"schedule": "5m", "url": "https://example.org/"}})  # fmt: skip
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
    assert (shown.returncode, shown.stderr) == (0, f"Wrote {definitions}; `bedrockjobs apply` takes it.\n")
    assert asked(bedrockjobs, "apply", str(definitions), "-y")["added"] == ["live-import"]
    again = bedrockjobs("import", "crontab", str(crontab), "--apply", "--times", "0", "-o", "name")
    assert again.returncode == 0
    assert "live-import" in again.stdout
