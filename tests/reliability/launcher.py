"""Starts servers in milliseconds: a process with everything imported that forks for each server.

``python -m tests.reliability.launcher`` reads orders, one JSON object a line, and writes ``forked PID`` and
``ended PID STATUS``; what a server itself prints comes between. After the order to end all servers it writes
``none left``. It holds no thread and no loop, so a fork is
safe. The faults that an order may name live in ``faults``: never in the product.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main as bedrockjobs_main
from bedrockjobs.protocol.openapi import describe
from bedrockjobs.server import run_server
from bedrockjobs.service import VERSION
from tests import late_queries
from tests.protocol.spent import watch_turns
from tests.reliability.faults import FAULTS, OTHERS

import_module("bedrockjobs.cli.serve")
with suppress(ImportError):
    import uvloop  # noqa: F401  the imports are what a fork saves

REAPED_EVERY_S = 1.0
"""Time after which ended servers are looked for, though no SIGCHLD came: a lost one would cost a minute."""

LIMITS = {"NOFILE": resource.RLIMIT_NOFILE, "FSIZE": resource.RLIMIT_FSIZE}


def main() -> None:
    """Fork a server for each order until the input ends; then end those that are left."""
    describe(VERSION)  # made once in a process
    late_queries.wait_for_the_first()
    gc.freeze()
    wake, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(ring)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    living: set[int] = set()
    buffer = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [], REAPED_EVERY_S)
        if wake in ready:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        _reap(living)
        if 0 in ready:
            got = os.read(0, 65_536)
            if not got:
                break
            *lines, buffer = (buffer + got).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "end" in order:
                    _end(living)
                else:
                    living.add(_fork(order))
    with suppress(BrokenPipeError):  # the reader is gone
        _end(living)


def _end(living: set[int]) -> None:
    """Kill all servers and wait until they have ended."""
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _reap(living, wait=True)
    _say("none left")


def _reap(living: set[int], *, wait: bool = False) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, 0 if wait else os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        living.discard(pid)
        _say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _fork(order: dict[str, Any]) -> int:
    if str(order["settings"].get("database")).startswith("postgresql"):
        import_module("bedrockjobs.databases.postgresql")  # once, and not in each child
    told, go = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(told)
        _say(f"forked {pid}")
        os.close(go)
        return pid
    status = 70
    try:
        os.close(go)
        os.read(told, 1)  # nothing it says may come before "forked", however late the launcher gets its turn
        os.close(told)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), 2)
        os.environ.update(order.get("environment", {}))
        for name, (soft, hard) in order.get("limits", {}).items():
            resource.setrlimit(LIMITS[name], (soft, hard))
        status = _serve(order)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve(order: dict[str, Any]) -> int:
    for fault in filter(None, order.get("fault", "").split(", ")):
        (FAULTS | OTHERS)[fault](order.get("seed", 0))
    if "turns" in order:
        watch_turns(Path(order["turns"]))
    if "argv" in order:
        return _status_of(order["argv"])
    return run_server(Settings(**{"port": 0, **order["settings"]}))


def _status_of(argv: list[str]) -> int:
    """Run a command line like `bedrockjobs`; return its exit status."""
    try:
        bedrockjobs_main(argv, prog_name="bedrockjobs")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else end.code is not None
    return 0


if __name__ == "__main__":
    main()
