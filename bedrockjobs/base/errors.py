"""What can go wrong with a command, with the code and the words that go on the wire.

A reason is Bedrock's short status line (``402 Missing name``); ``detail`` says in a sentence what was
expected. Nothing here knows of a protocol.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self


class BedrockjobsError(Exception):
    """What this package raises for its users: refusals, lost servers, wrong arguments."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be copied and pickled: its words are there already, and are not made again."""
        return self._again, (self.args,), self.__dict__

    @classmethod
    def _again(cls, args: tuple[object, ...]) -> Self:
        found = cls.__new__(cls)
        found.args = args
        return found


class InvalidArgument(BedrockjobsError, ValueError):
    """An argument of a function of this package is wrong; nothing was sent."""


class CommandError(BedrockjobsError):
    """A command was refused; nothing of what it asked for was done.

    One thing may have changed all the same: a GetJob or GetJobs that answers 404 has failed the jobs on its
    way that may not be handed out (crash list, lost too often).
    """

    code: ClassVar[int] = 500
    default_reason: ClassVar[str] = "Internal Server Error"
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later.

    True: the server could not do it at the moment, which says nothing about the request. False: the request
    was judged, and will be refused again until it, or what it names, is another.
    """

    def __init__(self, reason: str = "", detail: str = "") -> None:
        """Refuse with ``reason`` (the status line's words) and ``detail`` (what was expected, a sentence)."""
        self.reason = reason or self.default_reason
        self.detail = detail
        super().__init__(f"{self.code} {self.reason}" + (f": {detail}" if detail else ""))

    @property
    def status_line(self) -> str:
        """Return code and reason as Bedrock writes them: ``404 No job found``."""
        return f"{self.code} {self.reason}"


class BadRequest(CommandError):
    """The request cannot be read at all; a connection of the Bedrock protocol is closed after the answer."""

    code = 400
    default_reason = "Bad Request"


class BadJSON(CommandError):
    """A list that should be JSON is not."""

    code = 401
    default_reason = "Invalid JSON"


class BadArguments(CommandError):
    """An attribute is missing or malformed."""

    code = 402
    default_reason = "Malformed request"


class InvalidCommand(BadArguments, InvalidArgument):
    """A command cannot be made of its arguments; nothing was sent.

    The message names each argument that is wrong. A server would refuse the same with ``BadArguments``.
    """

    def __init__(self, reason: str = "", detail: str = "", command: str = "") -> None:
        """Refuse the arguments of ``command``; the reason is what a server would say of the first."""
        super().__init__(reason, detail)
        self.args = (f"{command}: {detail}" if command and detail else detail or self.status_line,)


class Forbidden(CommandError):
    """The caller may not do this."""

    code = 403
    default_reason = "Forbidden"


class Unauthenticated(Forbidden):
    """Nobody knows who the caller is: no token came, or one that counts no more; 401 over HTTP."""


class NotFound(CommandError):
    """There is no such job, or no job to take."""

    code = 404
    default_reason = "No job with this jobID"


class WrongState(CommandError):
    """The job is not in a state that allows this."""

    code = 405
    default_reason = "Not allowed in this state"


class Changed(CommandError):
    """The job is no longer as the caller last saw it."""

    code = 412
    default_reason = "Job has changed"


class TooLarge(CommandError):
    """The request is over a limit of size; its connection is closed after the answer."""

    code = 413
    default_reason = "Request too large"


class TooMany(CommandError):
    """A limit of numbers is reached; the same request may succeed later."""

    code = 429
    default_reason = "Too many requests"
    retryable = True


class TooManyWrong(TooMany):
    """Wrong tokens come too often from one address: its connection ends with this answer."""

    default_reason = "Too many wrong tokens"


class UnknownCommand(CommandError):
    """There is no command of this name."""

    code = 430
    default_reason = "Unrecognized command"


class ServerFault(CommandError):
    """The server failed; nothing was committed, the same request may be sent again."""

    code = 500
    default_reason = "Internal Server Error"
    retryable = True


class DamagedData(CommandError):
    """The data of a job is not what was stored: the disk, or somebody, has damaged the file."""

    code = 500
    default_reason = "Damaged data"


class MockMismatch(CommandError):
    """``data`` has the mark ``mockRequest`` and the job has not, or the reverse."""

    code = 500
    default_reason = "Mock Mismatch"


class BadQuery(CommandError):
    """A Query was stopped or refused."""

    code = 502
    default_reason = "Query aborted"


class Unavailable(CommandError):
    """The server is full, draining or out of disk; nothing was committed."""

    code = 503
    default_reason = "Service Unavailable"
    retryable = True


class TimedOut(CommandError):
    """The command took longer than it may; nothing was committed."""

    code = 555
    default_reason = "Timeout"
    retryable = True


class JobFailed(BedrockjobsError):
    """A job that somebody waited for did not end well.

    ``status`` says how its last run ended (``fail``, ``timeout``, ...) and ``run_id`` which that was, None if
    it was never taken. ``error`` is what it said, like ``ValueError: no such day``; ``error_type`` is the
    type of an exception, and ``traceback`` its traceback, each empty if there was none.
    """

    def __init__(self, job_id: int, status: str, error: str, run_id: int | None = None) -> None:
        """Tell of a job; ``error`` is the text that the server keeps."""
        self.job_id, self.status, self.run_id = job_id, status, run_id
        self.error, self.error_type, self.traceback = parts_of_error(error)
        super().__init__(f"job {job_id}: {status}" + (f": {self.error}" if self.error else ""))


_TRACEBACK = re.compile(r"^[ |+]*(?:Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_RAISED = re.compile(r"(?:  [|] )?((?:[^\W\d]\w*\.)*[^\W\d]\w*)(?:: |$)")
"""The line of a traceback that says what was raised."""

_ASKED = ("Fail", "Retry")
"""What functions raise to say how they end; no traceback has to come with it."""


def parts_of_error(error: str) -> tuple[str, str, str]:
    """Return message, type and traceback of the exception in an error text, as far as there is one.

    A worker of ours puts the message first; another program's output may hold only the traceback.
    """
    begin = _TRACEBACK.search(error)
    if begin is None:
        raised = _RAISED.match(error)
        return error, raised[1] if raised is not None and raised[1] in _ASKED else "", ""
    text = error[begin.start() :]
    head = error[: begin.start()].strip()
    raised = _RAISED.match(head)
    if raised is None:
        lines = [line for line in text.splitlines() if _RAISED.match(line)]
        head = lines[-1] if lines else head
        raised = _RAISED.match(head)
    return head, "" if raised is None else raised[1], text


class JobNotEnded(BedrockjobsError, TimeoutError):
    """A job that somebody waited for goes on, and the time for it is over."""


class WaitNeverEnds(BedrockjobsError):
    """A run wants to wait for a job that cannot end before the run itself, such as a child of its own job."""


class NoWorkerTakes(RuntimeWarning):
    """Somebody waits for a job that no live worker takes."""


class NoResult(BedrockjobsError):
    """Nobody knows how a job ended: it is gone, and so is its run, or it was taken by no named worker.

    Or its result is not what the function says it returns.
    """


ERRORS: tuple[type[CommandError], ...] = (
    BadRequest,
    BadJSON,
    BadArguments,
    Forbidden,
    NotFound,
    WrongState,
    Changed,
    TooLarge,
    TooMany,
    UnknownCommand,
    ServerFault,
    DamagedData,
    MockMismatch,
    BadQuery,
    Unavailable,
    TimedOut,
)

BY_REASON: dict[tuple[int, str], type[CommandError]] = {
    (DamagedData.code, DamagedData.default_reason): DamagedData,
    (MockMismatch.code, MockMismatch.default_reason): MockMismatch,
}
"""Errors that share their code with another and are known by their reason."""

BY_CODE: dict[int, type[CommandError]] = {
    kind.code: kind for kind in ERRORS if kind not in BY_REASON.values()
}


class UnexpectedAnswer(CommandError):
    """A server answered with a code that this client does not know."""


def error_for(code: int, reason: str, detail: str = "") -> CommandError:
    """Return the error for a status line that a client read."""
    kind = BY_REASON.get((code, reason)) or BY_CODE.get(code, UnexpectedAnswer)
    return kind(reason, detail)
