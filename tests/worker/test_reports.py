"""Failed reports: retried within limits, logged, kept in the outbox, and never blocking others."""

from __future__ import annotations

import json
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from bedrock_worker.pull import FAULTS_MAX
from bedrock_worker.report.reporter import FILES_MAX, LATER_TRIES_MAX, ReportOutbox

from bedrockjobs.base.config import DATA_BYTES_MAX
from bedrockjobs.commands import FinishJob
from tests.worker.conftest import until
from tests.worker.test_agent import messages
from tests.worker.test_command_line import exit_status, logged, program

FAULT = "500 Internal Server Error"
RESULT = ("sh", "-c", """printf '{"n":2.50}' > "$BEDROCK_RESULT" """)


def files(spool: Path) -> list[Path]:
    """Return the saved reports; a file that is still being written has another suffix."""
    return sorted(spool.glob("*.json"))


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Return where the worker keeps its reports."""
    return tmp_path / "kept"


async def test_slot_is_free_while_the_server_fails_at_a_report(
    server: Any, working: Any, spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease goes on meanwhile, and the report is taken as soon as the server can."""
    caplog.set_level("INFO", "bedrock_worker")
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add(lease=5)  # beats come each second
    async with working(*RESULT, spool=spool):
        await until(lambda: len(server.of("FinishJob")) >= FAULTS_MAX)
        (file,) = files(spool)
        assert file.stat().st_mode & 0o077 == spool.stat().st_mode & 0o077 == 0
        beats = len(server.of("Heartbeat"))
        await server.until(lambda: len(server.of("Heartbeat")) > beats)
        assert server.of("Heartbeat")[-1].given["runIDs"] == [101]
        server.refusals.clear()
        second = await server.add()
        await server.until(lambda: [it for it in server.reports if it.given["jobID"] == second])
        await until(lambda: not files(spool))
    assert {report.given["jobID"] for report in server.reports} == {1, 2}
    assert not messages(caplog, "server away")
    assert [line.rpartition("tries=")[2].split()[0] for line in messages(caplog, "server fails")][:2] == [
        "1",
        str(FAULTS_MAX),
    ]


async def test_tries_have_a_limit_and_the_report_is_kept(
    server: Any, working: Any, spool: Path, caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_MAX_S", 0.01)
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add()
    async with working(*RESULT, spool=spool) as worker:
        await until(lambda: messages(caplog, "report not delivered"))
        await server.until(lambda: server.of("Heartbeat")[-1].given["runIDs"] == [])
        assert len(server.of("FinishJob")) == FAULTS_MAX + LATER_TRIES_MAX
        worker.agent.stop()
        assert await worker.ended() == 69
    (file,) = files(spool)
    assert messages(caplog, "report not delivered")[0].endswith(f"kept={file}")
    assert '"data":{"n":2.50}' in file.read_text()


async def test_the_log_keeps_the_beginning_of_a_large_result(
    server: Any, working: Any, caplog: pytest.LogCaptureFixture
) -> None:
    script = """printf '{"a":"%0999999d"}' 7 > "$BEDROCK_RESULT" """
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add()
    async with working("sh", "-c", script) as worker:
        await until(lambda: len(server.of("FinishJob")) >= FAULTS_MAX)
        worker.agent.stop()
        assert await worker.ended() == 69
    (line,) = messages(caplog, "report not delivered")
    assert 4_096 < len(line) < 4_296


async def test_run_that_is_anothers_by_now_is_no_longer_leased(server: Any, working: Any) -> None:
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add()
    async with working(*RESULT):
        await until(lambda: len(server.of("FinishJob")) >= FAULTS_MAX)
        await server.stop_run(101, "LOST")
        await server.until(lambda: server.of("Heartbeat")[-1].given["runIDs"] == [])


async def test_one_stop_ends_a_worker_whose_server_fails_at_a_report(
    server: Any, working: Any, spool: Path, monkeypatch: Any
) -> None:
    """It tries once more and does not wait for its grace."""
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_FIRST_S", 1_000.0)
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_MAX_S", 1_000.0)
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add()
    async with working(*RESULT, spool=spool, grace_s=1_000.0) as worker:
        await until(lambda: len(server.of("FinishJob")) == FAULTS_MAX)
        worker.agent.stop()
        assert await worker.ended() == 69
    assert len(server.of("FinishJob")) == FAULTS_MAX + 1
    assert len(files(spool)) == 1


async def test_report_that_many_wait_before_keeps_its_slot(
    server: Any, working: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("bedrock_worker.agent.LATER_MAX", 1)
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_FIRST_S", 1_000.0)
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_MAX_S", 1_000.0)
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    for _ in range(3):
        await server.add()
    async with working("true", grace_s=1_000.0) as worker:
        await until(lambda: len(server.of("FinishJob")) == 2 * FAULTS_MAX)
        assert len(server.of("GetJobs")) == 2
        worker.agent.stop()
        assert await worker.ended() == 69


@pytest.mark.parametrize("verb", ["AppendOutput", "UpdateJob"])
async def test_result_does_not_wait_for_output_and_progress_that_the_server_fails_at(
    server: Any, working: Any, verb: str
) -> None:
    server.refusals[verb] = deque([FAULT] * 10_000)
    await server.add()
    async with working("sh", "-c", "echo printed; echo '::progress 40 so far::'", jobs_max=1) as worker:
        assert (await server.report()).verb == "FinishJob"
        assert await worker.ended() == 0
    assert len(server.of(verb)) == FAULTS_MAX


# --- the next worker -------------------------------------------------------------------------------------


def run_of(worker: str, status: str = "running", job_id: int = 1) -> bytes:
    """Return the server's answer to who asks for the run."""
    found = {
        "runID": 101,
        "jobID": job_id,
        "name": "Foo",
        "attempt": 1,
        "cause": "schedule",
        "scheduledFor": "",
        "started": "",
        "ended": "",
        "worker": worker,
        "host": "",
        "pid": 1,
        "status": status,
        "error": "",
        "output": [],
        "stop": "",
    }
    body = json.dumps(found).encode()
    return b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_report_outlives_the_worker_by_its_file(server: Any, tmp_path: Path) -> None:
    """It is killed while the server fails; the next one has another name, and the same servers."""
    server.refusals["FinishJob"] = deque([FAULT] * 10_000)
    await server.add()
    argv = ("--worker-name", "first", "--", *RESULT)
    async with program(server, *argv) as first:
        await logged(first, "server fails at report")
        await until(lambda: files(tmp_path / "spool"))
        first.kill()
        assert await exit_status(first) == -9
    await server.until(lambda: not server.open_connections)  # it has read everything that was sent
    server.refusals.clear()
    server.answers["QueryRun"] = run_of("first")
    before = len(server.reports)
    async with program(server, "--worker-name", "second", "--", "true") as second:
        await logged(second, "reported job=1 run=101 report=FinishJob")
        await until(lambda: not files(tmp_path / "spool"))
    assert len(server.reports) == before + 1
    assert server.reports[-1].raw("data") == '{"n":2.50}'


@pytest.mark.parametrize(
    "answer",
    [
        run_of("another"),
        run_of("first", "frozen"),
        run_of("first", job_id=2),
        b"404 No such run\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_kept_report_of_a_run_that_is_not_ours_is_dropped(
    server: Any, working: Any, spool: Path, answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept_by("first", server, spool).save(REPORT)
    server.answers["QueryRun"] = answer
    async with working("true", spool=spool):
        await until(lambda: not files(spool))
    assert server.reports == []
    assert messages(caplog, "run already over")


async def test_kept_report_is_asked_about_until_the_server_is_ready(
    server: Any, working: Any, spool: Path
) -> None:
    kept_by("first", server, spool).save(REPORT)
    server.answers["QueryRun"] = run_of("first")
    server.refusals["QueryRun"] = deque(["503 Service Unavailable"] * 20)
    async with working("true", spool=spool):
        await until(lambda: not files(spool))
    assert [report.given["jobID"] for report in server.reports] == [1]


async def test_kept_report_that_the_server_still_fails_at_stays(
    server: Any, working: Any, spool: Path
) -> None:
    """The run is the first worker's also for the one after the second."""
    kept_by("first", server, spool).save(REPORT)
    server.answers["QueryRun"] = run_of("first")
    server.refusals["FinishJob"] = deque([FAULT] * FAULTS_MAX)
    async with working("true", spool=spool):
        await until(lambda: len(server.of("FinishJob")) == FAULTS_MAX)
    assert len(files(spool)) == 1
    assert [kept.worker for kept in kept_by("third", server, spool).earlier()] == ["first"]


REPORT = FinishJob(job_id=1, run_id=101, exit_code=0, data='{"n":2.50,"ä":"\\u0000"}')


def kept_by(worker: str, server: Any, folder: Path | None) -> ReportOutbox:
    return ReportOutbox(folder, worker, [server if isinstance(server, str) else server.address])


def test_what_is_kept_is_read_as_it_was(spool: Path) -> None:
    kept_by("first", "a:1", spool).save(REPORT)
    (found,) = kept_by("second", "a:1", spool).earlier()
    assert (found.worker, found.report) == ("first", REPORT)
    assert kept_by("second", "b:1", spool).earlier() == []
    kept_by("first", "a:1", spool).remove(REPORT)
    assert kept_by("second", "a:1", spool).earlier() == []


def test_what_is_kept_for_one_server_is_for_a_list_with_it(spool: Path) -> None:
    """And the other way round; whatever is delivered leaves no file."""
    path = kept_by("first", "a:1", spool).save(REPORT)
    longer = ReportOutbox(spool, "second", ["b:1", "a:1"])
    (found,) = longer.earlier()
    assert (found.path, found.worker, found.servers) == (path, "first", ("a:1",))
    assert longer.save(REPORT) == path, "no second file"
    (found,) = ReportOutbox(spool, "third", ["b:1", "c:1"]).earlier()
    assert (found.worker, found.servers) == ("first", ("a:1", "b:1"))
    assert ReportOutbox(spool, "third", ["c:1"]).earlier() == []
    longer.remove(REPORT)
    assert files(spool) == []


def test_the_largest_result_can_be_kept(spool: Path) -> None:
    large = REPORT.model_copy(update={"data": '{"a":"' + "x" * (DATA_BYTES_MAX - 8) + '"}'})
    kept_by("first", "a:1", spool).save(large)
    (found,) = kept_by("first", "a:1", spool).earlier()
    assert found.report == large


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"worker":"a","verb":"DeleteJob","report":{"jobID":1}}', "\xff"]
)
def test_a_file_that_is_no_report_is_passed_over(spool: Path, text: str) -> None:
    path = kept_by("first", "a:1", spool).save(REPORT)
    assert path is not None
    path.write_text(text, encoding="latin-1")
    assert kept_by("first", "a:1", spool).earlier() == []


def test_a_link_is_not_followed(spool: Path, tmp_path: Path) -> None:
    path = kept_by("first", "a:1", spool).save(REPORT)
    assert path is not None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert kept_by("first", "a:1", spool).earlier() == []


def test_a_pipe_is_neither_waited_for_nor_read(spool: Path) -> None:
    path = kept_by("first", "a:1", spool).save(REPORT)
    assert path is not None
    text = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    assert kept_by("first", "a:1", spool).earlier() == []
    pipe = os.open(path, os.O_RDWR)
    os.write(pipe, text)
    assert kept_by("first", "a:1", spool).earlier() == []
    os.close(pipe)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_report_of_another_user_is_not_read(spool: Path) -> None:
    path = kept_by("first", "a:1", spool).save(REPORT)
    assert path is not None
    os.chown(path, 65534, 65534)
    assert kept_by("first", "a:1", spool).earlier() == []


def test_of_a_large_file_no_more_is_read_than_a_report_can_have(spool: Path) -> None:
    path = kept_by("first", "a:1", spool).save(REPORT)
    assert path is not None
    os.truncate(path, 1 << 40)
    assert kept_by("first", "a:1", spool).earlier() == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert kept_by("first", "a:1", tmp_path / "file" / "kept").save(REPORT) is None
    assert messages(caplog, "report not saved")
    assert kept_by("first", "a:1", None).save(REPORT) is None


def test_files_have_a_limit(spool: Path, monkeypatch: Any) -> None:
    assert FILES_MAX == 1_000
    monkeypatch.setattr("bedrock_worker.report.reporter.FILES_MAX", 2)
    kept = kept_by("first", "a:1", spool)
    found = [kept.save(REPORT.model_copy(update={"run_id": number})) for number in (1, 2, 3)]
    assert [path is not None for path in found] == [True, True, False]
    assert len(kept.earlier()) == 2
    monkeypatch.setattr("bedrock_worker.report.reporter.FILES_MAX", 1)
    assert len(kept.earlier()) == 1


def test_a_run_that_nothing_fences_is_not_kept(spool: Path) -> None:
    assert kept_by("first", "a:1", spool).save(REPORT.model_copy(update={"run_id": None})) is None
