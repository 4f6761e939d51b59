"""One server owns a database: a second is refused, a standby takes over, a stopped server loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from bedrockjobs.client import AsyncClient
from bedrockjobs.commands import CreateJobs, ListJobs, ListRuns, Ping
from tests.effort import examples
from tests.history import Ledger, judge
from tests.pace import in_time
from tests.reliability.load import Load
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Forked, Launcher
from tests.reliability.wire import one_waits
from tests.worker.test_command_line import program

pytestmark = pytest.mark.reliability

EXIT_OWNED = 69
TAKEN_OVER_S = 2.0
TAKEOVERS = int(os.environ.get("RELIABILITY_TAKEOVERS", examples(2, night=200)))
DRAINS = examples(2, night=3)
LOAD_S = 0.4
HANDOVERS = 2
WORKERS = 2
RESULTS_S = 100.0
"""Time for what workers do, on a busy machine: a lease of 45 s may have to pass."""


async def test_a_second_server_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    async with Forked(tmp_path / "jobs.db") as first:
        port = await first.listening()
        async with Forked(tmp_path / "jobs.db") as second:
            status, log = await second.ended()
        assert status == EXIT_OWNED
        assert f"pid {first.pid}" in log
        assert f"127.0.0.1:{port}" in log
        first.send(signal.SIGTERM)
        assert (await first.ended())[0] == 0


async def test_a_standby_that_is_told_to_go_ends(tmp_path: Path) -> None:
    async with Forked(tmp_path / "jobs.db") as first:
        await first.listening()
        async with Forked(tmp_path / "jobs.db", "--standby") as second:
            await second.says("Standing by")
            second.send(signal.SIGTERM)
            assert (await second.ended())[0] == 0


async def test_standbys_take_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"database": str(tmp_path / "jobs.db"), "wal_bytes": 262_144, "standby": True}
    ledger = Ledger()
    load = Load(ledger, seed=5)
    times = []
    async with Launcher(tmp_path / "log") as launcher:
        active, port = await launcher.start(settings)
        load.server_is_at(port)
        load.start()
        for _ in range(TAKEOVERS):
            standby = await launcher.order(settings)
            await asyncio.sleep(LOAD_S)
            load.fail_if_a_client_did()
            began = time.monotonic()
            await launcher.kill(active)
            load.server_is_gone()
            load.server_is_at(await launcher.listening())
            times.append(time.monotonic() - began)
            active = standby
        await load.stop()
        client = await Recorded.connect(load.port, ledger)
        await look(client)
        client.close()
        assert await launcher.terminate(active) == 0
    report = judge(ledger)
    with capsys.disabled():
        print(f"\n{TAKEOVERS} take-overs, slowest {max(times):.2f} s: {report}")
    assert in_time(max(times), TAKEN_OVER_S)
    assert not report.faults, report
    assert report.counts["created"] > TAKEOVERS


async def test_workers_and_clients_with_both_addresses_go_on(tmp_path: Path) -> None:
    """
    Servers are killed alternately: each job's program runs once, and each result arrives.

    A take whose reply was lost with its server started no program: its run ends as frozen.
    """
    addresses = [f"unix:{tmp_path}/{name}" for name in "ab"]
    ran, script = tmp_path / "ran", 'echo "$BEDROCK_JOB_ID" >> "$0"; echo line; sleep 0.3'
    arguments = ("--concurrency", "4", "--spool", str(tmp_path / "spool"), "--", "sh", "-c", script, str(ran))
    jobs = 16 * (HANDOVERS + 1)

    def server(number: int) -> Forked:
        unix = addresses[number % 2].removeprefix("unix:")
        return Forked(tmp_path / "jobs.db", "--standby", "--unix", unix)

    async with AsyncExitStack() as stack:
        active = await stack.enter_async_context(server(0))
        await active.listening()
        for _ in range(WORKERS):
            await stack.enter_async_context(program(",".join(addresses), *arguments))
        client = await stack.enter_async_context(AsyncClient(addresses))
        await client.call(CreateJobs(jobs=[{"name": "Foo", "keepSuccess": jobs} for _ in range(jobs)]))
        for number in range(1, HANDOVERS + 1):
            standby = await stack.enter_async_context(server(number))
            await standby.says("Standing by")
            await _until(lambda number=number: len(_lines(ran)) >= 16 * number)
            active.send(signal.SIGKILL)
            await standby.listening()
            await client.call(Ping())
            assert str(client.server) == addresses[number % 2]
            active = standby
        await _until(lambda: len(_lines(ran)) >= jobs)
        async with asyncio.timeout(RESULTS_S):
            while (await client.call(ListJobs())).jobs:
                await asyncio.sleep(0.1)
        found = (await client.call(ListRuns(limit=jobs + WORKERS * HANDOVERS))).runs
    assert sorted(_lines(ran), key=int) == [str(number) for number in range(1, jobs + 1)]
    succeeded = [run for run in found if run.status == "success"]
    assert sorted(int(run.job_id) for run in succeeded) == list(range(1, jobs + 1))
    assert [run.output for run in succeeded] == [["line"]] * jobs
    lost = [(run.status, run.output) for run in found if run.status != "success"]
    assert lost == [("frozen", [])] * len(lost)


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(RESULTS_S):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_stopped_server_answers_everybody_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, ledger = tmp_path / "jobs.db", Ledger()
    load = Load(ledger, seed=9)
    times = []
    for _ in range(DRAINS):
        async with Forked(database) as server:
            port = await server.listening()
            load.server_is_at(port)
            if not load.busy:
                load.start()
            idle = await Recorded.connect(port, ledger)
            waiting = idle.start("GetJob", name="nothing/*", connection="wait", timeout=60_000)
            await asyncio.sleep(LOAD_S)
            load.fail_if_a_client_did()
            began = time.monotonic()
            server.send(signal.SIGTERM)
            answer = await waiting
            assert answer is not None, "a waiting GetJob is answered, not cut"
            assert (answer.code, answer.reason) == (404, "No job found")
            status, log = await server.ended()
            times.append(time.monotonic() - began)
            assert status == 0, log
            load.server_is_gone()
    async with Forked(database) as server:
        load.server_is_at(await server.listening())
        await load.stop()
        client = await Recorded.connect(load.port, ledger)
        jobs = await look(client)
    report = judge(ledger)
    with capsys.disabled():
        print(f"\n{DRAINS} stops, slowest {max(times):.2f} s: {report}")
    assert not report.faults, report
    assert not [job for job in jobs if job["state"] == "RUNNING"], "a job that was taken reached nobody"
    assert not report.counts["hand-outs lost with their answer"]
    assert not report.counts["creations unknown but done"], "what is done is answered"
    with closing(sqlite3.connect(database)) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_stopping_server_says_that_it_closes(tmp_path: Path) -> None:
    async with Forked(tmp_path / "jobs.db") as server:
        port = await server.listening()
        client = await Recorded.connect(port, Ledger())
        waiting = client.start("GetJob", name="*", connection="wait", timeout=60_000)
        await one_waits(port)
        server.send(signal.SIGTERM)
        answer = await waiting
        assert answer is not None
        assert (await server.ended())[0] == 0
        assert answer.closing
