"""One server owns a database: a second is refused, a standby takes over, a stopped one drops nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.history import Ledger, judge
from tests.reliability.load import Load
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Launcher, Server

pytestmark = pytest.mark.reliability

EXIT_OWNED = 69
TAKEN_OVER_S = 2.0
TAKEOVERS = int(os.environ.get("RELIABILITY_TAKEOVERS", "10"))
DRAINS = 5
LOAD_S = 0.4


async def test_a_second_server_is_refused_and_told_of_the_first(tmp_path: Path) -> None:
    async with Server(tmp_path / "jobs.db") as first:
        port = await first.listening()
        async with Server(tmp_path / "jobs.db") as second:
            status, log = await second.ended()
        assert status == EXIT_OWNED
        assert f"pid {first.pid}" in log
        assert f"127.0.0.1:{port}" in log
        first.send(signal.SIGTERM)
        assert (await first.ended())[0] == 0


async def test_a_standby_that_is_told_to_go_ends(tmp_path: Path) -> None:
    async with Server(tmp_path / "jobs.db") as first:
        await first.listening()
        async with Server(tmp_path / "jobs.db", "--standby") as second:
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
    assert max(times) < TAKEN_OVER_S
    assert not report.faults, report
    assert report.counts["created"] > TAKEOVERS


async def test_a_stopped_server_answers_everybody_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, ledger = tmp_path / "jobs.db", Ledger()
    load = Load(ledger, seed=9)
    times = []
    for _ in range(DRAINS):
        async with Server(database) as server:
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
    async with Server(database) as server:
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
    async with Server(tmp_path / "jobs.db") as server:
        client = await Recorded.connect(await server.listening(), Ledger())
        waiting = client.start("GetJob", name="*", connection="wait", timeout=60_000)
        await asyncio.sleep(0.2)
        server.send(signal.SIGTERM)
        answer = await waiting
        assert answer is not None
        assert (await server.ended())[0] == 0
        assert answer.closing
