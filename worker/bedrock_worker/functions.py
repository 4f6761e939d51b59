"""Jobs as Python functions: ``@job("report/*")`` and ``@cron("0 9 * * *")``, and what a function may raise.

This is what users import, and all that a run imports of the worker beside ``run_function``, so it is light:
it only notes what was declared. ``python_module`` checks it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import ceil, isfinite
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from bedrock_worker.current import CurrentRun, Job, current_run
from bedrock_worker.enqueuing import AsyncJobFunction, JobFunction, Options, RunOptions, job_function

__all__ = [
    "CurrentRun", "Declared", "Delay", "Fail", "Job", "JobDecorator", "Retry", "Snooze", "cron",
    "current_run", "declared_in", "job", "look_in",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


Delay = float | timedelta | str
"""Seconds, a timedelta, or a duration as text, like ``"5m"``."""


class Retry(Exception):
    """Raise it to have a failed run tried again, also that of a schedule's tick.

    It uses up one of the job's ``retries``; a job without a number of them gets 3. With none left, the job
    has failed. ``Snooze`` puts a job off without counting.
    """

    def __init__(self, delay: Delay | None = None, message: str = "") -> None:
        """Try again after ``delay``; if left out, after the job's ``backoff``, which doubles each time.

        Raises ValueError for a delay that is none.
        """
        self.delay = None if delay is None else _whole_seconds(delay)
        super().__init__(message or ("try again" if delay is None else f"try again in {self.delay} s"))


class Snooze(Exception):
    """Raise it to put a job off, as often as you like: that is no failure and uses up no attempt."""

    def __init__(self, delay: Delay, message: str = "") -> None:
        """Run again after ``delay``; raises ValueError for one that is none."""
        self.delay = _whole_seconds(delay)
        super().__init__(message or f"put off for {self.delay} s")


class Fail(Exception):
    """Raise it if trying again would be in vain: the job has failed for good, with this message."""


def _whole_seconds(delay: object) -> int:
    """Return a delay in whole seconds, rounded up: nobody wants to be tried again too early."""
    found: object = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(found, str):
        from bedrockjobs.base import duration

        found = duration.seconds_of(found)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not (isfinite(found) and found >= 0):
        raise ValueError(f'delay: expected seconds, a timedelta or text like "5m", 0 or more, got {delay!r}')
    return ceil(found)


@dataclass(frozen=True)
class Declared:
    """One function as it was declared."""

    module: str
    function: Callable[..., Any]
    pattern: str
    """GLOB pattern of the jobs it is for; the name itself for a schedule."""
    expression: str | None
    """When a schedule fires; None for a function that is for jobs."""
    zone: str
    options: Mapping[str, Any]


_declared: dict[str, list[Declared]] = {}


class JobDecorator(Protocol):
    """What ``@job(...)`` makes of a function; a coroutine function is one that returns a coroutine."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[[Job], Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[..., R]: ...
    @overload
    def __call__(self, function: Callable[[Job], R], /) -> JobFunction[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Return the function, with ways to have it run as a job."""


def job(pattern: str, *, timeout: float | str | None = None, **options: Unpack[Options]) -> JobDecorator:
    """Declare the function that runs the jobs whose name matches a GLOB pattern.

    It gets the job's data as its arguments, and what it returns is the job's result. Or it has one parameter,
    a ``Job``; then a dict that it returns becomes the job's data. ``timeout`` is the time one run may take
    (``"5m"`` or seconds). ``options`` are those of CreateJob, for jobs that ``enqueue`` makes.
    """
    _expect_text(pattern, '@job needs its name pattern, as in @job("report/*")')

    def declare(function: Callable[..., Any], /) -> Any:
        _note(function, pattern, None, "UTC", {"timeout": timeout, **options})
        return job_function(function, pattern, options)

    return declare


def cron(
    expression: str, *, name: str | None = None, zone: str = "UTC", **options: Unpack[RunOptions]
) -> Callable[[F], F]:
    """Declare a function that runs by a schedule; it gets no argument.

    ``name`` is ``module.function`` if left out. Options are those of CreateJob, in snake case:
    ``run_timeout="10m"``, ``catchup="skip"``, ... A run may take 5 minutes, and 1 more to end, unless
    ``run_timeout`` and ``grace`` say otherwise.
    """
    _expect_text(expression, '@cron needs its schedule, as in @cron("0 9 * * *")')
    return lambda function: _note(
        function, name or f"{function.__module__}.{function.__qualname__}", expression, zone, options
    )


def declared_in(module: str) -> list[Declared]:
    """Return what a module that was imported declares, and the modules inside it that it imported."""
    return [
        declared
        for name, found in _declared.items()
        if name == module or name.startswith(f"{module}.")
        for declared in found
    ]


def look_in(folder: str) -> None:
    """Look for modules in a folder too: before what is installed, but behind the standard library.

    So that a ``json.py`` that lies there is nobody's ``json``.
    """
    if folder not in sys.path:
        library = str(Path(os.__file__).parent)
        own = (library, f"{library}/lib-dynload")
        behind = max((at for at, path in enumerate(sys.path) if path in own), default=-1) + 1
        sys.path.insert(behind, folder)


def _expect_text(given: object, words: str) -> None:
    """Refuse a decorator without parentheses: it is given the function, which would then never be noted."""
    if not isinstance(given, str):
        name = getattr(given, "__qualname__", None)
        raise TypeError(f"{words}; got {'the function ' + name if name else repr(given)}")


def _note(function: F, pattern: str, expression: str | None, zone: str, options: Mapping[str, Any]) -> F:
    plain = function.function if isinstance(function, JobFunction | AsyncJobFunction) else function
    found = Declared(function.__module__, plain, pattern, expression, zone, options)
    _declared.setdefault(found.module, []).append(found)
    return function
