"""A process of its own that ends the commands of a worker that died, or whose leases ran out unrenewed.

It reads lines on stdin: ``run NUMBER GROUP``, which a command writes itself before it begins, ``until NUMBER
MOMENT`` (monotonic seconds) when its lease was renewed, ``over NUMBER`` when it ended; and of the folders of
runs ``folder HEX`` and ``removed HEX``. When the worker is dead, or a moment has passed, it kills the process
groups, and removes the folders of a dead one. Started as a file by an isolated interpreter, it knows the
standard library and nothing of this package.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress

READ_BYTES = 65_536
"""Size of one read: as much as a pipe holds."""

IDLE_S = 3_600.0
"""The longest wait between two looks at the moments; there is always a sooner one where something is late."""

NEVER = float("inf")


class Watchdog:
    """The process groups that are watched, and until when."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._groups: dict[int, int] = {}
        self._until: dict[int, float] = {}
        self._folders: set[bytes] = set()
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Take what the worker or a command wrote."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, number, *more = line.split()
            if word == b"run":
                self._groups[int(number)] = int(more[0])
            elif word == b"until":
                self._until[int(number)] = float(more[0])
            elif word == b"folder":
                self._folders.add(bytes.fromhex(number.decode()))
            elif word == b"removed":
                self._folders.discard(bytes.fromhex(number.decode()))
            else:
                self._groups.pop(int(number), None)
                self._until.pop(int(number), None)

    def end_late(self, now: float) -> float:
        """Kill the groups whose moment has passed; return the seconds to the next moment."""
        left = NEVER
        for number, group in self._groups.items():
            until = self._until.get(number, NEVER)
            if until <= now:
                self._until[number] = NEVER
                _kill(group)
            else:
                left = min(left, until - now)
        return left

    def end_all(self) -> None:
        """Kill every group and remove every folder."""
        for group in self._groups.values():
            _kill(group)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def main(worker: int, stdin: int = 0) -> None:
    """Watch until the worker, a process id, is dead or has closed the pipe."""
    os.set_blocking(stdin, False)
    watchdog, poll = Watchdog(), select.poll()
    poll.register(stdin, select.POLLIN)
    dead = -1
    with suppress(ProcessLookupError):
        dead = os.pidfd_open(worker)
        poll.register(dead, select.POLLIN)
    alive = dead >= 0 and os.getppid() == worker
    while _heard_all(watchdog, stdin) and alive:
        left = watchdog.end_late(time.monotonic())
        ready = poll.poll(max(min(left, IDLE_S), 0.0) * 1_000)
        alive = dead not in (handle for handle, _ in ready)
    watchdog.end_all()


def _heard_all(watchdog: Watchdog, stdin: int) -> bool:
    """Hear what is in the pipe, also of a worker that is dead; tell whether there can be more."""
    while True:
        try:
            data = os.read(stdin, READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        watchdog.hear(data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
