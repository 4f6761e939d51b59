"""Interference with a server: its file is locked, or its file descriptors are used up."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import CreateJob, GetJob
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.server import Server
from tests.history import Ledger, judge
from tests.pace import in_time
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Launcher
from tests.reliability.wire import Cut, Wire, one_waits

pytestmark = pytest.mark.reliability

BUSY_S = 1.0
LAG_S_MAX = 0.5
"""Ten times the 50 ms that the event loop may lag: timings are only held to a ceiling here."""


async def test_another_process_holds_the_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, ledger, lags = tmp_path / "jobs.db", Ledger(), []
    async with Launcher(tmp_path / "log") as launcher:
        pid, port = await launcher.start({"database": str(database), "busy_s": BUSY_S})
        clients = [await Recorded.connect(port, ledger) for _ in range(3)]
        assert (await clients[0].create("before")).code == 200
        with closing(sqlite3.connect(database, isolation_level=None)) as outsider:
            outsider.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            creating = clients[0].start("CreateJob", name="job", data={"token": "during"})
            taking = clients[1].start("GetJob", name="*")
            while not (creating.done() and taking.done()):
                asked = time.monotonic()
                assert (await clients[2].ask("Ping")).code == 200  # type: ignore[union-attr]
                lags.append(time.monotonic() - asked)
                await asyncio.sleep(0.005)
            waited = time.monotonic() - began
            outsider.execute("ROLLBACK")
        for answer in (creating.result(), taking.result()):
            assert answer is not None
            assert (answer.code, answer.reason) == (503, "Database busy")
        assert (await clients[0].create("after")).code == 200
        assert len(await look(clients[0])) == 2
        assert await launcher.terminate(pid) == 0
    with capsys.disabled():
        print(
            f"\nlocked: answered after {waited:.2f} s, {len(lags)} pings, slowest {max(lags) * 1000:.1f} ms"
        )
    assert waited >= BUSY_S
    assert in_time(max(lags), LAG_S_MAX)
    assert not judge(ledger).faults


async def test_all_that_wait_for_a_lock_are_answered_together(tmp_path: Path) -> None:
    database, ledger = tmp_path / "jobs.db", Ledger()
    async with Launcher(tmp_path / "log") as launcher:
        pid, port = await launcher.start({"database": str(database), "busy_s": BUSY_S})
        clients = [await Recorded.connect(port, ledger) for _ in range(6)]
        with closing(sqlite3.connect(database, isolation_level=None)) as outsider:
            outsider.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            await asyncio.gather(*(client.create(f"during{number}") for number, client in enumerate(clients)))
            waited = time.monotonic() - began
            outsider.execute("ROLLBACK")
        assert await launcher.terminate(pid) == 0
    # One batch may be waiting already when the others come: two waits, and some room.
    assert in_time(waited, 3 * BUSY_S)


async def test_a_waiting_client_survives_a_locked_database(tmp_path: Path) -> None:
    database, ledger = tmp_path / "jobs.db", Ledger()
    async with Launcher(tmp_path / "log") as launcher:
        pid, port = await launcher.start({"database": str(database), "busy_s": BUSY_S})
        maker, taker = [await Recorded.connect(port, ledger) for _ in range(2)]
        waiting = taker.start("GetJob", name="*", connection="wait", timeout=20_000)
        await one_waits(port)
        with closing(sqlite3.connect(database, isolation_level=None)) as outsider:
            outsider.execute("BEGIN EXCLUSIVE")
            assert (await maker.create("refused")).code == 503
            assert not waiting.done()
            outsider.execute("ROLLBACK")
        created = await maker.create("accepted")
        assert created.code == 200
        answer = await waiting
        assert answer is not None
        assert answer.reply["jobID"] == created.reply["jobID"]
        await look(maker)
        assert await launcher.terminate(pid) == 0
    assert not judge(ledger).faults


async def test_a_start_waits_for_a_lock(tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    async with Launcher(tmp_path / "log") as launcher:
        pid, _ = await launcher.start({"database": str(database)})
        assert await launcher.terminate(pid) == 0
        with closing(sqlite3.connect(database, isolation_level=None)) as outsider:
            outsider.execute("BEGIN EXCLUSIVE")
            began = time.monotonic()
            pid = await launcher.order({"database": str(database), "busy_s": BUSY_S})
            async with asyncio.timeout(10):
                while "jobs.db: another process keeps it locked" not in (tmp_path / "log").read_text():
                    await asyncio.sleep(0.05)
            assert time.monotonic() - began >= BUSY_S
            outsider.execute("ROLLBACK")
            assert await launcher.listening(pid)
            assert await launcher.terminate(pid) == 0


async def test_a_job_that_reached_nobody_goes_back_once_the_lock_is_gone(tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    server = Server(Settings(port=0, database=str(database), busy_s=BUSY_S))
    await server.start()
    try:
        await server.service.call(CreateJob(name="job"))
        with closing(sqlite3.connect(database, isolation_level=None)) as outsider:

            def nowhere(_: Outcome) -> bool:
                outsider.execute("BEGIN EXCLUSIVE")
                return False

            server.dispatcher.submit(GetJob(name="*"), nowhere)
            while not outsider.in_transaction:
                await asyncio.sleep(0.01)
            await asyncio.sleep(2 * BUSY_S)
            outsider.execute("ROLLBACK")
        async with asyncio.timeout(10):
            taken = await server.service.call(GetJob(name="*", connection="wait", timeout=5_000))
        assert '"jobID":1' in taken.body
    finally:
        await server.stop()


FILES = 64
CLIENTS = 200
CROWD_S = 5.0
"""All connections are tried once: long enough for a machine with short pauses."""
PROBE_S = 0.5
RECOVERED_S = 2.0
PROBED_S = 30.0
"""How long it is tried; how quickly it came back is judged by the pace of the machine."""


async def test_file_descriptors_run_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger()
    async with Launcher(tmp_path / "log") as launcher:
        pid, port = await launcher.start(
            {"database": str(tmp_path / "jobs.db")}, limits={"NOFILE": (FILES, FILES)}
        )
        first = await Recorded.connect(port, ledger)
        crowd = [await Wire.connect(port) for _ in range(CLIENTS)]
        served = sum(await asyncio.gather(*(answers(wire, CROWD_S) for wire in crowd)))
        assert (await first.create("crowded")).code == 200, "an open connection is served all the while"
        for wire in crowd:
            wire.close()
        began = time.monotonic()
        recovered_s = None
        while recovered_s is None and time.monotonic() - began < PROBED_S:
            if await answers(await Wire.connect(port), PROBE_S):
                recovered_s = time.monotonic() - began
        await look(first)
        first.close()
        assert await launcher.terminate(pid) == 0
    with capsys.disabled():
        print(f"\n{FILES} files, {CLIENTS} clients: {served} served; new ones again after {recovered_s} s")
    assert served > 0
    assert recovered_s is not None
    assert in_time(recovered_s, RECOVERED_S)
    assert not judge(ledger).faults


async def answers(wire: Wire, seconds: float) -> bool:
    """Return whether a new connection gets a reply in time."""
    try:
        async with asyncio.timeout(seconds):
            return (await wire.ask("Ping")).code == 200
    except (TimeoutError, Cut):
        return False
