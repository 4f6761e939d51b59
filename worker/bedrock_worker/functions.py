"""Jobs as Python functions: ``@job("report/*")`` and ``@cron("0 9 * * *")``, and their exceptions.

Applications and runs import this module, so it imports little: it only records declarations, which
``python_module`` checks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from bedrock_worker.current import CurrentRun, Job, current_run
from bedrock_worker.enqueuing import (
    AsyncJobFunction,
    Delay,
    EnqueueOptions,
    JobFunction,
    RunOptions,
    delay_s,
    job_function,
)
from bedrock_worker.retry_rules import Backoff, Exceptions, sent_options

__all__ = [
    "CurrentRun",
    "Declared",
    "Delay",
    "Fail",
    "Job",
    "JobDecorator",
    "Retry",
    "Snooze",
    "cron",
    "current_run",
    "declared_in",
    "job",
    "look_in",
]

DONE, RAISED, TRY_AGAIN, FAIL_PERMANENTLY, SNOOZE, RETRY, UNFIT = 0, 1, 75, 100, 101, 102, 103
"""Exit statuses of a command or function; ``report.outcome`` says what each of the last five does."""

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")


class Retry(Exception):
    """Raise this to retry the run, also that of a schedule.

    Each retry uses up one of the job's ``retries``, 3 by default. When no retry is left, the job fails. To
    postpone a job without using a retry, raise ``Snooze``.
    """

    def __init__(self, delay: Delay | None = None, message: str = "") -> None:
        """Retry after ``delay``, by default after the job's ``backoff``, which doubles each time.

        Raises ValueError for an invalid delay.
        """
        self.delay = None if delay is None else _whole_seconds(delay)
        super().__init__(message or ("try again" if delay is None else f"try again in {self.delay} s"))


class Snooze(Exception):
    """Raise this to postpone a job, any number of times; it is not a failure and uses no attempt."""

    def __init__(self, delay: Delay, message: str = "") -> None:
        """Run again after ``delay``; raises ValueError for an invalid delay."""
        self.delay = _whole_seconds(delay)
        super().__init__(message or f"snoozed for {self.delay} s")


class Fail(Exception):
    """Raise this if a retry would not help: the job fails permanently with this message."""


def _whole_seconds(delay: object) -> int:
    """Return a delay in whole seconds, rounded up so that no retry is early."""
    return ceil(delay_s(delay))


@dataclass(frozen=True)
class Declared:
    """A declared function."""

    module: str
    function: Callable[..., Any]
    pattern: str
    """The GLOB pattern of the names of its jobs; for a ``@cron`` function, the name of the schedule."""
    expression: str | None
    """The cron expression, or None for a ``@job`` function."""
    zone: str
    options: Mapping[str, Any]


_declared: dict[str, list[Declared]] = {}


class JobDecorator(Protocol):
    """The type of the decorator that ``@job(...)`` returns, for type checkers."""

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
        """Return the function with methods to run it as a job."""


def job(
    pattern: str,
    *,
    timeout: float | str | None = None,
    isolation: Literal["reuse", "fork", "spawn"] | None = None,
    backoff: Backoff | None = None,
    retry_on: Exceptions = (),
    give_up_on: Exceptions = (),
    **options: Unpack[EnqueueOptions],
) -> JobDecorator:
    """Declare the function that runs the jobs whose names match a GLOB pattern.

    The function receives the job's data as its arguments, and returns the job's result. If its single
    parameter is a ``Job``, it receives the job, and a dict that it returns becomes the job's data.
    ``timeout`` limits one run (``"5m"`` or seconds). ``isolation`` is for this function alone: ``"fork"``
    gives each run a process of its own, ``"spawn"`` a new interpreter, and ``"reuse"`` keeps an async
    function off the event loop that async functions share. ``options`` are attributes of CreateJob for the
    jobs that ``enqueue`` creates.

    ``backoff`` is a delay that doubles, a list with a delay for each retry, or a function of the attempt and
    its error. An exception of a class in ``give_up_on`` fails the job permanently. If ``retry_on`` is given,
    so does any exception whose class is not in ``retry_on``. Raises ValueError if these options contradict
    each other.
    """
    _expect_text(pattern, '@job needs its name pattern, as in @job("report/*")')
    rules = _given_rules(backoff, retry_on, give_up_on)
    sent = sent_options({**options, **rules})

    def declare(function: Callable[..., Any], /) -> Any:
        own = {"timeout": timeout, "isolation": isolation}
        _note(function, pattern, None, "UTC", {**own, **options, **rules})
        return job_function(function, pattern, sent)

    return declare


def cron(
    expression: str,
    *,
    name: str | None = None,
    zone: str = "UTC",
    backoff: Backoff | None = None,
    retry_on: Exceptions = (),
    give_up_on: Exceptions = (),
    **options: Unpack[RunOptions],
) -> Callable[[F], F]:
    """Declare a function that runs on a schedule; it gets no arguments.

    ``name`` defaults to ``module.function``. Options are those of CreateJob, in snake case:
    ``run_timeout="10m"``, ``catchup="skip"``, ... By default, a run gets TERM after 5 minutes
    (``run_timeout``) and KILL 1 minute later (``grace``). ``backoff``, ``retry_on`` and ``give_up_on`` are
    as in ``job``.
    """
    _expect_text(expression, '@cron needs its schedule, as in @cron("0 9 * * *")')
    rules = _given_rules(backoff, retry_on, give_up_on)
    sent_options({**options, **rules})
    return lambda function: _note(
        function,
        name or f"{function.__module__}.{function.__qualname__}",
        expression,
        zone,
        {**options, **rules},
    )


def _given_rules(backoff: Backoff | None, retry_on: Exceptions, give_up_on: Exceptions) -> dict[str, Any]:
    given = {"backoff": backoff, "retry_on": retry_on, "give_up_on": give_up_on}
    return {name: value for name, value in given.items() if value is not None and value != ()}


def declared_in(module: str) -> list[Declared]:
    """Return the declarations of an imported module and of its imported submodules."""
    return [
        declared
        for name, declaration in _declared.items()
        if name == module or name.startswith(f"{module}.")
        for declared in declaration
    ]


def look_in(folder: str) -> None:
    """Search a folder for modules before the installed ones, but after the standard library.

    So a local ``json.py`` cannot shadow the standard library.
    """
    if folder not in sys.path:
        library = str(Path(os.__file__).parent)
        own = (library, f"{library}/lib-dynload")
        behind = max((at for at, path in enumerate(sys.path) if path in own), default=-1) + 1
        sys.path.insert(behind, folder)


def _expect_text(value: object, expected: str) -> None:
    """Raise TypeError for a decorator without parentheses, which would get the function as its pattern."""
    if not isinstance(value, str):
        name = getattr(value, "__qualname__", None)
        raise TypeError(f"{expected}; got {'the function ' + name if name else repr(value)}")


def _note(function: F, pattern: str, expression: str | None, zone: str, options: Mapping[str, Any]) -> F:
    plain = function.function if isinstance(function, JobFunction | AsyncJobFunction) else function
    declaration = Declared(function.__module__, plain, pattern, expression, zone, options)
    _declared.setdefault(declaration.module, []).append(declaration)
    return function
