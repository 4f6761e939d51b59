"""Jobs as Python functions: ``@job("report/*")`` and ``@cron("0 9 * * *")``, and their exceptions and hooks.

Hooks surround runs: ``@lifespan`` once in each process, ``@middleware`` each run.

Applications and runs import this module, so it imports little: it only records declarations, which
``python_module`` checks.
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, overload

from bedrock_worker.current import CurrentRun, Job, current_run
from bedrock_worker.enqueuing import (
    KEYS_OF_ARGUMENTS,
    AsyncJobFunction,
    Delay,
    EnqueueOptions,
    JobFunction,
    RunOptions,
    check_together,
    delay_s,
    job_function,
)

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
"""Exit statuses of a command or function; ``report.reporter`` says what each of the last five does."""

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


@overload
def job(  # type: ignore[overload-overlap]
    function: Callable[[Job], Coroutine[Any, Any, R]], /
) -> AsyncJobFunction[..., R]: ...
@overload
def job(function: Callable[[Job], R], /) -> JobFunction[..., R]: ...
@overload
def job(  # type: ignore[overload-overlap]
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncJobFunction[P, R]: ...
@overload
def job(function: Callable[P, R], /) -> JobFunction[P, R]: ...
@overload
def job(
    pattern: str | None = None,
    *,
    timeout: float | str | None = None,
    isolation: Literal["reuse", "fork", "spawn"] | None = None,
    backoff: Backoff | None = None,
    retry_on: Exceptions = (),
    give_up_on: Exceptions = (),
    **options: Unpack[EnqueueOptions],
) -> JobDecorator: ...
def job(
    pattern: str | Callable[..., Any] | None = None,
    *,
    timeout: float | str | None = None,
    isolation: Literal["reuse", "fork", "spawn"] | None = None,
    backoff: Backoff | None = None,
    retry_on: Exceptions = (),
    give_up_on: Exceptions = (),
    **options: Unpack[EnqueueOptions],
) -> Any:
    """Declare the function that runs the jobs whose names match a GLOB pattern.

    Without a pattern, as ``@job`` or ``@job(retries=3)``, its jobs are named ``module.function``.
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
    if callable(pattern):
        return job()(pattern)
    if pattern is not None:
        _expect_text(pattern, '@job needs a function or a name pattern, as in @job("report/*")')
    rules = _given_rules(backoff, retry_on, give_up_on)
    sent = sent_options({**options, **rules})

    def declare(function: Callable[..., Any], /) -> Any:
        own = {"timeout": timeout, "isolation": isolation}
        names = _name_of(function) if pattern is None else pattern
        for option in KEYS_OF_ARGUMENTS:
            key = options.get(option)
            if isinstance(key, str) and key in inspect.signature(function).parameters:
                words = f'{option}="{key}" is one key for all jobs, not one for each value of the parameter'
                warnings.warn(f'{function.__qualname__}: {words}: give ("{key}",)', stacklevel=2)
        _note(function, names, None, "UTC", {**own, **options, **rules})
        return job_function(function, names, sent)

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
    sent_options({**options, **rules}, complete=True)
    return lambda function: _note(
        function, name or _name_of(function), expression, zone, {**options, **rules}
    )


def _name_of(function: Callable[..., Any]) -> str:
    """Return ``module.function``; in a program, the module has the name by which a worker imports it."""
    module = function.__module__
    if module == "__main__":
        program = sys.modules[module]
        spec, file = getattr(program, "__spec__", None), getattr(program, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{function.__qualname__}"


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


# --- retry rules -----------------------------------------------------------------------------------------
#
# The process that runs the function applies these rules, since classes and functions cannot be sent to a
# server.

Exceptions = type[Exception] | tuple[type[Exception], ...]
"""One or several classes of exceptions; each includes its subclasses."""

Backoff = Delay | Sequence[Delay] | Callable[[int, Exception], Delay]
"""A delay that doubles, a delay for each retry, or a function of the attempt and its error."""

RETRY_RULES = ("retry_on", "give_up_on")
"""Options that only the worker applies, and that are not sent to the server."""


class Decision(NamedTuple):
    """What the rules say about a run that ended with an error."""

    final: bool
    """True if the job fails permanently."""
    delay: int | None = None
    """Whole seconds until the retry; None: the job's ``backoff`` applies."""


class RetryRules:
    """The rules of one function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Read the options of a declaration; raises ValueError if they contradict each other."""
        self._retried = _classes(options.get("retry_on") or (), "retry_on")
        self._final = _classes(options.get("give_up_on") or (), "give_up_on")
        backoff = options.get("backoff")
        self._own = backoff if callable(backoff) or _is_list(backoff) else None
        self.listed: tuple[int, ...] = ()
        """The delays in seconds, if ``backoff`` is a list; otherwise empty."""
        retries = options.get("retries")
        for kind in self._retried:
            if given_up := next((each for each in self._final if issubclass(kind, each)), None):
                words = f"give_up_on: {given_up.__name__} includes {kind.__name__} of retry_on"
                raise ValueError(f"{words}, which would never be retried")
        if self._retried and retries == 0:
            raise ValueError("retry_on: expected nothing together with retries=0")
        if self._own is None:
            return
        if options.get("max_backoff") is not None:
            raise ValueError("max_backoff: expected nothing together with a list or a function as backoff")
        if callable(self._own):
            _check_takes_two(self._own)
            return
        self.listed = tuple(ceil(delay_s(each, "backoff")) for each in self._own)
        if not self.listed:
            raise ValueError("backoff: expected at least one delay")
        if isinstance(retries, int) and len(self.listed) > retries:
            raise ValueError(
                f"backoff: {len(self.listed)} delays for {retries} retries: expected at most as many"
            )

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self._retried or self._final or self._own is not None)

    def decide(self, error: Exception, attempt: int) -> Decision | None:
        """Return what follows from an error of an ``attempt``, counted from 1; None if no rule applies.

        An exception group fails the job permanently if the class of any member is in ``give_up_on``, or if
        ``retry_on`` is given and the class of any member is not in it. Raises what a ``backoff`` function
        raises.
        """
        errors = list(leaves(error))
        if self._final and any(isinstance(each, self._final) for each in errors):
            return Decision(final=True)
        if self._retried and not all(isinstance(each, self._retried) for each in errors):
            return Decision(final=True)
        if self.listed:
            return Decision(False, self.listed[min(attempt, len(self.listed)) - 1])
        if self._own is not None:
            return Decision(False, ceil(delay_s(self._own(attempt, error), "backoff")))
        return Decision(final=False) if self._retried else None


def sent_options(options: Mapping[str, Any], *, complete: bool = False) -> dict[str, Any]:
    """Return the options that are attributes of CreateJob; a ``backoff`` that is a list sets ``retries``.

    Raises ValueError if the options contradict each other, or if one lacks another although ``complete``.
    """
    check_together(options, complete=complete)
    rules = RetryRules(options)
    sent = {key: value for key, value in options.items() if key not in RETRY_RULES}
    if rules.listed:
        sent["retries"] = options.get("retries", len(rules.listed))
    if _is_list(sent.get("backoff")) or callable(sent.get("backoff")):
        del sent["backoff"]
    return sent


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, or the members of an exception group and of groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def _is_list(backoff: object) -> bool:
    return isinstance(backoff, Sequence) and not isinstance(backoff, (str, bytes))


def _classes(given: object, name: str) -> tuple[type[Exception], ...]:
    kinds = given if isinstance(given, tuple) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            words = f"{name}: expected classes of exceptions, as in (OSError, ValueError), got {kind!r}"
            raise ValueError(words)  # noqa: TRY004  as all faults of a declaration
    return kinds


def _check_takes_two(function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(1, ValueError())
    except TypeError:
        words = f"backoff: expected a function of (attempt, error), {function!r} cannot be called with two"
        raise ValueError(words) from None
    except ValueError:  # a builtin without a signature
        return


# --- hooks -----------------------------------------------------------------------------------------------
#
# A hook is a generator function with one ``yield``, as for ``contextlib.contextmanager``; for async functions
# it may be async.

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
    """Declare a resource that a process for functions opens before its first run and closes after its last.

    ``function`` opens the resource, yields once, and closes it. A process opens lifespans in the order of
    their declaration and closes them in reverse. If one cannot be opened, the run fails with its exception,
    and the next run tries again. A killed process closes nothing. Async lifespans are for async functions:
    they are opened once if all runs share an event loop, and for each run if each has a loop of its own.
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
