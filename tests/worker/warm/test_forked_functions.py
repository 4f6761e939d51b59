"""Functions in forked processes: what a process keeps, and when it is replaced."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from bedrock_worker.cli import main
from bedrock_worker.options import PROCESS_JOBS_MAX
from click.testing import CliRunner

from tests.effort import crossed
from tests.worker.conftest import children, ended, until
from tests.worker.warm.conftest import FORKED, HEAD, WAYS, imports, outcomes


@pytest.mark.parametrize(("way", "runs"), [("spawn", [1, 1, 1]), ("fork", [1, 1, 1]), ("reused", [1, 2, 3])])
async def test_what_a_process_keeps(ran, way, runs):
    found = await ran(WAYS[way], *['({"runs": runs, "pid": os.getpid()})'] * 3)
    assert [given["data"]["runs"] for _, given in found] == runs
    assert len({given["data"]["pid"] for _, given in found}) == (1 if way == "reused" else 3)
    assert imports() == (3 if way == "spawn" else 1)


async def test_a_process_is_replaced_after_so_many_jobs(ran):
    found = await ran({"isolation": "reuse", "process_jobs_max": 2}, *['({"runs": runs})'] * 5)
    assert [given["data"]["runs"] for _, given in found] == [1, 2, 1, 2, 1]
    assert imports() == 1


FAULTS = (
    "1 / 0",
    "sys.exit(0)",
    "os._exit(0)",
    "os.kill(os.getpid(), signal.SIGTERM)",
    "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "subprocess.Popen(['sleep', '1000'])",
    "(5)",
)


async def test_a_process_is_replaced_after_a_fault_and_where_something_is_left(ran):
    show = '({"runs": runs})'
    found = await ran(WAYS["reused"], show, *[do for fault in FAULTS for do in (fault, show)])
    shown = [given.get("data") for _, given in found[2::2]]
    assert found[0][1]["data"] == {"runs": 1}
    assert dict(zip(FAULTS, shown, strict=True)) == {fault: {"runs": 1} for fault in FAULTS}
    assert imports() == 1


async def test_a_process_is_used_again_after_an_end_that_is_meant(ran):
    ends = ("raise Retry", "raise Retry(3)", "raise Fail('x')", "print(1)")
    found = await ran(WAYS["reused"], *[do for end in ends for do in (end, '({"runs": runs})')])
    assert [given["data"]["runs"] for _, given in found[1::2]] == [2, 4, 6, 8]


@pytest.mark.parametrize(("way", "who"), crossed(FORKED, ["template", "process"]))
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
        (["--name", "a", "--isolation", "fork", "true"], "--isolation is for --module"),
        (["--name", "a", "--start-method", "fork", "true"], "--start-method is for --module"),
        (["--module", "m", "--isolation", "reuse", "--allow-daemons"], "expected spawn with --allow-daemons"),
        (
            ["--module", "m", "--isolation", "spawn", "--max-jobs-per-process", "2"],
            "expected --isolation reuse",
        ),
        (["--module", "m", "--max-jobs-per-process", "0"], "0 is not in the range 1<=x<=1000000"),
        (["--module", "m", "--isolation", "thread"], "'thread' is not one of 'reuse', 'fork', 'spawn'"),
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


async def test_a_run_whose_process_cannot_be_made_once_its_start_was_told_ends(ran, write, monkeypatch):
    monkeypatch.setattr("os.fork", os.fork)  # the worker is in this process, and imports the module
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


async def test_a_function_may_have_a_new_interpreter_for_each_run(ran, write):
    show = '({"runs": runs, "pid": os.getpid()})'
    found = await ran(WAYS["reused"], *[show] * 3, module=write(isolation="spawn"))
    assert [given["data"]["runs"] for _, given in found] == [1, 1, 1]
    assert len({given["data"]["pid"] for _, given in found}) == 3


@pytest.mark.parametrize(
    ("argv", "isolation", "runs"),
    [
        ([], "reuse", 100),
        (["--max-jobs-per-process", "7"], "reuse", 7),
        (["--allow-daemons"], "spawn", 1),
        (["--isolation", "fork"], "fork", 1),
        (["--start-method", "fork"], "fork", 1),
        (["--start-method", "fork", "--max-jobs-per-process", "7"], "reuse", 7),
        (["--start-method", "spawn"], "spawn", 1),
    ],
)
def test_what_isolates_functions(argv, isolation, runs, write, monkeypatch):
    found = []

    async def work(options, selector):
        found.append((options.isolation, options.process_jobs_max))
        return 0

    monkeypatch.setattr("bedrock_worker.cli._work", work)
    result = CliRunner().invoke(main, ["--as-root", "--module", write(), *argv])
    assert result.exit_code == 0, result.output
    assert found == [(isolation, runs)]
