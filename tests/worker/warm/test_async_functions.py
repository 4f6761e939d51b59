"""Async functions share one process and its event loop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bedrock_worker import functions
from bedrock_worker.cli import main
from bedrock_worker.options import ISOLATIONS, WorkerOptions
from bedrock_worker.policy.program import ProgramSelector
from bedrock_worker.pull import jobs_of
from bedrock_worker.run import loop_client, loop_process
from click.testing import CliRunner

from bedrockjobs.base.config import RUNS_PER_HEARTBEAT_MAX
from tests.worker.conftest import options_for, until
from tests.worker.warm.conftest import imports

MODULE = """
import asyncio, os, sys, time
from contextvars import ContextVar
from bedrock_worker import Fail, Retry, Snooze, current_run, job, lifespan, middleware
from bedrockjobs.client.base import own_run

with open("imports", "a") as file:
    file.write(f"{os.getpid()}\\n")

if os.path.exists("broken") and "loop_process" in " ".join(sys.orig_argv):
    raise OSError("broken module")

opened = []
mark = ContextVar("mark")
barrier = asyncio.Barrier(2)

def note(text):
    with open("notes", "a") as file:
        file.write(f"{text}\\n")

async def there(path):
    while not os.path.exists(path):
        await asyncio.sleep(0.005)

@lifespan
async def connected():
    if os.path.exists("closed"):
        raise OSError("closed database")
    opened.append(asyncio.get_running_loop())
    yield
    note("closed")

@middleware
def outer(run):
    mark.set(f"of {run.job_id}")
    yield

@middleware
async def inner(run):
    await asyncio.sleep(0)
    yield

@job("Sync", timeout=600)
def waits(job):
    while not os.path.exists("go"):
        time.sleep(0.005)

@job("Foo*", **OPTIONS)
async def f(job):
    do = job.data["do"]
    space = {}
    exec(f"async def called(job):\\n {'return ' if do.startswith('(') else ''}{do}", globals(), space)
    return await space["called"](job)
"""

SHOW = (
    "({'pid': os.getpid(), 'own': opened == [asyncio.get_running_loop()], 'run': current_run().run_id,"
    " 'mark': mark.get(), 'variables': own_run().run_id, 'none': os.environ.get('BEDROCK_RUN_ID')})"
)
TOGETHER = "print('a', job.id); await barrier.wait(); print('b', mark.get()); print('c', file=sys.stderr)"
STAYS = "note(f'began {job.id}'); await there('go'); return {'pid': os.getpid()}"


@pytest.fixture(autouse=True)
def _no_hooks(monkeypatch):
    """Forget at the end what the worker's own import of a module has declared."""
    monkeypatch.setattr(functions, "_lifespans", [])
    monkeypatch.setattr(functions, "_middleware", [])


def notes():
    return Path("notes").read_text().splitlines() if Path("notes").exists() else []


def by_job(server):
    return {report.given["jobID"]: (report.verb, report.given) for report in server.reports}


async def test_runs_on_one_loop_do_not_meet(server, working, write):
    """A function that holds the only slot for processes does not hold up those on the loop."""
    dos = [
        *(TOGETHER, TOGETHER, SHOW, SHOW),
        "await asyncio.to_thread(print, 'thread', current_run().job_id)",
        "current_run().progress(0.4, 'half'); current_run().logger.info('logged'); print('no end', end='')",
        "raise Snooze(30)",
        "raise Fail('in vain')",
        "1 / 0",
        "sys.exit(7)",
        "raise Retry(7)",
        "(5)",
        "raise asyncio.CancelledError",
    ]
    async with working(module=write(MODULE), names=(), async_slots=4) as worker:
        await server.add("Sync")
        await server.until(lambda: any(ask.given["names"] == ["Foo*"] for ask in server.of("GetJobs")))
        assert server.of("GetJobs")[0].given["names"] == ["Sync", "Foo*"]
        assert server.of("GetJobs")[-1].given["numResults"] == 4
        for do in dos:
            await server.add(data=json.dumps({"do": do}))
        await server.report(len(dos))
        Path("go").touch()
        await server.report(len(dos) + 1)
        worker.agent.stop()
        assert await worker.ended() == 0
    found = by_job(server)
    assert [found[number][1]["exitCode"] for number in range(2, 15)] == [
        *[0] * 6,
        *(101, 100, 1, 7, 102, 1, 1),
    ]
    assert (found[8][1]["delay"], found[12][1]["delay"]) == (30, 7)
    assert found[9][1]["error"] == "Fail: in vain"
    first, *_, last = found[10][1]["error"].splitlines()
    assert first == last == "ZeroDivisionError: division by zero"
    assert "bedrock_worker" not in found[10][1]["error"]
    for number in (2, 3):
        assert sorted(server.output[100 + number]) == [
            ("err", "c"),
            ("out", f"a {number}"),
            ("out", f"b of {number}"),
        ]
    shown = {number: found[number][1]["data"] for number in (4, 5)}
    assert len({data.pop("pid") for data in shown.values()}) == 1
    for number, data in shown.items():
        run = 100 + number
        assert data == {"own": True, "run": run, "mark": f"of {number}", "variables": run, "none": None}
    assert server.output[106] == [("out", "thread 6")]
    assert sorted(server.output[107]) == [("err", "INFO logged"), ("out", "no end")]
    assert [request.given["progress"] for request in server.of("UpdateJob")] == [
        {"percent": 40, "message": "half"}
    ]
    assert imports() == 2  # a slot's, and the loop's
    assert notes() == ["closed"]
    assert server.of("Heartbeat")[0].given["slots"] == 5


async def test_how_one_run_ends_others(server, working, write, caplog):
    """A killed process hands back the innocent, a crash ends all, and a cancelled run only replaces it."""
    caplog.set_level("INFO", "bedrock_worker")
    module = write(MODULE)

    def said(start):
        return [text for text in (record.getMessage() for record in caplog.records) if text.startswith(start)]

    async def add(do, **options):
        return await server.add(data=json.dumps({"do": do}), **options)

    async def begin(*dos):
        numbers = [await add(do) for do in dos]
        await until(lambda: {f"began {number}" for number in numbers} <= set(notes()))
        return numbers

    async with working(module=module, async_slots=4, grace_s=0.0) as worker:
        for number, cause in ((1, "broken"), (2, "closed")):
            Path(cause).touch()
            await add("pass")
            assert (await server.report(number)).given["error"].startswith(f"OSError: {cause}")
            Path(cause).unlink()
        cancelled, bystander = await begin(STAYS, STAYS)
        blocks = await add("note('blocks'); time.sleep(1000)")
        await until(lambda: said("event loop blocked"))
        line = said("event loop blocked")[0]
        assert f'run="{100 + blocks} of Foo" at=<string>:2' in line
        await server.stop_run(100 + cancelled, "KILL")
        await server.report(5)
        found = by_job(server)
        assert [found[number][1].get("exitCode") for number in (cancelled, blocks)] == [137, 137]
        assert "it blocked the event loop" in str(server.output[100 + blocks])
        assert found[bystander][0] == "RetryJob"
        assert found[bystander][1]["returned"] is True

        (other,) = await begin(STAYS)
        crashes = await add("print('last words'); os._exit(0)")
        await server.report(7)
        found = by_job(server)
        assert [found[number][1].get("exitCode") for number in (other, crashes)] == [1, 1]
        assert server.output[100 + crashes] == [("out", "last words")]

        stays, *_ = await begin(STAYS)
        late = await add("await asyncio.sleep(1000)", runTimeout=1)
        await server.report(8)
        assert by_job(server)[late][1]["error"].startswith("timed out after 1 s (SIGTERM)")
        changes = await add("os.umask(0o7); return {'pid': os.getpid()}")
        await server.report(9)
        after = await add("return {'pid': os.getpid()}")
        await server.report(10)
        Path("go").touch()
        await server.report(11)
        data = {number: by_job(server)[number][1]["data"] for number in (stays, changes, after)}
        assert len({each["pid"] for each in data.values()}) == 3  # one finishes, one has changed, one is new
        Path("go").unlink()
        (held,) = await begin(STAYS)
        worker.agent.stop()
        assert await worker.ended() == 0
        assert by_job(server)[held][1]["returned"] is True
    assert len(said("async process replaced")) >= 2


def test_what_may_run_on_the_loop(server, write):
    """By name, so that a take never brings a job without a slot of its kind."""
    text = """
from bedrock_worker import job
@job("a/*")
async def a(): pass
@job("a/b", isolation="fork")
async def b(): pass
@job("c")
async def c(): pass
@job("d*")
def d(): pass
"""
    module = write(text)

    def kinds(*argv, **options):
        selector = ProgramSelector(options_for(server, *argv, module=module, **options))
        names = ("a/*", "a/b", "a/x*", "c", "d*", "*", "x")
        found = {name: "".join("PL"[kind] for kind in sorted(selector.kinds_of(name))) for name in names}
        head = '{"created":"","data":{},"jobID":1,"lastRun":"","nextRun":"","priority":5,"repeat":""'
        head += ',"retryAfter":"","name":'
        jobs = jobs_of(
            f'{{"jobs":[{head}"c"}},{head}"a/b"}},{head}"x"}},{head}"c","cmd":"true"}}]}}'.encode()
        )
        return found, selector.has_loop, [selector.is_on_loop(job) for job in jobs]

    assert kinds() == (
        {"a/*": "PL", "a/b": "PL", "a/x*": "L", "c": "L", "d*": "P", "*": "PL", "x": "P"},
        True,
        [True, False, False, False],
    )
    assert kinds("true", allow_cmd=("c",))[0]["c"] == "PL"
    for isolation in ISOLATIONS[1:]:
        assert kinds(isolation=isolation) == (dict.fromkeys(kinds()[0], "P"), False, [False] * 4)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], 100),
        (["--async-slots", "7"], 7),
        (["--concurrency", "950"], 50),
        (
            ["--concurrency", "950", "--async-slots", "51"],
            "expected at most 1000 together with --concurrency",
        ),
        (["--isolation", "fork", "--async-slots", "7"], "expected --isolation reuse, got fork"),
        (["--async-slots", "0"], "0 is not in the range 1<=x<=1000"),
    ],
)
def test_slots(argv, expected, write, monkeypatch):
    found = []

    async def work(options, selector):
        found.append(options.async_slots)
        return 0

    monkeypatch.setattr("bedrock_worker.cli._work", work)
    result = CliRunner().invoke(main, ["--as-root", "--module", write(MODULE), *argv])
    assert found == ([expected] if isinstance(expected, int) else [])
    assert isinstance(expected, int) or expected in " ".join(result.output.split())
    assert (WorkerOptions.async_slots, RUNS_PER_HEARTBEAT_MAX) == (100, 1_000)
    assert (loop_client.RETIRED_MAX, loop_client.CANCEL_S) == (4, 1.0)
    assert (loop_process.BLOCKED_S, loop_process.CHECK_S) == (1.0, 0.25)


def test_messages_arrive_in_pieces():
    sent = [({"run": 1}, b""), ({"done": 2}, b"x" * 70_000)]
    data = b"".join(loop_process.frame_of(*each) for each in sent)
    for size in (1, 9, 4_096, len(data)):
        frames = loop_process.Frames()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [message for piece in pieces for message in frames.feed(piece)] == sent
    with pytest.raises(ValueError, match="too long"):
        list(loop_process.Frames().feed(b"HTTP/1.1 200 OK"))


async def test_an_end_that_frees_no_slot_leaves_a_waiting_request_alone(server, working, write, monkeypatch):
    """It asks for async functions, and is cut short only by an end after which it would ask for more."""
    monkeypatch.setattr("bedrock_worker.agent.RUN_S_FIRST", 0.001)
    monkeypatch.setattr("bedrock_worker.agent.WEIGHT", 0.0)
    monkeypatch.setattr("bedrock_worker.agent.HELD_S_MAX", 1_000)
    Path("go").touch()
    for _ in range(30):
        await server.add("Sync")
    async with working(names=("Sync", "Foo"), module=write(MODULE)):
        await server.report(30)
        await server.until(lambda: server.asking)
    asked = [request.given["names"] for request in server.of("GetJobs")]
    assert asked[:2] == [["Sync", "Foo"], ["Foo"]]
    assert len(asked) <= 4
