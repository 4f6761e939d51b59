"""``python -P -m bedrock_worker.run.run_function MODULE FUNCTION [FOLDER]``: runs one function for one job.

The module is also searched in the folder, after the standard library, so that a ``json.py`` there shadows
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
from functools import cache
from pathlib import Path
from typing import Any

from bedrock_worker import hooks
from bedrock_worker.arguments import MOCK, PASSED, RESULT, Arguments, OtherArguments, WrongArguments
from bedrock_worker.current import PROGRESS_VARIABLE, Job, current_run, report_progress_to, set_current_run
from bedrock_worker.functions import Declared, Fail, Retry, Snooze, declared_in, look_in
from bedrock_worker.retry_rules import RetryRules, leaves

DONE, RAISED, USAGE, TRY_AGAIN, FAIL_PERMANENTLY, SNOOZE, RETRY, UNFIT = 0, 1, 2, 75, 100, 101, 102, 103
"""Exit statuses; ``outcome`` defines the meaning of the last five."""

ERROR_FILE = "error.json"
"""The file next to the result with the ``error`` and ``traceback`` of a failed function."""

NOT_FLUSHED = 120
"""Exit status, like Python's own, if the last output could not be written."""


def main(arguments: Sequence[str]) -> int:
    """Run a function and return the exit status."""
    print_line_by_line()
    if (progress := os.environ.pop(PROGRESS_VARIABLE, "")).isdecimal():
        report_progress_to(int(progress))
    if not 2 <= len(arguments) <= 3:
        print("usage: python -P -m bedrock_worker.run.run_function MODULE FUNCTION [FOLDER]", file=sys.stderr)
        return USAGE
    module, function, *folders = arguments
    for folder in folders:
        look_in(folder)
    status = run_for_job(module, function)
    close_lifespans()
    return status


def close_lifespans() -> None:
    """Close what this process has opened for its runs; a failure is only printed."""
    try:
        hooks.close_lifespans()
    except Exception:
        traceback.print_exc()


def print_line_by_line() -> None:
    """Make output visible while the function runs."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


Write = Callable[[str], object]
"""Called with the result of a run, a JSON object."""


def run_for_job(module: str, function: str, job_text: str | None = None, write: Write | None = None) -> int:
    """Run one function for a job, and return the exit status.

    ``job_text`` is the job's text if it is already read; ``write`` receives the result instead of the file
    ``BEDROCK_RESULT``.
    """
    try:
        return _store_result(_call(module, function, job_text), DONE, write)
    except Exception as error:
        return _failed(error, _rules(module, function), write)


@cache
def _rules(module: str, function: str) -> RetryRules:
    """Return the retry rules of a function; none if it cannot be found."""
    try:
        return RetryRules(declaration(module, function).options)
    except LookupError:
        return RetryRules({})


def _failed(error: Exception, rules: RetryRules, write: Write | None) -> int:
    """Report how a failed function ended, and return the exit status."""
    request = requested_by(error)
    if isinstance(request, Snooze):
        print(request, file=sys.stderr)
        return _store_result({"delay": request.delay}, SNOOZE, write)
    if isinstance(request, Unfit):
        print(request, file=sys.stderr)
        _leave_error(str(request), "")
        return UNFIT
    if request is None:
        text = traceback_of(error)
        print(text, file=sys.stderr)
        _leave_error(last_line(error), text)
        return _by_rules(error, rules, write)
    print(request, file=sys.stderr)
    _leave_error(f"{type(request).__name__}: {request}", traceback_of(request) if request.__cause__ else "")
    if isinstance(request, Fail):
        return FAIL_PERMANENTLY
    return _store_result(None if request.delay is None else {"delay": request.delay}, RETRY, write)


def _by_rules(error: Exception, rules: RetryRules, write: Write | None) -> int:
    """Return the exit status that the retry rules of a function give for an error."""
    try:
        decision = rules.decide(error, current_run().attempt) if rules else None
    except Exception as fault:
        print(f"the backoff of the function failed: {last_line(fault)}", file=sys.stderr)
        return RAISED
    if decision is None:
        return RAISED
    if decision.final:
        return FAIL_PERMANENTLY
    return _store_result(None if decision.delay is None else {"delay": decision.delay}, RETRY, write)


class Unfit(Exception):
    """The job's data is for another version of the function: an argument is unknown or missing."""


def requested_by(error: BaseException) -> Fail | Retry | Snooze | Unfit | None:
    """Return the request that a function raised, also within exception groups, or None for other errors.

    In a group the gravest counts: ``Fail``, another error, the longest ``Retry``, the longest ``Snooze``.
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
    """Return the traceback of an error, starting in the user's code."""
    summary = traceback.TracebackException.from_exception(error)
    _begin_in_function(summary, set())
    return "".join(summary.format()).rstrip("\n")


def _begin_in_function(summary: traceback.TracebackException, seen: set[int]) -> None:
    if id(summary) in seen:
        return
    seen.add(id(summary))
    while summary.stack and summary.stack[0].filename.startswith(_NOT_OF_USERS):
        del summary.stack[0]
    for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
        if other is not None:
            _begin_in_function(other, seen)


_LIBRARY = Path(os.__file__).parent
_NOT_OF_USERS = (
    str(Path(__file__).parents[1]),
    f"{_LIBRARY}/asyncio/",
    f"{_LIBRARY}/contextlib.py",
    "<frozen ",
)
"""Prefixes of files whose frames precede those of a function."""


def last_line(error: BaseException) -> str:
    """Return an error with its type, like the last line of a traceback."""
    lines = list(traceback.TracebackException.from_exception(error).format_exception_only())
    return "".join(lines).strip()


def _leave_error(error: str, text: str) -> None:
    """Write the error to its file for the worker; if that fails, the worker uses the output."""
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
    """Inspect the functions that a module declares, so that no run has to."""
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
    hooks.open_lifespans()
    if declared.expression is not None:
        set_current_run(lambda: job_of(read_job() if job_text is None else json.loads(job_text)))
        with hooks.around_run():
            return _awaited(function())
        return None  # a middleware has handled the exception
    job = job_of(read_job() if job_text is None else json.loads(job_text))
    set_current_run(lambda: job)
    return called_for_job(declared, function, job, _awaited)


def called_for_job(
    declared: Declared, function: Callable[..., Any], job: Job, awaited: Callable[[Any], Any]
) -> Any:
    """Call a function with a job or with its data; return the job's new data, or what the function returns.

    ``awaited`` makes a value of what the function returns.
    """
    with hooks.around_run():
        if declared.expression is not None:
            return awaited(function())
        arguments = _arguments(declared.function)
        if arguments.takes_job:
            return awaited(function(job))
        return _call_with_data(function, arguments, job, awaited)
    return None  # a middleware has handled the exception


def _call_with_data(
    function: Callable[..., Any], arguments: Arguments, job: Job, awaited: Callable[[Any], Any]
) -> dict[str, Any] | None:
    """Call a function with the job's data; return the new data with its result."""
    repeats = bool(job.fields.get("repeat"))
    try:
        values = arguments.of_data(job.data, repeats=repeats)
    except OtherArguments as error:
        raise Unfit(f"the job's data is for another version of the function: {error}") from None
    except WrongArguments as error:
        raise Fail(f"the job's data does not fit the function: {error}") from None
    value = arguments.result_to_json(awaited(function(**values)))
    if value is None:
        return None
    result = job.data if repeats else {MOCK: job.data[MOCK]} if MOCK in job.data else {}
    return {**result, RESULT: value}


def _awaited(returned: Any) -> Any:
    """Return a returned value, or the result of a returned coroutine."""
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


def _store_result(result: Any, status: int, write: Write | None) -> int:
    """Store a dict as the result, and return the status; None stores nothing, anything else raises."""
    if result is None:
        return status
    if not isinstance(result, dict):
        raise TypeError(f"the function returned {type(result).__name__}, expected a dict or None")
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Length of the excerpt of a result in an error.
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
