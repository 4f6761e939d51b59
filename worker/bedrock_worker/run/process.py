"""One command while it runs: its start, its output, signals to its process group, and its end.

The command is a child of a guard (``guard``), which carries out the requests of this module and kills all
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

from bedrock_worker.current import PROGRESS
from bedrock_worker.log import printable
from bedrock_worker.policy.program import ResourceLimits
from bedrock_worker.run.guard import BEFORE_FILE
from bedrock_worker.run.kernel import NEVER
from bedrock_worker.run.pipes import Listener, Pump
from bedrock_worker.run.watchdog_client import PooledRun, WatchdogClient

START_S = 30.0
"""Maximum seconds for the guard to start the command; a guard that takes longer is considered hung."""

GUARDS_MAX = 8
"""Maximum guards tried for one command: all idle guards may have been killed just now."""

TEMPORARY_ERRORS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY})
"""Errors after which a start is retried later: too few resources, or the program is being written."""


@dataclass(frozen=True)
class Warm:
    """A Python function to run in a process forked from a template, which has imported its module."""

    template: Sequence[str]
    """The command line of the template, which imports the module and forks."""
    env: Mapping[str, str]
    """The environment of the template, without the variables of a run."""
    function: tuple[str, str]
    """The module of the function, and its name."""
    own: Mapping[str, str]
    """The variables of this run only."""
    runs_max: int
    """Maximum runs of one process."""


class CannotStart(Exception):
    """A command can never be started, so that retrying is useless; names the program and the reason."""


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
        """Request the start of a command, with a new ``folder`` for its job ``data``, which stdin reads.

        The part of ``data`` between the offsets ``before`` is also written to a file of its own.
        The guard kills the command at the monotonic time ``until``, even if the worker hangs, and removes the
        folder if the worker dies. With ``progress``, handle 3 is a pipe whose lines the listener receives as
        stream ``PROGRESS``; a process for functions always has this pipe. With ``channel``, handle 3 is that
        socket. Raises OSError if the command cannot be started at the moment, and ValueError for a NUL in an
        argument or a variable.
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
        """Pass the request to the guard; processes for functions share the output pipes of their guard."""
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

        Raises CannotStart if it can never be started, OSError if it cannot be started at the moment.
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

        By then, all descendants are killed and all output is read. A process for functions may stay for
        further runs, but no child or thread of this run stays.
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
                # Maximum seconds for the rest of the output after the end: only processes that may outlive
                # the run (``daemons``) still hold the pipe.
                async with asyncio.timeout(1.0):
                    for pump in self._pumps:
                        await pump.ended.wait()
        self._close_pumps()
        return int(message["ended"])

    @property
    def survivors(self) -> int:
        """Return how many processes of the run could not be killed; valid after ``wait``."""
        return int(self._ended.result()["left"])

    @property
    def result(self) -> str | None:
        """Return the result in the report of a process for functions, or None; valid after ``wait``."""
        found: str | None = self._ended.result().get("result")
        return found

    @property
    def was_signalled(self) -> bool:
        """Return whether we signalled the command before its end; valid after ``wait``."""
        return bool(self._ended.result()["signalled"])

    @property
    def folder_left(self) -> bool:
        """Return whether the folder may still exist: the guard has removed one that holds only the job."""
        return self._folder_left

    @property
    def running(self) -> bool:
        """Return whether the command may still be running or starting."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Set the monotonic time at which the guard kills the command; this replaces an earlier setting."""
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
            self._guard.kill()  # which could not serve further runs either
            self._started.set_result({"late": True})

    def _on_message(self, message: dict[str, Any] | None) -> None:
        """Handle a message of the guard, or None if the guard was killed, and the command with it."""
        if message is None:
            self._folder_left = True
            if not self._started.done():  # the command may have started, if the guard read the request
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
    """Return the JSON with which a guard starts a template; it is the same for each run, and cached."""
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
    """Start a run in a process that has served earlier runs, or return None if there is none.

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
    """Return the variables of a run; with ``before``, add the path of the results of the jobs before it."""
    return own if before is None else {**own, "BEDROCK_BEFORE_FILE": f"{folder}/{BEFORE_FILE}"}


def line_of(value: Mapping[str, object]) -> bytes:
    """Return a value as a line of JSON; lone surrogates, which stand for undecodable bytes, are escaped."""
    try:
        return msgspec.json.encode(value)  # a fraction of the time of `dumps`
    except UnicodeEncodeError:
        return json.dumps(value).encode()


def _where(cwd: Path | None) -> str:
    """Return the folder in which a program starts: by default the current folder of the worker."""
    return os.getcwd() if cwd is None else str(cwd)  # noqa: PTH109


def check(texts: Iterable[str]) -> None:
    """Raise ValueError if these texts cannot be passed to a program."""
    if b"\0" in os.fsencode("".join(texts)):
        raise ValueError("embedded null byte")


def _shown(program: str) -> str:
    shown = printable(program)
    return f"{shown[:200]}..." if len(shown) > 200 else shown  # so that the reason after it is not cut off


def _why_not(program: str, cwd: Path | None, error: OSError) -> str:
    """Describe why a program does not start; if its folder is missing, the text names the folder."""
    where = f" in {cwd}" if cwd is not None and str(error.filename) == str(cwd) else ""
    return f"cannot start {_shown(program)}{where}: {error.strerror or error}"
