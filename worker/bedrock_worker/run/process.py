"""One command while it runs: starting, reading its output, signalling its group, and its end.

The command is a child of its guard (``watchdog``), which carries out what is requested here and kills all
descendants. Linux only.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from bedrock_worker.log import printable
from bedrock_worker.policy.rules import ResourceLimits
from bedrock_worker.report.output import PROGRESS
from bedrock_worker.run.guard import BEFORE_FILE
from bedrock_worker.run.kernel import NEVER
from bedrock_worker.run.pipes import Listener, Pump
from bedrock_worker.run.pooled import PooledRun
from bedrock_worker.run.watchdog_client import WatchdogClient

START_S = 30.0
"""Time for the guard to start the command; a watchdog that takes longer is considered hung."""

GUARDS_MAX = 8
"""Guards tried for one command: the idle ones may all have just been killed."""

TEMPORARY_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Temporary reasons for a failed start: the machine is out of resources, or the program is being written."""

PROGRAM_CHARS_MAX = 200
"""Length of a program's name in errors, so that the reason after it is not cut off."""


@dataclass(frozen=True)
class Warm:
    """A Python function to run in a process forked from one that has imported its module."""

    template: Sequence[str]
    """The command that imports and forks."""
    env: Mapping[str, str]
    """Its environment, without anything of a job."""
    function: tuple[str, str]
    """Its module and its name."""
    own: Mapping[str, str]
    """The variables of this run only."""
    runs_max: int
    """How many runs one process may serve."""


class CannotStart(Exception):
    """A command cannot be started, and retrying would not help; names the program and the reason."""


class ChildProcess:
    """One command while it runs. Belongs to the event loop of the main thread."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        folder: Path | str,
        data: str,
        listener: Listener,
        watchdog: WatchdogClient,
        until: float = NEVER,
        limits: ResourceLimits | None = None,
        new_privileges: bool = False,
        warm: Warm | None = None,
        progress: bool = False,
        before: tuple[int, int] | None = None,
        channel: socket.socket | None = None,
    ) -> None:
        """Request the start of a command, with a new ``folder`` that holds ``data``, its stdin.

        ``before`` is the part of ``data`` that is also in a file of its own.
        The guard kills it at the monotonic time ``until`` even if the worker hangs, and removes the folder if
        the worker dies. With ``progress``, handle 3 is a pipe whose lines the listener receives as that
        stream; a process for functions always has it. With ``channel``, handle 3 is that socket. Raises
        OSError if it cannot be started at the moment, and ValueError for a NUL in an argument or a variable.
        """
        self._argv, self._cwd, self._watchdog, self._warm = argv, cwd, watchdog, warm
        self._channel = channel
        self._streams = ("out", "err", PROGRESS) if progress or warm is not None else ("out", "err")
        loop = asyncio.get_running_loop()
        where = _where(cwd)
        env = env if warm is not None else _with_before(env, folder, before)
        check([*argv, *env, *env.values(), where, str(folder)])
        head: dict[str, object] = {
            "until": None if until == NEVER else until,
            "folder": str(folder),
            "env": env,
            "cwd": where,
        }
        if before is not None:
            head["before"] = before
        self._kind = template = b""
        self._folder, self._data = str(folder), data
        if warm is None:
            head |= {
                "argv": argv,
                "limits": [] if limits is None else limits.soft_and_hard(),
                "nice": 0 if limits is None else limits.nice,
                "privileges": new_privileges,
            }
        else:
            own = _with_before(warm.own, folder, before)
            head |= {"function": warm.function, "runs_max": warm.runs_max, "own": own}
            self._kind = template = kind_of(warm, where, new_privileges)
        self._started: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._ended: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._folder_left = True
        self.pid = 0
        for _ in range(GUARDS_MAX):
            self._guard = watchdog.take()
            try:
                self._give(line_of(head), template, data, listener)
            except BrokenPipeError:  # it was killed while idle
                watchdog.release_guard(self._guard, killed=True)
            except BaseException:
                watchdog.release_guard(self._guard, killed=False)
                raise
            else:
                break
        else:
            raise OSError(errno.EAGAIN, "the guard exits again and again")

    def _give(self, head: bytes, template: bytes, data: str, listener: Listener) -> None:
        """Pass the request to the guard; a process that serves several runs keeps its output pipes."""
        self._pumps = self._guard.pumps if self._warm is not None else []
        made: list[Pump] = []
        pipes: list[int] = []
        try:
            for name in () if self._pumps else self._streams:
                reads, writes = os.pipe2(os.O_CLOEXEC)
                pipes.append(writes)
                made.append(Pump(reads, name))
            for pump in (*self._pumps, *made):
                pump.listener = listener
            also = [] if self._channel is None else [self._channel.fileno()]
            self._guard.give(head, template, data, [*pipes, *also], self._on_message)
        except BaseException:
            for pump in made:
                pump.stop_reading()
            raise
        finally:
            for handle in pipes:
                os.close(handle)
        self._pumps += made

    async def started(self) -> int:
        """Wait until the command runs and return its process id.

        Raises CannotStart if it cannot be started, OSError if it cannot be started at the moment.
        """
        if not self._started.done():
            late = asyncio.get_running_loop().call_later(START_S, self._start_late)
            try:
                await self._started
            finally:
                late.cancel()
        message = self._started.result()
        if "late" in message:
            raise OSError(errno.EAGAIN, "the watchdog does not answer")
        if "started" in message:
            return self.pid
        if "fault" in message:
            raise CannotStart(f"cannot start {_shown(self._argv[0])}: {message['fault']}")
        if "folder" in message:
            raise OSError(message["folder"], os.strerror(message["folder"]), "the folder of the run")
        error = OSError(message["error"], os.strerror(message["error"]), message["in"] or None)
        if error.errno in TEMPORARY_ERRORS:
            raise error
        raise CannotStart(_why_not(self._argv[0], self._cwd, error))

    async def wait(self) -> int:
        """Wait for the end and return the exit status, negative for a signal.

        By then all descendants have been killed and all output was read. A process for functions may stay for
        further runs; it has no children and no threads of the run by then.
        """
        message = await self._ended
        for pump in self._pumps:
            pump.drain()
        if self._warm is not None:
            for pump in self._pumps:
                pump.end_line()
            return int(message["ended"])
        if not all(pump.ended.is_set() for pump in self._pumps):
            for pump in self._pumps:
                pump.start_reading()
            with suppress(TimeoutError):
                # Time for the rest of the output after the end; only processes that may live on still hold
                # the pipe.
                async with asyncio.timeout(1.0):
                    for pump in self._pumps:
                        await pump.ended.wait()
        self._close_pumps()
        return int(message["ended"])

    @property
    def survivors(self) -> int:
        """Return how many processes could not be killed, after ``wait``."""
        return int(self._ended.result()["left"])

    @property
    def result(self) -> str | None:
        """Return the result that the process reported itself, or None, after ``wait``."""
        found: str | None = self._ended.result().get("result")
        return found

    @property
    def was_signalled(self) -> bool:
        """Return whether we signalled it before its end, after ``wait``."""
        return bool(self._ended.result()["signalled"])

    @property
    def folder_left(self) -> bool:
        """Return whether its folder may still exist; a folder with only the job is already removed."""
        return self._folder_left

    @property
    def running(self) -> bool:
        """Return whether it may still be running or starting."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Set the monotonic time at which the guard kills it, unless an earlier one is set later."""
        self._guard.send(f"until {moment!r}".encode())

    def signal(self, number: int) -> None:
        """Signal the whole process group."""
        self._guard.send(b"signal %d" % number)
        if number == signal.SIGKILL:
            self._watchdog.expect_end(self._guard, self.pid, lambda: self.running)

    def release(self) -> None:
        """Release the command: kill it if it is running, and remove its folder."""
        if self._guard.is_alive:
            over = self._ended.done() and not self.survivors
            if over or (self._started.done() and not self.pid):
                self._watchdog.give_back(self._guard)
            else:
                self._watchdog.release_guard(self._guard, killed=False)
        self._close_pumps()

    def _close_pumps(self) -> None:
        if self._warm is None:
            for pump in self._pumps:
                pump.stop_reading()

    def _start_late(self) -> None:
        if not self._started.done():
            self._guard.kill()  # it accepts no more runs either
            self._started.set_result({"late": True})

    def _on_message(self, message: dict[str, Any] | None) -> None:
        """Handle a message of the guard; if the guard was killed, the kernel has killed the command too."""
        if message is None:
            self._folder_left = True
            if not self._started.done():  # it may have started, unless the guard never received the request
                never = {"error": errno.EAGAIN, "in": ""}
                self._started.set_result(never if self._guard.unread else {"started": 0})
            if not self._ended.done():
                self._ended.set_result({"ended": -signal.SIGKILL, "signalled": True, "left": 0})
            self._watchdog.release_guard(self._guard, killed=True)
            return
        self._folder_left = message.get("files", True)
        if "started" in message:
            self.pid, self._guard.pid = message["started"], message["guard"]
            self._watchdog.register_guard(self._guard.pid)
        if "started" in message and "ended" not in message:
            for pump in self._pumps:
                pump.start_reading()
        if not self._started.done():
            self._started.set_result(message)
        if "process" in message and self._warm is not None:
            self._guard.keep_process(
                message["process"],
                kind=self._kind,
                folder=self._folder,
                data=self._data,
                runs=self._warm.runs_max - 1,
            )
        if "ended" in message and not self._ended.done():
            self._ended.set_result(message)


def kind_of(warm: Warm, cwd: str, new_privileges: bool) -> bytes:
    """Return the JSON with which a guard starts a template; cached, as it is the same for each run."""
    return _template(tuple(warm.template), tuple(warm.env.items()), cwd, new_privileges)


@lru_cache(maxsize=64)  # one per function of a module
def _template(argv: Sequence[str], env: Sequence[tuple[str, str]], cwd: str, privileges: bool) -> bytes:
    description = {
        "argv": argv,
        "env": dict(env),
        "cwd": cwd,
        "limits": [],
        "nice": 0,
        "privileges": privileges,
    }
    return line_of(description)


def pooled_run(
    warm: Warm,
    watchdog: WatchdogClient,
    *,
    cwd: Path | None,
    data: str,
    listener: Listener,
    until: float,
    new_privileges: bool,
    before: tuple[int, int] | None = None,
) -> PooledRun | None:
    """Start a run in a process that has served others, or return None if there is none.

    Raises ValueError for a NUL in a variable.
    """
    where = _where(cwd)
    guard = watchdog.take_pooled(kind_of(warm, where, new_privileges)) if warm.runs_max > 1 else None
    if guard is None:
        return None
    assert guard.process is not None
    check(warm.own.values())
    own = _with_before(warm.own, guard.process.folder, before)
    also = {} if before is None else {"before": before}
    head = line_of({"function": warm.function, "cwd": where, "own": own, **also})
    try:
        return PooledRun(guard, watchdog, head, data, until=until, listener=listener)
    except OSError:  # it was killed while idle
        guard.drop_process()
        watchdog.give_back(guard)
        return None


def _with_before(
    own: Mapping[str, str], folder: Path | str, before: tuple[int, int] | None
) -> Mapping[str, str]:
    """Return the variables of a run, with that for the results of the jobs before it."""
    return own if before is None else {**own, "BEDROCK_BEFORE_FILE": f"{folder}/{BEFORE_FILE}"}


def line_of(value: Mapping[str, object]) -> bytes:
    """Return a line of JSON; lone surrogates, which represent undecodable bytes, are escaped."""
    try:
        return msgspec.json.encode(value)  # a fraction of the time of `dumps`
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _where(cwd: Path | None) -> str:
    """Return the folder in which a program starts; the guard's own is different."""
    return os.getcwd() if cwd is None else str(cwd)  # noqa: PTH109


def check(texts: Iterable[str]) -> None:
    """Raise ValueError if these texts cannot be passed to a program."""
    if b"\0" in os.fsencode("".join(texts)):
        raise ValueError("embedded null byte")


def _shown(program: str) -> str:
    shown = printable(program)
    return f"{shown[:PROGRAM_CHARS_MAX]}..." if len(shown) > PROGRAM_CHARS_MAX else shown


def _why_not(program: str, cwd: Path | None, error: OSError) -> str:
    """Describe why a program does not start; a missing folder and a missing file give the same error."""
    where = f" in {cwd}" if cwd is not None and str(error.filename) == str(cwd) else ""
    return f"cannot start {_shown(program)}{where}: {error.strerror or error}"
