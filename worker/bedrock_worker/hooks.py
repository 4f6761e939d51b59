"""Hooks around runs of functions: ``@lifespan`` once in each process, ``@middleware`` for each run.

A hook is a generator function with one ``yield``, as for ``contextlib.contextmanager``; for async functions
it may be async. Runs import this module, so it imports little.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import Any, NamedTuple, TypeVar

from bedrock_worker.current import CurrentRun, current_run

Lifespan = TypeVar("Lifespan", bound=Callable[[], Iterator[object] | AsyncIterator[object]])
Middleware = TypeVar("Middleware", bound=Callable[[CurrentRun], Iterator[object] | AsyncIterator[object]])


class _Hook(NamedTuple):
    """A declared hook."""

    make: Callable[..., Any]
    """Returns the context manager of the hook."""
    is_async: bool

    async def enter(self, stack: AsyncExitStack, *arguments: object) -> None:
        """Enter the context manager of the hook; the stack exits it."""
        made = self.make(*arguments)
        await (stack.enter_async_context(made) if self.is_async else _done(stack.enter_context(made)))


async def _done(_: object) -> None:
    """Do nothing, as the awaitable counterpart of a synchronous enter."""


_lifespans: list[_Hook] = []
_middleware: list[_Hook] = []

_open = ExitStack()
_opened = 0
"""How many lifespans this process has opened, in the order of their declaration."""


def lifespan(function: Lifespan) -> Lifespan:
    """Declare a resource that a process of functions opens before its first run and closes after its last.

    ``function`` opens the resource, yields once, and closes it. A process opens lifespans in the order of
    their declaration and closes them in reverse. If one cannot be opened, the run fails with its exception,
    and the next run tries again. A killed process closes nothing. An async lifespan is for async functions:
    it belongs to the event loop that they share, or to that of a single run.
    """
    _lifespans.append(_hook(function, "lifespan"))
    return function


def middleware(function: Middleware) -> Middleware:
    """Wrap every run of every function, for tracing, sessions or error reports.

    ``function`` gets the run. Its code before the ``yield`` runs before the run, and its code after the
    ``yield`` afterwards. An exception of the run is raised at the ``yield``, also ``Retry``, ``Snooze`` and
    ``Fail``. The first declared middleware is the outermost. Async middleware wraps only the runs of async
    functions.
    """
    _middleware.append(_hook(function, "middleware"))
    return function


def _hook(function: Callable[..., Any], name: str) -> _Hook:
    if inspect.isasyncgenfunction(function):
        return _Hook(asynccontextmanager(function), True)
    if inspect.isgeneratorfunction(function):
        return _Hook(contextmanager(function), False)
    given = getattr(function, "__qualname__", repr(function))
    raise TypeError(f"@{name} needs a function with one yield; got {given}")


def open_lifespans() -> None:
    """Open the lifespans that are not open yet in this process, except async ones; raises what they raise."""
    global _opened
    while _opened < len(_lifespans):
        if not _lifespans[_opened].is_async:
            _open.enter_context(_lifespans[_opened].make())
        _opened += 1


def close_lifespans() -> None:
    """Close all lifespans; raises what they raise."""
    global _opened
    _opened = 0
    _open.close()


@asynccontextmanager
async def all_lifespans() -> AsyncIterator[None]:
    """Keep all lifespans open, async ones too."""
    async with AsyncExitStack() as stack:
        for each in _lifespans:
            await each.enter(stack)
        yield


@asynccontextmanager
async def async_lifespans() -> AsyncIterator[None]:
    """Keep the async lifespans open."""
    async with AsyncExitStack() as stack:
        for each in _lifespans:
            if each.is_async:
                await each.enter(stack)
        yield


def around_run() -> AbstractContextManager[None]:
    """Surround the current run with all middleware that is not async."""
    return _within_middleware() if _middleware else nullcontext()


@contextmanager
def _within_middleware() -> Iterator[None]:
    with ExitStack() as stack:
        for each in _middleware:
            if not each.is_async:
                stack.enter_context(each.make(current_run()))
        yield


@asynccontextmanager
async def around_async_run() -> AsyncIterator[None]:
    """Surround the current run of an async function with all middleware."""
    async with AsyncExitStack() as stack:
        for each in _middleware:
            await each.enter(stack, current_run())
        yield
