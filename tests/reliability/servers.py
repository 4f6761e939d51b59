"""Servers as separate processes, started by the launcher or directly, and stopped by pid."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from tests.cli.warm import ended

STARTED_S = 90.0
"""Time a server has to listen, or to end, on a busy machine."""

TOP = Path(__file__).parents[2]


class Server:
    """A server started as its users start it."""

    module: ClassVar[str] = "bedrockjobs"
    """What Python runs; one with a fault comes from another."""

    def __init__(self, database: Path | str, *options: str, **environment: str) -> None:
        """Prepare `bedrockjobs serve` on a free port."""
        self._command = [
            sys.executable,
            "-m",
            self.module,
            "serve",
            "--port",
            "0",
            "--database",
            str(database),
            *options,
        ]
        self._given = environment
        self._environment = _environment(environment)

    async def __aenter__(self) -> Self:
        """Start the process without waiting until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            cwd=TOP,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        self._said: list[str] = []
        self._news = asyncio.Event()
        self._log = asyncio.create_task(self._listen(self._process.stderr))
        return self

    async def _listen(self, log: asyncio.StreamReader) -> None:
        async for line in log:
            self._said.append(line.decode())
            self._news.set()

    async def __aexit__(self, *_: object) -> None:
        """Kill the process if it is still running."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._log
        assert self._process.stdout is not None
        await self._process.stdout.read()  # to its end, else its transport is found open by another test

    async def listening(self) -> int:
        """Return the port once it listens."""
        assert self._process.stdout is not None
        async with asyncio.timeout(STARTED_S):
            line = (await self._process.stdout.readline()).decode()
        found = re.search(r"listens on 127\.0\.0\.1:(\d+)", line)
        assert found is not None, line
        return int(found[1])

    async def says(self, words: str) -> None:
        """Wait until its log contains a text."""
        async with asyncio.timeout(STARTED_S):
            while not any(words in line for line in self._said):
                self._news.clear()
                await self._news.wait()

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    async def ended(self) -> tuple[int, str]:
        """Return its exit status, negative for a signal, and what it logged."""
        status = await asyncio.wait_for(self._process.wait(), STARTED_S)
        await self._log
        return status, "".join(self._said)


def _environment(more: dict[str, str]) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("BEDROCKJOBS_")}
    return mine | more


class ForkServer:
    """A process with all imports done that forks servers, for one user at a time."""

    _idle: ClassVar[defaultdict[tuple[str, str], list[ForkServer]]] = defaultdict(list)

    def __init__(self, module: str, preload: str) -> None:
        """Start the process; the library ``preload`` is loaded into it and its servers."""
        environment = _environment({"LD_PRELOAD": preload} if preload else {})
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=TOP,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        atexit.register(ended, self._process)

    @classmethod
    @contextmanager
    def borrowed(cls, module: str = "tests.reliability.launcher", preload: str = "") -> Iterator[ForkServer]:
        """Yield an idle process, since importing everything again would take longer than most tests.

        The user ends its servers (``end``) and reads their output before the next user gets it.
        """
        idle = cls._idle[module, preload]
        found = idle.pop() if idle else cls(module, preload)
        yield found
        idle.append(found)

    @property
    def output(self) -> IO[bytes]:
        """Return the output of the process and its servers."""
        assert self._process.stdout is not None
        return self._process.stdout

    def find(self, pattern: str, within_s: float = STARTED_S) -> re.Match[str]:
        """Wait for a line and return its content, without an event loop."""
        deadline = time.monotonic() + within_s
        line = b""
        while True:
            ready, _, _ = select.select([self.output], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"expected {pattern!r}"
            got = self.output.read(1)
            assert got, "the launching process has ended"
            line += got
            if got == b"\n":
                found = re.search(pattern, line.decode())
                if found is not None:
                    return found
                line = b""

    def order(self, **order: Any) -> None:
        """Send an order; see ``launcher``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")


class Launcher:
    """A launcher for one test, and its messages about its servers."""

    module: ClassVar[str] = "tests.reliability.launcher"
    """What Python runs."""

    def __init__(self, log: Path, **environment: str) -> None:
        """Prepare a launcher whose servers log to the file ``log``."""
        self._log = log
        self._preload = environment.pop("LD_PRELOAD", "")
        self._environment = environment
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._ended: defaultdict[int, asyncio.Future[int]] = defaultdict(
            lambda: asyncio.get_running_loop().create_future()
        )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Borrow a launching process."""
        self._log.touch()
        self._process = self._stack.enter_context(ForkServer.borrowed(self.module, self._preload))
        output = os.fdopen(os.dup(self._process.output.fileno()), "rb", buffering=0)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), output
        )
        self._stack.callback(transport.close)
        self._reading = asyncio.create_task(self._read(reader))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill the remaining servers."""
        async with self._stack:
            self._process.order(end=True)
            await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for raw in reader:
            line = raw.decode()
            if line.startswith("forked "):
                self._ended.pop(int(line.split()[1]), None)  # in a long storm pids come again
            elif end := re.search(r"ended (\d+) (-?\d+)\n", line):  # may follow what a killed server wrote
                self._ended[int(end[1])].set_result(int(end[2]))
            elif line == "none left\n":
                return
            self._lines.put_nowait(line)

    async def order(self, settings: dict[str, Any], **order: Any) -> int:
        """Fork a server and return its pid without waiting until it listens."""
        environment = {**self._environment, **order.pop("environment", {})}
        self._process.order(settings=settings, log=str(self._log), environment=environment, **order)
        return int(await self._line(r"forked (\d+)") or 0)

    async def start(self, settings: dict[str, Any], **order: Any) -> tuple[int, int]:
        """Fork a server and return its pid and port once it listens."""
        pid = await self.order(settings, **order)
        return pid, await self.listening(pid)

    async def listening(self, pid: int = 0) -> int:
        """Return the port of the next server to listen; raises if the one with ``pid`` ends instead."""
        port = await self._line(rf"listens on 127\.0\.0\.1:(\d+)|ended {pid} ")
        if port is None:
            status = await self.ended(pid)
            raise AssertionError(f"the server ended with {status}: {self._log.read_text()[-2_000:]}")
        return int(port)

    def forget(self) -> None:
        """Discard the messages so far, which are about a server that has ended."""
        while not self._lines.empty():
            self._lines.get_nowait()

    async def ended(self, pid: int) -> int:
        """Return the exit status of a server, negative for a signal."""
        return await asyncio.wait_for(asyncio.shield(self._ended[pid]), STARTED_S)

    def has_ended(self, pid: int) -> bool:
        """Return whether a server is known to have ended."""
        return pid in self._ended and self._ended[pid].done()

    async def kill(self, pid: int) -> None:
        """Kill a server."""
        os.kill(pid, signal.SIGKILL)
        assert await self.ended(pid) == -signal.SIGKILL

    async def terminate(self, pid: int) -> int:
        """Tell a server to stop and return its exit status."""
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(pid, signal.SIGTERM)
        return await self.ended(pid)

    async def _line(self, pattern: str) -> str | None:
        async with asyncio.timeout(STARTED_S):
            while True:
                line = await self._lines.get()
                found = re.search(pattern, line)
                if found is not None:
                    return found[1]


class Forked(Server):
    """A server that a launcher forks, with the same arguments: for tests that start many of them."""

    async def __aenter__(self) -> Self:
        """Fork it without waiting until it listens."""
        self._folder = tempfile.TemporaryDirectory(prefix="log-")
        self._file = Path(self._folder.name) / "log"
        self._launcher = Launcher(self._file, **self._given)
        await self._launcher.__aenter__()
        self._forked = await self._launcher.order({}, argv=self._command[3:])
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill it if it is still running."""
        await self._launcher.__aexit__()
        self._folder.cleanup()

    async def listening(self) -> int:
        """Return the port once it listens."""
        return await self._launcher.listening(self._forked)

    async def says(self, words: str) -> None:
        """Wait until its log contains a text."""
        async with asyncio.timeout(STARTED_S):
            while words not in self._file.read_text():
                await asyncio.sleep(0.01)

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self._forked

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if not self._launcher.has_ended(self._forked):
            os.kill(self._forked, number)

    async def ended(self) -> tuple[int, str]:
        """Return its exit status, negative for a signal, and what it logged."""
        return await self._launcher.ended(self._forked), self._file.read_text()
