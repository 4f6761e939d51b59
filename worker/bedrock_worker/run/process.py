"""One child process in a session of its own: started, listened to, signalled as a group, and reaped.

Knows nothing of jobs or of servers. Linux only: the child's end is seen through a pidfd and needs no thread.
Where the worker dies the kernel ends the child, and the watchdog ends what the child has started.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from bedrock_worker.log import printable
from bedrock_worker.policy.resource_limits import Prepare
from bedrock_worker.report.line_splitter import LineSplitter
from bedrock_worker.run.watchdog_client import WatchdogClient

READ_BYTES = 8_192
"""Size of one read of a child's output: what it prints in between waits in the pipe, not in our memory."""

DRAIN_S = 1.0
"""Time for the rest of the output once the child ended: only who left its group still holds it open."""

NEVER = float("inf")

MAY_PASS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Why a command cannot be started just now: the machine is full, or its program is being written."""

PROGRAM_CHARS_MAX = 200
"""How much of a program's name an error shows, so that the reason behind it is not cut off."""

_PR_SET_PDEATHSIG = 1
_prctl = ctypes.PyDLL(None).prctl  # looked up before any fork; PyDLL keeps the interpreter's lock as it is
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]

Listener = Callable[[str, str], None]
"""Called with the stream's name, ``out`` or ``err``, and a line."""


def _before_exec(parent: int, pipe: int, announce: bytes, prepare: Prepare | None) -> Prepare:
    """Return what a child does before its command: tie its life to the worker's, then what it was given.

    It announces itself to the watchdog before it can start anything that the kernel would not end.
    """
    kill = int(signal.SIGKILL)
    getpid, write = os.getpid, os.write

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, kill, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(128 + kill)
        write(pipe, b"%s%d\n" % (announce, getpid()))
        if prepare is not None:
            prepare()

    return ask


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
        prepare: Prepare | None = None,
    ) -> None:
        """Start a command that reads ``stdin``, a file, so that it may leave it unread.

        ``until`` is the monotonic moment at which the watchdog is to kill its group, even if we stand still.
        Raises CannotStart where it cannot be started, OSError where it cannot be just now, and ValueError for
        a NUL in an argument or a variable.
        """
        self._watchdog = watchdog
        self._number, pipe, announce = watchdog.expect()
        if until < NEVER:
            watchdog.until(self._number, until)
        try:
            with stdin.open("rb") as data:
                self._process = subprocess.Popen(  # noqa: S603  what the operator allowed, without a shell
                    argv,
                    env=env,
                    cwd=cwd,
                    stdin=data,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                    preexec_fn=_before_exec(os.getpid(), pipe, announce, prepare),
                )
        except OSError as error:
            watchdog.over(self._number)
            if error.errno in MAY_PASS:
                raise
            raise CannotStart(_why_not(argv[0], cwd, error)) from None
        except BaseException:
            watchdog.over(self._number)
            raise
        self.pid = self._process.pid
        watchdog.begun(self._number, self.pid)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._pumps = [
            _Pump(self._process.stdout, "out", listener),
            _Pump(self._process.stderr, "err", listener),
        ]

    async def wait(self) -> int:
        """Wait for the end and return the exit status, negative for the signal that ended it.

        What is left of its session's group is killed then, and its last output has been heard.
        """
        await self._exited()
        self.signal(signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                for pump in self._pumps:
                    await pump.ended.wait()
        for pump in self._pumps:
            pump.close()
        self._watchdog.over(self._number)
        return self._process.wait()

    def until(self, moment: float) -> None:
        """Let the watchdog kill the group at a monotonic moment, unless another is set before it."""
        if self._process.returncode is None:
            self._watchdog.until(self._number, moment)

    @property
    def running(self) -> bool:
        """Tell whether the child has not ended yet, even if nobody has noticed."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def signal(self, number: int) -> None:
        """Send a signal to the whole group. The child is reaped last, so its group's id is surely its own."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def _exited(self) -> None:
        """Wait until the child has ended, without reaping it."""
        loop, exited = asyncio.get_running_loop(), asyncio.Event()
        handle = os.pidfd_open(self.pid)
        loop.add_reader(handle, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)


def _why_not(program: str, cwd: Path | None, error: OSError) -> str:
    """Say why a program does not start: its folder and its own file fail in the same words otherwise."""
    shown = printable(program)
    if len(shown) > PROGRAM_CHARS_MAX:
        shown = f"{shown[:PROGRAM_CHARS_MAX]}..."
    where = f" in {cwd}" if cwd is not None and str(error.filename) == str(cwd) else ""
    return f"cannot start {shown}{where}: {error.strerror or error}"


class _Pump:
    """Carries one stream of a child to the listener, line by line."""

    def __init__(self, pipe: IO[bytes], name: str, listener: Listener) -> None:
        """Begin to read."""
        self.ended = asyncio.Event()
        self._pipe, self._name, self._listener = pipe, name, listener
        self._lines = LineSplitter()
        os.set_blocking(pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        for line in self._lines.feed(data) if data else self._lines.end():
            self._listener(self._name, line)
        if not data:
            self.close()

    def close(self) -> None:
        """Stop reading; a process that still writes gets SIGPIPE."""
        if not self._pipe.closed:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._pipe.close()
        self.ended.set()
