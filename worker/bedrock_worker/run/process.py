"""One command while it runs: asked for, listened to, signalled as a group, and its end.

Knows nothing of jobs or of servers. Linux only. The command is a child of its guard (``watchdog``), which
does to it what is said here, and ends all that it started.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from bedrock_worker.log import printable
from bedrock_worker.policy.resource_limits import ResourceLimits
from bedrock_worker.report.line_splitter import LineSplitter
from bedrock_worker.run.watchdog_client import WatchdogClient

READ_BYTES = 8_192
"""Size of one read of a child's output: what it prints in between waits in the pipe, not in our memory."""

START_S = 30.0
"""Time for the guard to start the command; a watchdog that does not take longer to do so stands still."""

DRAIN_S = 1.0
"""Time for the rest of the output once all has ended: only what may live on still holds it open."""

NEVER = float("inf")

MAY_PASS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Why a command cannot be started just now: the machine is full, or its program is being written."""

PROGRAM_CHARS_MAX = 200
"""How much of a program's name an error shows, so that the reason behind it is not cut off."""

Listener = Callable[[str, str], None]
"""Called with the stream's name, ``out`` or ``err``, and a line."""


class CannotStart(Exception):
    """A command cannot be started, and trying again would not help; names the program and the reason."""


class ChildProcess:
    """One command while it runs. Belongs to the event loop of the main thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        stdin: Path,
        listener: Listener,
        watchdog: WatchdogClient,
        until: float = NEVER,
        limits: ResourceLimits | None = None,
        new_privileges: bool = False,
    ) -> None:
        """Have a command started that reads ``stdin``, a file, so that it may leave it unread.

        ``until`` is the monotonic moment at which its guard is to kill it, even if we stand still. The folder
        of ``stdin`` is removed if we die. Raises OSError where nothing can be started just now, and
        ValueError for a NUL in an argument or a variable.
        """
        self._argv, self._cwd, self._watchdog = argv, cwd, watchdog
        loop = asyncio.get_running_loop()
        request = json.dumps(
            {
                "argv": [_plain(argument) for argument in argv],
                "env": {_plain(name): _plain(value) for name, value in env.items()},
                "cwd": _plain(str(cwd or Path.cwd())),  # the guard stands elsewhere
                "until": None if until == NEVER else until,
                "folder": str(stdin.parent),
                "limits": [] if limits is None else limits.wanted(),
                "nice": 0 if limits is None else limits.nice,
                "privileges": new_privileges,
                "daemons": watchdog.daemons,
            }
        ).encode()
        with ExitStack() as ours, ExitStack() as theirs:
            self._way, far = socket.socketpair()
            ours.enter_context(self._way)
            theirs.enter_context(far)
            pipes = []
            for _ in range(2):
                reads, writes = os.pipe2(os.O_CLOEXEC)
                ours.callback(os.close, reads)
                theirs.callback(os.close, writes)
                pipes.append((reads, writes))
            data = theirs.enter_context(stdin.open("rb"))
            watchdog.start(request, [far.fileno(), data.fileno(), pipes[0][1], pipes[1][1]])
            ours.pop_all()
        self._way.setblocking(False)
        self._rest = b""
        self._started: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._ended: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._guard = self.pid = 0
        loop.add_reader(self._way.fileno(), self._hear)
        self._pumps = [_Pump(pipes[0][0], "out", listener), _Pump(pipes[1][0], "err", listener)]

    async def started(self) -> int:
        """Wait until the command runs and return its process id.

        Raises CannotStart where it cannot be started, OSError where it cannot be just now.
        """
        try:
            async with asyncio.timeout(START_S):
                found = await self._started
        except TimeoutError:
            raise OSError(errno.EAGAIN, "the watchdog does not answer") from None
        if "started" in found:
            self._guard, self.pid = found["guard"], found["started"]
            self._watchdog.begun(self._guard)
            for pump in self._pumps:  # not before: whoever is told of the start is told of it first
                pump.begin()
            return self.pid
        if "fault" in found:
            raise CannotStart(f"cannot start {_shown(self._argv[0])}: {found['fault']}")
        error = OSError(found["error"], os.strerror(found["error"]), found["in"] or None)
        if error.errno in MAY_PASS:
            raise error
        raise CannotStart(_why_not(self._argv[0], self._cwd, error))

    async def wait(self) -> int:
        """Wait for the end and return the exit status, negative for the signal that ended it.

        All that it started has been killed by then, and its last output has been heard.
        """
        found = await self._ended
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                for pump in self._pumps:
                    await pump.ended.wait()
        self._close_pumps()
        return int(found["ended"])

    @property
    def left(self) -> int:
        """Return how many processes could not be ended, once ``wait`` is over."""
        return int(self._ended.result()["left"])

    @property
    def signalled(self) -> bool:
        """Tell whether a signal of ours came before its end, once ``wait`` is over."""
        return bool(self._ended.result()["signalled"])

    @property
    def running(self) -> bool:
        """Tell whether it is not known to have ended, or not to have been started."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Let the guard kill it at a monotonic moment, unless another is set before it."""
        self._tell(f"until {moment!r}\n".encode())

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        self._tell(b"signal %d\n" % number)

    def close(self) -> None:
        """Let go of the guard: what still runs ends, and a folder of ``stdin`` that is left is removed."""
        if self._way.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
            if self._guard:
                self._watchdog.over(self._guard, killed=False)
        self._close_pumps()

    def _close_pumps(self) -> None:
        for pump in self._pumps:
            pump.close()

    def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # the guard is dead, and so is the command
            self._way.send(line)

    def _hear(self) -> None:
        """Take what the guard says; where it was killed, the kernel has killed the command with it."""
        try:
            data = self._way.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            found = json.loads(line)
            future = self._ended if "ended" in found else self._started
            if not future.done():
                future.set_result(found)
            if "error" in found or "fault" in found:
                data = b""
        if data:
            return
        asyncio.get_running_loop().remove_reader(self._way.fileno())
        if not self._started.done():
            self._started.set_result({"error": errno.EAGAIN, "in": ""})
        if not self._ended.done():
            self._ended.set_result({"ended": -signal.SIGKILL, "signalled": True, "left": 0})
            if self._guard:
                self._watchdog.over(self._guard, killed=True)


def _plain(text: str) -> str:
    """Return a text as it is if a program can be given it; raises ValueError."""
    if b"\0" in os.fsencode(text):
        raise ValueError("embedded null byte")
    return text


def _shown(program: str) -> str:
    shown = printable(program)
    return f"{shown[:PROGRAM_CHARS_MAX]}..." if len(shown) > PROGRAM_CHARS_MAX else shown


def _why_not(program: str, cwd: Path | None, error: OSError) -> str:
    """Say why a program does not start: its folder and its own file fail in the same words otherwise."""
    where = f" in {cwd}" if cwd is not None and str(error.filename) == str(cwd) else ""
    return f"cannot start {_shown(program)}{where}: {error.strerror or error}"


class _Pump:
    """Carries one stream of a child to the listener, line by line."""

    def __init__(self, pipe: int, name: str, listener: Listener) -> None:
        """Begin to read; the pipe is ours from now on."""
        self.ended = asyncio.Event()
        self._pipe, self._name, self._listener = pipe, name, listener
        self._lines = LineSplitter()
        os.set_blocking(pipe, False)

    def begin(self) -> None:
        """Read from now on."""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return
        for line in self._lines.feed(data) if data else self._lines.end():
            self._listener(self._name, line)
        if not data:
            self.close()

    def close(self) -> None:
        """Stop reading; a process that still writes gets SIGPIPE."""
        if not self.ended.is_set():
            asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
        self.ended.set()
