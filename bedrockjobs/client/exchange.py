"""One request and its answer as bytes, and what can go wrong between them. No I/O, no clock.

A request is ``Verb``, ``Content-Length``, a blank line and the parameters as a JSON object. An answer is
``200 OK``, header lines, a blank line and ``Content-Length`` bytes, read whole or in pieces alike.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from bedrockjobs.base.config import WAIT_MS_DEFAULT, WAIT_MS_MAX
from bedrockjobs.base.errors import BedrockjobsError, error_for
from bedrockjobs.client.address import AnyAddress
from bedrockjobs.commands import Command, Query, Reply
from bedrockjobs.tls.contexts import why

ANSWER_BYTES_MAX = 128 * 1024 * 1024
"""Size of one answer: twice what a server lets a connection leave unread, so that its own limit counts."""

HEAD_BYTES_MAX = 65_536
"""Size of an answer's head. A server's own are a few hundred bytes."""

ANSWER_S = 30.0
"""Time a server has for an answer, beyond the time that the command itself asked to wait."""

R = TypeVar("R", bound=Reply)

_STATUS_LINE = re.compile(r"([1-9][0-9]{2})(?: (.*))?")


class ServerUnreachable(BedrockjobsError, ConnectionError):
    """No connection to a server could be made; nothing was sent."""


class ServerNotTrusted(ServerUnreachable):
    """A server showed a certificate that was not signed by one who is trusted, or for another name."""


class ConnectionLost(BedrockjobsError, ConnectionError):
    """No answer came, or none that can be read: the command may or may not have been done."""

    def __init__(self, command: Command[Any], server: AnyAddress, why: str) -> None:
        """Tell which command was lost, where and why."""
        verb = type(command).__name__
        super().__init__(
            f"no answer to {verb} from {server}: {why}; the outcome is unknown, it may have been done or not"
        )


class UnreadableAnswer(ConnectionLost):
    """What came back is not an answer of this protocol, or is over the limit of size."""


class MalformedAnswer(ValueError):
    """Bytes that are no answer; the clients tell their caller with ``UnreadableAnswer``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said to one request."""

    code: int
    reason: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def closing(self) -> bool:
        """Tell whether the server closes the connection after this."""
        return self.headers.get("connection", "").lower() == "close"

    def check(self) -> None:
        """Raise the CommandError that a refusal stands for."""
        if not 200 <= self.code < 300:
            raise error_for(self.code, self.reason, self.headers.get("error", ""))


def request_bytes(command: Command[Any], header: bytes = b"") -> bytes:
    """Return the bytes that ask for a command; ``header`` is whole lines that go before the others."""
    body, verb = command.wire().encode(), type(command).__name__.encode()
    return b"%s\r\n%sContent-Length: %d\r\n\r\n%s" % (verb, header, len(body), body)


def unreachable(address: AnyAddress, error: Exception) -> ServerUnreachable:
    """Return what to tell of a connection that could not be made."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerNotTrusted(
            f"cannot connect to {address}: its certificate is not trusted: {why(error)};"
            " --ca names the file of who signs it"
        )
    words = f"TLS failed: {why(error)}" if isinstance(error, ssl.SSLError) else str(error)
    return ServerUnreachable(f"cannot connect to {address}: {words}")


def answer_s(command: Command[Any]) -> float:
    """Return the seconds within which an answer must have come."""
    if not command.waiting:
        return ANSWER_S
    wait_ms = WAIT_MS_DEFAULT if command.timeout is None else command.timeout
    return min(max(wait_ms, 0), WAIT_MS_MAX) / 1000 + ANSWER_S


def reply_of(command: Command[R], answer: Answer) -> R:
    """Return the typed reply of an answer that is no refusal.

    A ``202`` tells nothing but that the command is queued: its reply has no value set.
    Raises ValueError (pydantic's own, or of bytes that are no JSON) where the body is not the reply.
    """
    kind = cast("type[R]", command.reply)
    if answer.code == 202:
        return cast("R", kind.model_construct())
    if isinstance(command, Query) and answer.body.lstrip()[:1] == b"[":
        return kind.model_validate_json(b'{"rows":%s}' % answer.body)
    return kind.model_validate_json(answer.body or b"{}")


class AnswerReader:
    """Reads one answer out of the bytes of a connection, in whatever pieces they come."""

    def __init__(self, bytes_max: int = ANSWER_BYTES_MAX) -> None:
        """Refuse an answer whose body is over ``bytes_max``."""
        self._bytes_max = bytes_max
        self._seen = bytearray()
        self._head: Answer | None = None
        self._body_at = self._length = 0

    def feed(self, data: bytes) -> Answer | None:
        """Take what came and return the answer once it is whole.

        Raises MalformedAnswer for bytes that are no answer, come after it, or are over a limit.
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
        return Answer(head.code, head.reason, head.headers, bytes(self._seen[self._body_at :]))

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
        self._head = Answer(int(status[1]), status[2] or "", headers)
        self._body_at, self._length = end + 4, int(length)
