"""Each write, truncation and sync fails once: no wrong 200, and the next start finds all acknowledged."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.effort import examples
from tests.history import Ledger, judge
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Launcher
from tests.reliability.shim import built

pytestmark = pytest.mark.reliability

CALLS = int(os.environ.get("RELIABILITY_CALLS", "50"))
"""How many of the first calls fail, one in each run; SQLite's own way of testing."""

CHECKPOINT_CALLS = examples(4, night=6)
CHECKPOINTED_BYTES = 1_500_000
"""Size of a job that fills a third of the log: every third one brings a checkpoint."""

STATUSES = (0, 1, 74)
"""A server may continue, refuse to start, or exit because the disk cannot be trusted."""

KINDS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "short write": 0}


SHARED_BY = examples(2 * len(KINDS), night=1)
"""By day the kinds of faults share every other call, so that each of these fails in one way; at night each
call fails in all of them."""


@pytest.mark.parametrize("kind", KINDS)
async def test_every_call_fails_once(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    first = 1 + 2 * list(KINDS).index(kind) % SHARED_BY
    async with Launcher(tmp_path / "log", LD_PRELOAD=str(built())) as launcher:
        for call in range(first, CALLS + 1, SHARED_BY):
            outcome = await one_call_fails(launcher, tmp_path / f"{call}.db", f"{call}:{KINDS[kind]}")
            seen[outcome] += 1
    with capsys.disabled():
        print(f"\n{kind} at {seen.total()} of {CALLS} calls: {dict(seen)}")
    assert "not reached" not in seen


@pytest.mark.parametrize("only", ["0s", "0w", "1s"])
async def test_a_checkpoint_fails(tmp_path: Path, only: str, capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, int] = {}
    async with Launcher(tmp_path / "log", LD_PRELOAD=str(built()), SHIM_ONLY=only) as launcher:
        for call in range(1, CHECKPOINT_CALLS + 1):
            fault = f"{call}:{errno.EIO}"
            outcome = await one_call_fails(launcher, tmp_path / f"{call}.db", fault, CHECKPOINTED_BYTES)
            seen[outcome] = seen.get(outcome, 0) + 1
    with capsys.disabled():
        print(f"\nEIO at each of {CHECKPOINT_CALLS} calls of {only}, with checkpoints: {seen}")
    assert seen.keys() - {"not reached"}, "no fault was felt"


async def one_call_fails(launcher: Launcher, database: Path, fault: str, data_bytes: int = 3_000) -> str:
    """Use a server while one call fails, then a new one; return the result."""
    ledger = Ledger()
    # A small log is checkpointed soon: its writes and syncs are among the calls.
    settings = {"database": str(database), "wal_bytes": 0}
    fired = database.with_suffix(".fired")
    shim = {"SHIM_DATABASE": str(database), "SHIM_FAIL": fault, "SHIM_FIRED": str(fired)}
    pid = await launcher.order(settings, environment=shim)
    started = asyncio.create_task(launcher.listening())
    ended = asyncio.create_task(launcher.ended(pid))
    await asyncio.wait({started, ended}, return_when=asyncio.FIRST_COMPLETED)
    refused = 0
    if started.done():
        try:
            client = await Recorded.connect(started.result(), ledger)
        except ConnectionError:
            await ended  # just after it had said where it listens
        else:
            refused = await some_work(client, data_bytes)
    started.cancel()
    if not ended.done():
        ended.cancel()
        status = await launcher.terminate(pid)
    else:
        status = ended.result()
    assert status in STATUSES, f"{fault}: the server ended with {status}"

    pid, port = await launcher.start(settings)
    client = await Recorded.connect(port, ledger)
    created = await client.create("after")
    assert created is not None
    assert created.code == 200
    await look(client)
    client.close()
    assert await launcher.terminate(pid) == 0
    report = judge(ledger)
    assert not report.faults, f"{fault}: {report}"
    if status:
        return f"ended with {status}"
    if refused:
        return "refused"
    return "unharmed" if fired.exists() else "not reached"


async def some_work(client: Recorded, data_bytes: int) -> int:
    """Create, take and finish jobs; return the number of 5xx replies. Stops at a lost connection."""
    refused = 0
    for number in range(6):
        steps = [("CreateJob", {"name": "job", "data": {"token": f"j{number}", "x": "x" * data_bytes}})]
        steps += [("GetJob", {"name": "*"})] if number % 2 else []
        for verb, asked in steps:
            answer = await client.ask(verb, **asked)
            if answer is None:
                return refused
            refused += answer.code in (500, 503)
            assert answer.code in (200, 404, 500, 503), answer
            if verb == "GetJob" and answer.code == 200:
                ended = await client.ask("FinishJob", jobID=answer.reply["jobID"])
                if ended is None:
                    return refused
                refused += ended.code in (500, 503)
                assert ended.code in (200, 500, 503), ended
    client.close()
    return refused
