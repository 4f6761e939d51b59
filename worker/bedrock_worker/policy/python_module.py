"""Loads a Python module with ``@job`` and ``@cron`` functions, and validates them before any run.

The functions themselves run in other processes (``run_function``), like any command.
"""

from __future__ import annotations

import importlib
import inspect
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from bedrock_worker import functions
from bedrock_worker.arguments import Arguments
from bedrock_worker.enqueuing import EnqueueOptions, seconds_in, with_first_run, without_argument_keys
from bedrock_worker.functions import RETRY_RULES, Declared, declared_in, look_in, sent_options
from bedrock_worker.options import ISOLATIONS
from bedrockjobs.base import clock
from bedrockjobs.base.config import PATTERN_CHARS_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.glob import glob, is_plain
from bedrockjobs.base.wire import command_error, wire_name
from bedrockjobs.commands import JobSpec, SyncSchedules
from bedrockjobs.commands.options import JobOptions
from bedrockjobs.schedule import cron

# Importing a module into the worker, and reverting what the import changed in the process.
#
# A module may replace stdout, set an alarm or handle signals; an import for a run does so again.
# Threads, hard limits and changes in memory cannot be reverted.


ITIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)

LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))


def import_into_worker(name: str) -> None:
    """Import a module and revert what it changes in the process; raises what the module raises."""
    with _streams(), _environment(), _handles():
        if threading.current_thread() is threading.main_thread():
            with _signals():
                importlib.import_module(name)
        else:
            importlib.import_module(name)


@contextmanager
def _streams() -> Iterator[None]:
    """Give a module its own stdout and stderr: it may close them, or keep them in a ``logging`` handler."""
    ours = sys.stdout, sys.stderr, sys.excepthook
    sys.stdout, sys.stderr = _another(1), _another(2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # its type may have changed
                stream.flush()
        sys.stdout, sys.stderr, sys.excepthook = ours


def _another(handle: int) -> TextIO:
    """Return a new stream for a handle; closing the stream leaves the handle open."""
    return os.fdopen(handle, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


@contextmanager
def _handles() -> Iterator[None]:
    ours = []
    for at in range(3):
        with suppress(OSError):  # the handle was closed from the start
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
                with suppress(ValueError, OSError):  # a hard limit cannot be raised again
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


RUN_TIMEOUT_S, GRACE_S = 300, 60
"""Default seconds until a run of a ``@cron`` function gets TERM, and from TERM until it gets KILL."""

OWN_OPTIONS = ("isolation", "timeout")
"""Options of ``@job`` that concern how the worker runs the function, not the jobs that are enqueued."""

CRON_OPTIONS = (JobOptions.model_fields.keys() - {"cmd", "argv", "url"}) | {"job_priority"}
"""The options that ``@cron`` accepts."""


class BadModule(ValueError):
    """A module cannot be used; names the function and the reason."""


@dataclass(frozen=True)
class Function:
    """A function that a worker can run."""

    module: str
    name: str
    pattern: str
    """The GLOB pattern of the names of its jobs."""
    folder: str
    """The folder in which the worker was started, and where the module may be."""
    timeout_s: float | None = None
    declared_by: str = ""
    """The worker's module, which imports the module of the function."""
    isolation: str = ""
    """The value of ``isolation`` for this function; empty if it has none, so that the worker's applies."""
    is_async: bool = False

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """Return the command that runs the function for the job on stdin or in ``BEDROCK_DATA_FILE``."""
        runner = "bedrock_worker.run.run_function"
        return (sys.executable, "-P", "-m", runner, self.module, self.name, self.folder)

    @cached_property
    def template(self) -> tuple[str, ...]:
        """Return the command that imports the declaring module and forks processes for its functions."""
        return (sys.executable, "-P", "-m", "bedrock_worker.run.template", self.declared_by, self.folder)

    @cached_property
    def loop(self) -> tuple[str, ...]:
        """Return the command that imports the declaring module and runs its async functions on one loop."""
        return (sys.executable, "-P", "-m", "bedrock_worker.run.loop_process", self.declared_by, self.folder)


@dataclass(frozen=True)
class PythonModule:
    """The declarations of a module."""

    name: str
    functions: tuple[Function, ...]
    schedules: tuple[Mapping[str, Any], ...]
    """Parameters of CreateJob by wire name, for each ``@cron`` function."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the name patterns of the functions."""
        return tuple(dict.fromkeys(function.pattern for function in self.functions))

    @property
    def source(self) -> str:
        """Return the ``source`` by which the server recognises the schedules of this module."""
        return f"module {self.name}"

    @cached_property
    def environment(self) -> dict[str, str]:
        """Return the variables that the functions' processes need to find the same modules."""
        path = os.environ.get("PYTHONPATH", "")
        return {"PYTHONPATH": path} if path else {}

    def function_for(self, name: str) -> Function | None:
        """Return the first function for a job name; exact names take precedence over patterns."""
        exact = (declared for declared in self.functions if declared.pattern == name)
        return next(exact, None) or next((one for one in self.functions if glob(name, one.pattern)), None)

    def sync(self, worker: str = "") -> SyncSchedules:
        """Return the command that applies the module's schedules to a server; raises CommandError."""
        parameters = {
            "source": self.source,
            "schedules": list(self.schedules),
            "by": worker,
            "worker": worker,
        }
        return SyncSchedules.read(parameters)


def load(name: str) -> PythonModule:
    """Import a module, also from the current folder, and return its declarations.

    Raises BadModule; if the module raised an exception, the message says where.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadModule(f"{name!r}: expected the name of a module, like {_module_of(name) or 'app.jobs'}")
    folder = str(Path.cwd())
    if "" not in sys.path:
        look_in(folder)
    try:
        import_into_worker(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise BadModule(f"{name}: {_fault(error)}") from None
        if module := _module_of(name):
            raise BadModule(f"{name}: expected the name of a module, not of its file: {module}") from None
        raise BadModule(f"{name}: no such module, in {folder} or where Python looks") from None
    except (Exception, SystemExit) as error:
        raise BadModule(f"{name}: {_fault(error)}") from None
    functions, schedules = [], []
    for declared in declared_in(name):
        function = declared.function
        where = f"{declared.module}.{getattr(function, '__qualname__', '?')}"
        try:
            functions.append(replace(_function(declared, folder), declared_by=name))
            if declared.expression is not None:
                schedules.append(_schedule(declared))
        except (ValueError, CommandError) as error:
            message = (error.detail or error.reason) if isinstance(error, CommandError) else error
            raise BadModule(f"{where}: {message}") from None
    if not functions:
        raise BadModule(f"{name}: expected functions with @job or @cron")
    names = [schedule["name"] for schedule in schedules]
    if twice := [one for one in names if names.count(one) > 1]:
        raise BadModule(f"{name}: expected one schedule for each name, {twice[0]} has several")
    return PythonModule(name, tuple(functions), tuple(schedules))


def _module_of(file: str) -> str:
    """Return the name of the module in a file; empty if it is not the path of a Python file."""
    module = file.removeprefix("./").removesuffix(".py").replace("/", ".")
    return module if file.endswith(".py") and all(part.isidentifier() for part in module.split(".")) else ""


def _fault(error: BaseException) -> str:
    """Describe an exception of a module, without the frames of the import system and the worker."""
    summary = traceback.TracebackException.from_exception(error)
    _keep_own_frames(summary)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    lines = [line.rstrip("\n") for line in summary.format()]
    return "\n".join([text, *(lines[:-1] if lines[-1] == text else lines)])


def _keep_own_frames(summary: traceback.TracebackException) -> None:
    not_own = (Path(importlib.__file__).parent, Path(__file__).parent, Path(functions.__file__).parent)
    summary.stack[:] = [
        frame
        for frame in summary.stack
        if not frame.filename.startswith("<frozen importlib") and Path(frame.filename).parent not in not_own
    ]
    for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if other is not None:
            _keep_own_frames(other)


def _function(declared: Declared, folder: str) -> Function:
    function = declared.function
    name = getattr(function, "__qualname__", "")
    if not inspect.isroutine(function) or not name.isidentifier():
        raise ValueError("expected a function of the module, not of a class or of a function")
    signature = inspect.signature(function)
    is_async = inspect.iscoroutinefunction(function)
    if declared.expression is not None:
        needed = [parameter.name for parameter in signature.parameters.values() if _is_needed(parameter)]
        if needed:
            raise ValueError(f"a cron function must need no arguments, this one needs {', '.join(needed)}")
        return Function(declared.module, name, declared.pattern, folder, is_async=is_async)
    arguments = Arguments(function)
    if not arguments.takes_job:
        arguments.check_kinds()
    if not 1 <= len(declared.pattern) <= PATTERN_CHARS_MAX:
        raise ValueError(f"expected a name pattern of 1 to {PATTERN_CHARS_MAX} characters")
    options = {name: value for name, value in declared.options.items() if name not in OWN_OPTIONS}
    options = sent_options(options)
    if unknown := options.keys() - EnqueueOptions.__annotations__.keys() - {"backoff"}:
        known = ", ".join([*OWN_OPTIONS, *sorted({*EnqueueOptions.__annotations__, "backoff", *RETRY_RULES})])
        raise ValueError(f"unknown option {min(unknown)}, @job takes {known}")
    if unique := options.pop("unique", False):
        arguments.unique_names(unique)
    options = without_argument_keys(options, arguments)
    JobSpec(**{"name": "name", **with_first_run(options)})  # raises for an invalid value
    isolation = declared.options.get("isolation")
    if isolation not in (None, *ISOLATIONS):
        raise ValueError(f"isolation: expected {', '.join(ISOLATIONS)} or nothing, got {isolation!r}")
    return Function(
        declared.module,
        name,
        declared.pattern,
        folder,
        timeout_s=_seconds(declared.options.get("timeout")),
        isolation=isolation or "",
        is_async=is_async,
    )


def _is_needed(parameter: inspect.Parameter) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in optional


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    if not (seconds := seconds_in(value)):
        raise ValueError(f"timeout: expected {clock.WORDS}, more than 0")
    return seconds


def _schedule(declared: Declared) -> dict[str, Any]:
    assert declared.expression is not None
    if not is_plain(declared.pattern):
        raise ValueError(f"name: expected one without * ? [, got {declared.pattern!r}")
    if not isinstance(declared.zone, str) or declared.zone.split() != [declared.zone]:
        raise ValueError(f"zone: expected the name of a time zone, got {declared.zone!r}")
    declared_options = sent_options(declared.options)
    if unknown := declared_options.keys() - CRON_OPTIONS:
        raise ValueError(f"unknown option {min(unknown)}, @cron takes {', '.join(sorted(CRON_OPTIONS))}")
    cron.parse(declared.expression)
    zone = "" if declared.zone.upper() == "UTC" else f"TZ={declared.zone} "
    repeat = f"CRON {zone}{' '.join(declared.expression.split())}"
    cron.split_zone(repeat)
    options = {"run_timeout": RUN_TIMEOUT_S, "grace": GRACE_S, **declared_options}
    spec = {"name": declared.pattern, "repeat": repeat}
    spec |= {wire_name(option): value for option, value in options.items() if value is not None}
    try:
        JobSpec.model_validate(spec)
    except ValidationError as error:
        raise command_error(error) from None
    return spec
