"""A worker with several servers of one database: failover loses no result, and runs nothing twice."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.client import addresses_of
from tests.worker.conftest import agent_at_work, options_for, until
from tests.worker.fake_server import FakeServer

SCRIPT = """
echo ran >> "$0"; echo line
while [ ! -e "$0.go" ]; do sleep 0.01; done
echo '{"done":1}' > "$BEDROCK_RESULT"
"""
"""Notes that it ran, says a line, and ends once the test lets it."""


@pytest.fixture
async def servers() -> AsyncIterator[tuple[FakeServer, FakeServer]]:
    """Yield two servers of one database."""
    async with FakeServer() as first, FakeServer() as second:
        second._queue, second._running, second.output = first._queue, first._running, first.output
        yield first, second


@pytest.fixture
def working(servers: tuple[FakeServer, FakeServer]) -> Callable[..., Any]:
    """Return what makes an agent work at both servers, and ends it where the test has not."""
    addresses = addresses_of([server.address for server in servers])
    return lambda *argv, **more: agent_at_work(options_for(servers[0], *argv, servers=addresses, **more))


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """Return the file in which ``SCRIPT`` notes that it ran."""
    return tmp_path / "ran"


def go(ran: Path) -> None:
    """Let the command end."""
    ran.with_name("ran.go").touch()


async def test_server_dies_while_a_command_runs(
    servers: Any, working: Any, ran: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease, its output and its result go to the other, which the log tells once."""
    first, second = servers
    await first.add()
    async with working("sh", "-c", SCRIPT, str(ran), jobs_max=1) as worker:
        await first.until(lambda: first.output.get(101) == [("out", "line")])
        await first.stop()
        await second.until(
            lambda: second.of("Heartbeat") and second.of("Heartbeat")[-1].given["runIDs"] == [101]
        )
        go(ran)
        report = await second.report()
        assert (report.verb, report.given["jobID"], report.given["data"]) == ("FinishJob", 1, {"done": 1})
        assert await worker.ended() == 0
    assert ran.read_text() == "ran\n"
    assert (len(first.reports), len(second.reports)) == (0, 1)
    assert second._running == {}
    said = [it.getMessage() for it in caplog.records if "server changed" in it.getMessage()]
    assert said == [f"server changed server={second.address} before={first.address}"]


async def test_server_dies_with_the_answer_to_the_report(
    servers: Any, working: Any, ran: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other knows that the run is over: nothing is done twice, and nobody is worried."""
    first, second = servers
    caplog.set_level(logging.INFO)
    first.lost = {"FinishJob": 1}
    await first.add()
    go(ran)
    async with working("sh", "-c", SCRIPT, str(ran), jobs_max=1) as worker:
        await second.report()
        assert await worker.ended() == 0
    assert ran.read_text() == "ran\n"
    assert (len(first.reports), len(second.reports)) == (1, 1)
    (over,) = [record for record in caplog.records if "run already over" in record.getMessage()]
    assert over.levelno == logging.INFO


@pytest.mark.parametrize("refusal", ["503 Service Unavailable", "500 Internal Server Error"])
async def test_server_is_not_ready_for_the_report(
    servers: Any, working: Any, ran: Path, refusal: str
) -> None:
    first, second = servers
    first.refusals["FinishJob"] = deque([refusal] * 100)
    await first.add()
    go(ran)
    async with working("sh", "-c", SCRIPT, str(ran), jobs_max=1) as worker:
        await second.report()
        assert await worker.ended() == 0
    assert (len(first.reports), len(second.reports)) == (1, 1)


async def test_result_waits_until_any_of_them_is_there(
    servers: Any, working: Any, ran: Path, tmp_path: Path
) -> None:
    """Meanwhile it is a file, and the worker goes round all of them."""
    first, second = servers
    await first.add()
    spool = tmp_path / "kept"
    async with working("sh", "-c", SCRIPT, str(ran), jobs_max=1, spool=spool) as worker:
        await first.until(lambda: first.output.get(101))
        await first.stop()
        await second.stop()
        go(ran)
        await until(lambda: list(spool.glob("*.json")))
        await second.start()
        assert (await second.report()).given["jobID"] == 1
        assert await worker.ended() == 0
    assert not list(spool.iterdir())
    assert (ran.read_text(), len(first.reports)) == ("ran\n", 0)


async def test_silent_server_is_left_before_the_lease_is_over(
    servers: Any, working: Any, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is gone refuses nothing: the beat notices it, and the take waits no longer."""
    monkeypatch.setattr("bedrock_worker.pull.ANSWER_S", 0.2)
    monkeypatch.setattr("bedrockjobs.client.asynchronous.HURRY_S", 0.05)
    first, second = servers
    first.silent = {"Heartbeat", "GetJobs", "FinishJob"}
    go(ran)
    async with working("sh", "-c", SCRIPT, str(ran)):
        await second.until(lambda: second.of("Heartbeat") and second.asking)
        await second.add()
        await second.report()
    assert (ran.read_text(), len(first.of("FinishJob"))) == ("ran\n", 0)


async def test_jobs_are_taken_at_the_first_again_once_it_is_back(
    servers: Any, working: Any, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.client.base.RETURN_S", 0.0)
    first, second = servers
    await first.stop()
    go(ran)
    async with working("sh", "-c", SCRIPT, str(ran)):
        await second.add()
        await second.report()
        await second.until(lambda: second.asking)
        await first.start()
        await second.add()  # the answer to the question that waits; the next one goes to the first
        await first.until(lambda: first.asking)
    assert ran.read_text() == "ran\nran\n"
    assert len(first.reports) + len(second.reports) == 2


async def test_stop_and_leave_go_to_the_server_that_is_there(servers: Any, working: Any, ran: Path) -> None:
    """A stopped worker hands its report over and says goodbye, whoever is left."""
    first, second = servers
    await first.add()
    async with working("sh", "-c", SCRIPT, str(ran), grace_s=0.0) as worker:
        await first.until(lambda: first.output.get(101))
        await first.stop()
        worker.agent.stop()
        assert (await second.report()).given["jobID"] == 1
        assert await worker.ended() == 0
    assert second.of("Heartbeat")[-1].given.get("leaving") is True


async def test_quiet_is_told_to_the_server_that_is_there(servers: Any, working: Any) -> None:
    first, second = servers
    async with working("true") as worker:
        await first.until(lambda: first.asking)
        await first.stop()
        worker.agent.stop_taking()
        await second.until(lambda: second.of("Heartbeat") and second.of("Heartbeat")[-1].given.get("quiet"))
        await asyncio.gather(second.add(), second.until(lambda: second.beats_waiting))
        assert not second.of("GetJobs")[1:], "it asks for no more"
        worker.agent.resume()
        await second.report()
