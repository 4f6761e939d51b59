"""The exceptions of the package, with the codes and reasons that go on the wire; error texts of failed runs.

A reason is Bedrock's short status line (``402 Missing name``); ``detail`` is a sentence that says what was
expected. The module is independent of any protocol.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, Self

from bedrockjobs.base.config import ERROR_CHARS_MAX


class BedrockjobsError(Exception):
    """Base of the exceptions that this package raises for its users."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling: restore the message instead of calling the constructor again."""
        return self._rebuilt, (self.args,), self.__dict__

    @classmethod
    def _rebuilt(cls, args: tuple[object, ...]) -> Self:
        found = cls.__new__(cls)
        found.args = args
        return found


class InvalidArgument(BedrockjobsError, ValueError):
    """An argument of a function of this package is wrong; nothing was sent."""


class CommandError(BedrockjobsError):
    """A command was refused and had no effect.

    One exception: before a GetJob or GetJobs answers 404, it may have marked jobs as FAILED instead of
    handing them out: jobs whose names match a pattern of CrashBedrockJob, and jobs that were lost too often.
    """

    code: ClassVar[int] = 500
    default_reason: ClassVar[str] = "Internal Server Error"
    retryable: ClassVar[bool] = False
    """Whether the same request may succeed later.

    If True, the server was temporarily unable to execute it. If False, the request is rejected until the
    request, or what it refers to, changes."""

    def __init__(self, reason: str = "", detail: str = "") -> None:
        """Set ``reason``, for the status line, and ``detail``, a sentence that says what was expected."""
        self.reason = reason or self.default_reason
        self.detail = detail
        super().__init__(f"{self.code} {self.reason}" + (f": {detail}" if detail else ""))

    @property
    def status_line(self) -> str:
        """Return code and reason as Bedrock writes them: ``404 No job found``."""
        return f"{self.code} {self.reason}"


class BadRequest(CommandError):
    """The request cannot be parsed; a raw connection is closed after the reply."""

    code = 400
    default_reason = "Bad Request"


class BadJSON(CommandError):
    """A list that should be JSON is not valid JSON."""

    code = 401
    default_reason = "Invalid JSON"


class BadArguments(CommandError):
    """An attribute is missing or malformed."""

    code = 402
    default_reason = "Malformed request"


class InvalidCommand(BadArguments, InvalidArgument):
    """The arguments do not make a valid command; nothing was sent.

    The message names each wrong argument. A server would refuse the command with ``BadArguments``.
    """

    def __init__(self, reason: str = "", detail: str = "", command: str = "") -> None:
        """Refuse the arguments of ``command``; ``reason`` is a server's reason for the first wrong one."""
        super().__init__(reason, detail)
        self.args = (f"{command}: {detail}" if command and detail else detail or self.status_line,)


class Forbidden(CommandError):
    """The caller is not permitted to do this."""

    code = 403
    default_reason = "Forbidden"


class Unauthenticated(Forbidden):
    """The request has no token, or its token is invalid or expired. Over HTTP the status is 401."""


class NotFound(CommandError):
    """The job does not exist, or no job can be taken."""

    code = 404
    default_reason = "No job with this jobID"


class WrongState(CommandError):
    """The job's state does not allow this."""

    code = 405
    default_reason = "Not allowed in this state"


class Changed(CommandError):
    """The job has changed since the caller last read it."""

    code = 412
    default_reason = "Job has changed"


class TooLarge(CommandError):
    """The request exceeds a size limit; its connection is closed after the reply."""

    code = 413
    default_reason = "Request too large"


class TooMany(CommandError):
    """A limit on how many, or how often, is reached; the same request may succeed later."""

    code = 429
    default_reason = "Too many requests"
    retryable = True


class TooManyWrong(TooMany):
    """Too many wrong tokens came from one address; the connection is closed after the reply."""

    default_reason = "Too many wrong tokens"


class UnknownCommand(CommandError):
    """No command has this name."""

    code = 430
    default_reason = "Unrecognized command"


class ServerFault(CommandError):
    """The server failed; nothing was committed, and the same request may be sent again."""

    code = 500
    default_reason = "Internal Server Error"
    retryable = True


class DamagedData(CommandError):
    """The stored data of a job is damaged, by the disk or by an edit of the file."""

    code = 500
    default_reason = "Damaged data"


class MockMismatch(CommandError):
    """``data`` is marked with ``mockRequest`` but the job is not mocked, or the reverse."""

    code = 500
    default_reason = "Mock Mismatch"


class BadQuery(CommandError):
    """The SQL of a Query was refused, or it was stopped at a limit."""

    code = 502
    default_reason = "Query aborted"


class Unavailable(CommandError):
    """The server is full, draining or out of disk space; nothing was committed."""

    code = 503
    default_reason = "Service Unavailable"
    retryable = True


class TimedOut(CommandError):
    """The command exceeded its time limit; nothing was committed."""

    code = 555
    default_reason = "Timeout"
    retryable = True


class JobFailed(BedrockjobsError):
    """An awaited job failed.

    ``status`` says how its last run ended (``fail``, ``timeout``, ...). ``run_id`` is the ID of that run, or
    None if the job was never taken. ``error`` is the message, such as ``ValueError: no such day``;
    ``error_type`` is the type of the exception and ``traceback`` its traceback; both are empty if the run
    reported no exception.
    """

    def __init__(self, job_id: int, status: str, error: str, run_id: int | None = None) -> None:
        """Set the jobID, the status, and ``error`` as the server stores it."""
        self.job_id, self.status, self.run_id = job_id, status, run_id
        self.error, self.error_type, self.traceback = parts_of_error(error)
        super().__init__(f"job {job_id}: {status}" + (f": {self.error}" if self.error else ""))


class WorkflowFailed(JobFailed):
    """A job of an awaited workflow failed or was cancelled.

    ``workflow_id`` and ``ref`` (its name in the workflow) say which job; the other attributes are those of
    JobFailed.
    """

    def __init__(self, workflow_id: int, name: str, ref: str, job_id: int, status: str, error: str) -> None:
        """Set the workflow and its name, the job, its status, and ``error`` as the server stores it."""
        super().__init__(job_id, status, error)
        self.workflow_id, self.ref = workflow_id, ref
        where = f", job {job_id} ({ref})" if ref else ""
        self.args = (
            f"workflow {workflow_id} ({name}){where}: {status}" + (f": {self.error}" if self.error else ""),
        )


class JobNotEnded(BedrockjobsError, TimeoutError):
    """An awaited job has not ended within the timeout."""


class WaitNeverEnds(BedrockjobsError):
    """A run tried to wait for a job that cannot end before the run itself, such as a child of its own job."""


class NoWorkerTakes(RuntimeWarning):
    """No live worker takes the awaited job."""


class NoResult(BedrockjobsError):
    """The result of a job is unavailable: job and run were deleted, or its worker gave no name.

    Also raised if the result does not match the function's return type.
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
"""Errors that share their code with another error and are identified by their reason."""

BY_CODE: dict[int, type[CommandError]] = {
    kind.code: kind for kind in ERRORS if kind not in BY_REASON.values()
}


class UnexpectedAnswer(CommandError):
    """A server replied with a code that this client does not know."""


def error_for(code: int, reason: str, detail: str = "") -> CommandError:
    """Return the exception for the status line of a reply that a client received."""
    kind = BY_REASON.get((code, reason)) or BY_CODE.get(code, UnexpectedAnswer)
    return kind(reason, detail)


# Error texts of failed runs: shortening, the message in one line, the type of the exception, and fingerprints
# of similar failures.
#
# Such a text is what a worker reports: a sentence, a traceback, or how a command ended followed by its last
# lines of output.


HOW_IT_ENDED = re.compile(r"exit status -?\d+|SIG\w+|timed out after .+")
"""Matches the line that a worker writes above the last lines of a command's output."""

_TRACEBACK_LINE = re.compile(r"\s*(?:\+ Exception Group )?Traceback \(most recent call last\):\s*")
_GROUP_MARK = re.compile(r"(?:\s*[|+] ?|\s*\+[-+]+.*)")
"""Matches the prefixes of lines in an exception group's traceback, and the separators between its members."""

_FRAME = re.compile(r'\s*(?:\| *)*File "([^"]+)", line \d+, in (.+)')
_FOLDERS = re.compile(r"[\\/]")
_LIBRARY = re.compile(
    r"[\\/](?:site-packages|dist-packages|bedrock_worker)[\\/]"
    r"|[\\/]lib(?:64)?[\\/]python3[^\\/]*[\\/]|^<frozen "
)
"""Matches paths of frames that are not the user's code."""

_VARIABLE = (
    (re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://\S+", re.IGNORECASE), "<url>"),
    (re.compile(r"(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»"), "<text>"),
    (re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/][^\s\\/:,;()<>]+){2,}[\\/]?|(?<![\w.])/[\w.-]+"), "<path>"),
    (re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-f]*[0-9])[0-9a-f]{7,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
"""Patterns of text that varies between failures of one cause, with their replacements, in the order of
application."""

_SILENT_WORKER = re.compile(r"Run lost: worker .* was silent for")

_CUT = "\n  [...] "
"""Replaces the middle of a long error. It is indented so that the remains of a line do not look like an
exception."""


def shortened(error: str, most: int = ERROR_CHARS_MAX) -> str:
    """Return an error of at most ``most`` characters, keeping the beginning and the end.

    The last line of a traceback holds the message.
    """
    if len(error) <= most:
        return error
    behind = (most - len(_CUT)) // 2
    return error[: most - len(_CUT) - behind] + _CUT + error[-behind:]


def line_of(error: str) -> str:
    """Return the line that states the error; empty if there is none.

    That is the exception line of a Python traceback, the last line of a command's output, and the first line
    of anything else.
    """
    lines = [line for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    printed = HOW_IT_ENDED.fullmatch(lines[0].strip()) is not None
    if not printed and _TRACEBACK_LINE.fullmatch(lines[0]) is None:
        return lines[0].strip()  # the first line is the message, even if a traceback follows
    last_line = _line_of_exception(lines)
    return last_line or lines[-1].strip()


def _line_of_exception(lines: list[str]) -> str:
    """Return the exception line of the last traceback in some lines; empty if there is none.

    For an exception group it is the line of the group itself: the indented tracebacks of members are skipped.
    """
    exception_line, sought = "", False
    for line in lines:
        if _TRACEBACK_LINE.fullmatch(line) is not None:
            exception_line, sought = "", True
        elif sought and (text := _unmarked(line)) and not text[0].isspace():
            exception_line, sought = text.strip(), False
    return exception_line


def _unmarked(line: str) -> str:
    """Return a line of a traceback without the prefix of an exception group."""
    mark = _GROUP_MARK.match(line)
    return line[mark.end() :] if mark is not None else line


def frame_of(error: str) -> str:
    """Return the deepest frame of the user's code in a Python traceback, as ``file.py in function``.

    If all frames belong to libraries, return the deepest frame. Return an empty text if there is no
    traceback.
    """
    deepest = own = ""
    for frame in filter(None, map(_FRAME.fullmatch, error.splitlines())):
        path, function = frame.groups()
        deepest = f"{_FOLDERS.split(path)[-1]} in {function}"
        if not _LIBRARY.search(path):
            own = deepest
    return own or deepest


def split_frames(error: str) -> list[tuple[bool, str]]:
    """Split an error into groups of lines, each with whether its lines are frames of libraries.

    The source lines below a frame belong to the group of the frame.
    """
    parts: list[tuple[bool, list[str]]] = []
    library = False
    for line in error.splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is not None:
            library = _LIBRARY.search(frame[1]) is not None
        elif not line.startswith("    "):
            library = False
        if not parts or parts[-1][0] != library:
            parts.append((library, []))
        parts[-1][1].append(line)
    return [(of_library, "\n".join(lines)) for of_library, lines in parts]


@lru_cache(maxsize=64)  # similar failures come in a row, and a job fails with the error of its run
def fingerprint_of(error: str) -> str:
    """Return a hash that failures of the same cause share, as 16 hexadecimal digits.

    Numbers, ids, quoted texts, paths and URLs in the message are ignored. The type of the exception, the
    deepest frame of the user's code, and whether the run was killed or timed out are included.
    """
    how = error.partition("\n")[0].strip()
    if HOW_IT_ENDED.fullmatch(how) is None or how.startswith("exit"):
        how = ""
    # Characters of a message that the fingerprint covers; differences beyond are assumed to be data
    line = line_of(error)[:500]
    # an exit status is kept: its number is all the information
    if not HOW_IT_ENDED.fullmatch(line) or not line.startswith("exit"):
        line = _plain(_SILENT_WORKER.sub("Run lost: worker was silent for", line))
    text = "\n".join((_plain(how), line, frame_of(error)))
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _plain(line: str) -> str:
    """Return a line with placeholders for the parts that vary between failures of one cause."""
    for pattern, word in _VARIABLE:
        line = pattern.sub(word, line)
    return line


_TRACEBACK = re.compile(r"^[ |+]*(?:Exception Group )?Traceback \(most recent call last\):$", re.MULTILINE)
_RAISED = re.compile(r"(?:  [|] )?((?:[^\W\d]\w*\.)*[^\W\d]\w*)(?:: |$)")
"""Matches the line of a traceback that names the exception."""

_ASKED = ("Fail", "Retry")
"""Exceptions that job functions raise to choose the outcome; errors that report them have no traceback."""


def parts_of_error(error: str) -> tuple[str, str, str]:
    """Return message, type and traceback of the exception in an error text; empty for missing parts.

    ``bedrock-worker`` writes the message first; output of other programs may contain only the traceback.
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


_EXCEPTION = re.compile(
    r"((?:[^\W\d]\w*\.)*(?:\w*(?:Error|Exception|ExceptionGroup|Exit|Interrupt|Warning)|Fail|Retry))(?::|$)"
)
"""Matches a line that begins with the name of an exception; used if no traceback in the error names it."""

ERROR_TYPE_CHARS_MAX = 100
"""Maximum length of the name of an exception's type: a command may print any text that looks like one."""


@lru_cache(maxsize=256)  # failures of a list are alike
def type_of_error(error: str) -> str:
    """Return the type of the exception that an error states, such as ``ValueError``; empty if it states none.

    Without a traceback, a name counts as a type only if it ends as exceptions are named, such as in
    ``Error``.
    """
    kind = parts_of_error(error)[1]
    if not kind:
        match = _EXCEPTION.match(line_of(error))
        kind = match[1] if match is not None else ""
    return kind if len(kind) <= ERROR_TYPE_CHARS_MAX else ""
