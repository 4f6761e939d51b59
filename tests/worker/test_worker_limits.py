"""Limits apply to the command and never exceed the worker's own."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from bedrock_worker.policy.program import LIMITS, ResourceLimits
from bedrock_worker.run.process import ChildProcess
from bedrock_worker.run.watchdog_client import WatchdogClient

from tests.worker.fake_server import DEADLINE_S

SHOW = """
import os, resource
for name in ("cpu", "nofile", "nproc", "fsize", "as", "core"):
    print(name, *resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper())))
print("nice", os.nice(0))
"""


@pytest.fixture
def ran(watchdog: WatchdogClient, tmp_path: Path) -> Callable[..., Awaitable[tuple[int, list[str]]]]:
    """Return what runs some Python under limits; it returns the exit status and what was printed."""

    async def run(code: str, limits: ResourceLimits) -> tuple[int, list[str]]:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        heard: list[str] = []
        child = ChildProcess(
            [sys.executable, "-c", code],
            env={},
            cwd=folder,
            folder=folder / "run",
            data="",
            watchdog=watchdog,
            listener=lambda _, line: heard.append(line),
            limits=limits,
        )
        await child.started()
        async with asyncio.timeout(DEADLINE_S):
            status = await child.wait()
        assert all(file.stat().st_size <= 10 for file in folder.glob("f"))
        child.release()
        return status, heard

    return run


@pytest.fixture
def shown(ran: Callable[..., Any]) -> Callable[[ResourceLimits], Awaitable[dict[str, list[int]]]]:
    """Return what tells the limits that a command finds itself under."""

    async def show(limits: ResourceLimits) -> dict[str, list[int]]:
        status, lines = await ran(SHOW, limits)
        assert status == 0
        return {name: list(map(int, values)) for name, *values in map(str.split, lines)}

    return show


async def test_each_limit_is_set(shown: Callable[..., Any]) -> None:
    values = {"cpu": 7, "nofile": 50, "nproc": 4_000, "fsize": 4_096, "as": 1 << 31}
    assert values.keys() == LIMITS.keys()
    found = await shown(ResourceLimits(values, nice=3))
    assert found.pop("nice") == [(await shown(ResourceLimits()))["nice"][0] + 3]
    assert found.pop("core") == [0, 0]
    assert found.pop("cpu") == [7, 8]
    assert found == {name: [value, value] for name, value in values.items() if name != "cpu"}


async def test_none_are_set_but_for_core_files(shown: Callable[..., Any]) -> None:
    found = await shown(ResourceLimits())
    assert found["core"] == [0, 0]
    assert found["nofile"] == list(resource.getrlimit(resource.RLIMIT_NOFILE))


async def test_none_rises_above_our_own(shown: Callable[..., Any]) -> None:
    _, ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert (await shown(ResourceLimits({"nofile": ours + 5})))["nofile"] == [ours, ours]


@pytest.mark.parametrize(
    ("values", "code", "status"),
    [
        ({"fsize": 10}, "with open('f', 'wb') as file: file.write(b'x' * 11)", 1),
        ({"nofile": 20}, "[open('/dev/null') for _ in range(20)]", 1),
        ({"as": 200 << 20}, "bytearray(400 << 20)", 1),
        ({"cpu": 1}, "while True: pass", -signal.SIGXCPU),
    ],
)
async def test_they_hold(values: dict[str, int], code: str, status: int, ran: Callable[..., Any]) -> None:
    assert (await ran(code, ResourceLimits(values)))[0] == status


async def test_nice_ends_where_the_kernel_does(shown: Callable[..., Any]) -> None:
    assert (await shown(ResourceLimits(nice=19)))["nice"] == [19]
