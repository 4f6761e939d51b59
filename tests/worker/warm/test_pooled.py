"""A reused process gets its runs from the worker directly; its guard still does its work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from bedrock_worker.run.template import RESULT_BYTES_MAX

from tests.effort import crossed
from tests.worker.conftest import gone, until
from tests.worker.test_command_line import program
from tests.worker.warm.conftest import HEAD, WAYS, imports, outcomes

REUSED = WAYS["reused"]


async def test_what_runs_again_says_how_it_ended(ran):
    """As in any other process; each of these is the second run of its process, or its last."""
    ends = [
        '({"a": 1})',
        "raise Retry",
        "raise Retry(30)",
        "raise Fail('x')",
        "1 / 0",
        "sys.exit(7)",
        "os._exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "(5)",
    ]
    found = await ran(REUSED, *[do for end in ends for do in ("pass", end)])
    assert outcomes(found)[1::2] == [
        ("FinishJob", 0, {"a": 1}),
        ("FailJob", 102, None),
        ("FailJob", 102, None),
        ("FailJob", 100, None),
        ("FailJob", 1, None),
        ("FailJob", 7, None),
        ("FailJob", 3, None),
        ("FailJob", 137, None),
        ("FailJob", 1, None),
    ]
    assert found[5][1]["delay"] == 30
    assert found[9][1]["error"].splitlines()[-1] == "ZeroDivisionError: division by zero"


ORPHAN = (
    "subprocess.run(['sh', '-c', 'sh -c"
    ' "echo \\\\$\\\\$ > left.new; mv left.new left; exec sleep 1000" &\']);'
    " wait_for('left')"
)


async def test_an_orphan_of_a_later_run_is_ended_before_its_report(ran):
    async def look(_, number):
        if number == 2:
            assert gone(int(Path("left").read_text()))

    found = await ran(REUSED, "pass", ORPHAN, '({"runs": runs})', then=look)
    assert outcomes(found)[1:] == [("FinishJob", 0, None), ("FinishJob", 0, {"runs": 1})]
    assert imports() == 1


async def test_a_later_run_over_its_time_is_ended(ran):
    found = await ran(REUSED, "pass", "time.sleep(1000)", '({"runs": runs})', late=2)
    assert found[1][1]["error"].startswith("timed out after 2.5 s (SIGTERM)")
    assert outcomes(found)[2] == ("FinishJob", 0, {"runs": 1})


async def test_a_later_run_that_ends_although_it_was_signalled_is_the_last_of_its_process(
    server, working, write
):
    listens = "signal.signal(signal.SIGTERM, lambda *_: open('heard', 'w')); open('began', 'w')"
    async with working(module=write(), **REUSED):
        for number, do in enumerate(("pass", f"{listens}; wait_for('heard')", '({"runs": runs})'), 1):
            await server.add(data=json.dumps({"do": do}))
            if number == 2:
                await until(lambda: Path("began").exists())
                await server.stop_run(102, "TERM")
            await server.report(number)
    assert [report.verb for report in server.reports] == ["FinishJob"] * 3
    assert server.reports[2].given["data"] == {"runs": 1}


async def test_a_later_run_is_handed_back_when_the_worker_stops(server, working, write):
    async with working(module=write(), grace_s=0.0, **REUSED) as worker:
        await server.add(data=json.dumps({"do": "pass"}))
        await server.report()
        await server.add(data=json.dumps({"do": "open('began', 'w'); time.sleep(1000)"}))
        await until(lambda: Path("began").exists())
        worker.agent.stop()
        assert await worker.ended() == 0
    assert server.reports[1].given["returned"] is True


async def test_a_later_run_that_is_another_s_by_now_is_killed_and_not_reported(server, working, write):
    async with working(module=write(), **REUSED):
        await server.add(data=json.dumps({"do": "pass"}))
        await server.report()
        await server.add(
            data=json.dumps({"do": "open('began', 'w').write(str(os.getpid())); time.sleep(99)"})
        )
        await until(lambda: Path("began").exists() and Path("began").read_text())
        await server.stop_run(102, "LOST")
        await until(lambda: gone(int(Path("began").read_text())))
        await server.add(data=json.dumps({"do": '({"runs": runs})'}))
        await server.report(2)
    assert [report.given["jobID"] for report in server.reports] == [1, 3]


@pytest.mark.parametrize("who", ["guard", "template", "process"])
async def test_whoever_is_killed_takes_a_later_run_along(server, working, write, who):
    left = "subprocess.Popen(['sleep', '1000'], start_new_session=True).pid"
    do = f"left = {left}; open('new', 'w').write(f'{{os.getpid()}} {{left}}'); os.rename('new', 'pids');"
    do += " time.sleep(99)"
    async with working(module=write(), **REUSED):
        await server.add(data=json.dumps({"do": "open('ppid', 'w').write(str(os.getppid()))"}))
        await server.report()
        await server.add(data=json.dumps({"do": do}))
        await until(lambda: Path("pids").exists())
        template = int(Path("ppid").read_text())
        process, child = map(int, Path("pids").read_text().split())
        guard = int(Path(f"/proc/{template}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill({"guard": guard, "template": template, "process": process}[who], signal.SIGKILL)
        report = await server.report(2)
        assert (report.verb, report.given["exitCode"]) == ("FailJob", 137)
        await until(lambda: gone(process, child))
        await server.add(data=json.dumps({"do": '({"runs": runs})'}))
        assert (await server.report(3)).given["data"] == {"runs": 1}


async def test_a_worker_that_stands_still_beyond_its_lease_has_its_later_run_killed(server, write, tmp_path):
    name = write()
    argv = ["--module", name, "--max-jobs-per-process", "9"]
    async with program(server, *argv) as worker:
        await server.add(data=json.dumps({"do": "pass"}))
        await server.report()
        do = "open('new', 'w').write(str(os.getpid())); os.rename('new', 'pid'); time.sleep(99)"
        await server.add(data=json.dumps({"do": do}), lease=6)
        await until(lambda: Path("pid").exists())
        worker.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: gone(int(Path("pid").read_text())))
        finally:
            worker.send_signal(signal.SIGCONT)
        await server.add(data=json.dumps({"do": '({"runs": runs})'}))
        await server.until(lambda: any(report.given["jobID"] == 3 for report in server.reports))
    assert 2 not in [report.given["jobID"] for report in server.reports]


async def test_each_run_has_a_folder_as_if_it_were_new(ran):
    list_it = '({"there": sorted(os.listdir(os.environ["TMPDIR"]))})'
    dos = (
        list_it,
        "open(os.environ['TMPDIR'] + '/more', 'w')",
        list_it,
        "__import__('shutil').rmtree(os.environ['TMPDIR'])",
        list_it,
        "open(os.environ['BEDROCK_RESULT'], 'w').write('{\"by\": 1.50}')",
        list_it,
        "path = os.environ['BEDROCK_DATA_FILE']; os.remove(path); os.symlink('/dev/null', path)",
    )
    found = await ran(REUSED, *dos)
    assert [found[at][1]["data"] for at in (0, 2, 4, 6)] == [{"there": ["job.json"]}] * 4
    assert found[5][1]["data"] == {"by": 1.5}
    assert [verb for verb, _ in found] == ["FinishJob"] * 8


@pytest.mark.parametrize("length", [RESULT_BYTES_MAX - 20, RESULT_BYTES_MAX + 1, 300_000])
async def test_results_of_any_size(ran, length):
    do = f'({{"long": "é" * {length // 2}}})'
    found = await ran(REUSED, do, do)
    assert outcomes(found) == [("FinishJob", 0, {"long": "é" * (length // 2)})] * 2


async def test_jobs_of_any_size(ran):
    do = '({"length": len(job.data["do"]), "file": os.path.getsize(os.environ["BEDROCK_DATA_FILE"])})'
    short, long, again = await ran(REUSED, do, do + " " * 200_000, do)
    assert long[1]["data"]["length"] == short[1]["data"]["length"] + 200_000
    assert long[1]["data"]["file"] > 200_000
    assert again[1]["data"]["file"] == short[1]["data"]["file"]


SAY = (
    "[os.write(int(n), %s) for n in os.listdir('/proc/self/fd') if int(n) > 2 and"
    " os.path.exists(f'/proc/self/fd/{n}') and os.readlink(f'/proc/self/fd/{n}').startswith('socket')];"
)
"""What finds the handle that a process has for the end of a run, and writes there."""


@pytest.mark.parametrize(
    ("before", "word"), crossed([("pass",), ()], ["b'no'", "b'[]'", 'b\'{"done": "x"}\'', "b'{'"])
)
async def test_a_function_that_writes_to_the_worker_itself_is_ended(ran, word, before):
    found = await ran(REUSED, *before, f"{SAY % word} time.sleep(99)", '({"runs": runs})')
    assert outcomes(found)[len(before) :] == [("FailJob", 137, None), ("FinishJob", 0, {"runs": 1})]


@pytest.mark.parametrize("before", [("pass",), ()], ids=["later", "first"])
async def test_a_function_tells_of_the_end_of_its_run_and_nothing_else(ran, tmp_path, before):
    """Not of what its guard tells the worker, as that a process is gone and its folder is to be removed."""
    kept = tmp_path / "kept"
    kept.mkdir()
    say = {"done": 0, "gone": 1, "folder": str(kept), "signalled": True, "left": 9, "error": 2, "process": 1}
    word = repr(json.dumps(say).encode())
    found = await ran(REUSED, *before, f"{SAY % word} time.sleep(99)")
    assert outcomes(found)[-1] == ("FinishJob", 0, None)
    assert kept.exists()


async def test_the_process_of_a_slot_is_gone_with_the_worker(server, working, write, scratch):
    async with working(module=write(), **REUSED):
        await server.add(data=json.dumps({"do": '({"pid": os.getpid()})'}))
        await server.add(data=json.dumps({"do": "pass"}))
        await server.report(2)
        pid = server.reports[0].given["data"]["pid"]
        assert not gone(pid)
    await until(lambda: gone(pid))
    await until(lambda: not list(scratch.iterdir()))


async def test_a_process_is_not_kept_where_no_handle_is_left(server, working, write, monkeypatch):
    def none_left(*_, **__):
        raise OSError(24, "too many")

    monkeypatch.setattr("bedrock_worker.run.watchdog_client.Alarm", none_left)
    async with working(module=write(), **REUSED):
        for number in (1, 2):
            await server.add(data=json.dumps({"do": '({"runs": runs})'}))
            await server.report(number)
    assert [report.given["data"] for report in server.reports] == [{"runs": 1}] * 2


async def test_the_folder_of_a_process_is_gone_with_it(server, working, write, scratch):
    """Also where it had no run, and where a command took its place."""
    async with working("true", module=write(), names=("Foo*", "Bar"), **REUSED):
        for number, name in enumerate(("Foo", "Bar", "Foo"), 1):
            await server.add(name, data=json.dumps({"do": '({"pid": os.getpid()})'}))
            await server.report(number)
            assert len(list(scratch.iterdir())) == (name == "Foo")
        os.kill(server.reports[2].given["data"]["pid"], signal.SIGKILL)
        await until(lambda: not list(scratch.iterdir()))


async def test_the_folder_of_a_process_is_gone_with_its_guard(server, working, write, scratch):
    async with working(module=write(), **REUSED) as worker:
        await server.add(data=json.dumps({"do": '({"ppid": os.getppid()})'}))
        template = (await server.report()).given["data"]["ppid"]
        await until(lambda: not worker.agent._runs)
        assert list(scratch.iterdir())
        os.kill(int(Path(f"/proc/{template}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        await until(lambda: not list(scratch.iterdir()))


READS = [
    "sys.stdin.readline()",
    "sys.stdin.read(5) + sys.stdin.read()",
    "sys.stdin.buffer.read(3).decode() + sys.stdin.read()",
    "[sys.stdin.read(), sys.stdin.seek(0), sys.stdin.read(5)][0]",
    "open(0, closefd=False).read()",
    "open(os.environ['BEDROCK_DATA_FILE']).read()",
    "(sys.stdin.close(), os.read(0, 10_000).decode())[1]",
    "(os.read(0, 10_000).decode(), os.close(0))[0]",
    "(subprocess.run(['cat'], stdout=subprocess.PIPE).stdout.decode(), os.close(0))[0]",
]


async def test_each_run_reads_its_own_job_from_the_beginning(ran):
    reads = [read for read in READS for _ in range(3)]
    found = await ran(REUSED, *[f'({{"job": json.loads({read})["jobID"]}})' for read in reads])
    jobs = [(read, given["data"]["job"]) for read, (_, given) in zip(reads, found, strict=True)]
    assert jobs == [(read, number) for number, read in enumerate(reads, 1)]


async def test_a_connection_of_asyncio_is_kept_from_run_to_run(ran, server, write):
    """Each run has an event loop of its own; the client and its connection are those of the process."""
    client = f"globals().setdefault('kept', bedrockjobs.AsyncClient('{server.address}'))"
    called = f"asyncio.run({client}.call(bedrockjobs.commands.CreateJob(name='child'))).job_id"
    look = f"({{'pid': os.getpid(), 'runs': runs, 'made': {called}}})"
    found = await ran(REUSED, look, look, look, module=write(f"import asyncio, bedrockjobs.commands\n{HEAD}"))
    results = [data for _, _, data in outcomes(found)]
    assert [data["runs"] for data in results] == [1, 2, 3], "a control"
    assert len({data["pid"] for data in results}) == 1
    assert len({data["made"] for data in results}) == len(server.of("CreateJob")) == 3
