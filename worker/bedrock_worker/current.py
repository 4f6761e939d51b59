"""The current run of a function: its job, progress and logger. Imports little, since each run imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

LOGGER = "bedrockjobs.run"
"""The name of the logger of runs."""

PROGRESS = "progress"
"""The name of the stream that carries only progress, in addition to ``out`` and ``err``."""

PROGRESS_VARIABLE = "BEDROCK_PROGRESS_HANDLE"
"""Variable with the handle of a run's progress pipe; ``run_function`` removes it from the environment."""

_LINE_ENDS = str.maketrans({"\n": " ", "\r": " "})


@dataclass(frozen=True)
class Job:
    """The job for which a ``@job`` function is called."""

    id: int
    name: str
    data: dict[str, Any]
    attempt: int
    """The number of this attempt, from 1."""
    run_id: int
    scheduled_for: datetime
    """When this run of the job was due, in UTC."""
    fields: Mapping[str, Any]
    """All fields of the server's reply by wire name: ``parentData``, ``finishedChildJobs``, ..."""

    @property
    def workflow_id(self) -> int | None:
        """Return the id of the job's workflow, or None."""
        return self.fields.get("workflowID")

    @property
    def ref(self) -> str:
        """Return the job's name within its workflow; empty outside of workflows."""
        return str(self.fields.get("ref", ""))

    @property
    def before(self) -> Mapping[str, dict[str, Any] | None]:
        """Return what the jobs before this one in its workflow reported, by their ``ref``.

        The result of a function is in the member ``result``, unless that function takes the job.
        """
        return self.fields.get("before") or {}


class CurrentRun:
    """The current run. Outside of a run, its job has an empty name, and progress is ignored."""

    def __init__(
        self, read_job: Callable[[], Job], report_progress: Callable[[str], object] | None = None
    ) -> None:
        """Create a run whose job ``read_job`` reads when it is needed.

        ``report_progress`` receives the lines of progress, which otherwise go to the progress pipe or stdout.
        """
        self._read_job, self._report_progress = read_job, report_progress
        self._counts: dict[str, int] = {}
        self.has_children = False
        """True if the run has created children of its job: then the job runs again after they have ended."""

    @cached_property
    def job(self) -> Job:
        """Return the job, with the data that it had when it was taken."""
        return self._read_job()

    @property
    def job_id(self) -> int:
        """Return the job's id; 0 outside of a run."""
        return self.job.id

    @property
    def run_id(self) -> int:
        """Return the run's id; 0 outside of a run."""
        return self.job.run_id

    @property
    def attempt(self) -> int:
        """Return the number of this attempt of the job, from 1."""
        return self.job.attempt

    def count(self, what: str) -> int:
        """Add 1 to the run's counter ``what``, and return the new count."""
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._counts[what]

    def progress(self, done: float, message: str = "") -> None:
        """Report progress from 0 to 1. The worker sends it to the server at most once a second.

        Raises InvalidArgument for a number outside this range.
        """
        if not 0 <= done <= 1:
            from bedrockjobs.base.errors import InvalidArgument

            raise InvalidArgument(f"progress: expected a number from 0 to 1, got {done!r}")
        percent, message = f"{round(100 * done, 2):.6g}", message.translate(_LINE_ENDS)
        # Maximum characters of a progress message: a pipe takes so much in one piece.
        line = f"{percent} {message[:1_000]}\n"
        if self._report_progress is not None:
            self._report_progress(line)
            return
        if _write_progress(line):
            return
        out = sys.__stdout__  # also if the function redirects its output
        if "BEDROCK_RUN_ID" in os.environ and out is not None:
            print(f"::progress {percent}{message and f' {message}'}::", file=out, flush=True)

    @cached_property
    def logger(self) -> logging.Logger:
        """Return a logger whose records of level INFO and above become output of the run.

        If the user's module configures logging, that configuration decides where the records go.
        """
        import logging  # imported here, since most runs do not need it

        log = logging.getLogger(LOGGER)
        if not log.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
            log.addHandler(handler)
            log.propagate = False
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)
        return log


def _no_job() -> Job:
    return Job(0, "", {}, 1, 0, datetime.fromtimestamp(0, UTC), {})


_current = CurrentRun(_no_job)
_in_place: ContextVar[CurrentRun | None] = ContextVar("run", default=None)
"""The current run in a process that several runs share: in a test, or on an event loop."""
_progress: tuple[int, int] | None = None
"""The handle of the progress pipe, and the inode of the pipe; None without a pipe."""


def report_progress_to(handle: int) -> None:
    """Report progress through a pipe from now on; called by the programs that run functions.

    The pipe is separate from the output, and programs that the function starts do not inherit it.
    """
    global _progress
    try:
        os.set_inheritable(handle, False)
        _progress = handle, os.fstat(handle).st_ino
    except OSError:  # the pipe is closed
        _progress = None


def _write_progress(line: str) -> bool:
    """Write progress to the pipe; return False if there is none."""
    if _progress is None:
        return False
    handle, number = _progress
    try:
        # if not, the function closed the pipe, and its handle is another file now
        if os.fstat(handle).st_ino != number:
            return False
        os.write(handle, line.encode(errors="replace"))
    except OSError:
        return False
    return True


def current_run() -> CurrentRun:
    """Return the current run of this process.

    Outside of a worker, for example in a test, returns a run with ``run_id`` 0 that ignores progress.
    """
    return _in_place.get() or _current


@contextmanager
def run_in_place(run: CurrentRun) -> Iterator[None]:
    """Let ``run`` be the current run of this thread or task until the block ends."""
    token = _in_place.set(run)
    try:
        yield
    finally:
        _in_place.reset(token)


def set_current_run(read_job: Callable[[], Job]) -> None:
    """Set the current run of this process; called by the program that runs a function."""
    global _current
    _current = CurrentRun(read_job)
