"""`bedrockjobs`, `bedrock-worker`, and `python` for a file, forked from a process that has imported all.

``program`` returns a stand-in for one: it hands its arguments, environment, folder, stdin, stdout and stderr
to that process, which forks for it. The fork calls the program's own ``main`` and ends as any interpreter
does, but does not free its memory; the stand-in passes signals on and exits with the same status. Tests of
how a process starts use the programs themselves.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

TOP = Path(__file__).parents[2]
MESSAGE_BYTES_MAX = 1_000_000
"""Arguments and environment of one call."""

STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys
if {name!r} == "python" and (len(sys.argv) == 1 or sys.argv[1].startswith("-")):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])  # it is for files only
passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # until there is something to pass them to
closed = []
for number in (0, 1, 2):
    try:
        os.fstat(number)
    except OSError:
        closed.append(number)
        os.open(os.devnull, os.O_RDWR)
forks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
forks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {size})
forks.connect({path!r})
call = {{"program": {name!r}, "argv": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
socket.send_fds(forks, [json.dumps({{**call, "closed": closed}}).encode()], [0, 1, 2])
pid = int(forks.recv(100))
def pass_on(number, _):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
for number in passed_on:
    signal.signal(number, pass_on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
status = int(forks.recv(100))
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def program(name: str) -> str:
    """Return the path of a stand-in for `bedrockjobs`, `bedrock-worker` or `python`."""
    return str(programs() / name)


def forked_by(stand_in: int) -> int:
    """Return the pid of the process that the stand-in with a pid stands for, 0 if there is none yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as forks:
        forks.connect(str(programs() / "socket"))
        forks.send(json.dumps({"stand_in": stand_in}).encode())
        return int(forks.recv(100))


@functools.cache
def programs() -> Path:
    """Start the process that forks; return the folder of the stand-ins, for a ``PATH``."""
    folder = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp"))  # the path of a socket must be short
    for name in ("bedrockjobs", "bedrock-worker", "python"):
        text = STAND_IN.format(
            python=sys.executable, size=MESSAGE_BYTES_MAX, path=str(folder / "socket"), name=name
        )
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.warm", str(folder)],
        cwd=TOP,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(ended, process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return folder


def ended(process: subprocess.Popen[bytes]) -> None:
    """Let a process that forks end, which it does with its stdin, and so also if this process is killed."""
    with process:
        pass


# --- the process that forks ------------------------------------------------------------------------------


def main() -> None:
    """Fork for each call until stdin ends; then end all that were forked, and remove the folder."""
    folder = Path(sys.argv[1])
    atexit.register(_leave)  # before all others, so that it is called last
    mains = _imported()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / "socket"))
    listener.listen(16)
    wake, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ring)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to tests as well
    print("ready", flush=True)
    callers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([0, wake, listener, *callers.values()], [], [])
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
            _reap(callers)
        for pid, caller in list(callers.items()):
            if caller in ready:  # it says nothing: it has been killed
                os.kill(pid, signal.SIGKILL)
                callers.pop(pid).close()
        if 0 in ready and not os.read(0, 100):
            break
        if listener in ready:
            caller, _ = listener.accept()
            message, passed = b"", list[int]()
            with suppress(OSError):
                message, passed, _, _ = socket.recv_fds(caller, MESSAGE_BYTES_MAX, 3)
            if not message:  # it was killed before it could say what it calls
                caller.close()
                continue
            call = json.loads(message)
            if "stand_in" in call:
                pid = next((pid for pid, one in callers.items() if _peer(one) == call["stand_in"]), 0)
                with suppress(OSError):
                    caller.send(str(pid).encode())
                caller.close()
                continue
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for one in (listener, caller, *callers.values()):
                    one.detach()  # else the end of this object would close what has its number then
                _become(call, passed)
                _run(mains[call["program"]])
            callers[pid] = caller
            with suppress(OSError):  # it was killed meanwhile, which is seen next
                caller.send(str(pid).encode())
            for number in passed:
                os.close(number)
    for pid in callers:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _imported() -> dict[str, Callable[[], object]]:
    """Import and make all that the programs do when it is needed; return what they call."""
    import bedrock_worker.cli

    import bedrockjobs.cli
    import bedrockjobs.server
    from bedrockjobs.protocol.openapi import describe
    from bedrockjobs.service import VERSION
    from tests import late_queries

    for module in pkgutil.iter_modules(bedrockjobs.cli.__path__, "bedrockjobs.cli."):
        importlib.import_module(module.name)
    with suppress(ImportError):
        import uvloop  # noqa: F401
    for name in bedrockjobs.__all__:  # type: ignore[attr-defined]
        getattr(bedrockjobs, name)
    describe(VERSION)  # made once in a process
    late_queries.wait_for_the_first()
    return {"bedrockjobs": bedrockjobs.cli.main, "bedrock-worker": bedrock_worker.cli.main, "python": _file}


_left: list[int] = []
"""The exit status of a fork that leaves nothing but memory behind."""


def _run(main: Callable[[], object]) -> NoReturn:
    try:
        sys.exit(main())  # type: ignore[arg-type]
    except SystemExit as end:
        if main is not _file and isinstance(end.code, int | None):
            _left.append(end.code or 0)
        raise


def _leave() -> None:
    """End a fork before its objects are freed, which takes longer than most commands.

    If the output cannot be written, the interpreter says so.
    """
    if not _left:
        return
    with suppress(OSError, ValueError):
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
        os._exit(_left[0])


def _file() -> None:
    """Run a file as Python does."""
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def _peer(connection: socket.socket) -> int:
    """Return the pid of the process that opened a connection."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[0])


def _reap(callers: dict[int, socket.socket]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        caller = callers.pop(pid, None)
        if caller is not None:
            with suppress(OSError):
                caller.send(str(os.waitstatus_to_exitcode(status)).encode())
            caller.close()


def _become(call: dict[str, Any], passed: list[int]) -> None:
    """Turn a fork into a process of the program, as far as it can tell."""
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, theirs in enumerate(passed):
        os.dup2(theirs, number)
    os.closerange(3, max(*passed, 64) + 64)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    time.tzset()
    sys.argv = [call["program"], *call["argv"]]
    more = [path for path in call["environment"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [str(Path(sys.executable).parent), *more]
    sys.modules["__main__"].__package__ = ""
    through = bool(call["environment"].get("PYTHONUNBUFFERED"))
    streams = [
        os.fdopen(0, closefd=False),
        os.fdopen(1, "w", closefd=False),
        os.fdopen(2, "w", errors="backslashreplace", closefd=False),
    ]
    streams[1].reconfigure(line_buffering=streams[1].isatty(), write_through=through)
    streams[2].reconfigure(line_buffering=True)
    sys.stdin, sys.stdout, sys.stderr = streams
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number in call["closed"]:
            setattr(sys, name, None)
            os.close(number)


if __name__ == "__main__":
    main()
