"""The next job that comes with the reply to a report, and when none is requested."""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from pathlib import Path

import pytest
from bedrock_worker.pull import job_after, pattern_of

from bedrockjobs.base.config import PATTERNS_MAX
from tests.worker.conftest import until

WAITS = ("sh", "-c", 'until [ -e "$0/go" ]; do sleep 0.01; done')


async def test_a_slot_that_ends_a_job_takes_the_next_one_with_its_report(server, working):
    for _ in range(4):
        await server.add()
    async with working("true", mocked=True):
        await server.report(4)
        await server.until(lambda: server.waits)  # there was none with the last
    assert len(server.of("GetJobs")) == 2
    assert [report.given["jobID"] for report in server.reports] == [1, 2, 3, 4]
    assert server.reports[0].then_get == {
        "thenGet": "Foo*",
        "worker": "test",
        "heartbeat": True,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "getMockedJobs": True,
    }


async def test_as_many_are_taken_as_may_be(server, working):
    for _ in range(5):
        await server.add()
    async with working("true", jobs_max=3, concurrency=2) as worker:
        assert await worker.ended() == 0
    assert len(server.reports) == 3
    assert len(server._queue) == 2


@pytest.mark.parametrize("how", ["stop_taking", "stop"])
async def test_none_is_asked_for_by_a_worker_that_takes_no_more(server, working, tmp_path, how):
    for _ in range(2):
        await server.add()
    async with working(*WAITS, str(tmp_path), grace_s=1_000.0) as worker:
        await until(lambda: worker.agent._runs)
        getattr(worker.agent, how)()
        (tmp_path / "go").touch()
        assert (await server.report()).then_get == {}
    assert len(server._queue) == 1


async def test_none_is_asked_for_by_a_worker_that_is_drained(server, working, tmp_path):
    for _ in range(2):
        await server.add()
    async with working(*WAITS, str(tmp_path)) as worker:
        await until(lambda: worker.agent._runs)
        await server.drain()
        await until(lambda: worker.agent._drained)
        (tmp_path / "go").touch()
        assert (await server.report()).then_get == {}


async def test_names_that_no_text_says_are_asked_for_by_a_question(server, working):
    for _ in range(2):
        await server.add()
    async with working("true", names=("Foo*", "Bar*"), jobs_max=2) as worker:
        assert await worker.ended() == 0
    assert [report.then_get for report in server.reports] == [{}, {}]
    assert len(server.of("GetJobs")) == 2


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("Foo*",), "Foo*"),
        (("Foo",), "Foo"),
        (("Foo", "Bar"), "Foo,Bar"),
        (("Foo", "Bar*"), None),
        (("Foo,Bar",), None),
        (("Foo", " Bar"), None),
        (tuple(f"n{number}" for number in range(PATTERNS_MAX + 1)), None),
        (("a" * 20_000, "b"), None),
    ],
)
def test_names_as_one_text(names, text):
    assert pattern_of(names) == text


@pytest.mark.parametrize("body", [b"", b"{}", b'{"job":null}'])
def test_an_answer_without_a_job(body):
    assert job_after(body) is None


@pytest.mark.parametrize("body", [b"no", b"[]", b'{"job":{"a":1}}', b'{"job":1}', b"\xff"])
def test_an_answer_that_is_none(body):
    with pytest.raises(ValueError, match=r"."):
        job_after(body)


async def test_an_answer_that_cannot_be_read_ends_the_job_and_frees_the_slot(server, working):
    await server.add()
    server.answers["FinishJob"] = b"200 OK\r\nContent-Length: 3\r\n\r\n[1]"
    async with working("true"):
        await server.report()
        await server.until(lambda: server.waits)
    assert len(server.reports) == 1


async def test_a_job_that_comes_although_the_answer_was_lost_is_not_waited_for(server, working):
    """The server gives it to another when its lease is over; the slot asks anew."""
    for _ in range(3):
        await server.add()
    server.lost["FinishJob"] = 1
    async with working("true"):
        await server.report(3)
    done = [(report.given["jobID"], bool(report.then_get)) for report in server.reports]
    assert done == [(1, True), (1, True), (3, True)]
    assert len(server.of("GetJobs")) >= 2


async def test_a_report_that_is_kept_asks_for_nothing(server, working, tmp_path, monkeypatch):
    for name in ("LAST_REPORTS_S", "LAST_OUTPUT_S"):
        monkeypatch.setattr(f"bedrock_worker.agent.{name}", 0.05)
    server.refusals["FinishJob"] = deque(["503 Full"] * 10_000)
    await server.add()
    async with working("true", spool=tmp_path / "kept") as worker:
        await server.report()
        worker.agent.stop()
        worker.agent.stop()
        assert await worker.ended() == 69
    (file,) = Path(tmp_path / "kept").glob("*.json")
    assert json.loads(file.read_text())["report"] == {"exitCode": 0, "jobID": 1, "runID": 101}
