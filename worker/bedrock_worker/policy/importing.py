"""Imports a module into the worker and reverts its side effects on the process.

A module may replace stdout, set an alarm or handle signals; each run repeats that in its own process.
Threads, hard limits and changes in memory cannot be reverted.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

ITIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))


def import_into_worker(name: str) -> None:
    """Import a module and revert its side effects; raises what the module raises."""
    with _streams(), _environment(), _handles():
        if threading.current_thread() is threading.main_thread():
            with _signals():
                importlib.import_module(name)
        else:
            importlib.import_module(name)


@contextmanager
def _streams() -> Iterator[None]:
    """Give the module its own streams, which it may close or keep, like a handler of ``logging``."""
    ours = sys.stdout, sys.stderr, sys.excepthook
    sys.stdout, sys.stderr = _another(1), _another(2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # of whatever kind it is by now
                stream.flush()
        sys.stdout, sys.stderr, sys.excepthook = ours


def _another(handle: int) -> TextIO:
    """Return a new stream for a handle, which stays open when the stream is closed."""
    return os.fdopen(handle, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


@contextmanager
def _handles() -> Iterator[None]:
    ours = []
    for at in range(3):
        with suppress(OSError):  # it was closed when we began
            ours.append((at, os.dup(at)))
    try:
        yield
    finally:
        for at, handle in ours:
            with suppress(OSError):
                os.dup2(handle, at)
                os.close(handle)


@contextmanager
def _environment() -> Iterator[None]:
    variables, folder, umask = dict(os.environ), os.getcwd(), os.umask(0o77)  # noqa: PTH109
    os.umask(umask)
    limits = [(kind, resource.getrlimit(kind)) for kind in LIMITS]
    try:
        yield
    finally:
        if dict(os.environ) != variables:
            os.environ.clear()
            os.environ.update(variables)
            time.tzset()
        os.chdir(folder)
        os.umask(umask)
        for kind, limit in limits:
            if resource.getrlimit(kind) != limit:
                with suppress(ValueError, OSError):  # a hard limit stays
                    resource.setrlimit(kind, limit)


@contextmanager
def _signals() -> Iterator[None]:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    timers = [(kind, signal.getitimer(kind)) for kind in ITIMERS]
    try:
        yield
    finally:
        for kind, timer in timers:
            signal.setitimer(kind, *timer)
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
