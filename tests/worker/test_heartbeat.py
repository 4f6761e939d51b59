"""Heartbeats and leases: what the worker reports, and its reaction to stop requests and to silence."""

from __future__ import annotations

import asyncio
import os
from collections import deque

import pytest
from bedrock_worker.options import WorkerOptions
from bedrock_worker.pull import Heartbeats, ServerLink

from bedrockjobs.base.config import HEARTBEAT_S
from bedrockjobs.commands.runs import HeartbeatReply
from tests.pace import in_time
from tests.worker.conftest import gone, until

UNKNOWN = "430 Unrecognized command"
PIDS = 'sleep 1000 & echo $$ $! > "$0/new"; mv "$0/new" "$0/pids"; wait'


def pids(folder):
    """Return the processes of the command: its own and its child's."""
    return [int(pid) for pid in (folder / "pids").read_text().split()]


async def test_what_a_beat_says(server, working):
    """The first is answered at once, the others wait."""
    async with working("true", concurrency=3, names=("Foo*", "Bar")) as worker:
        await server.until(lambda: server.beats_waiting)
        worker.agent.stop()
        assert await worker.ended() == 0
    beats = [beat.given for beat in server.of("Heartbeat")]
    said = {
        "worker": "test",
        "runIDs": [],
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "slots": 3,
        "names": ["Foo*", "Bar"],
        "version": beats[0]["version"],
    }
    assert beats[0]["version"]
    assert beats == [
        said,
        {**said, "connection": "wait", "timeout": HEARTBEAT_S * 1_000},
        {**said, "leaving": True},
    ]
    assert [request.verb for request in server.requests][-1] == "Heartbeat"


async def test_last_beat_follows_the_one_on_its_way():
    """In another order the server would take the worker for one that came again."""
    said = []

    class Client:
        server = None

        async def call(self, command, *, hurry=None):
            if hurry is not None:
                await hurry.wait()
                await asyncio.sleep(0)
            said.append(command.leaving)
            return HeartbeatReply(stop=[], quiet=False)

    options = WorkerOptions(names=("Foo*",), argv=("true",), servers=())
    beats = Heartbeats(ServerLink(Client()), options, names=lambda: ("Foo*",), on_quiet=lambda _: None)
    beats.start_sending()
    await asyncio.sleep(0)
    await beats.send_last()
    assert said == [False, True]


async def test_a_new_run_is_named_soon(server, working, tmp_path):
    async with working("sh", "-c", PIDS, str(tmp_path)):
        await server.until(lambda: server.beats_waiting)
        await server.add()
        await server.until(lambda: server.of("Heartbeat")[-1].given["runIDs"] == [101])
        await server.stop_run(101, "KILL")
        await server.report()
        await server.until(lambda: server.of("Heartbeat")[-1].given["runIDs"] == [])


async def test_many_short_runs_make_few_beats(server, working, monkeypatch):
    monkeypatch.setattr("bedrock_worker.pull.GAP_S", 1_000.0)
    for _ in range(10):
        await server.add()
    async with working("true", burst=True) as worker:
        assert await worker.ended() == 0
    assert len(server.reports) == 10
    assert len(server.of("Heartbeat")) <= 2  # the first and the last


@pytest.mark.parametrize(("signal", "exit_code"), [("TERM", 143), ("KILL", 137)])
async def test_stop_reaches_the_whole_group_and_is_reported_as_usual(
    server, working, tmp_path, signal, exit_code
):
    async with working("sh", "-c", PIDS, str(tmp_path)):
        await server.add()
        await until((tmp_path / "pids").exists)
        await server.stop_run(101, signal)
        report = await server.report()
        await until(lambda: gone(*pids(tmp_path)))
    assert (report.verb, report.given) == (
        "FailJob",
        {"jobID": 1, "runID": 101, "exitCode": exit_code, "error": f"SIG{signal}"},
    )


async def test_a_stop_that_is_repeated_is_sent_once(server, working, tmp_path, monkeypatch):
    monkeypatch.setattr("bedrock_worker.run.job_run.BEATS_PER_LEASE", 100)
    script = (
        'trap "echo asked >> \\"$0/asked\\"" TERM; touch "$0/ready"; '
        'until [ -e "$0/go" ]; do sleep 0.01; done; exit 5'
    )
    async with working("sh", "-c", script, str(tmp_path)):
        await server.add(lease=30)  # a heartbeat each 0.3 s
        await until((tmp_path / "ready").exists)
        await server.stop_run(101, "TERM")
        await until((tmp_path / "asked").exists)
        beats = len(server.of("Heartbeat"))
        await server.until(lambda: len(server.of("Heartbeat")) > beats + 3)
        (tmp_path / "go").touch()
        assert (await server.report()).given["exitCode"] == 5
    assert (tmp_path / "asked").read_text() == "asked\n"


async def test_lost_run_is_killed_and_not_reported(server, working, tmp_path):
    async with working("sh", "-c", PIDS, str(tmp_path)) as worker:
        await server.add()
        await until((tmp_path / "pids").exists)
        await server.stop_run(101, "LOST")
        await until(lambda: gone(*pids(tmp_path)))
        (tmp_path / "pids").unlink()
        await server.add()  # and it goes on
        await until((tmp_path / "pids").exists)
        assert server.reports == []
        worker.agent.stop()
        worker.agent.stop()
        assert await worker.ended() == 0
    assert [report.given["jobID"] for report in server.reports] == [2]


async def test_drained_worker_takes_no_more_until_it_may(server, working, tmp_path):
    script = 'until [ -e "$0/go" ]; do sleep 0.01; done'
    async with working("sh", "-c", script, str(tmp_path), concurrency=2) as worker:
        await server.add()
        await server.until(lambda: server._running and server.asking)
        await server.drain()
        await until(lambda: worker.agent._drained and not server.asking)
        await server.add()
        (tmp_path / "go").touch()
        await server.report()
        await until(lambda: not worker.agent._tasks)
        assert len(server._queue) == 1
        await server.drain(False)
        assert (await server.report(2)).given["jobID"] == 2


async def test_drained_burst_ends(server, working):
    server.drained = True
    await server.add()
    server.refusals["GetJobs"] = deque(["404 No job found"])
    async with working("true", burst=True) as worker:
        assert await worker.ended() == 0


async def test_quiet_is_told(server, working):
    async with working("true") as worker:
        await server.until(lambda: server.beats_waiting)
        worker.agent.stop_taking()
        await server.until(lambda: server.of("Heartbeat")[-1].given.get("quiet"))
        worker.agent.resume()
        await server.until(lambda: not server.of("Heartbeat")[-1].given.get("quiet"))


async def test_beat_that_is_not_answered_is_tried_again(server, working, monkeypatch):
    monkeypatch.setattr("bedrock_worker.pull.ANSWER_S", 0.05)
    server.silent.add("Heartbeat")
    async with working("true"):
        await server.until(lambda: len(server.of("Heartbeat")) > 3)
        assert all("connection" not in beat.given for beat in server.of("Heartbeat"))


async def test_lease_is_kept_for_as_long_as_the_server_answers(once, server):
    report = await once(
        "sleep 3.5", options={"lease": 3}
    )  # less would be lost on a machine that stands still
    assert report.verb == "FinishJob"
    beats = [beat.given["timeout"] for beat in server.of("Heartbeat") if 101 in beat.given["runIDs"]]
    assert beats[-1] == 666


LEASE_S = 6
"""Its command is killed a second before, which a busy machine may take."""


@pytest.mark.parametrize("trap", ["", 'trap "" TERM; '])
async def test_run_ends_before_its_lease_and_nothing_is_reported(server, working, tmp_path, trap):
    """The server is away; it will give the job away when the lease is over."""
    loop = asyncio.get_running_loop()
    async with working("sh", "-c", trap + PIDS + "; sleep 1000", str(tmp_path), jobs_max=1) as worker:
        await server.add(lease=LEASE_S)
        await until((tmp_path / "pids").exists)
        await server.until(lambda: any(beat.given["runIDs"] for beat in server.of("Heartbeat")))
        await server.stop()
        away_at = loop.time()
        await until(lambda: gone(*pids(tmp_path)))
        assert in_time(loop.time() - away_at, LEASE_S)
        await worker.ended()
    assert server.reports == []


async def test_answered_beat_counts_from_when_it_was_sent(server, working, tmp_path, monkeypatch):
    """Beats that are answered too late do not keep a lease."""
    monkeypatch.setattr("bedrock_worker.run.job_run.BEATS_PER_LEASE", 0.5)  # each beat waits for two leases
    async with working("sh", "-c", PIDS, str(tmp_path), jobs_max=1) as worker:
        await server.add(lease=3)  # long enough for a program to start on a busy machine
        await until((tmp_path / "pids").exists)
        await until(lambda: gone(*pids(tmp_path)))
        assert await worker.ended() == 0
    assert server.reports == []


async def test_server_without_leases(server, working, caplog):
    server.answers["Heartbeat"] = f"{UNKNOWN}\r\nContent-Length: 0\r\n\r\n".encode()
    await server.add(lease=1)
    async with working("sh", "-c", "sleep 1.2", jobs_max=1) as worker:
        assert await worker.ended() == 0
    assert [report.verb for report in server.reports] == ["FinishJob"]
    assert sum("no leases" in record.getMessage() for record in caplog.records) == 1
