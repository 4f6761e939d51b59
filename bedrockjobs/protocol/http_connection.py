"""The socket of one HTTP connection: it answers plain requests and passes all other requests to aiohttp.

Plain requests are parsed and answered in callbacks, without a task. Any other request is passed unchanged to
aiohttp's protocol object, one at a time; after its reply, this class parses the next request again. If the
end of a request is not known from its head (chunks, upgrades, malformed bytes), aiohttp keeps the connection
until it closes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from itertools import chain, zip_longest
from typing import Any, NamedTuple, cast

from aiohttp import web
from yarl import URL

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import CONNECTION_BYTES_FREE, FORM_FIELDS_MAX, REQUEST_CACHED_BYTES_MAX
from bedrockjobs.base.errors import (
    BadArguments,
    BadRequest,
    CommandError,
    ServerFault,
    TimedOut,
    TooManyWrong,
)
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, Authenticate, Command, CreateJob, FinishJob, GetJob
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.plain import OpenField, Prepared, field_and_validator
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.protocol.authentication import HTTPAuthentication, Origins
from bedrockjobs.protocol.connections import NEVER, Connections
from bedrockjobs.protocol.http_answers import (
    GZIP_BYTES_MIN,
    JSON,
    answer_bytes,
    problem,
    problem_bytes,
    takes_gzip,
)
from bedrockjobs.protocol.pipeline import Exchange
from bedrockjobs.protocol.raw import put_cached

# Plain HTTP requests: parsing of heads and encoding of replies. No I/O.
#
# Most requests are a ``POST /<Command>`` with a small JSON object and headers without special meaning, and
# most replies are small. They need no route, middleware, task or response object: the connection parses and
# answers them itself. Both ways decode commands and encode replies with the same functions.
#
# The grammar for heads is narrower than HTTP's. If a head does not match it, aiohttp gets the rest of the
# connection, so the two parsers never disagree about where a request ends.


_END_OF_HEAD = b"\r\n\r\n"
_END_BYTES = len(_END_OF_HEAD)
_START = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.1")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_DIGITS = re.compile(rb"[0-9]{1,15}")

_MEANINGLESS = frozenset({b"accept", b"accept-language", b"user-agent"})
"""Headers that never change what a command does or how it is answered."""

_SINGLE = frozenset({b"host", b"content-length", b"content-type", b"authorization", b"connection"})
"""Headers that a plain request has at most once."""

_UNFRAMED = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Headers that change the framing of a request; only aiohttp handles them."""

_JSON_TYPES = frozenset(
    {b"", JSON.encode(), b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
_FORM_TYPE = b"application/x-www-form-urlencoded"


# Cache of commands by the bodies of requests. Many bodies differ only in the data of a job, its unique key or
# its jobID. Such a value is cut out of the body, and the rest is the key of the cached command. Only the
# value is parsed and validated: the rest was valid JSON around another value, so the body is JSON if it is.


class OpenValue(NamedTuple):
    """A value that differs from request to request."""

    field: str
    pattern: str
    """A regular expression that finds the end of the value; only ``read`` validates the value."""
    read: Callable[[bytes], Any]
    """Returns the validated value; raises ValueError."""
    sample: bytes
    """An example of the value: it shows which fields of the command depend on the value."""


_validate_data = field_and_validator(CreateJob, "data")[1].validate_python
_validate_key = field_and_validator(CreateJob, "uniqueKey")[1].validate_python
_STRING = r'"(?:[^"\\]|\\.)*+"'
_OPEN = {
    "data": OpenValue(
        "data",
        rf"\{{.*\}}|{_STRING}",
        lambda text: _validate_data(RawJSON(text, "utf-8")),
        b'{"a sample":{}}',
    ),
    "uniqueKey": OpenValue(
        "unique_key", _STRING, lambda text: _validate_key(jsontext.parse(text.decode())), b'"a sample"'
    ),
    "jobID": OpenValue(  # of few digits, so that it needs no validator
        "job_id", r'[1-9][0-9]{0,17}|"[1-9][0-9]{0,17}"', lambda text: int(text.strip(b'"')), b"918273645"
    ),
}


class Cut:
    """A way to cut values out of a body; ``split`` matches the parts, every second of which is a value."""

    __slots__ = ("_values", "field", "read", "samples", "split")

    def __init__(self, *names: str) -> None:
        """Cut out the values of these parameters, which come in this order."""
        blanks = r"[ \t\r\n]*"
        pattern = "".join(rf'((?>[^}}]*?"{name}"{blanks}:{blanks}))({_OPEN[name].pattern})' for name in names)
        pattern += rf"([^}}]*\}}{blanks})" if names else rf"({blanks}\{{.*)"
        self.split = re.compile(pattern.encode(), re.DOTALL).fullmatch
        self._values = values = [_OPEN[name] for name in names]
        self.samples = tuple(value.sample for value in values)
        self.field: OpenField = values[0].field if len(values) == 1 else (*sorted(v.field for v in values),)
        several: Callable[..., Any] = self._read_several if names else tuple
        self.read = values[0].read if len(values) == 1 else several

    def _read_several(self, *texts: bytes) -> tuple[Any, ...]:
        read = sorted(
            (value.field, value.read(text)) for value, text in zip(self._values, texts, strict=True)
        )
        return tuple(value for _, value in read)


_CUTS: dict[type[Command[Any]] | None, tuple[Cut, ...]] = {
    CreateJob: (Cut("data"), Cut("data", "uniqueKey"), Cut("uniqueKey", "data")),
    FinishJob: (Cut("jobID"),),
    GetJob: (Cut(),),
}
"""By command class, the ways to cut a body into a cached part and values. A later way cuts out more values,
and is preferred if the body permits it."""


@dataclass(slots=True, frozen=True)
class RequestHead:
    """The parsed head of a request, and what follows from it for every request with the same head."""

    data: bytes
    """The bytes of the head, including the blank line."""
    command_class: type[Command[Any]] | None
    """The command class of a plain request; None if aiohttp has to answer it."""
    body_bytes: int
    """Size of the body in bytes."""
    authorization: bytes
    usual: bool
    """Whether the request is plain even without a token; with an unknown ``Host`` it is plain only with a
    token."""
    closes: bool
    """Whether the connection closes after the reply."""
    form: bool
    """Whether the content type of the body is a form."""
    answer_chars_max: int
    """Maximum characters of a reply that the connection writes itself; aiohttp writes longer replies, which
    may be compressed or wait for memory."""
    cuts: tuple[Cut, ...]


class PlainHTTP:
    """Parses plain requests and caches the heads and commands that clients repeat."""

    def __init__(
        self, origins: Origins, gate: HTTPAuthentication, settings: Settings, root_path: str = ""
    ) -> None:
        """Accept requests that pass ``origins`` and ``gate``; paths may begin with ``root_path``."""
        self._origins = origins
        self.gate = gate
        self._headers_max = settings.headers_max
        self.heads: OrderedDict[bytes, RequestHead] = OrderedDict()
        """Parsed heads by their bytes."""
        self._prepared: OrderedDict[tuple[OpenField, tuple[bytes, ...]], Prepared | None] = OrderedDict()
        """Commands by the repeated part of their bodies; None if that part was seen only once."""
        self._kinds = {
            f"{root}/{command_class.__name__}".encode(): command_class
            for command_class in COMMANDS.values()
            if not command_class.tagged and command_class.paging is None and command_class is not Authenticate
            for root in ("", root_path)
        }

    def head(self, data: bytes) -> RequestHead | None:
        """Return a parsed head, or None if it does not match the narrow grammar.

        ``data`` ends with the blank line. For None, aiohttp gets the rest of the connection.
        """
        known = self.heads.get(data)
        if known is None:
            known = self._parse(data)
            if known is not None and len(data) <= REQUEST_CACHED_BYTES_MAX:
                put_cached(self.heads, data, known)
        return known

    def _parse(self, data: bytes) -> RequestHead | None:
        first, *lines = data.removesuffix(_END_OF_HEAD).split(b"\r\n")
        start = _START.fullmatch(first)
        if start is None or len(lines) > self._headers_max:
            return None
        plain = start[1] == b"POST"
        headers: dict[bytes, bytes] = {}
        for line in lines:
            header = _HEADER.fullmatch(line)
            if header is None:
                return None
            name, value = header[1].lower(), header[2].strip(b" \t")
            if name in _UNFRAMED or (name in _SINGLE and name in headers):
                return None
            plain &= name in _SINGLE or name in _MEANINGLESS or name == b"accept-encoding"
            headers[name] = headers[name] + b"," + value if name in headers else value
        length = headers.get(b"content-length", b"0")
        connection = headers.get(b"connection", b"").lower()
        if not _DIGITS.fullmatch(length) or connection not in (b"", b"keep-alive", b"close"):
            return None
        content_type = headers.get(b"content-type", b"").lower()
        form = content_type == _FORM_TYPE
        plain &= (form or content_type in _JSON_TYPES) and int(length) <= CONNECTION_BYTES_FREE
        plain &= b"host" in headers
        command_class = self._kinds.get(start[2]) if plain else None
        gzip = takes_gzip(headers.get(b"accept-encoding", b"").decode("latin-1"))
        return RequestHead(
            data=data,
            command_class=command_class,
            body_bytes=int(length),
            authorization=headers.get(b"authorization", b""),
            usual=command_class is not None and self._origins.is_known(headers[b"host"].decode("latin-1")),
            closes=connection == b"close",
            form=form,
            answer_chars_max=GZIP_BYTES_MIN if gzip else CONNECTION_BYTES_FREE,
            cuts=_CUTS.get(command_class, ()),
        )

    def is_plain(self, head: RequestHead) -> bool:
        """Return whether a request with this head can be answered without aiohttp."""
        if head.usual or head.command_class is None:
            return head.usual
        return self.gate.needs_token and not self._origins.local_only

    def read(self, exchange: Exchange, head: RequestHead, body: bytes) -> bool:
        """Set the command of an exchange; return False for ``Connection: forget``. Raises CommandError."""
        for cut in head.cuts:
            match = cut.split(body)
            if match is None:
                continue
            parts = match.groups()
            prepared = self._prepared.get((cut.field, parts[::2]))
            if prepared is not None:
                try:
                    exchange.value = cut.read(*parts[1::2])
                except ValueError:  # also a ValidationError; the error is raised below
                    break
                exchange.prepared, exchange.template = prepared, prepared.command
                return True
        assert head.command_class is not None
        exchange.command = command = read_body(head.command_class, text_of(body), form=head.form)
        if command.connection is not None and command.connection.lower() == "forget":
            return False
        self._prepare(head.cuts, body, command)
        return True

    def _prepare(self, cuts: tuple[Cut, ...], body: bytes, command: Command[Any]) -> None:
        """Cache a command as a template if an earlier body was the same except for the values cut out of it.

        Nothing is cached if the part in common is longer than ``REQUEST_CACHED_BYTES_MAX``.
        """
        for cut in reversed(cuts):
            match = cut.split(body)
            if match is None:
                continue
            parts = match.groups()
            key = cut.field, parts[::2]
            if len(body) - sum(map(len, parts[1::2])) > REQUEST_CACHED_BYTES_MAX:
                return
            if key not in self._prepared:
                put_cached(self._prepared, key, None)
                continue
            sample = b"".join(chain.from_iterable(zip_longest(parts[::2], cut.samples, fillvalue=b"")))
            with suppress(CommandError, ValueError):
                # Each value must set its own field and nothing else, as a value inside another one would.
                prepared = Prepared(type(command).read_json(sample.decode()), cut.field)
                alike = prepared.with_value(cut.read(*parts[1::2])) == command
                if alike and prepared.with_value(cut.read(*cut.samples)) == prepared.command:
                    self._prepared[key] = prepared
                    return


def read_body(
    command_class: type[Command[Any]], text: str, defaults: dict[str, Any] | None = None, *, form: bool
) -> Command[Any]:
    """Return the command in a body that is JSON or a form; raises CommandError."""
    if form and not text.lstrip().startswith(("{", "[")):  # curl -d sends JSON with the type of a form
        if text.count("&") >= FORM_FIELDS_MAX:
            raise BadArguments("Malformed body", f"body: expected at most {FORM_FIELDS_MAX} fields")
        if "%%" in text:
            raise BadArguments("Malformed body", "body: expected two hexadecimal digits after each %")
        return command_class.read_form(dict(URL.build(query_string=text, encoded=True).query), defaults or {})
    return command_class.read_json(text, defaults)


def text_of(body: bytes) -> str:
    """Return a body as text; raises BadArguments."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadArguments("Malformed body", "body: expected UTF-8") from None


class HandedOver(NamedTuple):
    """A parsed request, perhaps already executed, that aiohttp has to answer after all."""

    command: Command[Any]
    answer: Answer | None = None
    """The reply, if the command was executed."""


log = logging.getLogger(__name__)

AHEAD_BYTES_MAX = 64 * 1024
"""Maximum bytes buffered for later requests; if there are more, the socket is not read."""


class AiohttpProtocol(web.RequestHandler):
    """aiohttp's protocol object, with our error replies to malformed bytes."""

    __slots__ = ("connection",)

    connection: HTTPConnection

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed bytes with a problem; aiohttp would log a traceback.

        Raises ConnectionError if the client is gone; aiohttp then ends the connection.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, UnicodeEncodeError):  # from a header that aiohttp quotes
            status, message = HTTPStatus.BAD_REQUEST, "expected headers in UTF-8"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        if exc is not None:
            exc.__traceback__ = None  # the traceback holds all received bytes in a reference cycle
        self.connection.read_no_more()
        lines = (message or "").strip().splitlines()
        response = problem(BadRequest(detail=lines[0][:200] if lines else "expected HTTP/1.1"), status)
        response.force_close()
        return response


class HTTPExchange(Exchange):
    """A plain HTTP request; it keeps its command, which aiohttp needs to write a large reply."""

    alone = True  # the next request starts after the reply
    body = b""
    """The body of the request, in case aiohttp has to answer the request."""

    def parked(self) -> None:
        """Do nothing, so that the command is kept."""


class HTTPConnection(asyncio.Protocol):
    """A connection from the first byte of its first HTTP request to its last."""

    __slots__ = (
        "_active",
        "_address",
        "_aiohttp",
        "_awaits",
        "_buffer",
        "_closes",
        "_connections",
        "_ended",
        "_free",
        "_handed_over",
        "_head",
        "_make_aiohttp",
        "_passed_left",
        "_passing",
        "_paused",
        "_plain",
        "_rare",
        "_reading",
        "_shown",
        "_submission",
        "_transport",
        "_unsent",
        "_waits",
        "_writing",
        "deadline",
        "flushes",
    )

    def __init__(
        self, connections: Connections, plain: PlainHTTP, make_aiohttp: Callable[[], AiohttpProtocol]
    ) -> None:
        """Create a connection counted in ``connections``; ``make_aiohttp`` makes aiohttp's protocol."""
        self._connections = connections
        self._plain = plain
        self._make_aiohttp = make_aiohttp
        self._aiohttp: AiohttpProtocol | None = None
        """aiohttp's protocol object, created for the first request that is not plain."""
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._buffer = b""
        """Received bytes of requests that have not started."""
        self._head: RequestHead | None = None
        """The head of the current plain request."""
        self._submission: Submission | None = None
        """The submitted command of the current plain request, to cancel it."""
        self._passing = False
        """Whether aiohttp processes a request."""
        self._passed_left: int | None = 0
        """Bytes of aiohttp's request not yet received; None if aiohttp has the rest of the connection."""
        self._handed_over: HandedOver | None = None
        self._active = False
        """Whether aiohttp's handler is running."""
        self._waits = False
        """Whether aiohttp's handler waits for a job or sends a stream."""
        self._awaits = ""
        """The part of a request whose deadline is running: head or body."""
        self._free = False
        """Whether a request may start as soon as it has arrived."""
        self._rare = False
        """Whether more must be done after a reply than to wait for the next request, because the connection
        closes, the client has closed its sending side, or the client does not read."""
        self._ended = False
        """Whether the client has closed its sending side."""
        self._paused = False
        """Whether the client is not reading its replies."""
        self._reading = True
        self._shown: tuple[bytes, Principal | None] = b"", None
        """Cached ``Authorization`` of the last plain request, and its principal."""
        self._closes = False
        """Whether the connection closes after the current reply."""
        self._unsent: Outcome | None = None
        """The last reply with jobs, while it is not completely sent."""
        self._writing = 0
        """Memory of the reply being written, until its last byte is sent."""
        self.deadline = NEVER
        self.flushes = 0
        """Number of times that all written bytes were sent after a pause; shows if a reply was completed."""

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or abort it if there are too many."""
        transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._connections.admit(self, self._address):
            transport.abort()
            return
        self._transport, self._free = transport, True

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the current command, and requeue jobs whose replies were not sent."""
        if self._transport is None:
            return
        self._transport = self._head = None
        self._free = False
        self._connections.dismiss(self, self._address)
        if self._aiohttp is not None:
            self._aiohttp.connection_lost(exc)
        service = self._connections.service
        if self._submission is not None:
            service.leave(self._submission)
        self.discard_handed_over()
        if self._unsent is not None:
            service.undelivered(self._unsent)
            self._unsent = None

    def data_received(self, data: bytes) -> None:
        """Start a plain request once all of it has arrived; pass other bytes to aiohttp."""
        if not self._free:
            self._receive_ahead(data)
            return
        if self._buffer:
            data = self._buffer + data
        end = data.find(_END_OF_HEAD) + _END_BYTES
        plain = self._plain
        head = plain.heads.get(data[:end])
        if (head is None or not head.usual) and (head := self._read_head(data, end)) is None:
            return
        size = end + head.body_bytes
        if len(data) < size:
            self._buffer = data
            self._await("body")
            return
        self._buffer = data[size:]
        self._head, self._free = head, False
        self._awaits, self.deadline = "", NEVER
        if head.closes:
            self._closes = self._rare = True
        exchange = HTTPExchange()
        exchange.connection = self
        exchange.body = body = data[end:size]
        command_class, service = head.command_class, self._connections.service
        assert command_class is not None
        try:
            if (service.access.asks or command_class.signed) and not command_class.open:
                exchange.caller = self._caller_of(head.authorization)
            if not plain.read(exchange, head, body):
                assert exchange.command is not None
                self._hand_over(exchange, HandedOver(exchange.command))
                return
            submission = service.put(exchange)
            if self._head is not None:
                self._submission = submission
                if self._ended and exchange.template.waiting:
                    self._close()
        except CommandError as error:
            if isinstance(error, TooManyWrong):
                self._closes = self._rare = True
            self.answered(exchange, error)
        except Exception:
            log.exception("a plain HTTP request failed")
            self.answered(exchange, ServerFault())

    def eof_received(self) -> bool:
        """Answer requests received so far, but stop waiting for a job: the client may be gone."""
        self._ended = self._rare = True
        if self._passing:
            return self._passed_left == 0 and not self._waits
        waits = self._submission is not None and self._submission.waiter is not None
        stays = not waits and (self._head is not None or (self._buffer != b"" and not self._free))
        if not stays:
            self._head, self._free = None, False
        return stays

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read its replies."""
        self._paused = self._rare = True
        self._free = False
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()
        if not self._connections.memory.hold(self, self.unread_bytes):
            self.shed()
        self._awaits = ""
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Continue with the next request: everything that was written has been sent."""
        self._paused = False
        self._rare = self._closes or self._ended
        self.flushes += 1
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()
        self._connections.memory.hold(self, 0)
        self._connections.expect_nothing(self)
        self._awaits = ""
        self._unsent = None
        if self._idle:
            self._go_on()

    # --- Connection --------------------------------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of replies that the client has not read."""
        if not self._paused or self._transport is None:
            return 0
        return max(self._writing, self._transport.get_write_buffer_size())

    def shed(self) -> None:
        """Abort the connection to free its memory."""
        if self._transport is not None:
            self._transport.abort()

    def expire(self) -> None:
        """Close the connection because a deadline has passed."""
        transport = self._transport
        if transport is None:
            return
        if self._paused:
            transport.abort()
            return
        if self._awaits == "body":
            limit = self._connections.settings.body_s
            transport.write(
                problem_bytes(TimedOut(detail=f"the body took longer than {limit:g} s"), closes=True)
            )
        self._close()

    def finish(self) -> None:
        """Close after the current request is answered."""
        self._closes = self._rare = True
        if self._aiohttp is not None:
            self._aiohttp.close()
        passed = self._passing and (self._active or self._passed_left is not None)
        if self._head is None and not passed and not self._paused:  # otherwise ``expire`` closes it
            self._close()

    def _close(self) -> None:
        """Close after all written bytes are sent; no further request is started or answered."""
        self._head, self._free = None, False
        if self._transport is not None:
            self._transport.close()

    # --- requests in turn --------------------------------------------------------------------------------

    def _read_head(self, data: bytes, end: int) -> RequestHead | None:
        """Return the head of a plain request that is not cached, or that is plain only with a token.

        Otherwise return None, after passing the request on or starting to wait for the rest of its head.
        """
        self._buffer = data
        length, longest = end - _END_BYTES, self._connections.settings.head_bytes_max
        if length < 0:
            if len(data) > longest or data.count(b"\n") != data.count(b"\r\n"):
                self._pass_on(None)
            else:
                self._await("head")
            return None
        head = self._plain.head(data[:end]) if length <= longest else None
        if head is not None and self._plain.is_plain(head):
            return head
        self._pass_on(None if head is None else end + head.body_bytes)
        return None

    def _receive_ahead(self, data: bytes) -> None:
        """Pass bytes of aiohttp's request to aiohttp, and buffer bytes of later requests."""
        if self._passing and self._passed_left != 0:
            if self._passed_left is None and not self._active:
                self._await("head")
            data = self._pass(data)
        if data:
            self._buffer += data
            transport = self._transport
            if self._reading and transport is not None and len(self._buffer) > AHEAD_BYTES_MAX:
                self._reading = False
                transport.pause_reading()

    @property
    def _idle(self) -> bool:
        """Return whether the next request may start."""
        return not (self._head or self._passing or self._paused or self._closes or self._transport is None)

    def _go_on(self) -> None:
        """After a reply, close the connection, start the next request, or wait for the next request."""
        if self._closes:
            self._close()
        elif self._buffer:
            asyncio.get_running_loop().call_soon(self._take_turn)
        elif self._idle:
            if self._ended:
                self._close()
            else:
                self._free = True
                self._connections.expect(self, self._connections.settings.idle_http_s)

    def _take_turn(self) -> None:
        """Start the next buffered request; each request has its own iteration of the event loop."""
        if self._idle and self._buffer:
            self._free = True
            data, self._buffer = self._buffer, b""
            self.data_received(data)
            if self._free and self._ended:  # it is incomplete, and nothing more comes
                self._close()
        if not self._reading and len(self._buffer) <= AHEAD_BYTES_MAX and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def _await(self, part: str) -> None:
        """Start the deadline for a part of a request, unless it is running; an empty part removes it."""
        if part and part == self._awaits:
            return
        self._awaits, self.deadline = part, NEVER
        if part:
            settings = self._connections.settings
            self._connections.expect(self, settings.body_s if part == "body" else settings.head_s)

    # --- plain requests ----------------------------------------------------------------------------------

    def belongs(self, caller: Principal) -> None:
        """Record the token of this connection; raises TooMany if the token has too many connections."""
        self._connections.belongs(self, caller.name)

    def _caller_of(self, authorization: bytes) -> Principal:
        """Return the principal of a plain request, cached for a repeated ``Authorization``."""
        gate = self._plain.gate
        before, caller = self._shown
        if caller is None or not compare_digest(before, authorization) or not gate.goes_on(caller):
            caller = gate.of_plain(authorization, self._transport)
            self.belongs(caller)
            self._shown = authorization, caller
        return caller

    def answered(self, exchange: Exchange, outcome: Outcome) -> bool:
        """Write the reply of the current plain request; return False if its client cannot receive it."""
        self._submission = None
        transport, head = self._transport, self._head
        if head is None or transport is None:
            return False
        if isinstance(outcome, CommandError):
            data, taken = problem_bytes(outcome, closes=self._closes), None
        elif len(outcome.body) <= head.answer_chars_max and outcome.media == JSON:
            data, taken = answer_bytes(outcome.body, closes=self._closes), outcome.taken
        else:
            assert exchange.command is not None
            self._hand_over(exchange, HandedOver(exchange.command, outcome))
            return True
        self._head = None
        transport.write(data)
        if taken:
            if transport.is_closing():  # the write failed: the connection was broken
                return False
            if self._paused:
                self._unsent = outcome
        if self._rare or self._buffer:
            self._go_on()
        else:
            connections = self._connections
            self._free = True
            self.deadline = connections.clock.monotonic() + connections.settings.idle_http_s
        return True

    # --- requests that aiohttp answers -------------------------------------------------------------------

    def _hand_over(self, exchange: Exchange, handed_over: HandedOver) -> None:
        """Let aiohttp answer the current plain request."""
        assert self._head is not None
        assert isinstance(exchange, HTTPExchange)
        request, self._head = self._head.data + exchange.body, None
        self._handed_over = handed_over
        self._buffer = request + self._buffer
        self._pass_on(len(request))

    def take_handed_over(self) -> HandedOver | None:
        """Return and clear the parsed request that aiohttp answers; None if aiohttp has to parse it."""
        data, self._handed_over = self._handed_over, None
        return data

    def discard_handed_over(self) -> None:
        """Requeue the jobs of a reply handed over to aiohttp, unless aiohttp's handler has taken it."""
        handed_over = self.take_handed_over()
        if handed_over is not None and handed_over.answer is not None:
            self._connections.service.undelivered(handed_over.answer)

    def _pass_on(self, size: int | None) -> None:
        """Pass the next request to aiohttp; with None, the rest of the connection."""
        transport = self._transport
        assert transport is not None
        self._free = False
        self._await("head" if size is None else "")
        if self._aiohttp is None:
            self._aiohttp = self._make_aiohttp()
            self._aiohttp.connection = self
            self._aiohttp.connection_made(transport)
        self._passing, self._passed_left = True, size
        data, self._buffer = self._buffer, b""
        self._buffer = self._pass(data)
        if self._closes:
            self._aiohttp.close()

    def _pass(self, data: bytes) -> bytes:
        """Pass bytes of the current request to aiohttp; return the bytes after this request."""
        assert self._aiohttp is not None
        left = self._passed_left
        if left is None:
            self._aiohttp.data_received(data)
            return b""
        rest = data[left:]
        self._passed_left = max(0, left - len(data))
        self._aiohttp.data_received(data[:left] if rest else data)
        return rest

    def handler_started(self) -> None:
        """Record that aiohttp's handler has started."""
        self._active = True
        self._await("")

    def waits(self) -> None:
        """Record that aiohttp's handler waits or sends a stream until the client closes its sending side."""
        self._waits = True
        if self._ended:
            self._close()

    def writes(self, size: int) -> None:
        """Record the size of the next write of aiohttp, of which the transport holds a copy."""
        self._writing = 2 * size

    def written(self, *, keep_alive: bool) -> None:
        """Record that aiohttp has written a reply; with ``keep_alive`` the next request may start."""
        self._writing = 0
        self._active = self._waits = False
        if not keep_alive:
            return
        if self._passed_left is None:
            self._awaits = ""
            self._connections.expect(self, self._connections.settings.idle_http_s)
            return
        asyncio.get_running_loop().call_soon(self._end_passing)

    def _end_passing(self) -> None:
        """Start the next request, unless the body of the answered request is incomplete."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self._passing:
            return
        if self._passed_left:
            self._passed_left = None  # aiohttp discards the rest for a while, then closes
            return
        self._passing = False
        self._go_on()

    def read_no_more(self) -> None:
        """Stop reading after malformed bytes."""
        if self._transport is not None:
            self._transport.pause_reading()
