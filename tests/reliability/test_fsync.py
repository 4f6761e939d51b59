"""After a failed sync the state on disk is unknown, so the server ends, and the next start determines it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.history import Ledger, judge
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Server
from tests.reliability.shim import built

pytestmark = pytest.mark.reliability

EXIT_DISK = 74


async def test_the_server_ends_after_a_failed_sync(tmp_path: Path) -> None:
    database, trigger = tmp_path / "jobs.db", tmp_path / "trigger"
    ledger = Ledger()
    shim = {"LD_PRELOAD": str(built()), "SHIM_DATABASE": str(database), "SHIM_TRIGGER": str(trigger)}
    async with Server(database, **shim) as server:
        port = await server.listening()
        client = await Recorded.connect(port, ledger)
        idle = await Recorded.connect(port, ledger)
        waiting = idle.start("GetJob", name="nothing/*", connection="wait", timeout=60_000)
        for number in range(20):
            assert (await client.create(f"before{number}")).code == 200
        taken = await client.ask("GetJob", name="*")
        assert taken is not None
        assert taken.code == 200
        trigger.touch()
        answer = await client.create("during")
        assert answer is None, f"the sync failed, yet there was an answer: {answer}"
        assert await waiting is None
        status, log = await server.ended()
    assert status == EXIT_DISK, log
    assert "fsync" in log.lower() or "disk" in log.lower()
    assert not trigger.exists(), "the fault was not used"

    async with Server(database) as server:
        client = await Recorded.connect(await server.listening(), ledger)
        assert (await client.create("after")).code == 200
        await look(client)
    report = judge(ledger)
    assert not report.faults, report
    assert report.counts["created"] == 21
