"""Which program runs for a job: its own command, a rule, a function or the worker's; its time limit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque

import pytest
from bedrock_worker.agent import Agent
from bedrock_worker.policy.program import NO_COMMAND, NO_RULE

from bedrockjobs.base.clock import SystemClock, timestamp_ms
from bedrockjobs.base.config import GRACE_S_DEFAULT
from tests.pace import in_time
from tests.worker.conftest import options_for, until
from tests.worker.test_command_line import exit_status, logged, program

FENCE = {"jobID": 1, "runID": 101}
MODULE = """
from bedrock_worker.functions import cron, job

@job("Foo/*")
def work(job):
    print("working on", job.name)
    return {"seen": job.data["n"] + 1}

@cron("0 9 * * *", name="Foo-daily")
def daily():
    pass
"""


@pytest.fixture
def one(server, working):
    """Return what runs one job with these options and returns its report."""

    async def run(options, *argv, name="Foo/1", data="{}", **more):
        await server.add(name, data, **options)
        async with working(*argv, jobs_max=1, **more) as worker:
            assert await worker.ended() == 0
        (report,) = server.reports
        return report

    return run


# --- own commands ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"argv": ["sh", "-c", "exit 5", "$(x)"]}, {"allow_cmd": ("Bar", "Foo/*")}),
        ({"argv": ["sh", "-c", "exit 5"]}, {"allow_shell": ("Foo/*",)}),
        ({"cmd": "true && exit 5"}, {"allow_shell": ("Bar", "Foo/*")}),
    ],
)
async def test_own_command_that_is_allowed(one, options, allowed):
    report = await one(options, "true", **allowed)
    assert (report.verb, report.given) == ("FailJob", {**FENCE, "exitCode": 5, "error": "exit status 5"})


async def test_own_request(one, server):
    """The fake server speaks no HTTP; that it was asked is enough here."""
    job = {"url": {"url": f"http://{server.address}/", "timeout": 5}}
    report = await one(job, allow_url=("*",), allow_private=True)
    assert report.verb == "FailJob"
    assert report.given["exitCode"] == 1


async def test_own_request_to_this_machine_fails_for_good(one, server):
    report = await one({"url": {"url": f"http://{server.address}/"}}, allow_url=("*",))
    assert (report.verb, report.given["final"]) == ("FailJob", True)
    assert "expected a public address, got 127.0.0.1" in report.given["error"]


@pytest.mark.parametrize(
    ("options", "allowed", "words"),
    [
        ({"argv": ["true"]}, {}, "argv: expected a name that --allow-cmd of this worker allows, got Foo/1"),
        ({"argv": ["true"]}, {"allow_cmd": ("Foo",)}, "argv: expected a name that --allow-cmd"),
        ({"url": {"url": "http://a/"}}, {"allow_cmd": ("foo/*",)}, "url: expected a name that --allow-url"),
        ({"cmd": "true"}, {"allow_cmd": ("*",)}, "cmd: expected a name that --allow-shell"),
        ({"cmd": "true"}, {"allow_shell": ("Bar*",)}, "cmd: expected a name that --allow-shell"),
    ],
)
async def test_own_command_that_nothing_allows_fails_for_good(one, options, allowed, words):
    report = await one(options, "true", **allowed)
    assert (report.verb, report.given["final"]) == ("FailJob", True)
    assert report.given["error"].startswith(words)


async def test_job_that_nothing_is_for_fails_for_good(one):
    report = await one({}, allow_cmd=("*",))
    assert (report.verb, report.given) == ("FailJob", {**FENCE, "error": NO_COMMAND, "final": True})


@pytest.mark.parametrize(
    ("allowed", "accepts"),
    [
        ({}, None),
        ({"allow_cmd": ("a",)}, ("argv",)),
        ({"allow_shell": ("a",)}, ("argv", "cmd")),
        ({"allow_url": ("a",)}, ("url",)),
        ({"allow_cmd": ("a",), "allow_url": ("b",)}, ("argv", "url")),
    ],
)
def test_accepts_lists_what_some_option_allows(server, allowed, accepts):
    asked = options_for(server, "true", **allowed).take(1, ["a"])
    assert (asked.accepts or None) == accepts
    assert ('"accepts"' in asked.wire()) == (accepts is not None)


# --- time ------------------------------------------------------------------------------------------------


async def test_runtimeout_of_the_job(one):
    began = SystemClock().monotonic()
    report = await one({"runTimeout": 1, "grace": 0}, "sh", "-c", 'trap "" TERM; sleep 1000; sleep 1000')
    assert report.given["error"] == "timed out after 1 s (SIGKILL)"
    took = SystemClock().monotonic() - began
    assert took >= 1.0
    assert in_time(took, 5.0)


async def test_servers_word_at_the_end_of_the_time_is_no_other_end(server, working, tmp_path):
    """The server counts from the take, so it is often the first to ask; a timeout it is all the same."""
    script = 'trap "exit 0" TERM; touch "$0/ready"; while :; do sleep 0.01; done'
    async with working("sh", "-c", script, str(tmp_path)):
        await server.add(runTimeout=1)
        await until((tmp_path / "ready").exists)
        await server.stop_run(101, "TERM")
        report = await server.report()
    assert report.verb == "FailJob"
    assert report.given["error"].startswith("timed out after 1 s (exit status 0)")


@pytest.mark.parametrize(
    ("options", "given", "deadline_s"),
    [
        ({"runTimeout": 100}, {}, 100),
        ({"runTimeout": 100}, {"timeout_s": 50.0}, 50),
        ({"runTimeout": 100}, {"timeout_s": 200.0}, 100),
    ],
)
async def test_deadline_is_the_smaller_limit(one, tmp_path, options, given, deadline_s):
    before = SystemClock().now().timestamp()
    await one(options, "sh", "-c", 'echo "$BEDROCK_DEADLINE" > "$0"', str(tmp_path / "seen"), **given)
    low, high = (
        timestamp_ms(SystemClock().now().fromtimestamp(moment + deadline_s, tz=SystemClock().now().tzinfo))
        for moment in (before, SystemClock().now().timestamp())
    )
    assert low <= (tmp_path / "seen").read_text().strip() <= high


async def test_each_limit_has_its_own_grace(server, working):
    """KILL comes when the first limit and its grace are over, whichever limit sent TERM."""
    found = []
    async with working("true") as worker:
        from bedrock_worker.policy.program import Program
        from bedrock_worker.pull import jobs_of
        from bedrock_worker.run.job_run import JobRun

        for more in ("", ',"runTimeout":100', ',"runTimeout":100,"grace":5', ',"runTimeout":0'):
            head = '{"jobs":[{"created":"","data":{},"jobID":1,"lastRun":"","name":"a","nextRun":"",'
            (job,) = jobs_of(f'{head}"priority":500,"repeat":"","retryAfter":""{more}}}]}}'.encode())
            options = options_for(server, "true", timeout_s=90.0, grace_s=25.0)
            agent = worker.agent
            run = JobRun(job, options, agent._selector, watchdog=agent._watchdog, on_line=lambda *_: True)
            found.append(run._limits(Program(["true"])))
    assert GRACE_S_DEFAULT == 60
    assert found == [(90.0, 115.0), (90.0, 115.0), (90.0, 105.0), (90.0, 115.0)]


# --- rules -----------------------------------------------------------------------------------------------


def rules_in(tmp_path, text):
    """Write a rules file."""
    path = tmp_path / "rules.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


async def test_rule_runs_with_its_secret_masked(one, server, tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", "bedrock_worker")
    monkeypatch.setenv("THE_TOKEN", "s3cret-s3cret")
    script = tmp_path / "script"
    script.write_text(
        '#!/bin/sh\necho "$1 $TOKEN"; echo "::progress 5 $TOKEN::"\n'
        'echo "{\\"t\\":\\"$TOKEN\\"}" > "$BEDROCK_RESULT"; exit 3\n'
    )
    script.chmod(0o700)
    rules = rules_in(
        tmp_path,
        f'[[rule]]\nname = "Foo/*"\nargv = ["{script}", "{{what}}"]\nfields.what = {{ match = "[a-z]+" }}\n'
        'secrets = { TOKEN = { env = "THE_TOKEN" } }\n',
    )
    report = await one({}, rules_file=rules, names=(), data='{"what":"cat"}')
    assert server.of("GetJobs")[0].given["names"] == ["Foo/*"]
    assert report.given == {**FENCE, "exitCode": 3, "error": "exit status 3\ncat ***", "data": {"t": "***"}}
    assert server.output[101] == [("out", "cat ***")]
    assert server.of("UpdateJob")[0].given["progress"] == {"percent": 5, "message": "***"}
    assert "s3cret" not in caplog.text + "".join(request.text for request in server.requests)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [("Foo", "{}", NO_RULE), ("Foo/1", '{"what":"-rf"}', "field what: expected text that matches [a-z]+")],
)
async def test_job_that_fits_no_rule_fails_for_good(one, tmp_path, name, data, words):
    rules = rules_in(
        tmp_path,
        '[[rule]]\nname = "Foo/*"\nargv = ["/bin/echo", "{what}"]\nfields.what = { match = "[a-z]+" }\n',
    )
    report = await one({}, rules_file=rules, name=name, data=data)
    assert report.given == {**FENCE, "error": words, "final": True}


async def test_secret_that_went_missing_fails_the_job_but_not_for_good(
    server, working, tmp_path, monkeypatch
):
    monkeypatch.setenv("THE_TOKEN", "s3cret-s3cret")
    rules = rules_in(
        tmp_path, '[[rule]]\nname = "*"\nargv = ["/bin/true"]\nsecrets = { TOKEN = { env = "THE_TOKEN" } }\n'
    )
    async with working(rules_file=rules):
        await server.until(lambda: server.asking)
        monkeypatch.delenv("THE_TOKEN")
        await server.add()
        report = await server.report()
    words = "cannot start the command: secrets.TOKEN: expected THE_TOKEN in the worker's environment"
    assert report.given == {**FENCE, "error": words}


async def test_hup_reads_the_rules_anew(server, tmp_path):
    rules = rules_in(tmp_path, '[[rule]]\nname = "a"\nargv = ["/bin/true"]\n')
    async with program(server, "--rules", str(rules), BEDROCKJOBS_WORKER_NAME="") as worker:
        await server.until(lambda: server.asking)
        rules.write_text("[[rule]]\nname = 5\n")
        worker.send_signal(signal.SIGHUP)
        assert f"{rules}: rule 1: name" in await logged(worker, "not reloaded")
        rules.write_text('[[rule]]\nname = "b"\nargv = ["/bin/true"]\n')
        worker.send_signal(signal.SIGHUP)
        await logged(worker, "reloaded names=b")
        await server.until(lambda: server.of("GetJobs")[-1].given["names"] == ["b"])
        await server.until(lambda: server.of("Heartbeat")[-1].given["names"] == ["b"])
        await server.add("b")
        assert (await server.report()).verb == "FinishJob"


async def test_hup_without_rules_is_harmless(server):
    async with program(server, "--", "true") as worker:
        await server.until(lambda: server.asking)
        worker.send_signal(signal.SIGHUP)
        await logged(worker, "reloaded")
        await server.add()
        assert (await server.report()).verb == "FinishJob"


# --- functions -------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module into the current folder."""
    (tmp_path / "app_of_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "app_of_test"
    sys.modules.pop("app_of_test", None)


async def test_module_syncs_its_schedules_and_runs_its_functions(server, module):
    server.refusals["SyncSchedules"] = deque(["503 Service Unavailable"])
    await server.add("Foo/1", '{"n":41}')
    argv = ("--module", module, "--max-jobs", "1")
    async with program(server, *argv, BEDROCKJOBS_WORKER_NAME="") as worker:
        assert await exit_status(worker) == 0
    sync = server.of("SyncSchedules")
    assert len(sync) == 2
    assert sync[1].given["source"] == f"module {module}"
    assert [schedule["name"] for schedule in sync[1].given["schedules"]] == ["Foo-daily"]
    assert server.requests.index(sync[1]) < server.requests.index(server.of("GetJobs")[0])
    assert sorted(server.of("GetJobs")[0].given["names"]) == ["Foo-daily", "Foo/*"]
    assert server.reports[0].given["data"] == {"seen": 42}
    assert server.output[101] == [("out", "working on Foo/1")]


async def test_refused_schedules_end_the_worker(server, module):
    server.refusals["SyncSchedules"] = deque(["405 Not allowed\r\nerror: Foo-daily exists"])
    async with program(server, "--module", module) as worker:
        assert "Foo-daily exists" in await logged(worker, "schedules refused")
        assert await exit_status(worker) == 1
    assert server.of("GetJobs") == []


async def test_signal_ends_a_worker_that_cannot_sync_yet(server, module):
    await server.stop()
    async with program(server, "--module", module) as worker:
        await logged(worker, "server away")
        worker.send_signal(signal.SIGTERM)
        assert await exit_status(worker) == 0


# --- load and version ------------------------------------------------------------------------------------


async def test_busy_machine_gets_one_job_at_once(server, working, monkeypatch, tmp_path):
    monkeypatch.setattr("bedrock_worker.pull.GROW_S", 0.1)
    load = [100.0]
    monkeypatch.setattr("bedrock_worker.pull.load_per_cpu", lambda: load[0])
    for _ in range(3):
        await server.add()
    agent = Agent(
        options_for(
            server,
            "sh",
            "-c",
            'until [ -e "$0/go" ]; do sleep 0.01; done',
            str(tmp_path),
            concurrency=3,
            load_max=1.0,
        )
    )
    agent._throttle._load = lambda: load[0]
    task = asyncio.ensure_future(agent.run_until_stopped())
    await server.until(lambda: server._running)
    await asyncio.sleep(0.3)
    assert len(server._running) == 1
    load[0] = 0.1
    await server.until(lambda: len(server._running) == 3)
    assert {ask.given["numResults"] for ask in server.of("GetJobs")} == {1}
    (tmp_path / "go").touch()
    await server.report(3)
    agent.stop()
    assert await task == 0


async def test_new_version_ends_the_worker_when_its_runs_have_ended(server, working, monkeypatch, tmp_path):
    monkeypatch.setattr("bedrock_worker.agent.FILE_POLL_S", 0.02)
    watched = tmp_path / "version"
    watched.write_text("1")
    script = 'until [ -e "$0/go" ]; do sleep 0.01; done'
    async with working("sh", "-c", script, str(tmp_path), version_watch=watched) as worker:
        await server.add()
        await server.until(lambda: server._running)
        watched.write_text("2")
        await until(lambda: worker.agent._outdated)
        await server.add()
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob"]
    assert len(server._queue) == 1
