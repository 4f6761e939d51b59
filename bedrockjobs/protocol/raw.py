"""The raw protocol: parses requests, caches parsed commands, and encodes replies. No I/O.

A request is a method line, ``Name: value`` lines, a blank line, and a body of Content-Length bytes. The
result is the same however the bytes are split.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Literal

from pydantic import ValidationError

from bedrockjobs.base.config import (
    CHUNKS_MAX,
    CONNECTION_BYTES_FREE,
    ESCAPES_MAX,
    OTHER_ESCAPES_MAX,
    REQUEST_CACHED_BYTES_MAX,
    REQUESTS_CACHED_MAX,
)
from bedrockjobs.base.errors import BadRequest, CommandError, TooLarge
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import Escaped
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.plain import OPEN_FIELDS, OPEN_PAIR, Prepared, field_and_validator

# Cache of parsed requests without a body.
#
# Some requests repeat byte for byte, such as the GetJob of a waiting worker. Most differ in one line only:
# the ``data:`` of a new job, the ``jobID:`` of a finished one, or the last line. For those, only
# the value of this line is parsed and validated, by the usual validator; the rest comes from the cache.


KEPT_APART = frozenset({"connection", "timeout", "content-length", "transfer-encoding"})
"""Headers that control processing: requests that differ in one of them share no cache entry."""


@dataclass(slots=True)
class Request:
    """A request: its verb as sent, headers by lower-case name, and the body."""

    verb: str
    headers: dict[str, str]
    body: str = ""
    head: bytes = b""
    """The raw head; empty if there is a body, which excludes caching."""
    prepared: Prepared | None = None
    """The parsed command, if cached; ``value`` is the value of its open field, which differs between
    requests."""
    value: Any = None
    ordinary: bool = False
    """Whether the command is cached and runs in the writer, so that nothing else of the request is
    examined."""
    waits: bool = False
    """Whether the command may wait."""
    authorization: str = ""
    like_http: bool = False
    """Whether the first line ends like an HTTP request line, with an unknown method."""


class RequestCache:
    """Cache of parsed requests without a body; the oldest entries are evicted."""

    def __init__(self) -> None:
        self._whole: OrderedDict[bytes, Request] = OrderedDict()
        self._templates: OrderedDict[bytes, tuple[Request, Callable[[Any], Any]]] = OrderedDict()
        self._pairs: OrderedDict[tuple[bytes, ...], tuple[Request, tuple[_PairValue, ...]]] = OrderedDict()

    def find(self, head: bytes) -> Request | None:
        """Return the cached request for a head, which may have another open value; None if there is none.

        Requests that differ only in the open value share one object, which is valid until the next call. None
        is also returned if the value needs full parsing, which then reports any error.
        """
        known = self._whole.get(head)
        if known is not None:
            return known
        value_at = head.find(b":", head.rfind(b"\n") + 1) + 1  # that of the last line; 0 if it has none
        end = len(head)
        template = self._templates.get(head[:value_at])
        if template is None:
            may_be = _KEY_LINE in head and end <= CONNECTION_BYTES_FREE  # to split takes 10 ns a byte
            pair = _OPEN_PAIR(head) if may_be else None
            if pair is not None:
                return self._find_pair(head, pair)
            value_at, end = _open_value(head)
            template = self._templates.get(head[:value_at] + _GAP + head[end:]) if value_at else None
            if template is None:
                return None
        found, validate = template
        try:
            text = head[value_at:end].decode().strip()
            if not text or "\\" in text:
                return None
            found.value = validate(text)
        except (UnicodeDecodeError, ValidationError):
            return None
        if len(head) > REQUEST_CACHED_BYTES_MAX:  # a long value must not stay in the cache
            alone = replace(found, ordinary=False)
            found.value = None
            return alone
        return found

    def _find_pair(self, head: bytes, pair: re.Match[bytes]) -> Request | None:
        """Return what ``find`` does, for a request in which two values differ."""
        template = self._pairs.get(pair.group(1, 3, 5))
        if template is None:
            return None
        found, ((data_group, validate_data), (key_group, validate_key)) = template
        try:
            data, key = pair[data_group].decode().strip(), pair[key_group].decode().strip()
            if not data or not key or "\\" in data or "\\" in key:
                return None
            value = validate_data(data), validate_key(key)
        except (UnicodeDecodeError, ValidationError):
            return None
        if len(head) > REQUEST_CACHED_BYTES_MAX:  # a long value must not stay in the cache
            return replace(found, ordinary=False, value=value)
        found.value = value
        return found

    def remember(self, request: Request, command: Command[Any], *, ordinary: bool) -> None:
        """Cache a request, unless it is long or has a body."""
        head = request.head
        if not head or len(head) > REQUEST_CACHED_BYTES_MAX:
            return
        request.waits = command.waiting
        pair = _OPEN_PAIR(head)
        if pair is not None:
            groups = (2, 4) if pair[1].endswith(_DATA_LINE) else (4, 2)
            parts = [self._open_part(request, command, *pair.span(group), alone=False) for group in groups]
            values = [
                (group, validate) for group, (_, validate) in zip(groups, parts, strict=True) if validate
            ]
            if len(values) == 2:
                request.prepared, request.ordinary = Prepared(command, tuple(f for f, _ in parts)), ordinary
                put_cached(self._pairs, pair.group(1, 3, 5), (request, tuple(values)))
            return
        if command.is_cached:
            request.prepared, request.ordinary = Prepared(command), ordinary
            put_cached(self._whole, head, request)
            return
        value_at = head.find(b":", head.rfind(b"\n") + 1) + 1
        if self._remember_all_but(request, command, value_at, len(head), head[:value_at], ordinary=ordinary):
            return
        value_at, end = _open_value(head)
        key = head[:value_at] + _GAP + head[end:]
        self._remember_all_but(request, command, value_at, end, key, ordinary=ordinary)

    def _remember_all_but(
        self, request: Request, command: Command[Any], value_at: int, end: int, key: bytes, *, ordinary: bool
    ) -> bool:
        """Cache a request in which one value, a part of the head, may differ; return False if it may not."""
        field, validate = self._open_part(request, command, value_at, end, alone=end == len(request.head))
        if validate is not None:
            request.prepared, request.ordinary = Prepared(command, field), ordinary
            put_cached(self._templates, key, (request, validate))
        return validate is not None

    @staticmethod
    def _open_part(
        request: Request, command: Command[Any], value_at: int, end: int, *, alone: bool
    ) -> tuple[str, Callable[[Any], Any] | None]:
        """Return the field of a value and its validator; the validator is None if the value may not differ.

        ``alone``: the value is the last one, so that no later line can replace it.
        """
        head = request.head
        line = head.rfind(b"\n", 0, value_at) + 1
        if not line or not value_at or {head[line : line + 1], head[end + 1 : end + 2]} & {b" ", b"\t"}:
            return "", None  # there is no value, or it is a part of a folded one
        name = head[line : value_at - 1].decode().strip().lower()
        if name in KEPT_APART or not request.headers.get(name):
            return "", None
        lines = head.decode().lower().split("\n")[1:]
        if not alone and [each.partition(":")[0].strip() for each in lines].count(name) > 1:
            return "", None  # a later line of this name counts
        field, validator = field_and_validator(type(command), name)
        return field, None if validator is None else validator.validate_python


_GAP = b"\n\n"
"""Stands for a cut-out value in the cache key of a request; it cannot occur in a head."""

_OPEN_PAIR = re.compile(
    rb"(CreateJob.*?\n(?:%b):)([^\n]*+)(.*?\n(?:%b):)([^\n]*+)(.*)" % (("|".join(OPEN_PAIR).encode(),) * 2),
    re.DOTALL,
).match
"""Splits a head at the values of the two lines that both differ from request to request.

With more than two such lines, a split at the first two equals that of no cached request: ``remember`` leaves
such a head out.
"""

_DATA_LINE, _KEY_LINE = (b"\n%b:" % name.encode() for name in OPEN_PAIR)

_PairValue = tuple[int, Callable[[Any], Any]]
"""The group of ``_OPEN_PAIR`` with a value, and its validator."""

_OPEN_LINES = {kind.__name__.encode(): b"\n%b:" % name.encode() for kind, name in OPEN_FIELDS.items() if name}
"""Beginning of the line that differs from request to request, by method line."""


def _open_value(head: bytes) -> tuple[int, int]:
    """Return where the value of the line of ``_OPEN_LINES`` begins and ends; zeros unless it occurs once."""
    opening = _OPEN_LINES.get(head[: head.find(b"\n")].rstrip())
    if opening is None or head.count(opening) != 1:
        return 0, 0
    value_at = head.find(opening) + len(opening)
    end = head.find(b"\n", value_at)
    return value_at, len(head) if end < 0 else end


def put_cached(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    """Add an entry to a cache; evict the oldest entry if the cache has ``REQUESTS_CACHED_MAX`` entries."""
    if len(known) >= REQUESTS_CACHED_MAX:
        known.popitem(last=False)
    known[key] = value


_HEAD_END = re.compile(rb"\n\r?\n")
_NEEDLESS = re.compile(r'\\(?![bfnrt"]|u[0-9a-fA-F]{4})')
"""A needless backslash before an ordinary character."""
_HTTP_LINE = re.compile(r"\sHTTP/[0-9.]+$", re.IGNORECASE)
_UNUSED = range(0xE000, 0xF900)
"""Private-use characters: one that does not occur in a text can serve as a placeholder."""
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_LINE_END_BYTES = b"\r\n"

Part = Literal["", "head", "body"]
"""A part of a request; empty for none."""


class RawParser:
    """Splits the bytes of one connection into requests.

    Call ``feed`` with bytes, then ``next_request`` until it returns None. If ``next_request`` raises
    CommandError, the error is the reply to the request at that position, and the parser is ``broken``:
    nothing after that request can be parsed.
    """

    __slots__ = (
        "_body_left",
        "_bytes_max",
        "_chunks",
        "_chunks_left",
        "_headers_max",
        "_requests",
        "_searched",
        "broken",
        "buffer",
        "check",
        "partial",
        "size",
    )

    def __init__(self, settings: Settings, requests: RequestCache | None = None) -> None:
        """Apply the limits in ``settings``; parsers may share the cache ``requests``."""
        self._requests = requests or RequestCache()
        self._bytes_max = settings.body_bytes_max
        self._headers_max = settings.headers_max
        self.buffer = bytearray()
        """Bytes not yet parsed; the object is never replaced."""
        self._searched = 0
        self.partial: Request | None = None
        """The request whose head is complete but whose body is not."""
        self._body_left = 0
        self._chunks: bytearray | None = None
        self._chunks_left = 0
        self.check: Callable[[str], object] | None = None
        """Called with the ``Authorization`` before a large body is buffered; raises CommandError."""
        self.broken = False
        """Whether a request could not be parsed, so that nothing after it can be."""
        self.size = 0
        """Size of the last request in bytes."""

    @property
    def held(self) -> int:
        """Return the memory of an incomplete request, including its announced Content-Length.

        A bytearray allocates more memory than its length.
        """
        chunks = 0 if self._chunks is None else self._chunks.__alloc__()
        return max(self.buffer.__alloc__(), self._body_left) + chunks

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        if not self.broken:
            self.buffer += data

    @property
    def awaits(self) -> Part:
        """Return which part of the next request is incomplete; empty if none of its bytes has arrived.

        Call ``next_request`` first: it drops blank lines.
        """
        if self.partial is not None:
            return "body"
        return "head" if self.buffer else ""

    def next_request(self) -> Request | None:
        """Return the next complete request, or None if more bytes are needed.

        Raises BadRequest or TooLarge, after which the parser is ``broken``.
        """
        try:
            if self.partial is None:
                request = self._read_head()
                if request is not None or self.partial is None:
                    return request
            return self._read_body()
        except CommandError:
            self.broken = True
            self.partial = None
            self.buffer.clear()
            raise

    def _read_head(self) -> Request | None:
        """Return the next request if it has no body, otherwise None; with a body, it becomes ``partial``."""
        buffer = self.buffer
        if not buffer:
            return None
        if buffer[0] in _LINE_END_BYTES:
            blank = len(buffer) - len(buffer.lstrip(b"\r\n"))
            del buffer[:blank]
            self._searched = 0
        found = _HEAD_END.search(buffer, self._searched)
        if found is None:
            if len(buffer) > self._bytes_max + len(b"\n\r"):  # may be the start of the blank line
                raise TooLarge("Request too large", f"expected a head of at most {self._bytes_max} bytes")
            self._searched = max(0, len(buffer) - 2)
            return None
        length, self.size = found.span()
        if length > self._bytes_max:
            raise TooLarge("Request too large", f"expected a head of at most {self._bytes_max} bytes")
        head = bytes(buffer[:length])
        del buffer[: self.size]
        self._searched = 0
        known = self._requests.find(head)
        if known is not None:
            return known
        try:
            request = self._parse_head(head.decode())
        except UnicodeDecodeError:
            raise BadRequest("Malformed request", "expected UTF-8") from None
        self._expect_body(request.headers)
        if not self._body_left and self._chunks is None:
            request.head = head
            return request
        self.partial = request
        return None

    def _parse_head(self, head: str) -> Request:
        """Parse the method line and the headers of a request."""
        lines = head.split("\n")
        if len(lines) > self._headers_max + 1:
            raise BadRequest("Too many headers", f"expected at most {self._headers_max}")
        # Differs from Bedrock: here words after the verb are ignored, also in `CancelJob / HTTP/1.1`.
        verb = lines[0].strip()
        like_http = _HTTP_LINE.search(verb) is not None
        headers: dict[str, str] = {}
        last = ""
        if verb[:6].lower() == "query:":
            headers["query"] = _unescape(verb[6:].strip())
            verb = "Query"
        else:
            verb = verb.partition(" ")[0]
        del lines[0]
        for line in lines:
            name, colon, value = line.partition(":")
            if last and name[:1] in (" ", "\t"):
                headers[last] += " " + _unescape(line.strip())
            elif colon:
                last = name.strip().lower()
                value = value.strip()
                if last == "content-length" and last in headers:
                    raise BadRequest("Malformed Content-Length", "Content-Length: expected it once")
                headers[last] = _unescape(value) if "\\" in value else value
        return Request(verb, headers, authorization=headers.get("authorization", ""), like_http=like_http)

    def _expect_body(self, headers: dict[str, str]) -> None:
        """Determine the length of the body, or whether it is chunked; raises BadRequest and TooLarge."""
        self._body_left = 0
        if "content-length" not in headers and "transfer-encoding" not in headers:
            return
        length = headers.get("content-length", "")
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if chunked and length:
            raise BadRequest("Malformed Content-Length", "expected Content-Length or chunks, not both")
        if length and not (length.isascii() and length.isdecimal()):
            # Differs from Bedrock: it closes the connection without an error for a malformed length.
            raise BadRequest("Malformed Content-Length", "Content-Length: expected a number of bytes")
        if length and (len(length) > 18 or int(length) > self._bytes_max):
            raise TooLarge("Request too large", f"Content-Length: expected at most {self._bytes_max}")
        self._body_left = int(length or 0)
        self._chunks = bytearray() if chunked else None
        self._chunks_left = CHUNKS_MAX
        if self.check is not None and (chunked or self._body_left > CONNECTION_BYTES_FREE):
            self.check(headers.get("authorization", ""))

    def _read_body(self) -> Request | None:
        if self._chunks is not None:
            body = self._read_chunks(self._chunks)
            if body is None:
                return None
        else:
            if len(self.buffer) < self._body_left:
                return None
            body = bytes(self.buffer[: self._body_left])
            del self.buffer[: self._body_left]
        request, self.partial = self.partial, None
        assert request is not None
        self._body_left = 0
        if body:
            self.size += len(body)
            try:
                request.body = body.decode()
            except UnicodeDecodeError:
                raise BadRequest("Malformed request", "expected UTF-8") from None
        return request

    def _read_chunks(self, whole: bytearray) -> bytes | None:
        buffer = self.buffer
        while True:
            size = _CHUNK_SIZE.match(buffer)
            if size is None:
                if len(buffer) > 1_024 or b"\n" in buffer:
                    raise BadRequest("Malformed chunk", "expected the size of a chunk in hexadecimal")
                return None
            length = int(size[1], 16)
            if not self._chunks_left:
                raise TooLarge("Request too large", f"expected at most {CHUNKS_MAX} chunks")
            if len(whole) + length > self._bytes_max:
                raise TooLarge("Request too large", f"expected at most {self._bytes_max} bytes of chunks")
            end = size.end() + length
            tail = _LINE_END.match(buffer, end)
            if tail is None:
                if len(buffer) > end + 1:
                    raise BadRequest("Malformed chunk", "expected a line end after a chunk")
                return None
            self._chunks_left -= 1
            whole += buffer[size.end() : end]
            del buffer[: tail.end()]
            if length == 0:
                self._chunks = None
                return bytes(whole)


def _unescape(value: str) -> str:
    """Remove backslashes as Bedrock does; the result also keeps the text as it was sent."""
    if "\\" not in value:
        return value

    if value.count("\\") > ESCAPES_MAX:
        raise TooLarge("Request too large", f"expected at most {ESCAPES_MAX} backslashes in a line")
    mark = next((chr(code) for code in _UNUSED if chr(code) not in value), "")
    if not mark:
        raise BadRequest("Malformed request", "expected fewer characters of private use beside backslashes")
    text = value.replace("\\\\", mark)
    escaped = text.count('\\"')
    if text.count('"') > escaped:  # unescaped quotes are allowed: escape them
        text = (text.replace('\\"', '"') if escaped else text).replace('"', '\\"')
    last = "\\" if text.endswith("\\") else ""  # a final backslash is literal
    others = text.count("\\") - text.count('\\"')
    if others > OTHER_ESCAPES_MAX:
        expected = "backslashes in a line before characters other than a quote or a backslash"
        raise TooLarge("Request too large", f"expected at most {OTHER_ESCAPES_MAX} {expected}")
    text = text.removesuffix(last)
    if others:
        text = _NEEDLESS.sub("", text)
    text, _ = scanstring(text + '"', 0, False)
    text = text.replace(mark, "\\") + last
    if not text.isascii():  # surrogate pairs may have been escaped as two halves
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return Escaped(text, value)


def answer(body: str, connection: str = "") -> bytes:
    """Return the bytes of a ``200 OK``; ``connection`` is the value of the header ``Connection``, if any."""
    data = body.encode()
    if connection:
        return b"200 OK\r\nConnection: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            connection.encode(),
            len(data),
            data,
        )
    return b"200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def refusal(error: CommandError, connection: str = "") -> bytes:
    """Return the bytes of an error: Bedrock's status line, and the details in a header ``error``."""
    lines = [error.status_line]
    if connection:
        lines.append(f"Connection: {connection}")
    if error.detail:
        lines.append("error: " + error.detail[:1_000])
    text = "\r\n".join(" ".join(line.split()) for line in lines)
    return text.encode(errors="replace") + b"\r\nContent-Length: 0\r\n\r\n"


def with_warning(data: bytes, warning: str) -> bytes:
    """Return a reply with a header ``warning``: the command was executed, but some input was ignored."""
    status, end, rest = data.partition(b"\r\n")
    line = " ".join(warning.split())[:1_000]
    return b"%b%bwarning: %b%b%b" % (status, end, line.encode(errors="replace"), end, rest)


FORGOTTEN = b"202 Successfully queued\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
"""The reply to ``Connection: forget``, sent before the command is executed."""
