"""Functions behave the same in each way of getting a process."""

from __future__ import annotations

import json
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

from tests.worker.conftest import children, ended, gone, until
from tests.worker.test_command_line import program
from tests.worker.warm.conftest import outcomes


async def test_how_functions_end(ran, way):
    found = await ran(
        way,
        '({"a": job.data["do"][:3]})',
        "pass",
        "raise Retry",
        "raise Snooze(30)",
        'raise Fail("in vain")',
        "1 / 0",
        "sys.exit(7)",
        "os._exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "(5)",
        "(None)",
        "raise Retry(7)",
    )
    assert outcomes(found) == [
        ("FinishJob", 0, {"a": '({"'}),
        ("FinishJob", 0, None),
        ("FailJob", 102, None),
        ("RetryJob", 101, None),
        ("FailJob", 100, None),
        ("FailJob", 1, None),
        ("FailJob", 7, None),
        ("FailJob", 3, None),
        ("FailJob", 137, None),
        ("FailJob", 1, None),
        ("FinishJob", 0, None),
        ("FailJob", 102, None),
    ]
    assert found[3][1]["delay"] == 30
    assert "delay" not in found[2][1]
    assert (found[11][1]["delay"], found[11][1]["retries"]) == (7, 3)
    errors = [given.get("error", "").splitlines() for _, given in found]
    assert (errors[2], errors[4], errors[6]) == (["Retry: try again"], ["Fail: in vain"], ["exit status 7"])
    assert errors[5][0] == errors[5][-1] == "ZeroDivisionError: division by zero"
    assert errors[11] == ["Retry: try again in 7 s"]
    assert [given["runID"] for _, given in found] == [100 + number for number in range(1, 13)]


async def test_a_result_that_is_no_text_says_where(ran, way):
    """JSON cannot say it, and to change it silently would be worse."""
    for text in ("'x' * 50 + chr(0xdc80)", "'y' * 5_000 + chr(0xd800)"):
        found = await ran(way, f"({{'name': {text}}})", first=1 if "x" in text else 2)
        given = found[-1][1]
        assert given["exitCode"] == 1
        last = given["error"].splitlines()[-1]
        assert last.startswith("ValueError: the function returned text that is not Unicode")
        assert last.endswith(("xxx\\udc80'", "yyy\\ud800'"))


async def test_text_that_is_not_unicode_is_said_wherever_a_function_gives_it(ran, server, way):
    """As a key or deep in a result it is refused; in an error, in output and in progress it is replaced."""
    found = await ran(
        way,
        "({'a': [{chr(0xdc80): 1}]})",
        "raise ValueError('z' + chr(0xdc80))",
        "print('p' + chr(0xdc80)) or print('q' + chr(0xd800), file=sys.stderr)",
        "print('::progress 40 ' + chr(0xdc80) + 'half::')",
    )
    assert [given.get("exitCode") for _, given in found] == [1, 1, 0, 0]
    errors = [given.get("error", "") for _, given in found]
    assert "text that is not Unicode" in errors[0].splitlines()[-1]
    assert errors[1].splitlines()[-1].startswith("ValueError: z")
    assert [(stream, text[0]) for stream, text in sorted(server.output[103])] == [("err", "q"), ("out", "p")]
    (told,) = [request.given["progress"] for request in server.of("UpdateJob")]
    assert (told["percent"], told["message"][-4:]) == (40, "half")
    json.dumps([given for _, given in found]).encode()


async def test_what_functions_print_is_the_output_of_their_run(ran, server, way):
    prints = 'print("out", job.id); print("err", job.id, file=sys.stderr); sys.stdout.write("no end")'
    await ran(way, prints, prints, "os.system('echo below')")
    for run, number in ((101, 1), (102, 2)):
        assert sorted(server.output[run]) == [
            ("err", f"err {number}"),
            ("out", "no end"),
            ("out", f"out {number}"),
        ]
    assert server.output[103] == [("out", "below")]


async def test_progress(ran, server, way):
    await ran(way, 'print("::progress 40 half::")')
    assert [request.given["progress"] for request in server.of("UpdateJob")] == [
        {"percent": 40, "message": "half"}
    ]


SHOW = """({
    "env": sorted(os.environ), "job": os.environ["BEDROCK_JOB_ID"],
    "tmp": __import__("tempfile").gettempdir(),
    "own": os.path.dirname(os.environ["BEDROCK_DATA_FILE"]), "cwd": os.getcwd(),
    "stdin": __import__("json").load(sys.stdin)["jobID"],
    "leads": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "privileges": [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")],
    "secret": os.environ.get("SECRET"),
})""".replace("\n", " ")


async def test_what_functions_find(ran, way, tmp_path, monkeypatch):
    """The same in all ways, at the second run too; nothing of the worker's own environment."""
    monkeypatch.setenv("SECRET", "hunter2")
    found = await ran(way, SHOW, 'os.environ["SECRET"] = "mine"; os.chdir("/")', SHOW, env={"MORE": "1"})
    for number, (_, given) in ((1, found[0]), (3, found[2])):
        data = given["data"]
        kept = [name for name in ("PATH", "HOME", "LANG", "TZ", "PYTHONPATH") if name in os.environ]
        own = [
            f"BEDROCK_{name}"
            for name in (
                "ATTEMPT",
                "DATA_FILE",
                "JOB_ID",
                "NAME",
                "RESULT",
                "RUN_ID",
                "SCHEDULED_FOR",
                "SERVER",
            )
        ]
        assert [name for name in data["env"] if name != "LC_CTYPE"] == sorted([*kept, *own, "MORE", "TMPDIR"])
        assert data["tmp"] == data["own"]
        assert data["cwd"] == str(tmp_path / "module")
        assert (data["job"], data["stdin"], data["leads"]) == (str(number), number, True)
        assert data["privileges"] == ["NoNewPrivs:\t1\n"]
        assert data["secret"] is None
        await until(lambda own=data["own"]: not Path(own).exists())  # its guard's to remove, which may last


async def test_results_of_the_jobs_before_belong_to_one_run(server, working, write, way):
    shown = """({
        "file": open(os.environ["BEDROCK_BEFORE_FILE"]).read() if "BEDROCK_BEFORE_FILE" in os.environ else "",
        "there": sorted(os.listdir(os.path.dirname(os.environ["BEDROCK_DATA_FILE"]))), "pid": os.getpid(),
    })""".replace("\n", " ")
    given = [{"before": {"a": {"n": 1}}}, {}, {"before": {}}, {}]
    async with working(module=write(), **way):
        for number, options in enumerate(given, 1):
            await server.add(data=json.dumps({"do": shown}), **options)
            await server.report(number)
    found = [report.given["data"] for report in server.reports]
    assert [each["file"] for each in found] == ['{"a": {"n": 1}}', "", "{}", ""]
    assert [each["there"] for each in found] == [["before.json", "job.json"], ["job.json"]] * 2
    assert len({each["pid"] for each in found}) == (1 if way["isolation"] == "reuse" else 4)


async def test_a_function_over_its_time_is_ended_with_its_group(ran, way, tmp_path):
    """The next one finds another process."""
    late = "open(f'pid{job.id}', 'w').write(str(subprocess.Popen(['sleep', '1000']).pid)); time.sleep(1000)"
    found = await ran(way, late, "print(1)", late=1)
    assert outcomes(found)[1] == ("FinishJob", 0, None)
    assert found[0][0] == "FailJob"
    assert found[0][1]["error"].startswith("timed out after 2.5 s (SIGTERM)")
    assert ended(int((tmp_path / "module" / "pid1").read_text()))


async def test_a_function_that_does_not_listen_is_killed(ran, way):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    found = await ran(way, deaf, "print(1)", late=1, grace_s=0.2)
    assert found[0][1]["error"].startswith("timed out after 2.5 s (SIGKILL)")
    assert outcomes(found)[1] == ("FinishJob", 0, None)


async def test_a_traceback_says_whether_the_file_is_another_one_by_now(ran, write, way):
    """It shows the lines of now, which are not those that failed."""
    name = write()
    change = f"open('{name}.py', 'a').write('# mended'); 1 / 0"
    found = await ran(way, "1 / 0", change, module=name)
    errors = [given["error"].splitlines() for _, given in found]
    assert errors[0][:2] == ["ZeroDivisionError: division by zero", "Traceback (most recent call last):"]
    note = f"{Path(f'{name}.py').resolve()}: changed since the worker imported it, restart the worker"
    assert errors[1][1] == (errors[0][1] if way["isolation"] == "spawn" else note)
    assert errors[1][-1] == errors[0][-1]


LEAVE = (
    "[subprocess.Popen(['sh', '-c', 'echo $$ > $0.new; mv $0.new $0; exec sleep 1000', f'left{n}'],"
    " start_new_session=bool(n)) for n in (0, 1)]; wait_for('left0'); wait_for('left1')"
)


async def test_nobody_outlives_the_run_of_a_function(ran, way, tmp_path):
    def pids():
        return [int((tmp_path / "module" / f"left{number}").read_text()) for number in (0, 1)]

    async def all_gone(_, number):
        if number == 1:
            assert gone(*pids())

    found = await ran(way, LEAVE, "print(1)", then=all_gone)
    assert [verb for verb, _ in found] == ["FinishJob", "FinishJob"]


async def test_stop_hands_a_function_back(server, working, write, way):
    await server.add(data=json.dumps({"do": "open('began', 'w'); time.sleep(1000)"}))
    async with working(module=write(), grace_s=0.0, **way) as worker:
        await until(lambda: Path("began").exists())
        worker.agent.stop()
        assert await worker.ended() == 0
    assert server.reports[0].given["returned"] is True


async def test_a_server_that_wants_a_run_stopped(server, working, write, way):
    await server.add(data=json.dumps({"do": "open('began', 'w'); time.sleep(1000)"}))
    async with working(module=write(), **way):
        await until(lambda: Path("began").exists())
        await server.stop_run(101, "TERM")
        assert (await server.report()).given["error"].startswith("SIGTERM")


@asynccontextmanager
async def at_work(server, write, way):
    """Run a worker as a program, whose function left two processes and waits; yield all below it."""
    name = write()
    await server.add(
        data=json.dumps({"do": f"{LEAVE}; open('pid', 'w').write(str(os.getpid())); time.sleep(1000)"})
    )
    argv = ["--module", name, "--name", "Foo*", "--isolation", way["isolation"]]
    async with program(server, *argv) as worker:
        await until(lambda: Path("pid").exists() and Path("pid").read_text())
        left = [int(Path(file).read_text()) for file in ("left0", "left1", "pid")]
        try:
            yield worker, left
        finally:
            for pid in left:
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)


async def test_nobody_outlives_the_worker(server, write, way, scratch):
    async with at_work(server, write, way) as (worker, left):
        below = _below(worker.pid)
        worker.kill()
        await until(lambda: gone(*left, *below))
        await until(lambda: not list(scratch.glob("bedrock-job-*")))


async def test_nobody_outlives_a_guard(server, write, way):
    async with at_work(server, write, way) as (worker, left):
        (watchdog,) = children(worker.pid)
        (guard,) = children(watchdog)
        os.kill(guard, signal.SIGKILL)
        await until(lambda: gone(*left))
        assert (await server.report()).given["error"].startswith("SIGKILL")


def _below(pid):
    found = children(pid)
    return found + [other for child in found for other in _below(child)]


async def test_a_thread_that_is_no_daemon_is_waited_for(ran, way):
    found = await ran(way, "threading.Timer(0.2, lambda: print('late')).start()")
    assert outcomes(found) == [("FinishJob", 0, None)]


async def test_exit_functions_run(ran, server, way):
    if way["isolation"] == "reuse":
        way = {"isolation": "fork", "process_jobs_max": 1}
    await ran(way, "__import__('atexit').register(print, 'bye')")
    assert server.output[101] == [("out", "bye")]


async def test_a_changed_variable_is_what_it_was_in_the_next_run(ran, way):
    show = '({"path": os.environ["PATH"], "seen": os.popen("echo $PATH $MORE").read().split()})'
    found = await ran(way, show, 'os.environ["PATH"] = "/x"; os.environ["MORE"] = "1"', show)
    path = os.environ["PATH"]
    assert [found[at][1]["data"] for at in (0, 2)] == [{"path": path, "seen": [path]}] * 2
