"""The command line against a real server: jobs, lists, terminals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

from live_server import DEADLINE_S, Running, clean_environment
from program import Program, asked, made, shown
from ruamel.yaml import YAML

from tests.cli import warm

ROOT = Path(__file__).parents[2]


def test_job_lifecycle(bedrockjobs: Program) -> None:
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
    assert gone.stderr == f"Error: there is no job {job_id}\n"


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
    assert bedrockjobs("job", "retry", job_id).returncode == 0
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"


def test_who_retries_a_job_of_a_workflow_is_told_of_the_jobs_after_it(bedrockjobs: Program) -> None:
    jobs = '[{"ref": "a", "name": "chained"}, {"ref": "b", "name": "b", "after": ["a"]}]'
    made_ = json.loads(bedrockjobs("call", "CreateWorkflow", "name=w", f"jobs={jobs}", "-o", "json").stdout)
    workflow, job_id = str(made_["workflowID"]), str(made_["jobIDs"]["a"])
    bedrockjobs("job", "get", "chained")
    bedrockjobs("job", "fail", job_id, "--error", "no luck")
    advice = f"`bedrockjobs workflow retry {workflow}` also queues the jobs cancelled with it"
    told = bedrockjobs("job", "retry", job_id).stdout.split()
    assert told == f"Queued job {job_id}. It is a job of workflow {workflow}: {advice}.".split()
    assert bedrockjobs("workflow", "retry", workflow).returncode == 0
    assert shown(bedrockjobs, str(made_["jobIDs"]["b"]))["state"] == "PAUSED"


def test_wait_for_the_end_of_a_job(bedrockjobs: Program) -> None:
    job_id = made(bedrockjobs, "expected")
    late = bedrockjobs("job", "wait", "expected", "--timeout", "0.01")
    assert (late.returncode, late.stdout) == (124, "")
    assert f"job {job_id}" in late.stderr
    assert bedrockjobs("call", "GetJob", "name=expected", "worker=w").returncode == 0
    assert bedrockjobs("job", "finish", job_id, "--data", '{"rows":3}').returncode == 0
    done = bedrockjobs("job", "wait", job_id)
    assert (done.returncode, done.stdout) == (0, f'Job {job_id} ended: success. Result: {{"rows":3}}\n')
    found = json.loads(bedrockjobs("job", "wait", job_id, "-o", "json").stdout)
    assert (found["jobID"], found["status"], found["result"]) == (int(job_id), "success", {"rows": 3})

    for act in ("show", "explain", "retry", "cancel", "delete"):
        ended = bedrockjobs("job", act, job_id)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert (
            f"job {job_id} has ended: its last run, {found['runID']}, ended with success at " in ended.stderr
        )
        assert ended.stderr.endswith(f"; `bedrockjobs run again {found['runID']}` repeats it\n")

    failing = made(bedrockjobs, "expected")
    bedrockjobs("call", "GetJob", "name=expected", "worker=w")
    assert bedrockjobs("job", "fail", failing, "--error", "disk full").returncode == 0
    failed = bedrockjobs("job", "wait", failing)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "disk full" in failed.stderr
    assert bedrockjobs("job", "wait", "no/such/job").returncode == 3


def test_the_advice_of_the_alert_for_failed_jobs_works(bedrockjobs: Program) -> None:
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


def test_cancel_a_child_and_other_jobs(bedrockjobs: Program) -> None:
    parent = made(bedrockjobs, "family")
    plain = made(bedrockjobs, "family/plain")
    assert bedrockjobs("job", "cancel", plain).stdout == f"Cancelled job {plain}.\n"
    assert shown(bedrockjobs, plain)["state"] == "CANCELLED"
    assert bedrockjobs("job", "cancel", plain).stdout.startswith(f"Nothing to cancel: job {plain} has ended")

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
        [warm.program("bedrockjobs"), "job", "get", "awaited", "--wait", "-s", server.address, "-o", "name"],
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    until_waiting(bedrockjobs)
    job_id = made(bedrockjobs, "awaited")
    out, _ = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, out.strip()) == (0, job_id)


def test_an_interrupted_wait_takes_nothing(server: Running, bedrockjobs: Program) -> None:
    waiting = subprocess.Popen(
        [warm.program("bedrockjobs"), "job", "get", "interrupted", "--wait", "-s", server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    until_waiting(bedrockjobs)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, out, err) == (130, "", "Interrupted.\n")
    job_id = made(bedrockjobs, "interrupted")
    assert shown(bedrockjobs, job_id)["state"] == "QUEUED"


def until_waiting(bedrockjobs: Program) -> None:
    """Return once the server has a waiting GetJob; each check is a round trip."""
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
    assert (status["pid"], status["durability"]) == (server.pid, "full")


def test_exit_status_without_a_server(bedrockjobs: Program) -> None:
    result = bedrockjobs("ping", "-s", "127.0.0.1:1")
    assert (result.returncode, result.stdout) == (69, "")
    assert "cannot connect to 127.0.0.1:1" in result.stderr
    assert (
        "`bedrockjobs serve` starts a server, --server or BEDROCKJOBS_SERVER names another" in result.stderr
    )


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


def test_terminal_output_keeps_colours_and_escapes_other_controls(
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
        "\x1b[32mgreen\\u001b[2J\\u000dx\x1b[0m",
        "\x1b[31mplain\x1b[0m",
    ]
    plain = on_terminal(arguments, {**environment, "NO_COLOR": "1"}).splitlines()
    assert plain == ["green\\u001b[2J\\u000dx", "plain"]
    assert bedrockjobs("run", "logs", run_id).stdout == "\x1b[32mgreen\x1b[2J\rx\nplain\n", "a pipe"


def on_terminal(arguments: list[str], environment: dict[str, str]) -> str:
    """Run the program with a terminal as stdout; return what it wrote."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([warm.program("bedrockjobs"), *arguments], stdout=theirs, env=environment)
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


def test_a_closed_pipe_is_no_failure(server: Running, bedrockjobs: Program) -> None:
    made(bedrockjobs, "pipe")
    process = subprocess.Popen(
        [warm.program("bedrockjobs"), "job", "list", "-s", server.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(DEADLINE_S)
