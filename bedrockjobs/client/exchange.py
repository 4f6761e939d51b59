"""Encoding of requests and decoding of answers, without I/O, and the errors of the two.

A request is a line with the verb, a ``Content-Length`` line, a blank line and the parameters as a JSON
object. An answer is a status line such as ``200 OK``, header lines, a blank line and ``Content-Length``
bytes.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from bedrockjobs.base.config import WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.errors import BedrockjobsError, error_for
from bedrockjobs.client.address import SERVER_VARIABLE, AnyAddress
from bedrockjobs.commands import Command, Query, Reply
from bedrockjobs.tls import why

ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of an answer's body: twice the server's limit for unread data, so that the server's limit
applies first."""

HEAD_BYTES_MAX = 65_536
"""Maximum bytes of an answer's status line and headers; a server sends a few hundred bytes."""

ANSWER_S = 30.0
"""Maximum seconds until an answer, in addition to the time for which the command asks to wait."""

R = TypeVar("R", bound=Reply)

_STATUS_LINE = re.compile(r"([1-9][0-9]{2})(?: (.*))?")


class ServerUnreachable(BedrockjobsError, ConnectionError):
    """No connection to a server could be made; nothing was sent."""


class ServerNotTrusted(ServerUnreachable):
    """A server's certificate is not signed by a trusted CA, or is for another host name."""


class ConnectionLost(BedrockjobsError, ConnectionError):
    """The request was sent but no readable answer came, so the outcome of the command is unknown."""

    def __init__(self, command: Command[Any], server: AnyAddress, why: str) -> None:
        verb = type(command).__name__
        super().__init__(
            f"no answer to {verb} from {server}: {why}; the outcome is unknown, it may have been done or not"
        )


class UnreadableAnswer(ConnectionLost):
    """The answer is malformed or exceeds the size limit."""


class MalformedAnswer(ValueError):
    """The bytes of an answer break the protocol or a limit; clients raise ``UnreadableAnswer`` instead."""


@dataclass(frozen=True, slots=True)
class Response:
    """A server's answer to one request."""

    code: int
    reason: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def closing(self) -> bool:
        """Return whether the server closes the connection after this answer."""
        return self.headers.get("connection", "").lower() == "close"

    def check(self) -> None:
        """Raise the server's CommandError if this answer is a refusal."""
        if not 200 <= self.code < 300:
            raise error_for(self.code, self.reason, self.headers.get("error", ""))


def request_bytes(command: Command[Any], header: bytes = b"") -> bytes:
    """Return the bytes of a request; ``header`` is empty or whole header lines, with line ends."""
    body, verb = command.wire().encode(), type(command).__name__.encode()
    return b"%s\r\n%sContent-Length: %d\r\n\r\n%s" % (verb, header, len(body), body)


def unreachable(address: AnyAddress, error: Exception, *, by_default: bool = False) -> ServerUnreachable:
    """Return the error for a connection that could not be made.

    ``by_default`` is True if neither the caller nor the environment named the server; the error then says how
    to name one.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerNotTrusted(
            f"cannot connect to {address}: its certificate is not trusted: {why(error)};"
            " --ca names the file of its CA"
        )
    words = f"TLS failed: {why(error)}" if isinstance(error, ssl.SSLError) else str(error)
    advice = f"; {SERVER_VARIABLE} names another server" if by_default else ""
    return ServerUnreachable(f"cannot connect to {address}: {words}{advice}")


def answer_s(command: Command[Any]) -> float:
    """Return the maximum seconds until the answer to a command."""
    if not command.waiting:
        return ANSWER_S
    wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
    return min(max(wait_ms, 0), WAIT_MS_MAX) / 1000 + ANSWER_S


def reply_of(command: Command[R], answer: Response) -> R:
    """Return the typed reply in a successful answer.

    A ``202`` means only that the command is queued, so its reply has no values. Raises ValueError if the body
    is not a valid reply.
    """
    kind = cast("type[R]", command.reply)
    if answer.code == 202:
        return cast("R", kind.model_construct())
    if isinstance(command, Query) and answer.body.lstrip()[:1] == b"[":
        return kind.model_validate_json(b'{"rows":%s}' % answer.body)
    return kind.model_validate_json(answer.body or b"{}")


class AnswerReader:
    """Decodes one answer, whose bytes may arrive in any number of pieces."""

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        """Reject an answer whose body exceeds ``bytes_max``."""
        self._bytes_max = bytes_max
        self._seen = bytearray()
        self._head: Response | None = None
        self._body_at = self._length = 0

    def feed(self, data: bytes) -> Response | None:
        """Add received bytes; return the answer once it is complete, and None before.

        Raises MalformedAnswer for malformed or excess bytes, or if a limit is exceeded.
        """
        searched = max(len(self._seen) - 3, 0)
        self._seen += data
        if self._head is None:
            end = self._seen.find(b"\r\n\r\n", searched, HEAD_BYTES_MAX + 4)
            if end < 0:
                if len(self._seen) > HEAD_BYTES_MAX:
                    raise MalformedAnswer(f"its head is larger than {HEAD_BYTES_MAX} bytes")
                return None
            self._read_head(end)
        missing = self._body_at + self._length - len(self._seen)
        if missing < 0:
            raise MalformedAnswer(f"{-missing} bytes came after the answer")
        if missing or self._head is None:
            return None
        head = self._head
        return Response(head.code, head.reason, head.headers, bytes(self._seen[self._body_at :]))

    def _read_head(self, end: int) -> None:
        lines = self._seen[:end].decode("utf-8", "replace").split("\r\n")
        status = _STATUS_LINE.fullmatch(lines[0])
        if status is None:
            raise MalformedAnswer(f"expected a status line like '200 OK', got {lines[0][:100]!r}")
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise MalformedAnswer(f"a header line has no colon: {line[:100]!r}")
            headers[name.strip().lower()] = value.strip()
        length = headers.get("content-length", "")
        if not re.fullmatch(r"[0-9]{1,18}", length):
            raise MalformedAnswer(f"expected Content-Length with a number, got {length[:100]!r}")
        if int(length) > self._bytes_max:
            raise MalformedAnswer(f"its {length} bytes are over the limit of {self._bytes_max}")
        self._head = Response(int(status[1]), status[2] or "", headers)
        self._body_at, self._length = end + 4, int(length)
