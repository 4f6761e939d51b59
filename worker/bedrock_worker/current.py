"""The run that a function is part of: what it works on, how far it is, and its logger. It imports little."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

LOGGER = "bedrockjobs.run"
"""The name of the logger of runs."""

PROGRESS_VARIABLE = "BEDROCK_PROGRESS_HANDLE"
"""Names the handle for progress to the interpreter of one run, which takes it out of its environment."""

MESSAGE_CHARS_MAX = 1_000
"""How much of a message of progress is told: a pipe takes so much at once, whatever else writes there."""

_LINE_ENDS = str.maketrans({"\n": " ", "\r": " "})


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


class CurrentRun:
    """The run in progress. Where there is none, its job has no name and nobody hears of progress."""

    def __init__(self, read_job: Callable[[], Job]) -> None:
        """Belong to a job, which is read when it is first asked for."""
        self._read_job = read_job

    @cached_property
    def job(self) -> Job:
        """Return the job, with its data as it was given."""
        return self._read_job()

    @property
    def job_id(self) -> int:
        """Return the job's id; 0 where there is no run."""
        return self.job.id

    @property
    def run_id(self) -> int:
        """Return the run's id; 0 where there is no run."""
        return self.job.run_id

    @property
    def attempt(self) -> int:
        """Return how often the job has been taken, this time included."""
        return self.job.attempt

    def progress(self, done: float, message: str = "") -> None:
        """Say how far it is: 0 is nothing, 1 is all. The worker tells the server at most once a second.

        Raises InvalidArgument for a number that is not from 0 to 1.
        """
        if not 0 <= done <= 1:
            from bedrockjobs.base.errors import InvalidArgument

            raise InvalidArgument(f"progress: expected a number from 0 to 1, got {done!r}")
        percent, message = f"{round(100 * done, 2):.6g}", message.translate(_LINE_ENDS)
        if _tell(f"{percent} {message[:MESSAGE_CHARS_MAX]}\n"):
            return
        out = sys.__stdout__  # also where the function catches what it prints
        if "BEDROCK_RUN_ID" in os.environ and out is not None:
            print(f"::progress {percent}{message and f' {message}'}::", file=out, flush=True)

    @cached_property
    def logger(self) -> logging.Logger:
        """Return a logger; what it is told, from INFO on, becomes output of the run.

        A module that configures logging itself decides where it goes.
        """
        import logging  # here, as most runs do not need it

        found = logging.getLogger(LOGGER)
        if not found.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
            found.addHandler(handler)
            found.propagate = False
        if found.level == logging.NOTSET:
            found.setLevel(logging.INFO)
        return found


def _no_job() -> Job:
    return Job(0, "", {}, 1, 0, datetime.fromtimestamp(0, UTC), {})


_current = CurrentRun(_no_job)
_progress: tuple[int, int] | None = None
"""The handle for progress, and the number of the pipe that it leads to."""


def tell_progress_to(handle: int) -> None:
    """Tell progress by a pipe from now on: called by what runs functions.

    It has nothing to do with what is printed. Programs that the function starts do not get it.
    """
    global _progress
    try:
        os.set_inheritable(handle, False)
        _progress = handle, os.fstat(handle).st_ino
    except OSError:  # somebody closed it
        _progress = None


def _tell(line: str) -> bool:
    """Tell progress by the pipe; return False where there is none."""
    if _progress is None:
        return False
    handle, number = _progress
    try:
        if os.fstat(handle).st_ino != number:  # the function closed it, and has another file there
            return False
        os.write(handle, line.encode(errors="replace"))
    except OSError:
        return False
    return True


def current_run() -> CurrentRun:
    """Return the run that this process does.

    Outside of a worker, as in a test that calls the function, there is none; what stands for it has
    ``run_id`` 0 and takes progress as if somebody listened.
    """
    return _current


def begin(read_job: Callable[[], Job]) -> None:
    """Let another run be the current one: called by what runs functions."""
    global _current
    _current = CurrentRun(read_job)
