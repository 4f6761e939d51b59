"""Jobs as Python functions: ``@job("report/*")`` and ``@cron("0 9 * * *")``, and what a function may raise.

This is what users import, and all that a run imports of the worker beside ``run_function``, so it is light:
it only notes what was declared. ``python_module`` checks it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Job:
    """The job that a ``@job`` function is called for."""

    id: int
    name: str
    data: dict[str, Any]
    attempt: int
    """How often it has been taken, this time included."""
    run_id: int
    scheduled_for: datetime
    """When it was due, in UTC."""
    fields: Mapping[str, Any]
    """All that the server gave, by its names: ``parentData``, ``finishedChildJobs``, ..."""


class Retry(Exception):
    """Raise it to have the job run again later; a schedule's tick too. It does not count as a failure."""

    def __init__(self, delay: int | None = None, message: str = "") -> None:
        """Run again after ``delay`` seconds; if left out, after the job's ``backoff`` or 10."""
        super().__init__(message or ("again later" if delay is None else f"again in {delay} s"))
        self.delay = delay


class Fail(Exception):
    """Raise it where trying again would be in vain: the job has failed for good, with this message."""


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


def job(pattern: str, **options: Any) -> Callable[[F], F]:
    """Declare the function that runs the jobs whose name matches a GLOB pattern.

    It gets one argument, a ``Job``. A dict that it returns becomes the job's data. The one option is
    ``timeout``, the time one run may take (``"5m"`` or seconds).
    """
    _expect_text(pattern, '@job needs its name pattern, as in @job("report/*")')
    return lambda function: _note(function, pattern, None, "UTC", options)


def cron(expression: str, *, name: str | None = None, zone: str = "UTC", **options: Any) -> Callable[[F], F]:
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
    found = Declared(function.__module__, function, pattern, expression, zone, options)
    _declared.setdefault(found.module, []).append(found)
    return function
