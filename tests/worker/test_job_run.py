"""One run: the input of the command, the meaning of its exit, and what remains of it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from bedrock_worker.pull import TakenJob
from bedrock_worker.report.reporter import (
    CompletedCommand,
    could_not_start,
    refused,
    report_of,
    result_of,
    try_again,
)
from bedrock_worker.run.process import ChildProcess

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DATA_BYTES_MAX, DELAY_S_MAX, DURATION_S_MAX, ERROR_CHARS_MAX
from bedrockjobs.commands import JobReply
from tests.worker.conftest import ended, gone
from tests.worker.fake_server import DEADLINE_S

FENCE = {"jobID": 1, "runID": 101}


@pytest.mark.parametrize(
    ("script", "verb", "given"),
    [
        ("exit 0", "FinishJob", {"exitCode": 0}),
        ('echo \'{"a":2.50}\' > "$BEDROCK_RESULT"', "FinishJob", {"exitCode": 0, "data": {"a": 2.5}}),
        ("exit 75", "RetryJob", {"delay": 10, "ignoreRepeat": True, "exitCode": 75}),
        (
            'echo \'{"at":3}\' > "$BEDROCK_RESULT"; exit 75',
            "RetryJob",
            {"delay": 10, "ignoreRepeat": True, "data": {"at": 3}, "exitCode": 75},
        ),
        ("exit 100", "FailJob", {"exitCode": 100, "final": True, "error": "exit status 100"}),
        (
            'echo \'{"delay":30}\' > "$BEDROCK_RESULT"; exit 101',
            "RetryJob",
            {"delay": 30, "ignoreRepeat": True, "snoozed": True, "exitCode": 101},
        ),
        ("exit 3", "FailJob", {"exitCode": 3, "error": "exit status 3"}),
        (
            'echo one; echo two >&2; echo \'{"b":1}\' > "$BEDROCK_RESULT"; exit 1',
            "FailJob",
            {"exitCode": 1, "data": {"b": 1}},
        ),
        ("kill -KILL $$", "FailJob", {"exitCode": 137, "error": "SIGKILL"}),
        ("kill -TERM $$", "FailJob", {"exitCode": 143, "error": "SIGTERM"}),
    ],
)
async def test_exit_status_rules(once, script, verb, given):
    report = await once(script)
    found = report.given
    if "error" not in given:
        found.pop("error", None)
    assert (report.verb, found) == (verb, {**FENCE, **given})


async def test_command_is_told_the_trace_of_its_job(once):
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    report = await once(
        'echo "{\\"trace\\": \\"$TRACEPARENT\\"}" > "$BEDROCK_RESULT"', options={"traceparent": trace}
    )
    assert report.given["data"] == {"trace": trace}


async def test_next_try_is_after_the_backoff_of_the_job(once):
    report = await once("exit 75", options={"backoff": 300})
    assert (report.verb, report.given["delay"]) == ("RetryJob", 300)


async def test_error_ends_with_the_last_lines(once):
    report = await once("for i in $(seq 30); do echo line $i; done; exit 2")
    assert report.given["error"].split("\n") == ["exit status 2", *(f"line {i}" for i in range(21, 31))]


NO_OBJECT = "the result file holds no JSON object: "
NO_FILE = "the result file is not a regular file (exit status 0)"
NO_LINK = "the result file cannot be read: Too many levels of symbolic links (exit status "
NO_DELAY = 'exit status 101 without a delay: expected {"delay": seconds} in the result'


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo "[1]" > "$BEDROCK_RESULT"', f"{NO_OBJECT}not a JSON object (exit status 0)"),
        ('printf "{\\"a\\":" > "$BEDROCK_RESULT"', f"{NO_OBJECT}Input data was truncated"),
        (': > "$BEDROCK_RESULT"', f"{NO_OBJECT}Input data was truncated"),
        ('printf "{\\"a\\":\\"\\377\\"}" > "$BEDROCK_RESULT"', f"{NO_OBJECT}'utf-8'"),
        ('mkfifo "$BEDROCK_RESULT"', NO_FILE),
        ('mkdir "$BEDROCK_RESULT"', NO_FILE),
        ('ln -s /etc/hostname "$BEDROCK_RESULT"', f"{NO_LINK}0)"),
        ('ln -s nowhere "$BEDROCK_RESULT"; exit 75', f"{NO_LINK}75)"),
        ("exit 101", NO_DELAY),
        ('echo \'{"delay":"soon"}\' > "$BEDROCK_RESULT"; exit 101', NO_DELAY),
        ('echo \'{"delay":-1}\' > "$BEDROCK_RESULT"; exit 101', NO_DELAY),
    ],
)
async def test_unusable_result_fails_the_run(once, script, words):
    report = await once(script)
    assert report.verb == "FailJob"
    assert report.given["error"].startswith(words)
    assert "data" not in report.given


def test_result_over_the_limit_is_refused(tmp_path):
    path = tmp_path / "result"
    padding = DATA_BYTES_MAX - len('{"a":""}')
    path.write_text(f'{{"a":"{"x" * padding}"}}')
    assert len(result_of(path)) == DATA_BYTES_MAX
    path.write_text(f'{{"a":"{"x" * (padding + 1)}"}}')
    with pytest.raises(ValueError, match="larger than 4194304 bytes"):
        result_of(path)
    os.truncate(path, 1 << 40)  # more than any memory: no more is read than is needed
    with pytest.raises(ValueError, match="larger than 4194304 bytes"):
        result_of(path)


@pytest.mark.parametrize(
    "report",
    [
        lambda job, words: report_of(job, CompletedCommand(3, [words]), Path("/nowhere")),
        lambda job, words: refused(job, ValueError(words)),
        could_not_start,
    ],
)
def test_errors_are_cut_to_what_a_job_keeps(report):
    job = TakenJob("", JobReply.model_construct(job_id=1, run_id=101))
    assert len(report(job, "x" * 2 * ERROR_CHARS_MAX).error) == ERROR_CHARS_MAX


def test_a_delay_is_cut_to_what_a_job_can_have():
    job = TakenJob("", JobReply.model_construct(job_id=1, run_id=101, backoff=DURATION_S_MAX))
    assert try_again(job).delay == DELAY_S_MAX < DURATION_S_MAX


HOSTILE = [
    "$(touch pwned)",
    "`id`",
    "; rm -rf .",
    "| cat",
    "&& false",
    "> file",
    "'",
    '"',
    "\\",
    "--help",
    "-rf",
    "%s%n",
    "\n\nFinishJob\n\n",
    "\r\n\r\n",
    "\x00",
    "\x1b[2J",
    "\u2028",
    "\ufeff",
    "\U0001f600",
    "e\u0301",
    "a" * 100_000,
    "../../etc/passwd",
    "${IFS}",
    "LD_PRELOAD=/x.so",
    "() { :;}; echo x",
    "{{7*7}}",
    " ",
    "",
    "\x7f",
    "\u202e",
]

SPELLED = [
    '{"a":2.50,"b":12345678901234567890,"z":1,"a2":-0.0,"e":1E5}',
    '{ "spaced" :\t[ 1 , 2 ] }',
    '{"\\u00e9":"\\/"}',
    '{"é":"\\ud83d\\ude00"}',
    "{}",
    '{"x":{},"y":[]}',
]


@pytest.mark.parametrize("script", ['cat > "$BEDROCK_RESULT"', 'cp "$BEDROCK_DATA_FILE" "$BEDROCK_RESULT"'])
async def test_data_arrives_byte_for_byte(server, working, script):
    """What the command reads on stdin, and in the file, is the job as the server sent it."""
    texts = [jsontext.dump({"value": value}) for value in HOSTILE]
    texts += [json.dumps({value or "empty": value}) for value in HOSTILE]
    texts += SPELLED
    for text in texts:
        await server.add("Foo", text)
    async with working("sh", "-c", script, concurrency=4, burst=True) as worker:
        assert await worker.ended() == 0
    found = {report.given["jobID"]: jsontext.members(report.raw("data"))["data"] for report in server.reports}
    assert [found[number] for number in range(1, len(texts) + 1)] == texts
    assert {report.verb for report in server.reports} == {"FinishJob"}


async def test_environment_is_clean(once, monkeypatch, tmp_path, scratch, server):
    for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "SECRET", "BASH_FUNC_x%%", "TMPDIR"):
        monkeypatch.setenv(name, "/hostile")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    script = 'tr "\\0" "\\n" < /proc/$$/environ > "$0"'
    report = await once(script, str(tmp_path / "seen"), env={"TOKEN": "t=1"}, timeout_s=60.0)
    assert report.verb == "FinishJob"
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    kept = {"PATH", "HOME", "LANG", "TZ"} & set(os.environ)
    own = {
        "DATA_FILE",
        "RESULT",
        "JOB_ID",
        "NAME",
        "SCHEDULED_FOR",
        "SERVER",
        "RUN_ID",
        "ATTEMPT",
        "DEADLINE",
    }
    assert set(seen) == kept | {"TMPDIR", "TOKEN"} | {f"BEDROCK_{name}" for name in own}
    assert seen["TOKEN"] == "t=1"
    assert seen["TMPDIR"].startswith(f"{scratch}/bedrock-job-1-")
    assert (seen["BEDROCK_JOB_ID"], seen["BEDROCK_RUN_ID"], seen["BEDROCK_ATTEMPT"]) == ("1", "101", "1")
    assert (seen["BEDROCK_NAME"], seen["BEDROCK_SERVER"]) == ("Foo", server.address)
    assert seen["BEDROCK_SCHEDULED_FOR"] == "2026-11-21 03:29:56.332"
    assert seen["BEDROCK_DEADLINE"] > seen["BEDROCK_SCHEDULED_FOR"][:4]


async def test_files_are_private_and_removed(once, scratch):
    script = (
        'test "$(stat -c %a "$BEDROCK_DATA_FILE")" = 600 && test "$(stat -c %a "$TMPDIR")" = 700 &&'
        ' mkdir -p "$TMPDIR/deep/er" && touch "$TMPDIR/deep/er/file" && ln -s /etc "$TMPDIR/link"'
    )
    report = await once(script)
    assert report.verb == "FinishJob"
    assert list(scratch.iterdir()) == []
    assert Path("/etc").is_dir()


async def test_results_of_the_jobs_before_are_in_a_file(once, scratch):
    before = {"é": {"rows": [1, 2.5]}, "b": None}
    script = """test "$(stat -c %a "$BEDROCK_BEFORE_FILE")" = 600 &&
        printf '{"file": %s, "stdin": %s}' "$(cat "$BEDROCK_BEFORE_FILE")" "$(cat)" > "$BEDROCK_RESULT" """
    report = await once(script, options={"workflowID": 7, "ref": "c", "before": before})
    found = report.given["data"]
    assert (found["file"], found["stdin"]["before"]) == (before, before)
    assert list(scratch.iterdir()) == []


async def test_timeout_ends_the_whole_group(once, tmp_path):
    pids = tmp_path / "pids"
    script = 'trap "" TERM; sleep 1000 & echo $$ $! > "$0"; echo waiting; wait; sleep 1000'
    report = await once(script, str(pids), timeout_s=0.3, grace_s=0.2)
    assert report.verb == "FailJob"
    assert report.given["error"] == "timed out after 0.3 s (SIGKILL)\nwaiting"
    assert report.given["exitCode"] == 137
    assert all(ended(int(pid)) for pid in pids.read_text().split())


async def test_timeout_begins_with_a_request_to_end(once):
    report = await once('trap "echo asked; exit 0" TERM; sleep 1000 & wait', timeout_s=0.3, grace_s=10.0)
    assert report.verb == "FailJob"
    assert report.given["error"] == "timed out after 0.3 s (exit status 0)\nasked"


async def test_what_a_command_leaves_running_is_ended(once, tmp_path):
    report = await once('sleep 1000 & echo $! > "$0"', str(tmp_path / "pid"))
    assert report.verb == "FinishJob"
    assert ended(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("script", ["exec >&- 2>&-; sleep 0.1; exit 7", "exec <&-; exit 7", "exit 7"])
async def test_command_that_closes_its_streams_or_reads_nothing(once, script):
    report = await once(script, data=jsontext.dump({"large": "x" * 1_000_000}))
    assert (report.verb, report.given["exitCode"]) == ("FailJob", 7)


LEAVES = 'setsid sh -c \'echo $$ > "$0"; exec sleep 1000\' "$0" & while [ ! -s "$0" ]; do :; done'
"""A command that leaves a process in a session of its own."""


async def test_process_that_leaves_the_group_ends_with_the_run(once, tmp_path):
    report = await once(LEAVES, str(tmp_path / "pid"))
    assert report.verb == "FinishJob"
    assert ended(int((tmp_path / "pid").read_text()))


async def test_process_that_may_live_on_does_and_does_not_hold_the_run(once, tmp_path):
    try:
        report = await once(LEAVES, str(tmp_path / "pid"), daemons=True)
        assert report.verb == "FinishJob"
        assert not gone(int((tmp_path / "pid").read_text()))
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)
    assert ended(int((tmp_path / "pid").read_text()))


async def test_flood_of_output_stays_out_of_memory(once, server):
    server.answers["AppendOutput"] = b"430 Unrecognized command\r\nContent-Length: 0\r\n\r\n"
    zeros = "head /dev/zero -c"
    tracemalloc.start()
    try:
        report = await once(f"{zeros} 10000000 | tr '\\0' x; echo; {zeros} 100000 | tr '\\0' '\\n'; exit 9")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert report.given["error"] == "exit status 9" + "\n" * 10


async def test_error_is_cut_to_what_a_job_keeps(once):
    report = await once("yes | tr -d '\\n' | fold -w 3000 | head -n 20; exit 9")
    assert 8_000 < len(report.given["error"]) <= ERROR_CHARS_MAX


async def test_output_is_logged_line_by_line(once, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    await once(
        r"printf 'plain\ttab\n\377bad \033[31mred\rover\n'; head -c 9000 /dev/zero | tr '\0' y;"
        r" printf '\nno end' >&2",
        echo=True,
    )
    heard = [record.getMessage() for record in caplog.records if " out: " in record.getMessage()]
    assert heard == [
        "job=1 run=101 out: plain\ttab",
        "job=1 run=101 out: \ufffdbad \\x1b[31mred\\rover",
        f"job=1 run=101 out: {'y' * 4096} [cut]",
    ]
    assert "job=1 run=101 err: no end" in [record.getMessage() for record in caplog.records]


async def test_output_is_logged_where_it_is_wanted_only(once, caplog):
    caplog.set_level("INFO", "bedrock_worker")
    await once("echo heard; echo seen >&2")
    assert not [line for line in caplog.messages if " out: " in line or " err: " in line]


async def _report_of_own(server, working, argv, **more):
    """Return the report of a job that brings this command."""
    await server.add(argv=argv)
    async with working(allow_cmd=("*",), jobs_max=1, **more):
        return await server.report()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nosuchprog", "x"], "cannot start nosuchprog: No such file or directory"),
        (["./none"], "cannot start ./none: No such file or directory"),
        (["/etc/passwd"], "cannot start /etc/passwd: Permission denied"),
        (["/etc/passwd/x"], "cannot start /etc/passwd/x: Not a directory"),
        (["/etc"], "cannot start /etc: Permission denied"),
        (["true", "a" * 200_000], "cannot start true: Argument list too long"),
        (["/" + "a" * 300], f"cannot start /{'a' * 199}...: File name too long"),
        (["no\x1b[2J"], "cannot start no\\x1b[2J: No such file or directory"),
    ],
)
async def test_command_that_never_starts_fails_with_the_reason(server, working, argv, words):
    report = await _report_of_own(server, working, argv)
    assert (report.verb, report.given) == ("FailJob", {**FENCE, "error": words})


async def test_program_of_no_known_format_fails(server, working, tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\0\1\2")
    program.chmod(0o700)
    report = await _report_of_own(server, working, [str(program)])
    assert report.given == {**FENCE, "error": f"cannot start {program}: Exec format error"}


async def test_command_whose_folder_went_missing_fails_with_the_folder(server, working, tmp_path):
    report = await _report_of_own(server, working, ["true"], cwd=tmp_path / "gone")
    words = f"cannot start true in {tmp_path / 'gone'}: No such file or directory"
    assert report.given == {**FENCE, "error": words}


async def test_workers_command_that_went_missing_fails(server, working, tmp_path):
    await server.add()
    async with working(str(tmp_path / "gone"), jobs_max=1):
        report = await server.report()
    words = f"cannot start {tmp_path / 'gone'}: No such file or directory"
    assert (report.verb, report.given) == ("FailJob", {**FENCE, "error": words})


async def test_command_that_cannot_start_just_now_is_tried_again(server, working, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    with program.open("a"):  # it is being written
        report = await _report_of_own(server, working, [str(program)])
    assert (report.verb, report.given) == ("RetryJob", {**FENCE, "delay": 10, "ignoreRepeat": True})


@pytest.mark.usefixtures("own_watchdog")
async def test_command_that_no_watchdog_can_be_started_for_is_tried_again(server, working, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("bedrock_worker.run.watchdog_client.subprocess.Popen", full)
    report = await _report_of_own(server, working, ["true"])
    assert (report.verb, report.given) == ("RetryJob", {**FENCE, "delay": 10, "ignoreRepeat": True})


async def test_name_that_no_environment_can_hold_fails_the_job(server, working):
    await server.add("Foo\0bar")
    async with working("true", jobs_max=1):
        report = await server.report()
    assert report.verb == "FailJob"
    assert report.given["error"].startswith("cannot start the command: ")


@pytest.mark.usefixtures("own_watchdog")
async def test_the_watchdog_runs_no_modules_of_the_current_folder(once, tmp_path, monkeypatch):
    for name in ("json", "select", "shutil", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert (await once("exit 0")).verb == "FinishJob"
    assert not (tmp_path / "ran").exists()


async def test_child_is_in_a_session_of_its_own(watchdog, tmp_path):
    given = {"cwd": None, "folder": tmp_path / "run", "data": "", "watchdog": watchdog}
    child = ChildProcess(["sleep", "1000"], env={}, listener=lambda *_: None, **given)
    assert child.pid == 0
    assert await child.started() == child.pid
    assert os.getsid(child.pid) == os.getpgid(child.pid) == child.pid
    assert child.running
    child.signal(9)
    async with asyncio.timeout(DEADLINE_S):
        assert await child.wait() == -9
    assert not child.running
    child.release()
