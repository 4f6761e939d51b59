"""The guard of one command: starts it, tells the worker how it ended, and kills all that it started.

The kernel gives a guard the orphans below it, also those that went into a session of their own. It ends them
too when the worker is dead, or when the lease is over. Knows nothing of jobs.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import select
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bedrock_worker.run import kernel
from bedrock_worker.run.kernel import ControlGroup

READ_BYTES = 65_536
"""Size of one read of what the worker says."""

NEVER = float("inf")

IDLE_S = 3_600.0
"""The longest wait between two looks at the time."""

CANNOT_KILL, FAULT = 128 + int(signal.SIGKILL), 70
"""Exit statuses nobody reads: of a command whose guard is dead, and of a fault of ours (EX_SOFTWARE)."""

DEFAULT_AGAIN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the watchdog or Python ignores, and that mean to a command what they mean everywhere."""


class Guard:
    """The process above one command; it lives until the worker lets go of it."""

    def __init__(self, control: int, request: Mapping[str, Any], parent_group: str | None) -> None:
        """Guard what is asked for on behalf of the worker at the other end of ``control``."""
        self._control, self._request, self._parent_group = control, request, parent_group
        self._pid = 0
        self._until = NEVER if request["until"] is None else float(request["until"])
        self._rest = b""
        self._signalled = self._let_go = False
        self._group: ControlGroup | None = None

    def run(self, stdio: Sequence[int]) -> None:
        """Start the command, see it to its end and to that of all it started; then wait to be let go."""
        if not self._request["daemons"]:
            kernel.adopt()
            self._make_group()
        started = self._start(stdio)
        for handle in stdio:
            os.close(handle)
        if not self._pid:
            self._tell(started)
        else:
            self._tell({"started": self._pid, "guard": os.getpid()})
            status = self._wait()
            self._tell({"ended": status, "signalled": self._signalled, "left": self._end_rest()})
        if self._group is not None:
            self._group.remove()
        while not self._let_go:  # the folder is the worker's to remove, and ours if it dies
            self._hear()
        shutil.rmtree(self._request["folder"], ignore_errors=True)

    def _make_group(self) -> None:
        if self._parent_group is not None:
            group = ControlGroup(self._parent_group, os.getpid())
            with suppress(OSError):
                group.make()
                self._group = group

    def _start(self, stdio: Sequence[int]) -> dict[str, object]:
        """Start the command; return why it could not be started, where ``_pid`` stays 0."""
        ours = os.getpid()
        reads, writes = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reads)
            os.close(writes)
            return {"error": error.errno, "in": ""}
        if pid == 0:
            _become(self._request, stdio, writes, ours, self._group)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            why = pipe.read()
        if not why:
            self._pid = pid
            return {}
        os.waitpid(pid, 0)
        found: dict[str, object] = json.loads(why)
        return found

    def _wait(self) -> int:
        """Obey the worker until the command has ended; return how, without its group having been reaped."""
        ended = os.pidfd_open(self._pid)
        orphans, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        for handle in (self._control, ended, orphans):
            poll.register(handle, select.POLLIN)
        while True:
            kernel.reap(self._pid)
            left = min(self._until - time.monotonic(), IDLE_S)
            if left <= 0:
                self._until = NEVER
                self._kill()
                continue
            ready = {handle for handle, _ in poll.poll(left * 1_000)}
            if ended in ready:
                break
            if orphans in ready:
                os.read(orphans, READ_BYTES)
            if self._control in ready:
                self._hear()
                if self._let_go:
                    poll.unregister(self._control)
                    self._kill()
        os.close(ended)
        self._send(signal.SIGKILL)  # its group: it is reaped last, so the group's id is surely its own
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _end_rest(self) -> int:
        if self._request["daemons"]:
            return 0
        if self._group is not None:
            self._group.kill()
        return kernel.end_children()

    def _hear(self) -> None:
        """Do what the worker says; note where it is gone."""
        try:
            data = os.read(self._control, READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            self._let_go = True
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, value = line.split()
            if word == b"until":
                self._until = float(value)
            elif self._pid and os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                self._signalled = True
                self._send(int(value))

    def _kill(self) -> None:
        if self._group is not None:
            self._group.kill()
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def _tell(self, what: Mapping[str, object]) -> None:
        with suppress(OSError):  # the worker is gone
            os.write(self._control, json.dumps(what).encode() + b"\n")


def _become(
    request: Mapping[str, Any], stdio: Sequence[int], report: int, guard: int, group: ControlGroup | None
) -> NoReturn:
    """Become the command, in a process of its own; tell why not on ``report``, which exec closes."""
    where = ""
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # it died before we asked
            os._exit(CANNOT_KILL)
        for number in DEFAULT_AGAIN:
            signal.signal(number, signal.SIG_DFL)
        for at, handle in enumerate(stdio):
            os.dup2(handle, at)
        if group is not None:
            with suppress(OSError):
                group.join()
        where = request["cwd"]
        os.chdir(where)
        where = ""
        env, argv = request["env"], request["argv"]
        paths = [argv[0]]
        if "/" not in argv[0]:
            paths = [os.path.join(folder, argv[0]) for folder in os.get_exec_path(env)]  # noqa: PTH118
        if not request["privileges"]:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if request["nice"]:
            os.nice(request["nice"])
        for kind, soft, hard in request["limits"]:
            resource.setrlimit(kind, (soft, hard))
        _exec(paths, argv, env)
    except OSError as error:
        os.write(report, json.dumps({"error": error.errno, "in": where}).encode())
    except BaseException as error:
        os.write(report, json.dumps({"fault": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(FAULT)


def _exec(paths: Sequence[str], argv: list[str], env: Mapping[str, str]) -> None:
    """Try one path after the other; raise what says most where none can be run."""
    why: OSError | None = None
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606  what the operator allowed, without a shell
        except OSError as error:
            if why is None or why.errno in (errno.ENOENT, errno.ENOTDIR):
                why = error
    raise why or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
