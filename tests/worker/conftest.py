"""Fixtures for tests of the worker: a server, and agents that run inside the test."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from bedrock_worker import current
from bedrock_worker.agent import Agent
from bedrock_worker.options import WorkerOptions
from bedrock_worker.run import kernel
from bedrock_worker.run.watchdog_client import WatchdogClient

from bedrockjobs.client import addresses_of
from tests.worker.fake_server import DEADLINE_S, FakeServer


@pytest.fixture(autouse=True)
def _log_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a program that is called inside a test from setting up the log of all others."""
    monkeypatch.setattr("bedrock_worker.log.start_logging", lambda *_: None)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pauses between tries and between beats short; their number and their order stay."""
    monkeypatch.setattr("bedrock_worker.pull.backoff_s", lambda _: 0.01)
    monkeypatch.setattr("bedrock_worker.report.reporter.backoff_s", lambda _: 0.01)
    monkeypatch.setattr("bedrock_worker.report.reporter.LATER_FIRST_S", 0.05)
    monkeypatch.setattr("bedrock_worker.pull.RETRY_S", 0.05)
    monkeypatch.setattr("bedrock_worker.pull.GAP_S", 0.05)


@pytest.fixture(autouse=True)
def _current_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the current run, which a function that runs inside a test replaces."""
    monkeypatch.setattr(current, "_current", current._current)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """Yield a running server."""
    async with FakeServer() as running:
        yield running


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the folders of runs in one place, where a test can look for leftovers."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("BEDROCKJOBS_WORKER_SPOOL", str(tmp_path / "spool"))
    return folder


@pytest.fixture
async def watchdog() -> AsyncIterator[WatchdogClient]:
    """Yield the worker's end of a watchdog."""
    found = WatchdogClient()
    yield found
    found.stop_guards()


Watchdogs = dict[bool, tuple["subprocess.Popen[bytes]", socket.socket]]
"""Those that wait for the next worker, each with the way to it; they differ by ``daemons`` alone."""


@pytest.fixture(scope="module")
def watchdogs() -> Iterator[Watchdogs]:
    """Yield the watchdogs that the tests of a module leave to each other."""
    kept: Watchdogs = {}
    yield kept
    for process, way in kept.values():
        way.close()
        process.wait(DEADLINE_S)


@pytest.fixture
def own_watchdog() -> None:
    """Let each worker of a test start its own watchdog: it, or what it inherits, is the subject."""


@pytest.fixture(autouse=True)
def _watchdogs_stay(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, watchdogs: Watchdogs
) -> None:
    """Let workers in this process use one watchdog, one after the other: its start costs more than most runs.

    It stays only if nothing was done to it or to its guards.
    """
    if "own_watchdog" in request.fixturenames:
        return
    start, end = WatchdogClient._start, WatchdogClient._end

    def start_or_take(client: WatchdogClient) -> None:
        kept = watchdogs.pop(client.daemons, None)
        if kept is None:
            start(client)
            return
        loop = asyncio.get_running_loop()
        client._process, client._way = kept
        client._dead, client._started_at = os.pidfd_open(client._process.pid), loop.time()
        loop.add_reader(client._dead, client._replace)

    def keep_or_end(client: WatchdogClient) -> None:
        process, way = client._process, client._way
        whole = process is not None and process.poll() is None and not client._left
        if not whole or client.daemons in watchdogs or kernel.state_of(process.pid) in kernel.STOPPED:
            end(client)
            return
        asyncio.get_running_loop().remove_reader(client._dead)
        os.close(client._dead)
        watchdogs[client.daemons] = process, way
        client._process = client._way = None

    monkeypatch.setattr(WatchdogClient, "_start", start_or_take)
    monkeypatch.setattr(WatchdogClient, "_end", keep_or_end)


class Working:
    """An agent at work."""

    def __init__(self, agent: Agent) -> None:
        """Begin to work."""
        self.agent = agent
        self._task = asyncio.ensure_future(agent.run_until_stopped())

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._task


def options_for(server: FakeServer, *argv: str, **more: Any) -> WorkerOptions:
    """Return options for a worker of ``Foo*`` at this server."""
    given = {"names": ("Foo*",), "worker": "test", "servers": addresses_of(server.address), **more}
    return WorkerOptions(argv=argv, **given)


@asynccontextmanager
async def agent_at_work(options: WorkerOptions) -> AsyncIterator[Working]:
    """Let an agent work, and end it where the test has not."""
    worker = Working(Agent(options))
    try:
        yield worker
    finally:
        worker.agent.stop()
        worker.agent.stop()
        await worker.ended()


@pytest.fixture
def working(server: FakeServer) -> Callable[..., Any]:
    """Return what makes an agent work on a command, and ends it where the test has not."""
    return lambda *argv, **more: agent_at_work(options_for(server, *argv, **more))


@pytest.fixture
def once(server: FakeServer, working: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs one job to its end and returns its report."""

    async def run(
        script: str, *arguments: str, data: str = "{}", options: dict[str, object] | None = None, **more: Any
    ) -> Any:
        await server.add("Foo", data, **(options or {}))
        async with working("sh", "-c", script, *arguments, jobs_max=1, **more) as worker:
            report = await server.report()
            assert await worker.ended() == 0
            assert len(server.reports) == 1
            return report

    return run


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that no event tells of, a file."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds():
            await asyncio.sleep(0.005)


def gone(*pids: int) -> bool:
    """Tell whether processes have ended; a dead one that nobody has reaped counts."""
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                return False
    return True


def ended(pid: int) -> bool:
    """Wait for the end of any process and tell whether it came."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(DEADLINE_S * 1000))
    finally:
        os.close(handle)


def children(parent: int) -> list[int]:
    """Return the child processes of a process that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            if entry.name.isdigit():
                state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(ppid) == parent and state not in "ZX":
                    found.append(int(entry.name))
    return found
