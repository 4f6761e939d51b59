"""``python -P -m bedrock_worker.run.template MODULE [FOLDER]``: imports a module, and forks for its runs.

Its guard asks on stdin, a socket, for a process with its first run, and gives that process one run after the
other. A process serves as many runs as it may, and none after one that left something behind. Imports nothing
of the agent.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bedrock_worker.functions import look_in
from bedrock_worker.run import kernel, packet, run_function
from bedrock_worker.run.kernel import ControlGroup

FORK_HANDLES, RUN_HANDLES = 3, 2
"""Handles that come with the wish for a process (its way to the guard, its output) and with a later run."""

STAYS = (run_function.DONE, run_function.TRY_AGAIN, run_function.SNOOZE, run_function.FAIL_FOR_GOOD)
"""Exit statuses of functions that ended as they meant to; after another the process is not used again."""


def main(arguments: Sequence[str]) -> int:
    """Import a module and fork processes until the guard is gone; return the exit status."""
    module, *folders = arguments
    way = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    run_function.print_line_by_line()
    for folder in folders:
        look_in(folder)
    try:
        importlib.import_module(module)
    except Exception:
        traceback.print_exc()
        return run_function.RAISED
    sys.stdout.flush()
    sys.stderr.flush()
    for at in (1, 2):  # what it prints from now on belongs to no run
        os.dup2(nothing, at)
    gc.freeze()  # its processes share the memory of what is there by now
    way.send(b'{"ready": true}')
    return _serve(way)


def _serve(way: socket.socket) -> int:
    ours = os.getpid()
    while True:
        word, value, handles = packet.receive(way, FORK_HANDLES)
        if not word:
            return run_function.DONE
        if word == b"reap":
            _, status = os.waitpid(int(value), 0)
            way.send(b'{"status": %d}' % os.waitstatus_to_exitcode(status))
            continue
        ended, group, first, head = value.split(b"\n", 3)
        try:
            pid = os.fork()
        except OSError as error:
            way.send(b'{"error": %d}' % (error.errno or 0))
        else:
            if pid == 0:
                way.close()
                mine = socket.socket(fileno=handles[0])
                return _be_process(mine, ours, os.fsdecode(group), (first, head, handles[1:]))
        for handle in handles:
            os.close(handle)
        if ended != b"0":  # the one before this one, of which the guard knows all
            os.waitpid(int(ended), 0)


def _be_process(
    way: socket.socket, template: int, group: str, first: tuple[bytes, bytes, list[int]]
) -> NoReturn:
    """Be a process for runs, the first of which came with the wish for it."""
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != template:  # it died before we asked
        os._exit(run_function.RAISED)
    if group:
        with suppress(OSError):
            ControlGroup.at(group).join()
    threads = _threads()
    way.send(b'{"pid": %d}' % os.getpid())
    word, head, handles = first
    while word:
        given = json.loads(head)
        for at, handle in enumerate(handles, 1):
            os.dup2(handle, at)
            os.close(handle)
        status = _run(given)
        good = status in STAYS and _threads() == threads and not _has_children()
        if word != b"again" or not good:
            _exit(status, way)
        sys.stdout.flush()
        sys.stderr.flush()
        way.send(b'{"done": %d}' % status)
        word, head, handles = packet.receive(way, RUN_HANDLES)
    os._exit(run_function.DONE)


def _run(given: dict[str, Any]) -> int:
    """Do one run, in the environment and the folder that are its own."""
    _set_environment(given["env"])
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].__dict__["tempdir"] = None  # it remembers the folder of another run
    os.chdir(given["cwd"])
    data = os.open(given["env"]["BEDROCK_DATA_FILE"], os.O_RDONLY)
    os.dup2(data, 0)
    os.close(data)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  lives as long as the process
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    return run_function.run(*given["function"])


def _set_environment(wanted: Mapping[str, str]) -> None:
    """Make the environment what a run is given; most of it is that of the run before."""
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _threads() -> int:
    """Return how many threads there are.

    ``threading`` is asked only where something imported it: in each fork it costs as much as the fork itself.
    """
    threading = sys.modules.get("threading")
    return 1 if threading is None else int(threading.active_count())


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _exit(status: int, way: socket.socket) -> NoReturn:
    """End as the interpreter does, but without taking itself apart: that would cost more than the fork.

    The guard is told the status, so that it need not wait until the template has asked the kernel for it.
    """
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # waits for threads, as multiprocessing does it
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or run_function.NOT_FLUSHED
    with suppress(OSError):  # the run may have closed it
        way.send(b'{"exit": %d}' % status)
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
