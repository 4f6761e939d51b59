"""The agent: what it requests, when it ends, and its behaviour when a server disappears and returns."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque

import pytest

from bedrockjobs.base.config import ERROR_CHARS_MAX
from tests.worker.conftest import ended, until
from tests.worker.fake_server import DEADLINE_S

RUNS_LONG = ("sh", "-c", 'echo $$ > "$0/$BEDROCK_JOB_ID"; sleep 1000')
UNTIL_GO = 'until [ -e "$0/go" ]; do sleep 0.01; done; '
WAITS = ("sh", "-c", UNTIL_GO + 'echo "{\\"done\\":true}" > "$BEDROCK_RESULT"')


def messages(caplog, *whats):
    """Return the events of these kinds, in order."""
    found = [record.getMessage() for record in caplog.records]
    return [message for message in found if message.startswith(whats)]


async def test_one_waiting_question_for_all_free_slots(server, working):
    async with working("true", concurrency=3, names=("Foo*", "Bar"), mocked=True):
        await server.until(lambda: server.of("GetJobs"))
        assert server.of("GetJobs")[0].given == {
            "names": ["Foo*", "Bar"],
            "numResults": 3,
            "worker": "test",
            "connection": "wait",
            "timeout": 60_000,
            "getMockedJobs": True,
            "heartbeat": True,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        assert server.connections == 2  # one asks for jobs, one beats


async def test_asks_again_for_what_is_free(server, working, tmp_path):
    """With every slot taken nothing is asked; when one frees, the wait for fewer is ended."""
    async with working(*WAITS, str(tmp_path), concurrency=2):
        await server.add()
        await server.until(lambda: [ask.given["numResults"] for ask in server.of("GetJobs")] == [2, 1])
        (tmp_path / "go").touch()
        await server.report()
        await server.until(lambda: [ask.given["numResults"] for ask in server.of("GetJobs")] == [2, 1, 2])
        await server.add()
        await server.add()
        await server.report(3)
    asked = [ask.given["numResults"] for ask in server.of("GetJobs")]
    assert max(asked) == 2


async def test_no_more_at_once_than_slots(server, working, tmp_path):
    for _ in range(5):
        await server.add()
    async with working(*WAITS, str(tmp_path), concurrency=2, burst=True) as worker:
        await server.until(lambda: len(server._running) == 2)
        assert len(server._queue) == 3
        assert [ask.given["numResults"] for ask in server.of("GetJobs")] == [2]
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert len(server.reports) == 5


async def test_burst_ends_with_the_last_job(server, working):
    for _ in range(3):
        await server.add()
    async with working("true", burst=True) as worker:
        assert await worker.ended() == 0
    assert len(server.of("FinishJob")) == 3
    assert all("connection" not in ask.given for ask in server.of("GetJobs"))


async def test_burst_sees_what_its_last_run_makes_ready(server, working):
    """A question that was answered while a run went on says nothing about what its end made ready."""
    await server.add()
    original = server._end

    def end(request):
        if len(server.of("FinishJob")) == 1:
            server._queue.append((99, "Foo", "{}"))
        return original(request)

    server._end = end
    async with working("true", burst=True, concurrency=2) as worker:
        assert await worker.ended() == 0
    assert [report.given["jobID"] for report in server.reports] == [1, 99]


async def test_burst_without_a_server_ends_69(server, working):
    await server.stop()
    async with working("true", burst=True) as worker:
        assert await worker.ended() == 69


async def test_max_jobs(server, working):
    for _ in range(5):
        await server.add()
    async with working("true", jobs_max=3, concurrency=2) as worker:
        assert await worker.ended() == 0
    assert len(server.reports) == 3
    assert len(server._queue) == 2


async def test_max_jobs_with_more_slots_than_jobs(server, working):
    await server.add()
    async with working("true", jobs_max=3, concurrency=10) as worker:
        await server.until(lambda: server.of("GetJobs"))
        for _ in range(5):
            await server.add()
        assert await worker.ended() == 0
    assert len(server.reports) == 3
    assert len(server._queue) == 3


async def test_max_jobs_counts_the_job_that_a_report_may_bring(server, working, tmp_path):
    server.silent.add("FinishJob")
    for _ in range(5):
        await server.add()
    command = ("sh", "-c", f'[ "$BEDROCK_JOB_ID" = 1 ] && exit; {UNTIL_GO} exit 1', str(tmp_path))
    async with working(*command, jobs_max=3, concurrency=2) as worker:
        await server.until(lambda: server.of("FinishJob"))
        (tmp_path / "go").touch()
        await server.until(lambda: server.of("FailJob"))
        await until(lambda: len(worker.agent._tasks) == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(server.of("GetJobs")) == 1


async def test_quiet_and_resume(server, working, tmp_path, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    async with working("true") as worker:
        await server.until(lambda: server.of("GetJobs"))
        worker.agent.stop_taking()
        await server.until(lambda: not server.asking)
        await server.add()
        assert len(server.of("GetJobs")) == 1
        worker.agent.resume()
        assert (await server.report()).verb == "FinishJob"
    assert messages(caplog, "quiet", "resumed") == ["quiet", "resumed"]


async def test_stop_lets_runs_end(server, working, tmp_path):
    await server.add()
    async with working(*WAITS, str(tmp_path), grace_s=DEADLINE_S) as worker:
        await until(lambda: worker.agent._runs)
        worker.agent.stop()
        await server.add()
        (tmp_path / "go").touch()
        assert await worker.ended() == 0
    assert [(report.verb, report.given["data"]) for report in server.reports] == [
        ("FinishJob", {"done": True})
    ]
    assert len(server._queue) == 1


async def test_stop_hands_back_what_outlives_the_grace(server, working, tmp_path):
    await server.add()
    async with working(*RUNS_LONG, str(tmp_path), grace_s=0.05) as worker:
        await until((tmp_path / "1").exists)
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [(report.verb, report.given) for report in server.reports] == [
        ("RetryJob", {"jobID": 1, "runID": 101, "returned": True})
    ]
    assert ended(int((tmp_path / "1").read_text()))


async def test_stop_kills_what_ignores_the_request(server, working, tmp_path, monkeypatch):
    monkeypatch.setattr("bedrock_worker.agent.TERM_TO_KILL_S", 0.05)
    await server.add()
    script = 'trap "" TERM; echo $$ > "$0/pid"; while :; do sleep 1000; done'
    async with working("sh", "-c", script, str(tmp_path), grace_s=0.0) as worker:
        await until((tmp_path / "pid").exists)
        worker.agent.stop()
        assert await worker.ended() == 0
    assert server.reports[0].given["returned"] is True
    assert ended(int((tmp_path / "pid").read_text()))


async def test_second_stop_ends_at_once(server, working, tmp_path):
    for _ in range(2):
        await server.add()
    async with working(*RUNS_LONG, str(tmp_path), concurrency=2, grace_s=1000.0) as worker:
        await until(lambda: (tmp_path / "1").exists() and (tmp_path / "2").exists())
        worker.agent.stop()
        worker.agent.stop()
        assert await worker.ended() == 0
    assert sorted(report.given["jobID"] for report in server.reports) == [1, 2]
    assert all(report.given["returned"] is True for report in server.reports)


async def test_job_that_comes_with_the_end_of_the_last_wait_is_handed_back(server, working):
    """The server may have answered before it saw that we wait no longer."""
    server.answers_at_the_end = True
    async with working("true") as worker:
        await server.until(lambda: server.waits)
        server._queue.append((7, "Foo", "{}"))  # the wait is not woken
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [(report.verb, report.given) for report in server.reports] == [
        ("RetryJob", {"jobID": 7, "runID": 107, "returned": True})
    ]


async def test_result_survives_a_restart_of_the_server(server, working, tmp_path, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    await server.add()
    async with working(*WAITS, str(tmp_path)):
        await server.until(lambda: server._running)
        await server.stop()
        (tmp_path / "go").touch()
        await until(lambda: messages(caplog, "server away"))
        await server.start()
        report = await server.report()
        assert (report.verb, report.given["data"]) == ("FinishJob", {"done": True})
        await until(lambda: messages(caplog, "server back"))
        await server.add()  # and it goes on
        await server.report(2)
    away = messages(caplog, "server away", "server back")
    assert [message.split(" error=")[0] for message in away] == ["server away", "server back"]


async def test_server_away_at_the_start(server, working):
    await server.stop()
    async with working("true") as worker:
        await until(lambda: worker.agent._puller.failures > 3)
        await server.start()
        await server.add()
        assert (await server.report()).verb == "FinishJob"


async def test_lost_answer_to_a_report(server, working, caplog):
    """The second try is refused, because the first had arrived."""
    caplog.set_level("INFO", "bedrock_worker")
    server.lost["FinishJob"] = 1
    await server.add()
    async with working("true", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob", "FinishJob"]
    assert messages(caplog, "run already over")[0].endswith('answer="404 No job with this jobID"')


@pytest.mark.parametrize("refusal", ["500 Internal Server Error", "503 Service Unavailable", "555 Timeout"])
async def test_report_is_repeated_where_nothing_was_done(server, working, refusal):
    server.refusals["FinishJob"] = deque([refusal, refusal])
    await server.add()
    async with working("true", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob"] * 3


async def test_run_that_is_over_is_let_go(server, working, caplog):
    server.refusals["FinishJob"] = deque(["405 Run is over"])
    await server.add()
    async with working("true", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert len(server.reports) == 1
    assert messages(caplog, "run already over")


async def test_refused_report_becomes_a_failure_that_says_why(server, working):
    server.refusals["FinishJob"] = deque(["402 Data is not a valid JSON Object\r\nerror: data: too odd"])
    await server.add()
    async with working("true", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob", "FailJob"]
    words = "result: too odd (FinishJob was refused: 402 Data is not a valid JSON Object)"
    assert server.reports[1].given == {"jobID": 1, "runID": 101, "error": words}


@pytest.mark.parametrize(("status", "verb"), [(0, "FinishJob"), (75, "RetryJob")])
async def test_result_that_is_refused_for_good_fails_its_job_for_good(server, working, caplog, status, verb):
    """The same run would leave the same result; the slot is free for the next job at once."""
    server.refusals[verb] = deque(["500 Mock Mismatch\r\nerror: data: mockRequest must not be in it"])
    await server.add()
    script = f"""echo '{{"mockRequest":true}}' > "$BEDROCK_RESULT"; exit {status}"""
    async with working("sh", "-c", script) as worker:
        await server.report(2)
        await server.add()
        await server.report(3)
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == [verb, "FailJob", verb]
    words = f"result: mockRequest must not be in it ({verb} was refused: 500 Mock Mismatch)"
    assert server.reports[1].given == {"jobID": 1, "runID": 101, "error": words, "final": True}
    assert len(messages(caplog, "report refused")) == 1
    assert not messages(caplog, "server away")


async def test_failure_whose_result_is_refused_stays_one_without_the_result(server, working):
    server.refusals["FailJob"] = deque(["402 Data is not a valid JSON Object\r\nerror: data: too odd"])
    await server.add()
    prints = "head -c 20000 /dev/zero | tr '\\0' x | fold -w 700"
    script = f"""echo '{{"a":1}}' > "$BEDROCK_RESULT"; {prints}; exit 3"""
    async with working("sh", "-c", script, jobs_max=1) as worker:
        assert await worker.ended() == 0
    first, second = (report.given for report in server.reports)
    words = "\nresult: too odd (FailJob was refused: 402 Data is not a valid JSON Object)"
    assert second == {"jobID": 1, "runID": 101, "exitCode": 3, "error": second["error"]}
    assert second["error"] == first["error"][: ERROR_CHARS_MAX - len(words)] + words


async def test_report_that_nobody_takes_is_named_when_the_end_is_forced(server, working, caplog, monkeypatch):
    for name in ("LAST_REPORTS_S", "LAST_OUTPUT_S"):
        monkeypatch.setattr(f"bedrock_worker.agent.{name}", 0.05)
    await server.add()
    async with working("true") as worker:
        await server.until(lambda: server._running)
        await server.stop()
        await until(lambda: messages(caplog, "server away") and not worker.agent._runs)
        worker.agent.stop()
        worker.agent.stop()
        assert await worker.ended() == 69
    assert messages(caplog, "report not delivered") == [
        "report not delivered job=1 run=101 report=FinishJob exit=0"
    ]


@pytest.mark.parametrize("printed", ["", "echo printed; "])
async def test_one_stop_ends_a_worker_whose_reports_nobody_takes(
    server, working, caplog, monkeypatch, printed
):
    """Also where the report still waits for the output before it. The log keeps the result."""
    for name in ("LAST_REPORTS_S", "LAST_OUTPUT_S"):
        monkeypatch.setattr(f"bedrock_worker.agent.{name}", 0.05)
    server.refusals |= {verb: deque(["503 Full"] * 10_000) for verb in ("FinishJob", "AppendOutput")}
    await server.add()
    script = printed + """printf '{"n":2.50}' > "$BEDROCK_RESULT" """
    async with working("sh", "-c", script, grace_s=0.2) as worker:
        await server.until(lambda: server.of("AppendOutput" if printed else "FinishJob"))
        await until(lambda: not worker.agent._runs)
        worker.agent.stop()
        assert await worker.ended() == 69
    assert messages(caplog, "report not delivered") == [
        'report not delivered job=1 run=101 report=FinishJob exit=0 result="{\\"n\\":2.50}"'
    ]


async def test_result_does_not_wait_at_the_end_for_output_that_nobody_takes(server, working, monkeypatch):
    monkeypatch.setattr("bedrock_worker.agent.LAST_OUTPUT_S", 0.05)
    server.refusals["AppendOutput"] = deque(["503 Full"] * 10_000)
    await server.add()
    async with working("echo", "printed", grace_s=0.1) as worker:
        await server.until(lambda: server.of("AppendOutput"))
        await until(lambda: not worker.agent._runs)
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob"]


async def test_stop_waits_within_the_grace_for_a_server_that_comes_back(server, working, tmp_path, caplog):
    await server.add()
    async with working("true", grace_s=DEADLINE_S) as worker:
        await server.until(lambda: server._running)
        await server.stop()
        await until(lambda: messages(caplog, "server away") and not worker.agent._runs)
        worker.agent.stop()
        await server.start()
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob"]


async def test_unreadable_answers_do_not_end_the_worker(server, working, caplog):
    server.answers["GetJobs"] = b'200 OK\r\nContent-Length: 12\r\n\r\n{"jobs":[{}]'
    async with working("true") as worker:
        await until(lambda: worker.agent._puller.failures > 2)
        del server.answers["GetJobs"]
        await server.add()
        assert (await server.report()).verb == "FinishJob"


async def test_fault_inside_a_run_costs_only_that_run(server, working, monkeypatch, caplog):
    monkeypatch.setattr("bedrock_worker.run.job_run.JobRun._environment", lambda *_: 1 / 0)
    await server.add()
    async with working("true", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert server.reports[0].verb == "RetryJob"
    assert "ZeroDivisionError" in caplog.text
