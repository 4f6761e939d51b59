"""Detects changes of process state that would affect the next run, except those in memory.

A reusable process records its state before the first run and compares it after each. Imports only the
standard library. Linux only.
"""

from __future__ import annotations

import fcntl
import gc
import locale
import os
import select
import signal
import sys
import time
import traceback
from contextlib import suppress
from operator import itemgetter
from typing import Any

IN_STATUS = (
    *(b"Umask", b"Uid", b"Gid", b"Groups", b"Threads", b"SigPnd", b"ShdPnd", b"SigBlk", b"SigIgn"),
    *(b"CapEff", b"NoNewPrivs", b"Seccomp", b"Cpus_allowed"),
)
"""The lines of ``/proc/self/status`` that are compared: threads (also those unknown to Python), signals, the
umask, privileges, processors."""

FILES = ("status", "limits", "timers")
"""The files in ``/proc/self`` that are compared; not every kernel has ``timers``."""

READ_BYTES = 16_384
"""Bytes of one read of a file in ``/proc``; the files have about 1,500 bytes each."""

ITIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

OFF = (0.0, 0.0)
"""What ``getitimer`` returns for a timer that is not set."""

THREAD_CHECKS, THREAD_PAUSE_S = 20, 0.001
"""Maximum checks for an additional thread, and seconds between them: a joined thread may end a bit later."""


_getsignal = sys.modules.get("_signal", signal).getsignal
"""Like ``signal.getsignal``, which spends most of its time on the lookup in an enum."""


class ProcessState:
    """The state of this process (signals, limits, threads, standard streams and the like) when this object
    was created; ``same`` compares it with the present state."""

    def __init__(self, *, threads: bool = True) -> None:
        """Record the state; raises OSError if the kernel does not expose it.

        With ``threads``, a different number of threads counts as a change.
        """
        self._counts_threads = threads
        self._files: list[int] = []
        for name in FILES:
            with suppress(FileNotFoundError):
                self._files.append(os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC))
        lines = os.pread(self._files[0], READ_BYTES, 0).split(b"\n")
        names = [line.partition(b":")[0] for line in lines]
        compared = [names.index(name) for name in IN_STATUS if name in names]
        self._lines = itemgetter(*compared)
        self._threads = compared.index(names.index(b"Threads"))
        self._caught_at = names.index(b"SigCgt")
        # Two parts of the file are compared: between them are lines about memory, which change all the time.
        second = min(compared[self._threads], *(at for at in compared if names[at].startswith(b"Sig")))
        first = [at for at in compared if at < second]
        bounds = (min(first), max(first) + 1, second, max(compared) + 1)
        self._bounds = [b"\n" + names[at] + b":" for at in bounds]
        self._parts = b"", b""
        self._status = self._read_status(b"\n".join(lines))
        caught = self._status[1]
        self._caught = [number for number in range(1, signal.NSIG) if caught >> (number - 1) & 1]
        self._outputs = [(at, os.dup(at)) for at in (1, 2)]
        self._streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        self._closed = is_closed(sys.stdout), is_closed(sys.stderr)
        self._environ = os.environ
        threading = sys.modules.get("threading")
        self._python_threads = 1 if threading is None else threading.active_count()
        self._kernel, self._python = self._of_kernel(), self._of_python()

    def same(self) -> bool:
        """Return whether the process is unchanged, after restoring handles 1 and 2.

        Call it after all output has been flushed.
        """
        try:
            for at, output in self._outputs:
                os.dup2(output, at)
            now = self._of_kernel()
            looks = 0
            if not self._counts_threads and self._equal_but_threads(now):
                now = self._kernel
            while now != self._kernel and looks < THREAD_CHECKS and self._only_threads(now):
                looks += 1
                select.select([], [], [], THREAD_PAUSE_S)
                now = self._of_kernel()
            return now == self._kernel and self._of_python() == self._python and self._streams_are_whole()
        except Exception:  # a run closed our handles, or replaced a function
            return False

    def _only_threads(self, now: tuple[Any, ...]) -> bool:
        """Return whether only the number of threads differs, and Python knows of no additional thread."""
        threading = sys.modules.get("threading")
        left = threading is not None and threading.active_count() > self._python_threads
        return not left and self._equal_but_threads(now)

    def _equal_but_threads(self, now: tuple[Any, ...]) -> bool:
        ours, theirs = list(self._kernel[0]), list(now[0])
        del ours[self._threads], theirs[self._threads]
        return ours == theirs and now[1:] == self._kernel[1:]

    def _of_kernel(self) -> tuple[Any, ...]:
        status, *others = (os.pread(handle, READ_BYTES, 0) for handle in self._files)
        wakeup = signal.set_wakeup_fd(-1)
        if wakeup != -1:
            signal.set_wakeup_fd(wakeup)
        return (
            *self._read_status(status),
            others,
            wakeup,
            [_getsignal(number) for number in self._caught],
            [signal.getitimer(kind) == OFF for kind in ITIMERS],
            [fcntl.fcntl(at, fcntl.F_GETFL) for at in (1, 2)],
            os.getpriority(os.PRIO_PROCESS, 0),
            os.sched_getscheduler(0),
        )

    def _read_status(self, status: bytes) -> tuple[tuple[bytes, ...], int]:
        """Return the compared lines, and the bits of the signals that have handlers.

        Skips parsing if the relevant parts of the file are unchanged.
        """
        first, first_end, second, second_end = self._bounds
        at = status.find(second)
        parts = (
            status[status.find(first) : status.find(first_end)],
            status[at : status.find(second_end, at)],
        )
        if parts == self._parts:
            return self._status
        lines = status.split(b"\n")
        # Without signals 32 and 33, which the C library handles once the first thread starts.
        found = self._lines(lines), int(lines[self._caught_at].split()[1], 16) & ~(0b11 << 31)
        # Another text with equal lines: for example, a line that is not compared was added.
        if not self._parts[0] or found == self._status:
            self._parts, self._status = parts, found
        return found

    def _of_python(self) -> tuple[Any, ...]:
        socket = sys.modules.get("socket")
        return (
            sys.getrecursionlimit(),
            sys.gettrace(),
            sys.getprofile(),
            gc.isenabled(),
            time.tzname,
            None if socket is None else socket.getdefaulttimeout(),
            locale.setlocale(locale.LC_ALL),
        )

    def _streams_are_whole(self) -> bool:
        out, err, first_out, first_err = self._streams
        return (
            sys.stdout is out
            and sys.stderr is err
            and sys.__stdout__ is first_out
            and sys.__stderr__ is first_err
            and os.environ is self._environ
            and (is_closed(out), is_closed(err)) == self._closed
        )


def is_closed(stream: Any) -> bool:
    """Return whether a stream is missing or closed, so that nothing can be printed to it."""
    return stream is None or bool(getattr(stream, "closed", False))


def flushed() -> bool:
    """Flush stdout and stderr; on failure, print why and return False. Closed streams are skipped."""
    good = True
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    if sys.__stdout__ is not sys.stdout or sys.__stderr__ is not sys.stderr:
        streams = (*streams, sys.__stdout__, sys.__stderr__)
    for stream in dict.fromkeys(streams):
        try:
            if is_closed(stream):
                continue
        except ValueError:  # its handle belongs to another file by now
            pass
        try:
            stream.flush()
        except Exception:
            if stream in streams[:2]:
                good = False
                with suppress(Exception):  # the stream may be stderr itself
                    traceback.print_exc()
    return good
