"""A full disk: creates are refused by name, the server stays up, and recovers once there is space again."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.history import Ledger, judge
from tests.pace import in_time
from tests.reliability.recorded import Recorded, look
from tests.reliability.servers import Launcher, Server

pytestmark = pytest.mark.reliability

DISK = "9m"
DATA = "x" * 2_000
BACK_TO_NORMAL_S = 5.0
REFUSED_S = 1.0
"""Tenfold the 0.1 s in which a refusal should come: timings are only held to a ceiling here."""

REFUSALS = ((503, "Disk full"), (503, "Disk error"))

CREATES_MAX = 10_000
FINISHES = 100
"""Takes and finishes that are tried on the full disk, and again with space."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of a few megabytes; skips if it cannot be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "bedrockjobs-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def fill(client: Recorded) -> int:
    """Create jobs until one is refused; return how many were accepted."""
    for number in range(CREATES_MAX):
        began = time.monotonic()
        answer = await client.create(f"fill{number}", data={"token": f"fill{number}", "x": DATA})
        if answer.code != 200:
            assert (answer.code, answer.reason) in REFUSALS
            assert in_time(time.monotonic() - began, REFUSED_S)
            return number
    raise AssertionError("the disk never became full")


async def finish_some(client: Recorded) -> tuple[int, int]:
    """Take and finish jobs on the full disk; return how many takes and finishes were accepted."""
    takes = finishes = 0
    for _ in range(FINISHES):
        taken = await client.ask("GetJob", name="job")
        assert taken is not None
        if taken.code == 503:
            assert (503, taken.reason) in REFUSALS
            continue
        takes += 1
        ended = await client.ask("FinishJob", jobID=taken.reply["jobID"])
        assert ended is not None
        assert (ended.code, ended.reason) in ((200, "OK"), *REFUSALS)
        finishes += ended.code == 200
    return takes, finishes


async def back_to_normal(client: Recorded) -> float:
    """Return the seconds until a job could be created and ended again."""
    began = time.monotonic()
    while time.monotonic() - began < BACK_TO_NORMAL_S:
        answer = await client.create(f"after{time.monotonic_ns()}")
        if answer.code == 200:
            return time.monotonic() - began
    raise AssertionError(f"still refused: {answer}")


async def ready(port: int) -> str:
    """Return the status and the text of `/readyz`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return f"{head.split()[1]} {body.strip()}"


async def test_a_full_disk(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    room = small_disk / "room"
    room.write_bytes(bytes(2 * 1024 * 1024))
    ledger = Ledger()
    async with Server(
        small_disk / "jobs.db", "--wal-bytes", "524288", "--ballast-bytes", "1048576"
    ) as server:
        client = await Recorded.connect(await server.listening(), ledger)
        created = await fill(client)
        assert (await client.ask("Ping")).code == 200  # type: ignore[union-attr]
        takes, finishes = await finish_some(client)
        assert finishes == FINISHES, "the reserve lets runs be ended on a full disk"
        room.unlink()
        back_s = await back_to_normal(client)
        takes_after, finishes_after = await finish_some(client)
        assert (takes_after, finishes_after) == (FINISHES, FINISHES)
        await look(client)
        client.close()
    report = judge(ledger)
    with capsys.disabled():
        print(
            f"\ndisk full: {created} jobs created, then {takes} of {FINISHES} takes and {finishes} finishes"
            f" accepted on the full disk; normal {back_s:.3f} s after space came back"
        )
    assert not report.faults, report


async def test_a_limit_on_the_size_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger()
    settings = {"database": str(tmp_path / "jobs.db"), "wal_bytes": 65_536, "ballast_bytes": 1_048_576}
    limit = 4 * 1024 * 1024
    async with Launcher(tmp_path / "log") as launcher:
        pid, port = await launcher.start(settings, limits={"FSIZE": (limit, resource.RLIM_INFINITY)})
        client = await Recorded.connect(port, ledger)
        created = await fill(client)
        takes, finishes = await finish_some(client)
        assert (await ready(port)).startswith("503 disk ")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        back_s = await back_to_normal(client)
        assert await ready(port) == "200 ok"
        assert await finish_some(client) == (FINISHES, FINISHES)
        await look(client)
        assert await launcher.terminate(pid) == 0
    report = judge(ledger)
    with capsys.disabled():
        print(
            f"\nfile limit: {created} jobs created, then {takes} of {FINISHES} takes and {finishes} finishes"
            f" accepted; normal {back_s:.3f} s after the limit was raised"
        )
    assert not report.faults, report
