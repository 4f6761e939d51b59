"""Functions in each way of getting a process: a new interpreter, a fork, a process for several runs."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bedrock_worker.cli import main
from bedrock_worker.options import PROCESS_JOBS_MAX
from click.testing import CliRunner

from tests.worker.conftest import children, ended, gone, until
from tests.worker.test_command_line import program

HEAD = """
import os, signal, subprocess, sys, threading, time
from bedrock_worker import Fail, Job, Retry, job

with open("imports", "a") as file:
    file.write(f"{os.getpid()}\\n")

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.005)

runs = 0

@job("Foo*", **OPTIONS)
def f(job):
    global runs
    runs += 1
    do = job.data.get("do", "pass")
    exec(f"def called(job):\\n {'return ' if do.startswith('(') else ''}{do}", globals())
    return called(job)
"""

WAYS = {
    "spawn": {"start_method": "spawn"},
    "fork": {"start_method": "fork"},
    "reused": {"start_method": "fork", "process_jobs_max": 100},
}

_made = 0


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return what writes the module under a new name; it is the current folder's."""
    known = set(sys.modules)
    folder = tmp_path / "module"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def module(text=HEAD, **options):
        global _made
        _made += 1
        name = f"warm_{_made}"
        (folder / f"{name}.py").write_text(text.replace("**OPTIONS", f"**{options!r}"))
        return name

    yield module
    for name in set(sys.modules) - known:
        if name.startswith("warm_"):
            del sys.modules[name]


@pytest.fixture(params=WAYS)
def way(request):
    """Return the options of one way."""
    return WAYS[request.param]


@pytest.fixture
def ran(server, working, write):
    """Return what runs functions one after the other in one slot, and returns their reports."""

    async def run(way, *dos, module=None, then=None, **more):
        async with working(module=module or write(), **way, **more) as worker:
            for number, do in enumerate(dos, 1):
                await server.add(data=json.dumps({"do": do}))
                await server.report(number)
                if then is not None:
                    await then(worker, number)
        return [(report.verb, report.given) for report in server.reports]

    return run


def outcomes(reports):
    return [(verb, given.get("exitCode"), given.get("data")) for verb, given in reports]


async def test_how_functions_end(ran, way):
    found = await ran(
        way, '({"a": job.data["do"][:3]})', "pass", "raise Retry", "raise Retry(30)", 'raise Fail("in vain")',
        "1 / 0", "sys.exit(7)", "os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "(5)", "(None)",
    )  # fmt: skip
    assert outcomes(found) == [
        ("FinishJob", 0, {"a": '({"'}), ("FinishJob", 0, None), ("RetryJob", 75, None),
        ("RetryJob", 101, None), ("FailJob", 100, None), ("FailJob", 1, None), ("FailJob", 7, None),
        ("FailJob", 3, None), ("FailJob", 137, None), ("FailJob", 1, None), ("FinishJob", 0, None),
    ]  # fmt: skip
    assert found[3][1]["delay"] == 30
    assert found[4][1]["error"].splitlines() == ["exit status 100", "in vain"]
    assert found[5][1]["error"].splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert [given["runID"] for _, given in found] == [100 + number for number in range(1, 12)]


async def test_what_functions_print_is_the_output_of_their_run(ran, server, way):
    prints = 'print("out", job.id); print("err", job.id, file=sys.stderr); sys.stdout.write("no end")'
    await ran(way, prints, prints, "os.system('echo below')")
    for run, number in ((101, 1), (102, 2)):
        assert sorted(server.output[run]) == [
            ("err", f"err {number}"), ("out", "no end"), ("out", f"out {number}"),
        ]  # fmt: skip
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
        own = [f"BEDROCK_{name}" for name in (
            "ATTEMPT", "DATA_FILE", "JOB_ID", "NAME", "RESULT", "RUN_ID", "SCHEDULED_FOR", "SERVER"
        )]  # fmt: skip
        assert [name for name in data["env"] if name != "LC_CTYPE"] == sorted([*kept, *own, "MORE", "TMPDIR"])
        assert data["tmp"] == data["own"]
        assert data["cwd"] == str(tmp_path / "module")
        assert (data["job"], data["stdin"], data["leads"]) == (str(number), number, True)
        assert data["privileges"] == ["NoNewPrivs:\t1\n"]
        assert data["secret"] is None
        assert not Path(data["own"]).exists()


async def test_a_function_over_its_time_is_ended_with_its_group(ran, write, way, tmp_path):
    """The next one finds another process."""
    late = "open(f'pid{job.id}', 'w').write(str(subprocess.Popen(['sleep', '1000']).pid)); time.sleep(1000)"
    found = await ran(way, late, "print(1)", module=write(timeout=0.5))
    assert outcomes(found)[1] == ("FinishJob", 0, None)
    assert found[0][0] == "FailJob"
    assert found[0][1]["error"].startswith("timed out after 0.5 s (SIGTERM)")
    assert ended(int((tmp_path / "module" / "pid1").read_text()))


async def test_a_function_that_does_not_listen_is_killed(ran, write, way):
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    found = await ran(way, deaf, "print(1)", module=write(timeout=0.5), grace_s=0.2)
    assert found[0][1]["error"].startswith("timed out after 0.5 s (SIGKILL)")
    assert outcomes(found)[1] == ("FinishJob", 0, None)


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
    argv = ["--module", name, "--name", "Foo*", "--start-method", way["start_method"]]
    if "process_jobs_max" in way:
        argv += ["--max-jobs-per-process", str(way["process_jobs_max"])]
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


# --- forked processes ------------------------------------------------------------------------------------


FORKED = [WAYS["fork"], WAYS["reused"]]


def imports():
    return len(set(Path("imports").read_text().split())) - 1  # the worker's own is the first


@pytest.mark.parametrize(("way", "runs"), [("spawn", [1, 1, 1]), ("fork", [1, 1, 1]), ("reused", [1, 2, 3])])
async def test_what_a_process_keeps(ran, way, runs):
    found = await ran(WAYS[way], *['({"runs": runs, "pid": os.getpid()})'] * 3)
    assert [given["data"]["runs"] for _, given in found] == runs
    assert len({given["data"]["pid"] for _, given in found}) == (1 if way == "reused" else 3)
    assert imports() == (3 if way == "spawn" else 1)


async def test_a_process_is_replaced_after_so_many_jobs(ran):
    found = await ran({"start_method": "fork", "process_jobs_max": 2}, *['({"runs": runs})'] * 5)
    assert [given["data"]["runs"] for _, given in found] == [1, 2, 1, 2, 1]
    assert imports() == 1


@pytest.mark.parametrize(
    "fault",
    [
        "1 / 0", "sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGTERM)",
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "subprocess.Popen(['sleep', '1000'])", "(5)",
    ],
)  # fmt: skip
async def test_a_process_is_replaced_after_a_fault_and_where_something_is_left(ran, fault):
    show = '({"runs": runs})'
    found = await ran(WAYS["reused"], show, fault, show)
    assert [given.get("data") for _, given in found[::2]] == [{"runs": 1}, {"runs": 1}]
    assert imports() == 1


@pytest.mark.parametrize("end", ["raise Retry", "raise Retry(3)", "raise Fail('x')", "print(1)"])
async def test_a_process_is_used_again_after_an_end_that_is_meant(ran, end):
    found = await ran(WAYS["reused"], end, '({"runs": runs})')
    assert found[1][1]["data"] == {"runs": 2}


async def test_a_thread_that_is_no_daemon_is_waited_for(ran, way):
    found = await ran(way, "threading.Timer(0.2, lambda: print('late')).start()")
    assert outcomes(found) == [("FinishJob", 0, None)]


async def test_exit_functions_run(ran, server, way):
    if way.get("process_jobs_max"):
        way = {"start_method": "fork", "process_jobs_max": 1}
    await ran(way, "__import__('atexit').register(print, 'bye')")
    assert server.output[101] == [("out", "bye")]


@pytest.mark.parametrize("way", FORKED, ids=["fork", "reused"])
@pytest.mark.parametrize("who", ["template", "process"])
async def test_who_is_killed_while_there_is_nothing_to_do_is_replaced(ran, way, who):
    async def kill(worker, number):
        if number == 1:
            parent = int(Path("ppid").read_text())
            found = [parent] if who == "template" else children(parent)
            for pid in found:
                os.kill(pid, signal.SIGKILL)
                assert ended(pid)

    found = await ran(way, "open('ppid', 'w').write(str(os.getppid()))", '({"runs": runs})', then=kill)
    assert outcomes(found)[1] == ("FinishJob", 0, {"runs": 1})


@pytest.mark.parametrize("way", FORKED, ids=["fork", "reused"])
async def test_a_template_that_is_killed_takes_the_run_along(ran, way):
    found = await ran(way, "os.kill(os.getppid(), signal.SIGKILL); time.sleep(1000)", "print(1)")
    assert outcomes(found) == [("FailJob", 137, None), ("FinishJob", 0, None)]
    assert imports() == 2


@pytest.mark.parametrize("way", FORKED, ids=["fork", "reused"])
async def test_an_import_that_fails_fails_the_job_and_says_why(server, working, write, way):
    name = write('import os\nif os.path.exists("broken"): 1 / 0\nprint("imported")\n' + HEAD)
    async with working(module=name, **way):
        Path("broken").touch()
        await server.add()
        report = await server.report()
        assert (report.verb, report.given["exitCode"]) == ("FailJob", 1)
        assert report.given["error"].splitlines()[-1] == "ZeroDivisionError: division by zero"
        Path("broken").unlink()
        await server.add()
        assert (await server.report(2)).verb == "FinishJob"
    assert server.output[102] == [("out", "imported")]


@pytest.mark.parametrize("way", FORKED, ids=["fork", "reused"])
async def test_a_command_in_between_ends_the_processes_of_functions(server, working, write, way):
    name = write()
    async with working("true", module=name, names=("Foo*", "Bar"), **way):
        for number, job in enumerate(("Foo", "Bar", "Foo"), 1):
            await server.add(job)
            assert (await server.report(number)).verb == "FinishJob"
    assert imports() == 2


async def test_each_slot_has_its_own(server, working, write):
    for number in range(4):
        await server.add(data=json.dumps({"do": f"open('at{number}', 'w'); wait_for('go')"}))
    async with working(module=write(), concurrency=4, **WAYS["reused"]):
        await until(lambda: all(Path(f"at{number}").exists() for number in range(4)))
        Path("go").touch()
        await server.report(4)
    assert imports() == 4


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--name", "a", "--start-method", "fork", "true"], "--start-method fork is for --module"),
        (
            ["--module", "m", "--start-method", "fork", "--allow-daemons"],
            "expected none with --allow-daemons",
        ),
        (["--module", "m", "--max-jobs-per-process", "2"], "expected 1, or --start-method fork"),
        (["--module", "m", "--max-jobs-per-process", "0"], "0 is not in the range 1<=x<=1000000"),
        (["--module", "m", "--start-method", "thread"], "'thread' is not one of 'spawn', 'fork'"),
    ],
)
def test_what_is_refused(argv, words):
    result = CliRunner().invoke(main, ["--as-root", *argv])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())
    assert PROCESS_JOBS_MAX == 1_000_000


NO_FORK = """
import os, time
from bedrock_worker import job

def fork():
    raise BlockingIOError(11, "no process is left")

os.fork = fork
end = time.monotonic() + 0.1
while time.monotonic() < end:  # long enough for the start of the run to be told
    pass

@job("Foo")
def f(job):
    pass
"""


async def test_a_run_whose_process_cannot_be_made_once_its_start_was_told_ends(ran, write):
    found = await ran(WAYS["fork"], "pass", module=write(NO_FORK))
    assert outcomes(found) == [("FailJob", 137, None)]


LIGHT = """
import sys
from bedrock_worker import job

@job("Foo")
def f(job):
    return {"threading": "threading" in sys.modules}
"""


async def test_a_template_imports_no_threading_of_its_own(ran, write):
    """What it does after a fork costs as much as the fork."""
    found = await ran(WAYS["reused"], "pass", "pass", module=write(LIGHT))
    assert [given["data"] for _, given in found] == [{"threading": False}] * 2


async def test_a_changed_variable_is_what_it_was_in_the_next_run(ran, way):
    show = '({"path": os.environ["PATH"], "seen": os.popen("echo $PATH $MORE").read().split()})'
    found = await ran(way, show, 'os.environ["PATH"] = "/x"; os.environ["MORE"] = "1"', show)
    path = os.environ["PATH"]
    assert [found[at][1]["data"] for at in (0, 2)] == [{"path": path, "seen": [path]}] * 2
