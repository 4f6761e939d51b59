"""The socket of one HTTP connection: it answers plain requests itself and passes all others to aiohttp.

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
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from aiohttp import web
from yarl import URL

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import (
    CONNECTION_BYTES_FREE,
    FORM_FIELDS_MAX,
    REQUEST_CACHED_BYTES_MAX,
    REQUESTS_CACHED_MAX,
)
from bedrockjobs.base.errors import (
    BadArguments,
    BadRequest,
    CommandError,
    ServerFault,
    TimedOut,
    TooManyWrong,
)
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, Authenticate, Command
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.plain import OPEN_FIELDS, OPEN_PAIR, Prepared, field_and_validator
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.protocol.authentication import HTTPAuthentication
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.http_answers import (
    GZIP_BYTES_MIN,
    JSON,
    answer_bytes,
    problem,
    problem_bytes,
    takes_gzip,
)
from bedrockjobs.protocol.pipeline import Exchange
from bedrockjobs.protocol.visitors import Origins

# Plain HTTP requests: parsing of heads and encoding of replies. No I/O.
#
# Most requests are a ``POST /<Command>`` with a small JSON object and headers without special meaning, and
# most replies are small. They need no route, middleware, task or response object: the connection parses and
# answers them itself. Both ways decode commands and encode replies with the same functions.
#
# The grammar for heads is narrower than HTTP's. If a head does not match it, aiohttp gets the rest of the
# connection, so the two parsers never disagree about where a request ends.


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


class RequestHead(NamedTuple):
    """The parsed head of a request."""

    command_class: type[Command[Any]] | None
    """The command class of a plain request; None if aiohttp has to answer it."""
    body_bytes: int
    """Size of the body."""
    authorization: bytes
    known_host: bool
    """Whether its ``Host`` is known; under any other host only clients with a token are answered."""
    closes: bool
    """Whether the connection closes after the reply."""
    gzip: bool
    """Whether the client accepts gzip."""
    form: bool
    """Whether the content type of the body is a form."""


_Validate = Callable[[Any], Any] | None
"""The validator of an open value, if there is one."""


class PlainHTTP:
    """Parses plain requests and caches the heads that clients repeat."""

    def __init__(
        self, origins: Origins, gate: HTTPAuthentication, settings: Settings, root_path: str = ""
    ) -> None:
        """Accept requests that pass ``origins`` and ``gate``; paths may begin with ``root_path``."""
        self._origins = origins
        self.gate = gate
        self._headers_max = settings.headers_max
        self._cache: OrderedDict[bytes, RequestHead] = OrderedDict()
        self._prepared: OrderedDict[tuple[object, ...], tuple[Prepared, _Validate, _Validate]] = OrderedDict()
        """Parsed commands by class and members, without those whose values are open."""
        self._kinds = {
            f"{root}/{command_class.__name__}".encode(): command_class
            for command_class in COMMANDS.values()
            if not command_class.tagged and command_class.paging is None and command_class is not Authenticate
            for root in ("", root_path)
        }

    def head(self, data: bytes) -> RequestHead | None:
        """Return a parsed head, or None if it does not match the narrow grammar.

        ``data`` ends before the blank line. For None, aiohttp gets the rest of the connection.
        """
        known = self._cache.get(data)
        if known is None:
            known = self._parse(data)
            if known is not None and len(data) <= REQUEST_CACHED_BYTES_MAX:
                if len(self._cache) >= REQUESTS_CACHED_MAX:
                    self._cache.popitem(last=False)
                self._cache[data] = known
        return known

    def _parse(self, data: bytes) -> RequestHead | None:
        first, *lines = data.split(b"\r\n")
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
        host = headers.get(b"host")
        plain &= host is not None
        return RequestHead(
            self._kinds.get(start[2]) if plain else None,
            int(length),
            headers.get(b"authorization", b""),
            host is not None and self._origins.is_known(host.decode("latin-1")),
            connection == b"close",
            takes_gzip(headers.get(b"accept-encoding", b"").decode("latin-1")),
            form,
        )

    def is_plain(self, head: RequestHead) -> bool:
        """Return whether a request with this head can be answered without aiohttp."""
        if head.command_class is None or head.known_host:
            return head.command_class is not None
        return self.gate.needs_token and not self._origins.local_only

    def read(self, exchange: Exchange, head: RequestHead, body: bytes) -> None:
        """Set the command of an exchange; raises CommandError."""
        command_class, text = head.command_class, text_of(body)
        assert command_class is not None
        open_name = None if head.form else OPEN_FIELDS.get(command_class)
        if open_name is None:
            exchange.command = read_body(command_class, text, form=head.form)
            return
        try:
            members = jsontext.members(text)
        except ValueError:
            members = {}
        value = members.pop(open_name, "null")
        unique = members.pop(OPEN_PAIR[1], None) if open_name == OPEN_PAIR[0] else None
        key = (command_class, unique is not None, *members.items())
        known = self._prepared.get(key)
        if known is not None and (value != "null") == bool(open_name) and unique != "null":
            prepared, validate, validate_key = known
            try:
                if validate is not None:
                    exchange.value = validate(command_class.parsed(open_name, value))
                if validate_key is not None and unique is not None:
                    exchange.value = exchange.value, validate_key(command_class.parsed(OPEN_PAIR[1], unique))
            except ValueError:  # also a ValidationError; the error is raised below
                pass
            else:
                exchange.prepared, exchange.template = prepared, prepared.command
                return
        exchange.command = command = command_class.read_json(text)
        self._prepare(key, command, () if not open_name else (open_name,) if unique is None else OPEN_PAIR)

    def _prepare(self, key: tuple[object, ...], command: Command[Any], names: tuple[str, ...]) -> None:
        """Cache a command whose values of some parameters may differ, unless it is long."""
        found = [field_and_validator(type(command), name) for name in names]
        if any(validator is None or field not in command.model_fields_set for field, validator in found):
            return
        if len(str(key)) > REQUEST_CACHED_BYTES_MAX:
            return
        if len(self._prepared) >= REQUESTS_CACHED_MAX:
            self._prepared.popitem(last=False)
        fields = tuple(field for field, _ in found)
        validators = [*(validator.validate_python for _, validator in found), None, None]
        prepared = Prepared(command, fields if len(fields) > 1 else "".join(fields))
        self._prepared[key] = prepared, validators[0], validators[1]

    @staticmethod
    def answer(outcome: Outcome, *, closes: bool, gzip: bool) -> bytes | None:
        """Return the bytes of a reply, or None if aiohttp has to write it."""
        if isinstance(outcome, CommandError):
            return problem_bytes(outcome, closes=closes)
        size = len(outcome.body)
        if outcome.media != JSON or size > (GZIP_BYTES_MIN if gzip else CONNECTION_BYTES_FREE):
            return None
        return answer_bytes(outcome.body or "{}", closes=closes)


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
"""Maximum bytes buffered for later requests; beyond it the socket is not read."""

NO_KEEPALIVE_TIMER_S = 1e8
"""Disables aiohttp's idle timeout, which does not see plain requests; ``idle_http_s`` replaces it."""

_END_OF_HEAD = b"\r\n\r\n"


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
    """A plain HTTP request; aiohttp needs its command to write a large reply."""

    alone = True  # the next request starts after the reply

    def parked(self) -> None:
        """Keep the command."""


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
        "_handed_over",
        "_head",
        "_in_turn",
        "_make_aiohttp",
        "_passed_left",
        "_passing",
        "_paused",
        "_plain",
        "_reading",
        "_request",
        "_scheduled",
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
        self._request = b""
        """The raw bytes of the current plain request, in case aiohttp has to answer it."""
        self._submission: Submission | None = None
        """The submitted command of the current plain request, to cancel it."""
        self._passing = False
        """Whether aiohttp processes a request."""
        self._passed_left: int | None = 0
        """Bytes of that request not yet received; None if aiohttp has the rest of the connection."""
        self._handed_over: HandedOver | None = None
        self._active = False
        """Whether aiohttp's handler is running."""
        self._waits = False
        """Whether that handler waits for a job or sends a stream."""
        self._awaits = ""
        """What the current deadline is for: head, body, or idle (the next request)."""
        self._ended = False
        """Whether the client has closed its sending side."""
        self._in_turn = self._scheduled = False
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
        self.deadline = 0.0
        self.flushes = 0
        """How often all written bytes have been sent after a pause; shows whether a reply was completed."""

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, or abort it if there are too many."""
        transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._connections.admit(self, self._address):
            transport.abort()
            return
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the current command, and requeue jobs whose replies were not sent."""
        if self._transport is None:
            return
        self._transport = None
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
        """Process received bytes: the rest of the current request, or later ones."""
        if self._passing and self._passed_left != 0:
            if self._passed_left is None and not self._active:
                self._await("head")
            data = self._pass(data)
        if data:
            self._buffer = self._buffer + data if self._buffer else data
            self._take_turn()
            if self._buffer:
                self._account()

    def eof_received(self) -> bool:
        """Answer requests received so far, but stop waiting for a job: the client may be gone."""
        self._ended = True
        if self._passing:
            return self._passed_left == 0 and not self._waits
        waits = self._submission is not None and self._submission.waiter is not None
        left = self._head is not None or self._scheduled or (self._paused and self._buffer != b"")
        return left and not waits

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read its replies."""
        self._paused = True
        if self._aiohttp is not None:
            self._aiohttp.pause_writing()
        if not self._connections.memory.hold(self, self.unread_bytes):
            self.shed()
        self._awaits = ""
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Continue: everything that was written has been sent."""
        self._paused = False
        self.flushes += 1
        if self._aiohttp is not None:
            self._aiohttp.resume_writing()
        self._connections.memory.hold(self, 0)
        self._connections.expect_nothing(self)
        self._awaits = ""
        self._unsent = None
        self._take_turn()

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
        transport.close()

    def finish(self) -> None:
        """Close after the current request is answered."""
        self._closes = True
        if self._aiohttp is not None:
            self._aiohttp.close()
        passed = self._passing and (self._active or self._passed_left is not None)
        if self._transport is None or self._head is not None or passed or self._paused:
            return  # a client that does not read is closed by ``expire``
        self._transport.close()

    # --- requests in turn --------------------------------------------------------------------------------

    def _take_turn(self) -> None:
        """Start requests until one is in progress, at most ``pipelined_max`` in one turn."""
        if self._in_turn:
            return
        self._in_turn = True
        left = self._connections.settings.pipelined_max
        while self._buffer and self._idle:
            if not left:
                self._schedule_turn()
                break
            left -= 1
            if not self._start_request():
                break
        self._in_turn = False
        if self._idle and not self._scheduled:
            self._await_request()
        if not self._reading and len(self._buffer) <= AHEAD_BYTES_MAX and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()

    def _await_request(self) -> None:
        """Wait for the next request; after the end of input, close instead."""
        if self._ended and self._transport is not None:
            self._transport.close()
        elif not self._buffer:
            self._await("idle")

    @property
    def _idle(self) -> bool:
        """Return whether the next request may start."""
        return not (self._head or self._passing or self._paused or self._closes or self._transport is None)

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._scheduled = False
        self._take_turn()

    def _start_request(self) -> bool:
        """Start the first request of the buffer; return False if it is incomplete."""
        buffer, settings = self._buffer, self._connections.settings
        end = buffer.find(_END_OF_HEAD)
        if end < 0:
            if len(buffer) > settings.head_bytes_max or buffer.count(b"\n") != buffer.count(b"\r\n"):
                self._pass_on(None)
                return True
            self._await("head")
            return False
        head = self._plain.head(buffer[:end]) if end <= settings.head_bytes_max else None
        if head is None:
            self._pass_on(None)
            return True
        size = end + len(_END_OF_HEAD) + head.body_bytes
        if not self._plain.is_plain(head):
            self._pass_on(size)
            return True
        if len(buffer) < size:
            self._await("body")
            return False
        self._await("")
        self._head, self._request, self._buffer = head, buffer[:size], buffer[size:]
        self._closes |= head.closes
        self._perform(head, self._request[end + len(_END_OF_HEAD) :])
        return True

    def _await(self, part: str) -> None:
        """Start the deadline for the next part from the client, once; an empty part removes it."""
        if part == self._awaits:
            return
        self._awaits = part
        if not part:
            self._connections.expect_nothing(self)
            return
        settings = self._connections.settings
        seconds = {"head": settings.head_s, "body": settings.body_s, "idle": settings.idle_http_s}[part]
        self._connections.expect(self, seconds)

    def _account(self) -> None:
        """Pause reading while too many bytes of later requests are buffered."""
        transport, ahead = self._transport, len(self._buffer)
        if transport is None or ahead <= AHEAD_BYTES_MAX or not self._reading or self._idle:
            return
        self._reading = False
        transport.pause_reading()

    # --- plain requests ----------------------------------------------------------------------------------

    def _perform(self, head: RequestHead, body: bytes) -> None:
        command_class, service = head.command_class, self._connections.service
        assert command_class is not None
        exchange = HTTPExchange()
        exchange.connection = self
        try:
            if (service.access.asks or command_class.signed) and not command_class.open:
                exchange.caller = self._caller_of(head.authorization)
            self._plain.read(exchange, head, body)
            template = exchange.template
            if template.connection is not None and template.connection.lower() == "forget":
                assert exchange.command is not None
                self._hand_over(HandedOver(exchange.command))
                return
            submission = service.put(exchange)
            if self._head is not None:
                self._submission = submission
                if self._ended and template.waiting and self._transport is not None:
                    self._transport.close()
        except CommandError as error:
            self._closes |= isinstance(error, TooManyWrong)
            self.answered(exchange, error)
        except Exception:
            log.exception("a plain HTTP request failed")
            self.answered(exchange, ServerFault())

    def belongs(self, caller: Principal) -> None:
        """Record the token of this connection; raises TooMany if it has too many connections."""
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
        if transport is None or head is None or transport.is_closing():
            return False
        data = self._plain.answer(outcome, closes=self._closes, gzip=head.gzip)
        if data is None:
            assert exchange.command is not None
            assert not isinstance(outcome, CommandError)
            self._hand_over(HandedOver(exchange.command, outcome))
            return True
        self._head, self._request = None, b""
        transport.write(data)
        if transport.is_closing():  # the write failed: the connection was broken
            return False
        if self._paused and not isinstance(outcome, CommandError) and outcome.taken:
            self._unsent = outcome
        self._after_answer(transport)
        return True

    def _after_answer(self, transport: asyncio.Transport) -> None:
        if self._closes:
            transport.close()
        else:
            self._take_turn()

    # --- requests that aiohttp answers -------------------------------------------------------------------

    def _hand_over(self, handed_over: HandedOver) -> None:
        """Let aiohttp answer the current plain request."""
        self._handed_over = handed_over
        request, self._head, self._request = self._request, None, b""
        self._buffer = request + self._buffer
        self._pass_on(len(request))

    def take_handed_over(self) -> HandedOver | None:
        """Return and clear what was already parsed of the request that aiohttp answers."""
        data, self._handed_over = self._handed_over, None
        return data

    def discard_handed_over(self) -> None:
        """Requeue the jobs of a reply that aiohttp was given to write, unless its handler has taken it."""
        handed_over = self.take_handed_over()
        if handed_over is not None and handed_over.answer is not None:
            self._connections.service.undelivered(handed_over.answer)

    def _pass_on(self, size: int | None) -> None:
        """Pass the next request to aiohttp; with None, the rest of the connection."""
        transport = self._transport
        assert transport is not None
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
        """Pass bytes of its request to aiohttp; return the bytes after it."""
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
        """Record that aiohttp's handler will wait or send a stream, which ends with the client's sending."""
        self._waits = True
        if self._ended and self._transport is not None:
            self._transport.close()

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
            self._await("idle")
            return
        asyncio.get_running_loop().call_soon(self._end_passing)

    def _end_passing(self) -> None:
        """Start the next request, unless the body of the answered one is incomplete."""
        transport = self._transport
        if transport is None or transport.is_closing() or not self._passing:
            return
        if self._passed_left:
            self._passed_left = None  # aiohttp discards the rest for a while, then closes
            return
        self._passing = False
        self._after_answer(transport)

    def read_no_more(self) -> None:
        """Stop reading after malformed bytes."""
        if self._transport is not None:
            self._transport.pause_reading()
