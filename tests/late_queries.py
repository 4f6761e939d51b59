"""Let servers of tests fork their Query processes with the first Query; a server starts them at once.

Most test servers execute no Query, and to start a process costs more than the rest of a server. Tests of the
processes themselves use ``at_once``.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

from bedrockjobs.store import reader, sandbox
from bedrockjobs.store.reader import Queries

FORKING = """
import importlib, os, select, signal, socket, sys
sys.path.append(sys.argv[1])
main = importlib.import_module(os.environ.pop("MODULE")).main

orders = socket.socket(fileno=os.dup(0))
wake, ring = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(ring)
signal.signal(signal.SIGCHLD, lambda *_: None)
callers = {}
while True:
    ready, _, _ = select.select([orders, wake], [], [])
    if wake in ready:
        os.read(wake, 1000)
        while callers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            caller = callers.pop(pid)
            os.write(caller, b"%d" % os.waitstatus_to_exitcode(status))
            os.close(caller)
    if orders in ready:
        _, passed, _, _ = socket.recv_fds(orders, 1, 2)
        if not passed:
            break
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(passed[0], 0)
            os.dup2(passed[0], 1)
            os.closerange(3, 1000)
            main()
            sys.stdout.flush()
            os._exit(0)
        callers[pid] = passed[1]
        os.write(passed[1], b"%d" % pid)
        os.close(passed[0])
"""
"""Forks a process for each order, and sends the caller its pid and its exit status."""


@functools.cache
def _forking() -> socket.socket:
    """Start the process that forks, which ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", FORKING, Path(reader.__file__).parents[2]],
            stdin=its,
            stdout=subprocess.DEVNULL,
            env={"MODULE": sandbox.__name__},  # its command line is not that of a Query process
            cwd="/",
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forked:
    """A Query process that was forked, as far as ``queries`` asks for more of a ``Popen``."""

    def __init__(self, _: object, *, stdin: int, **__: Any) -> None:
        """Fork it; the socket ``stdin`` is its input and its output."""
        self._told, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            socket.send_fds(_forking(), [b"+"], [stdin, its.fileno()])
        self.pid = int(self._told.recv(100))

    def wait(self, timeout: float) -> int:
        """Return its exit status, negative for a signal."""
        with self._told:
            self._told.settimeout(timeout)
            return int(self._told.recv(100))

    def kill(self) -> None:
        """Kill it; ``wait`` returns its exit status."""
        if self._told.fileno() >= 0:
            os.kill(self.pid, signal.SIGKILL)


_forks = SimpleNamespace(Popen=Forked, DEVNULL=subprocess.DEVNULL, TimeoutExpired=TimeoutError)

_open, _run = Queries.start_processes, Queries.run_query
_opened: WeakSet[Queries] = WeakSet()


def _not_yet(_: Queries) -> None:
    """Start nothing."""


async def _first_opened(queries: Queries, sql: str, form: str) -> str:
    if queries not in _opened:
        _opened.add(queries)
        _open(queries)
    return await _run(queries, sql, form)


def begin() -> None:
    """From now on, fork processes with the first Query."""
    reader.subprocess = _forks  # type: ignore[assignment]
    wait_for_the_first()


def wait_for_the_first() -> None:
    """From now on, start processes with the first Query, as a server starts them."""
    Queries.start_processes = _not_yet  # type: ignore[method-assign]
    Queries.run_query = _first_opened  # type: ignore[method-assign]


@contextmanager
def at_once() -> Iterator[None]:
    """Within the context, start processes when the server starts."""
    Queries.start_processes, Queries.run_query = _open, _run  # type: ignore[method-assign]
    reader.subprocess = subprocess
    try:
        yield
    finally:
        begin()
