"""The socket of one raw connection: it moves bytes and sets deadlines; what they mean is the pipeline's.

The first line may hand the connection over to HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import cast

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import CommandError, Forbidden, TooManyWrong, Unavailable
from bedrockjobs.base.principal import Principal
from bedrockjobs.commands import Authenticate
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.authentication import ConnectionIdentity
from bedrockjobs.protocol.connections import LOOPBACK, Connections, full
from bedrockjobs.protocol.http_answers import problem_bytes
from bedrockjobs.protocol.pipeline import Exchange, Pipeline
from bedrockjobs.tls.contexts import why
from bedrockjobs.tls.stream import TLSStream

# Which protocol a connection speaks: its first line tells. It does no I/O.


HTTP_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"})
"""First words that make a connection HTTP, in exactly this spelling."""

_LONGEST_METHOD = max(map(len, HTTP_METHODS))


class FirstLine:
    """The first bytes of a connection, kept until they tell its protocol."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        """Begin without bytes."""
        self._bytes = bytearray()

    def feed(self, data: bytes) -> bool | None:
        """Take more bytes; return whether the connection is HTTP, None while that cannot be told."""
        kept = self._bytes
        kept += data
        del kept[: len(kept) - len(kept.lstrip(b"\r\n"))]
        return _is_http(kept)

    @property
    def empty(self) -> bool:
        """Tell whether nothing is kept: there was nothing but blank lines."""
        return not self._bytes

    @property
    def data(self) -> bytes:
        """Return all bytes so far, without the blank lines before the first request."""
        return bytes(self._bytes)


def _is_http(data: bytearray) -> bool | None:
    line = bytes(data[: _LONGEST_METHOD + 1])
    word, space, _ = line.partition(b" ")
    if space:
        return word in HTTP_METHODS
    if b"\n" in line or b"\r" in line or len(line) > _LONGEST_METHOD:
        return False
    return None if any(method.startswith(line) for method in HTTP_METHODS) else False


# The first byte of a connection to a server with a certificate: TLS or not. What that costs is bounded.


log = logging.getLogger(__name__)

TLS_BYTE = 0x16
"""What a connection with TLS begins with, and no request does: the type of a record of a handshake."""

NO_TLS = b"\x15\x03\x01\x00\x02\x02\x28"
"""What a server without a certificate answers to TLS: its alert 40, that the handshake failed."""

HANDSHAKES_MAX = 1_000
"""Handshakes under way at once, some 60 KiB each; for one more the oldest is ended. A client that means it
needs two round trips, so that nobody who sends thousands of others a second keeps it out."""

FAILURES_TOLD_MAX = 10
"""Handshakes that failed and are told in the log, in the time of ``FAILURES_EVERY_S``: scanners try many."""

FAILURES_EVERY_S = 60.0
"""Time after which as many are told again, with the number of those that were not."""


class TLSSniffer:
    """Lets connections with TLS in, and says whether one without may go on."""

    def __init__(self, context: ssl.SSLContext, connections: Connections) -> None:
        """Shake hands by ``context``, which may be replaced: what has begun goes on with its own."""
        self.context = context
        self._connections = connections
        self._under_way: dict[Handshake, None] = {}
        self._told = self._untold = 0
        self._tell_again = 0.0

    def shake_hands(
        self, transport: asyncio.Transport, address: str, data: bytes, inside: Callable[[], asyncio.Protocol]
    ) -> None:
        """Begin TLS with what has come, on a connection that nobody counts; then ``inside`` has it."""
        handshake = Handshake(self, transport, address, inside)
        if not self._connections.admit(handshake, address):
            transport.abort()
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            next(iter(self._under_way)).expire()
        self._under_way[handshake] = None
        self._connections.expect(handshake, self._connections.settings.handshake_s)
        handshake.begin(self.context, data)

    def over(self, handshake: Handshake, address: str) -> None:
        """Count a handshake no longer."""
        if handshake in self._under_way:
            del self._under_way[handshake]
            self._connections.dismiss(handshake, address)

    def failed(self, address: str, error: Exception) -> None:
        """Tell of a handshake that failed, unless many were told just now."""
        now = self._connections.clock.monotonic()
        if now >= self._tell_again:
            if self._untold:
                log.info("%d more handshakes of TLS failed", self._untold)
            self._told, self._untold, self._tell_again = 0, 0, now + FAILURES_EVERY_S
        if self._told < FAILURES_TOLD_MAX:
            self._told += 1
            words = why(error) if isinstance(error, ssl.SSLError) else str(error)
            log.info("a handshake of TLS with %s failed: %s", address or "a unix socket", words)
        else:
            self._untold += 1

    @staticmethod
    def refusal(address: str) -> Forbidden | None:
        """Return what to answer a plain connection; None where it may go on: it comes from this machine."""
        if address in LOOPBACK:
            return None
        return Forbidden(
            "TLS required", "this server takes plain connections from its own machine only; use TLS"
        )


class Handshake:
    """A connection from the first byte of TLS to the end of the handshake."""

    deadline = 0.0
    unread_bytes = 0

    def __init__(
        self,
        doorway: TLSSniffer,
        transport: asyncio.Transport,
        address: str,
        inside: Callable[[], asyncio.Protocol],
    ) -> None:
        """Belong to ``doorway``; ``inside`` makes the protocol that goes on with the connection."""
        self._doorway = doorway
        self._transport = transport
        self._address = address
        self._inside = inside

    def begin(self, context: ssl.SSLContext, data: bytes) -> None:
        """Take the first bytes."""
        stream = TLSStream(context, self._ready, self._failed)
        self._transport.set_protocol(stream)
        stream.connection_made(self._transport)
        stream.data_received(data)

    def expire(self) -> None:
        """Close: it takes too long, or newer ones need its place."""
        self._doorway.over(self, self._address)
        self._transport.abort()

    finish = shed = expire

    def _ready(self, stream: TLSStream) -> None:
        self._doorway.over(self, self._address)
        protocol = self._inside()
        stream.set_protocol(protocol)
        protocol.connection_made(stream)

    def _failed(self, error: Exception) -> None:
        self._doorway.over(self, self._address)
        self._doorway.failed(self._address, error)


HTTPFactory = Callable[[], asyncio.Protocol]


class RawConnection(asyncio.Protocol):
    """A connection from its first byte to its last, unless it turns out to be HTTP."""

    __slots__ = (
        "_address",
        "_asker",
        "_awaited",
        "_connections",
        "_counted",
        "_doorway",
        "_first_line",
        "_http",
        "_in_turn",
        "_pipeline",
        "_reading",
        "_scheduled",
        "_service",
        "_token",
        "_transport",
        "_turn_max",
        "_unread",
        "deadline",
    )

    def __init__(
        self, connections: Connections, http: HTTPFactory, doorway: TLSSniffer | None = None
    ) -> None:
        """Belong to ``connections``; ``http`` makes the protocol that takes an HTTP connection over.

        ``doorway`` is there if the connection may begin with TLS, and may have to.
        """
        self._connections = connections
        self._service = connections.service
        self._turn_max = connections.settings.pipelined_max
        self._http = http
        self._doorway = doorway
        self._pipeline = Pipeline(connections.settings, connections.requests)
        self._first_line: FirstLine | None = FirstLine()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._reading = True
        self._counted = False
        """Whether what it holds counts in the budget of memory."""
        self._unread = 0
        """Size of the answers that are not sent yet: the transport keeps each until its last byte is."""
        self._scheduled = self._in_turn = False
        self._awaited = ""
        """The part of a request that has a deadline."""
        self._asker: ConnectionIdentity | None = None
        """Who asks, where it matters."""
        self._token = ""
        """The name of the token for which it counts."""
        self.deadline = 0.0

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless there are too many connections already."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._connections.admit(self, self._address):
            transport.write(raw.refusal(Unavailable("Too many connections"), "close"))
            transport.close()
            self._transport = None
            return
        # From the first unwritten byte on the client is told to wait, and answers count as unsent.
        transport.set_write_buffer_limits(high=0)
        self._awaited = "first byte"
        self._connections.expect(self, self._connections.settings.first_byte_s)

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first line decides the protocol."""
        if self._transport is None:
            return
        first_line = self._first_line
        if first_line is not None:
            if data[0] == TLS_BYTE and first_line.empty:
                self._shake_hands(data)
                return
            is_http = first_line.feed(data)
            if is_http is None:
                if first_line.data:
                    self._await("head")
                return
            data, self._first_line = first_line.data, None
            if self._doorway is not None and self._turned_away(self._doorway, is_http=is_http):
                return
            if is_http:
                self._hand_over(data)
                return
        self._pipeline.feed(data)
        self._take_turn()
        self._account()

    def eof_received(self) -> bool:
        """Answer what has been asked, but wait for nothing any more."""
        pipeline = self._pipeline
        if self._first_line is not None:
            pipeline.feed(self._first_line.data)
            self._first_line = None
        for exchange in pipeline.eof():
            if exchange.submission is not None:
                self._service.leave(exchange.submission)
        self._take_turn()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let waiters go, and put back jobs whose answers were not sent."""
        if self._transport is None:
            return
        self._transport = None
        self._connections.dismiss(self, self._address)
        service = self._service
        begun, unsent = self._pipeline.lose()
        for exchange in begun:
            if exchange.submission is not None:
                service.leave(exchange.submission)
        for outcome in unsent:
            service.undelivered(outcome)

    def pause_writing(self) -> None:
        """Begin nothing more while the client does not read."""
        self._pipeline.pause()
        self._awaited = ""
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Go on: all that was written has been sent."""
        self._unread = 0
        self._pipeline.resume()
        self._connections.expect_nothing(self)
        self._write()
        self._take_turn()
        self._account()

    # --- Connection --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Close on a client that is too slow, with a word where it may still read one."""
        transport = self._transport
        if transport is None:
            return
        if self._pipeline.paused:
            transport.abort()
            return
        self._pipeline.time_out()
        self._write()
        transport.close()

    def finish(self) -> None:
        """Close when all that was asked is answered."""
        self._pipeline.finish()
        self._close_when_finished()

    @property
    def unread_bytes(self) -> int:
        """Return the size of the answers that its client leaves unread."""
        if self._transport is None or not self._pipeline.paused:
            return 0
        return self._unread + self._pipeline.answers_bytes

    def shed(self) -> None:
        """Close at once: others need the memory."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside ------------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Count what the connection holds; close it where that is too much."""
        transport, pipeline, memory = self._transport, self._pipeline, self._connections.memory
        if transport is None or not (pipeline.holds_bytes or pipeline.paused or self._counted):
            return
        held = pipeline.request_bytes + pipeline.answers_bytes + self._unread
        if held <= CONNECTION_BYTES_FREE and not self._counted:
            return
        self._counted = held > CONNECTION_BYTES_FREE
        if not memory.hold(self, held) and not transport.is_closing():
            if pipeline.paused:
                transport.abort()
                return
            pipeline.refuse(full())
            self._write()
            transport.close()

    def _shake_hands(self, data: bytes) -> None:
        """Give a connection that begins with TLS to the doorway; without one the peer is told at once."""
        transport = self._let_go()
        if self._doorway is None:
            transport.write(NO_TLS)
            transport.close()
            return
        inside = partial(RawConnection, self._connections, self._http)
        self._doorway.shake_hands(transport, self._address, data, inside)

    def _turned_away(self, doorway: TLSSniffer, *, is_http: bool) -> bool:
        """Refuse a plain connection that has to be one with TLS; tell whether it was."""
        error = doorway.refusal(self._address)
        if error is None:
            return False
        transport = self._let_go()
        transport.write(problem_bytes(error, closes=True) if is_http else raw.refusal(error, "close"))
        transport.close()
        return True

    def _let_go(self) -> asyncio.Transport:
        """Belong to no connection any more; return its transport."""
        transport = self._transport
        assert transport is not None
        self._connections.dismiss(self, self._address)
        self._transport = None
        return transport

    def _hand_over(self, data: bytes) -> None:
        transport = self._let_go()
        protocol = self._http()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def _take_turn(self) -> None:
        """Submit what may begin, a pipeline's worth at most, so that others get their turn."""
        pipeline = self._pipeline
        self._in_turn = True
        pipeline.draining = self._service.draining
        check = self._caller if self._service.access.asks else None
        left = self._turn_max
        while left and (exchange := pipeline.begin(check)) is not None:
            left -= 1
            if self._awaited:
                self._await_nothing()
            if exchange.command is not None:
                self._submit(exchange)
            if pipeline.writable:
                self._write()
        self._in_turn = pipeline.wants_turn = False
        if not left:
            self._schedule_turn()
        elif pipeline.closing and pipeline.finished:
            self._close_when_finished()
            return
        self._watch()

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._scheduled = False
        self._take_turn()

    def _submit(self, exchange: Exchange) -> None:
        service, command, memory = self._service, exchange.command, self._connections.memory
        assert command is not None
        caller = None
        try:
            if (service.access.asks or command.signed) and not command.open:
                caller = self._caller(exchange.authorization)
            elif type(command) is Authenticate:  # quicker than isinstance, which pydantic makes slow
                who = self._asking().authenticate(command.token)
                self._pipeline.answer(exchange, service.access.identity(who))
                return
        except CommandError as error:
            exchange.closes |= isinstance(error, TooManyWrong)
            self._pipeline.answer(exchange, error)
            return
        if exchange.size and not memory.borrow(exchange.size):
            self._pipeline.answer(exchange, full())
            return
        try:
            submission = service.submit(command, partial(self._answered, exchange), caller)
        except CommandError as error:
            if exchange.size:
                memory.give_back(exchange.size)
            self._pipeline.answer(exchange, error)
            return
        exchange.submission = submission
        if exchange.waits and submission is not None and self._pipeline.ended:
            service.leave(submission)

    def _asking(self) -> ConnectionIdentity:
        if self._asker is None:
            self._asker = ConnectionIdentity(self._service.access, self._address)
        return self._asker

    def _caller(self, authorization: str) -> Principal:
        caller = self._asking().caller(authorization, self._transport)
        if caller.name != self._token:
            self._connections.belongs(self, caller.name)
            self._token = caller.name
        return caller

    def _answered(self, exchange: Exchange, outcome: Outcome) -> bool:
        """Take the outcome of a command; return False if its client cannot get it."""
        if exchange.size:
            self._connections.memory.give_back(exchange.size)
        waited = False
        submission = exchange.submission
        if submission is not None:
            waited = submission.waiter is not None
            exchange.submission = None  # the two hold each other, which only the collector would undo
        if self._transport is None or self._transport.is_closing():
            return False
        pipeline = self._pipeline
        pipeline.draining = self._service.draining
        delivered = pipeline.answer(exchange, outcome, waited=waited)
        self._write()
        if pipeline.paused or pipeline.answers_bytes:
            self._account()
        return delivered

    def _write(self) -> None:
        """Write the answers that are there, in order, as long as the transport sends them at once.

        So at most one answer is sent in part. Its jobs can go back if the connection breaks, and those of
        the answers before it stay with the client, which may have read them.
        """
        pipeline, transport = self._pipeline, self._transport
        if transport is None:
            return
        while pipeline.writable and not pipeline.paused:
            data = pipeline.next_bytes()
            transport.write(data)
            if pipeline.paused:
                self._unread += len(data)
        if pipeline.wants_turn and not self._in_turn:
            if pipeline.finished:
                transport.close()
            else:
                self._schedule_turn()

    def _close_when_finished(self) -> None:
        if self._transport is not None and self._pipeline.finished:
            self._transport.close()

    def _watch(self) -> None:
        """Set the deadline that fits, and stop reading from a client that is too far ahead."""
        pipeline = self._pipeline
        part, ahead = pipeline.awaits, pipeline.ahead
        if part == self._awaited and ahead is not self._reading:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if part:
            self._await(part)
        else:
            self._await_nothing()
        if ahead is self._reading:
            self._reading = not ahead
            if ahead:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _await_nothing(self) -> None:
        if self._awaited:
            self._awaited = ""
            self._connections.expect_nothing(self)

    def _await(self, part: str) -> None:
        """Give a part of a request its time, once."""
        if self._awaited != part:
            self._awaited = part
            settings = self._connections.settings
            self._connections.expect(self, settings.body_s if part == "body" else settings.head_s)
