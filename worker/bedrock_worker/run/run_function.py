"""``python -P -m bedrock_worker.run.run_function MODULE FUNCTION [FOLDER]``: runs one function for one job.

The module is also searched in FOLDER, after the standard library, so that a ``json.py`` there shadows
nothing. The job is read from the file ``BEDROCK_DATA_FILE``, or from stdin. Exit status 0: success, with the
result in ``BEDROCK_RESULT``; 1: an exception; 102: ``Retry``; 101: ``Snooze``; 100: ``Fail``; 103: the job's
data is for another version of the function. The error is written to a file next to the result.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from bedrock_worker import functions
from bedrock_worker.arguments import MOCK, PASSED, RESULT, Arguments, OtherArguments, WrongArguments
from bedrock_worker.current import PROGRESS_VARIABLE, Job, current_run, report_progress_to, set_current_run
from bedrock_worker.functions import (
    DONE,
    FAIL_PERMANENTLY,
    RAISED,
    RETRY,
    SNOOZE,
    UNFIT,
    Declared,
    Fail,
    Retry,
    RetryRules,
    Snooze,
    declared_in,
    leaves,
    look_in,
)

ERROR_FILE = "error.json"
"""The file next to the result with the ``error`` and ``traceback`` of a failed function."""

NOT_FLUSHED = 120
"""Exit status if the last output could not be written, as Python itself has it."""


def main(arguments: Sequence[str]) -> int:
    """Run a function and return the exit status."""
    print_line_by_line()
    if (progress := os.environ.pop(PROGRESS_VARIABLE, "")).isdecimal():
        report_progress_to(int(progress))
    if not 2 <= len(arguments) <= 3:
        print("usage: python -P -m bedrock_worker.run.run_function MODULE FUNCTION [FOLDER]", file=sys.stderr)
        return 2
    module, function, *folders = arguments
    for folder in folders:
        look_in(folder)
    status = run_for_job(module, function)
    close_lifespans()
    return status


def close_lifespans() -> None:
    """Close the lifespans that this process has opened for its runs; a failure is only printed."""
    try:
        functions.close_lifespans()
    except Exception:
        traceback.print_exc()


def print_line_by_line() -> None:
    """Flush stdout after each line, so that output is visible while the function runs."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


Write = Callable[[str], object]
"""Called with the result of a run, the text of a JSON object."""


def run_for_job(module: str, function: str, job_text: str | None = None, write: Write | None = None) -> int:
    """Run one function for a job, and return the exit status.

    ``job_text`` is the text of the job, unless it still has to be read; ``write`` receives the result, which
    is otherwise written to the file ``BEDROCK_RESULT``.
    """
    try:
        return store_result(_call(module, function, job_text), DONE, write)
    except Exception as error:
        return failed(error, rules_of(module, function), write)


@cache
def rules_of(module: str, function: str) -> RetryRules:
    """Return the retry rules of a function; empty ones if the function cannot be found."""
    try:
        return RetryRules(declaration(module, function).options)
    except LookupError:
        return RetryRules({})


Leave = Callable[[str, str], object]
"""Called with the error of a run, and with its traceback or an empty text."""


def failed(error: BaseException, rules: RetryRules, write: Write | None, leave: Leave | None = None) -> int:
    """Report how a failed function ended, and return the exit status.

    ``leave`` receives the error instead of the file next to the result.
    """
    leave = leave or _leave_error
    request = requested_by(error)
    if isinstance(request, Snooze):
        print(request, file=sys.stderr)
        return store_result({"delay": request.delay}, SNOOZE, write)
    if isinstance(request, Unfit):
        print(request, file=sys.stderr)
        leave(str(request), "")
        return UNFIT
    if request is None:
        text = traceback_of(error)
        print(text, file=sys.stderr)
        leave(last_line(error), text)
        return _by_rules(error, rules, write)
    print(request, file=sys.stderr)
    leave(f"{type(request).__name__}: {request}", traceback_of(request) if request.__cause__ else "")
    if isinstance(request, Fail):
        return FAIL_PERMANENTLY
    return store_result(None if request.delay is None else {"delay": request.delay}, RETRY, write)


def _by_rules(error: BaseException, rules: RetryRules, write: Write | None) -> int:
    """Return the exit status for an error by the function's retry rules; store the delay they demand."""
    try:
        decision = None
        if rules and isinstance(error, Exception):
            decision = rules.decide(error, current_run().attempt)
    except Exception as fault:
        print(f"the backoff of the function failed: {last_line(fault)}", file=sys.stderr)
        return RAISED
    if decision is None:
        return RAISED
    if decision.final:
        return FAIL_PERMANENTLY
    return store_result(None if decision.delay is None else {"delay": decision.delay}, RETRY, write)


class Unfit(Exception):
    """The job's data is for another version of the function: an argument is unknown or missing."""


def requested_by(error: BaseException) -> Fail | Retry | Snooze | Unfit | None:
    """Return the request that a function raised, also in exception groups, or None for any other error.

    In a group, the first of these that it contains counts: ``Fail``, another error, the longest ``Retry``,
    the longest ``Snooze``, ``Unfit``.
    """
    errors = list(leaves(error))
    if fails := [each for each in errors if isinstance(each, Fail)]:
        return fails[0]
    if not all(isinstance(each, (Retry, Snooze, Unfit)) for each in errors):
        return None
    for kind in (Retry, Snooze):
        if requests := [each for each in errors if isinstance(each, kind)]:
            return max(requests, key=lambda each: each.delay or 0)
    return next(each for each in errors if isinstance(each, Unfit))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, starting in the user's code.

    If a file has changed since its import, a line before it says so: the traceback shows the lines of now.
    """
    summary = traceback.TracebackException.from_exception(error)
    files = _begin_in_function(summary, set())
    changed = sorted(path for path in files & _imported.keys() if _stamp(path) != _imported[path])
    text = "".join(summary.format()).rstrip("\n")
    if not changed:
        return text
    return f"{', '.join(changed)}: changed since the worker imported it, restart the worker\n{text}"


def _begin_in_function(summary: traceback.TracebackException, seen: set[int]) -> set[str]:
    """Drop the frames before the user's code; return the files of the others."""
    if id(summary) in seen:
        return set()
    seen.add(id(summary))
    while summary.stack and summary.stack[0].filename.startswith(_NOT_OF_USERS):
        del summary.stack[0]
    files = {frame.filename for frame in summary.stack}
    for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if other is not None:
            files |= _begin_in_function(other, seen)
    return files


_imported: dict[str, int] = {}
"""The files of the user's modules that were imported before the first run, with ``_stamp`` of then."""


def _stamp(path: str) -> int:
    """Return when a file was changed, in nanoseconds; 0 if there is none."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  faster than a Path
    except OSError:
        return 0


_LIBRARY = Path(os.__file__).parent
_NOT_OF_USERS = (
    str(Path(__file__).parents[1]),
    f"{_LIBRARY}/asyncio/",
    f"{_LIBRARY}/contextlib.py",
    "<frozen ",
)
"""Prefixes of the files whose frames come before those of a user's function in a traceback."""


def is_of_python_or_ours(path: str) -> bool:
    """Return whether a file is part of Python's library or of the worker."""
    return path.startswith(_NOT_OF_USERS) or (path.startswith(f"{_LIBRARY}/") and "-packages/" not in path)


def last_line(error: BaseException) -> str:
    """Return an error with its type, as at the end of a traceback."""
    lines = list(traceback.TracebackException.from_exception(error).format_exception_only())
    return "".join(lines).strip()


def _leave_error(error: str, text: str) -> None:
    """Write the error to ``ERROR_FILE`` for the worker; without this file, it shows the last output."""
    path = os.environ.get("BEDROCK_RESULT")
    if path:
        with suppress(OSError):
            document = json.dumps({"error": error, "traceback": text})
            Path(path).with_name(ERROR_FILE).write_text(document, encoding="utf-8")


def read_job() -> dict[str, Any]:
    """Return the job of this process, as the server sent it."""
    path = os.environ.get("BEDROCK_DATA_FILE")
    text = Path(path).read_text(encoding="utf-8") if path else sys.stdin.read()
    members: dict[str, Any] = json.loads(text)
    return members


def prepare(module: str) -> None:
    """Inspect the functions that a module declares, and cache what the runs of these functions need."""
    files = [getattr(each, "__file__", None) for each in list(sys.modules.values())]
    own = [path for path in files if isinstance(path, str) and "-packages/" not in path]
    _imported.update((path, _stamp(path)) for path in own if not is_of_python_or_ours(path))
    for declared in declared_in(module):
        declaration(declared.module, declared.function.__qualname__)
        if declared.expression is None:
            _ = _arguments(declared.function).takes_job


@cache
def _arguments(function: Callable[..., Any]) -> Arguments:
    return Arguments(function)


@cache
def declaration(module: str, name: str) -> Declared:
    """Return the declaration of a function; raises LookupError."""
    for declaration in declared_in(module):
        if (declaration.module, declaration.function.__qualname__) == (module, name):
            return declaration
    raise LookupError(f"{module} has no function {name} with @job or @cron")


def _call(module: str, name: str, job_text: str | None) -> Any:
    imported = importlib.import_module(module)
    declared = declaration(module, name)
    function = getattr(imported, name)
    functions.open_lifespans()

    def read() -> Job:
        return job_of(read_job() if job_text is None else json.loads(job_text))

    job = None
    if declared.expression is None:
        job = read()
        set_current_run(lambda: job)
    else:
        set_current_run(read)
    if inspect.iscoroutinefunction(declared.function):
        return _awaited(_with_own_loop(declared, function, job))
    return called_for_job(declared, function, job, _awaited)


async def _with_own_loop(declared: Declared, function: Callable[..., Any], job: Job | None) -> Any:
    async with functions.async_lifespans():
        return await awaited_for_job(declared, function, job)


def called_for_job(
    declared: Declared, function: Callable[..., Any], job: Job | None, awaited: Callable[[Any], Any]
) -> Any:
    """Call a function with a job or with its data; return the job's new data, or what the function returns.

    ``awaited`` turns a coroutine that the function returns into its result.
    """
    with functions.around_run():
        returned, finish = _begin_call(declared, function, job)
        return finish(awaited(returned))
    return None  # a middleware has handled the exception


async def awaited_for_job(declared: Declared, function: Callable[..., Any], job: Job | None) -> Any:
    """Call an async function with a job or with its data, as ``called_for_job`` does."""
    async with functions.around_async_run():
        returned, finish = _begin_call(declared, function, job)
        return finish(await returned)
    return None  # a middleware has handled the exception


def _begin_call(
    declared: Declared, function: Callable[..., Any], job: Job | None
) -> tuple[Any, Callable[[Any], Any]]:
    """Call a function; return its value, and a function that makes the job's new data of it."""
    if job is None or declared.expression is not None:
        return function(), partial(_data_after_tick, declared)
    arguments = _arguments(declared.function)
    if arguments.takes_job:
        return function(job), _unchanged
    return _call_with_data(function, arguments, job)


def _unchanged(value: Any) -> Any:
    return value


def _data_after_tick(declared: Declared, returned: Any) -> dict[str, Any] | None:
    """Return a schedule's new data: the dict that its function returned, or its data with another result."""
    if returned is None or isinstance(returned, dict):
        return returned
    return {**current_run().job.data, RESULT: _arguments(declared.function).result_to_json(returned)}


def _call_with_data(
    function: Callable[..., Any], arguments: Arguments, job: Job
) -> tuple[Any, Callable[[Any], Any]]:
    """Call a function with the job's data; return its value, and a function that adds it to the data."""
    repeats = bool(job.fields.get("repeat"))
    try:
        values = arguments.of_data(job.data, again=repeats or job.attempt > 1)
    except OtherArguments as error:
        raise Unfit(f"the job's data is for another version of the function: {error}") from None
    except WrongArguments as error:
        raise Fail(f"the job's data does not fit the function: {error}") from None

    def finish(returned: Any) -> dict[str, Any] | None:
        value = arguments.result_to_json(returned)
        if value is None:
            return None
        runs_again = repeats or current_run().has_children
        result = job.data if runs_again else {MOCK: job.data[MOCK]} if MOCK in job.data else {}
        return {**result, RESULT: value}

    return function(**values), finish


def _awaited(returned: Any) -> Any:
    """Return a value as it is, or run a coroutine and return its result."""
    if not inspect.iscoroutine(returned):
        return returned
    import asyncio  # imported here, since it would take most of the start time of this process

    return asyncio.run(returned)


def job_of(fields: dict[str, Any]) -> Job:
    """Return a job as its function sees it, from the fields that the server sent.

    Raises Fail if the result of a job before it is missing.
    """
    due = os.environ.get("BEDROCK_SCHEDULED_FOR") or fields["nextRun"]
    data = fields["data"]
    if PASSED in data:
        from bedrock_worker import workflows

        data = workflows.filled(fields)
    return Job(
        id=fields["jobID"],
        name=fields["name"],
        data=data,
        attempt=fields.get("attempt", 1),
        run_id=fields.get("runID", 0),
        scheduled_for=datetime.fromisoformat(due).replace(tzinfo=UTC),
        fields=fields,
    )


_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
"""Encodes a result; ``json.dumps`` would make an encoder for each call."""


def store_result(result: Any, status: int, write: Write | None) -> int:
    """Store a dict as the result and return ``status``; None stores nothing. Raises TypeError, ValueError."""
    if result is None:
        return status
    if not isinstance(result, dict):
        raise TypeError(f"the function returned {type(result).__name__}, expected a dict or None")
    text = _as_json(result)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Characters of the result that the error quotes.
        near = ascii(text[max(0, error.start - 30) : error.start + 1])
        raise ValueError(
            "the function returned text that is not Unicode, such as the name of a file that is not UTF-8:"
            f" half of a surrogate pair at the end of {near}"
        ) from None
    path = os.environ.get("BEDROCK_RESULT")
    if write is not None:
        write(text)
    elif path:
        Path(path).write_text(text, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
