"""Hooks around runs of functions: ``@lifespan`` for each of their processes, ``@middleware`` for each run.

Both are generator functions with one ``yield``, like those of ``contextlib.contextmanager``. Runs import this
module, so it is light.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from bedrock_worker.current import CurrentRun, current_run

_lifespans: list[Callable[[], AbstractContextManager[object]]] = []
_middleware: list[Callable[[CurrentRun], AbstractContextManager[object]]] = []

_open = ExitStack()
_opened = 0
"""How many lifespans this process has opened."""


def lifespan(function: Callable[[], Iterator[object]]) -> Callable[[], Iterator[object]]:
    """Declare a resource that a process of functions opens before its first run and closes after its last.

    ``function`` opens it, yields once, and closes it. A process opens the lifespans in the order of their
    declaration and closes them in reverse. If one cannot be opened, the run fails with its exception, and the
    next run tries again. A killed process closes nothing.
    """
    _check(function, "lifespan")
    _lifespans.append(contextmanager(function))
    return function


def middleware(
    function: Callable[[CurrentRun], Iterator[object]],
) -> Callable[[CurrentRun], Iterator[object]]:
    """Wrap every run of every function, for tracing, sessions or error reports.

    ``function`` gets the run. Code before its ``yield`` runs before the run, code after it afterwards.
    The function's exception is raised at the ``yield``, also ``Retry``, ``Snooze`` and ``Fail``. The one that
    was declared first is the outermost.
    """
    _check(function, "middleware")
    _middleware.append(contextmanager(function))
    return function


def _check(function: object, name: str) -> None:
    if not inspect.isgeneratorfunction(function):
        given = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"@{name} needs a function with one yield, not an async one; got {given}")


def open_lifespans() -> None:
    """Open the lifespans that this process has not opened yet; raises what they raise."""
    global _opened
    while _opened < len(_lifespans):
        _open.enter_context(_lifespans[_opened]())
        _opened += 1


def close_lifespans() -> None:
    """Close all lifespans; raises what they raise."""
    global _opened
    _opened = 0
    _open.close()


@contextmanager
def around_run() -> Iterator[None]:
    """Surround the current run with the middleware."""
    with ExitStack() as stack:
        for each in _middleware:
            stack.enter_context(each(current_run()))
        yield
