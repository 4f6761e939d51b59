"""The socket of one raw connection: it moves bytes and sets deadlines; ``Pipeline`` interprets the bytes.

The first byte decides between TLS and plain text, the first line between the raw protocol and HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import CommandError, Forbidden, TooManyWrong, Unavailable
from bedrockjobs.base.principal import Principal, net_of
from bedrockjobs.commands import Authenticate
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.authentication import ConnectionIdentity
from bedrockjobs.protocol.connections import LOOPBACK, Connections, FairQueue, full
from bedrockjobs.protocol.http_answers import problem_bytes
from bedrockjobs.protocol.pipeline import Exchange, Pipeline
from bedrockjobs.tls import why
from bedrockjobs.tls.stream import TLSStream

# Protocol detection by the first line. No I/O.


HTTP_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"})
"""HTTP methods, case-sensitive: a connection whose first word is one of these speaks HTTP."""

_LONGEST_METHOD = max(map(len, HTTP_METHODS))


class FirstLine:
    """Buffers the first bytes of a connection until its protocol is known."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> bool | None:
        """Add bytes; return whether the connection is HTTP, or None if that is still undecided."""
        kept = self._bytes
        kept += data
        del kept[: len(kept) - len(kept.lstrip(b"\r\n"))]
        return _is_http(kept)

    @property
    def empty(self) -> bool:
        """Return whether only blank lines, or nothing, arrived so far."""
        return not self._bytes

    @property
    def data(self) -> bytes:
        """Return the buffered bytes without leading blank lines."""
        return bytes(self._bytes)


def _is_http(data: bytearray) -> bool | None:
    line = bytes(data[: _LONGEST_METHOD + 1])
    word, space, _ = line.partition(b" ")
    if space:
        return word in HTTP_METHODS
    if b"\n" in line or b"\r" in line or len(line) > _LONGEST_METHOD:
        return False
    return None if any(method.startswith(line) for method in HTTP_METHODS) else False


# TLS sniffing by the first byte, with bounds on handshakes and on log lines about failures.


log = logging.getLogger(__name__)

NO_TLS = b"\x15\x03\x01\x00\x02\x02\x28"
"""Reply of a server without a certificate to TLS: alert 40, handshake_failure."""

HANDSHAKES_MAX = 1_000
"""Maximum number of concurrent handshakes, which hold some 60 KiB each. One more handshake ends the oldest
one of the network that has the most handshakes. A real client completes the handshake in two round trips."""

HANDSHAKES_TURN_S = 0.005
"""Maximum seconds that handshakes run before the event loop runs other tasks: a signature takes 0.1 to 1
ms."""

FAILURES_LOGGED_MAX = 10
"""Maximum number of failed handshakes logged a minute, because port scanners cause many."""


class TLSSniffer:
    """Starts TLS on connections that ask for it, and refuses plain connections from other machines."""

    def __init__(self, context: ssl.SSLContext, connections: Connections) -> None:
        """Use ``context`` for new handshakes; open connections keep their context if it is replaced."""
        self.context = context
        self._connections = connections
        self._under_way: dict[Handshake, None] = {}
        self._of: Counter[str] = Counter()
        """The number of handshakes per network."""
        self._steps: FairQueue[Callable[[], object]] = FairQueue()
        """Steps of handshakes that wait for the turn of their network."""
        self._taking_steps = False
        self._logged = self._suppressed = 0
        self._log_again_at = 0.0

    def shake_hands(
        self, transport: asyncio.Transport, address: str, data: bytes, inside: Callable[[], asyncio.Protocol]
    ) -> None:
        """Start TLS with the bytes received so far; ``inside`` makes the protocol for the decrypted stream.

        The caller must not have added the connection to ``Connections``: this method adds the handshake.
        """
        handshake = Handshake(self, transport, address, inside)
        if not self._connections.admit(handshake, address):
            transport.abort()
            return
        if len(self._under_way) >= HANDSHAKES_MAX:
            most = max(self._of, key=self._of.__getitem__)
            next(each for each in self._under_way if each.place == most).expire()
        self._under_way[handshake] = None
        self._of[handshake.place] += 1
        self._connections.expect(handshake, self._connections.settings.handshake_s)
        handshake.begin(self.context, data)

    def over(self, handshake: Handshake, address: str) -> None:
        """Remove a handshake that ended from the counts."""
        if handshake in self._under_way:
            del self._under_way[handshake]
            self._of[handshake.place] -= 1
            if not self._of[handshake.place]:
                del self._of[handshake.place]
            self._connections.dismiss(handshake, address)

    def in_turn(self, place: str, step: Callable[[], object]) -> None:
        """Call a step of a handshake when it is the turn of its network."""
        self._steps.put(place, step)
        if not self._taking_steps:
            self._taking_steps = True
            asyncio.get_running_loop().call_soon(self._take_steps)

    def _take_steps(self) -> None:
        monotonic = self._connections.clock.monotonic
        until = monotonic() + HANDSHAKES_TURN_S
        for step in iter(lambda: self._steps.some(1), []):
            step[0]()
            if monotonic() >= until:
                break
        self._taking_steps = bool(self._steps)
        if self._taking_steps:
            asyncio.get_running_loop().call_soon(self._take_steps)

    def failed(self, address: str, error: Exception) -> None:
        """Log a failed handshake, up to ``FAILURES_LOGGED_MAX`` per interval."""
        now = self._connections.clock.monotonic()
        if now >= self._log_again_at:
            if self._suppressed:
                log.info("%d more TLS handshakes failed", self._suppressed)
            self._logged, self._suppressed, self._log_again_at = 0, 0, now + 60.0
        if self._logged < FAILURES_LOGGED_MAX:
            self._logged += 1
            reason = why(error) if isinstance(error, ssl.SSLError) else str(error)
            log.info("a TLS handshake with %s failed: %s", address or "a unix socket", reason)
        else:
            self._suppressed += 1

    @staticmethod
    def refusal(address: str) -> Forbidden | None:
        """Return the refusal of a plain connection, or None if it comes from this machine."""
        if address in LOOPBACK:
            return None
        return Forbidden(
            "TLS required", "this server takes plain connections from its own machine only; use TLS"
        )


class Handshake:
    """A connection from the first TLS byte to the end of the handshake."""

    deadline = 0.0
    unread_bytes = 0

    def __init__(
        self,
        sniffer: TLSSniffer,
        transport: asyncio.Transport,
        address: str,
        inside: Callable[[], asyncio.Protocol],
    ) -> None:
        """Create a handshake counted by ``sniffer``; ``inside`` makes the protocol for decrypted bytes."""
        self._sniffer = sniffer
        self._transport = transport
        self._address = address
        self._inside = inside
        self.place = net_of(address) if address else ""
        """The network of the client; all handshakes of a network share its turns."""

    def begin(self, context: ssl.SSLContext, data: bytes) -> None:
        """Start the handshake with the bytes received so far."""
        stream = TLSStream(
            context, self._ready, self._failed, in_turn=partial(self._sniffer.in_turn, self.place)
        )
        self._transport.set_protocol(stream)
        stream.connection_made(self._transport)
        stream.data_received(data)

    def expire(self) -> None:
        """Abort the connection: the handshake took too long, or a newer handshake needs its place."""
        self._sniffer.over(self, self._address)
        self._transport.abort()

    finish = shed = expire

    def _ready(self, stream: TLSStream) -> None:
        self._sniffer.over(self, self._address)
        protocol = self._inside()
        stream.set_protocol(protocol)
        protocol.connection_made(stream)

    def _failed(self, error: Exception) -> None:
        self._sniffer.over(self, self._address)
        self._sniffer.failed(self._address, error)


HTTPFactory = Callable[[], asyncio.Protocol]


class RawConnection(asyncio.Protocol):
    """A connection from its first byte to its last, unless it turns out to be TLS or HTTP."""

    __slots__ = (
        "_address",
        "_awaited",
        "_connections",
        "_counted",
        "_first_line",
        "_http",
        "_identity",
        "_in_turn",
        "_pipeline",
        "_reading",
        "_scheduled",
        "_service",
        "_sniffer",
        "_token",
        "_transport",
        "_turn_max",
        "_unread",
        "deadline",
    )

    def __init__(
        self, connections: Connections, http: HTTPFactory, sniffer: TLSSniffer | None = None
    ) -> None:
        """Count this connection in ``connections``; ``http`` makes the protocol for an HTTP connection.

        ``sniffer`` is set if the server has a certificate.
        """
        self._connections = connections
        self._service = connections.service
        self._turn_max = connections.settings.pipelined_max
        self._http = http
        self._sniffer = sniffer
        self._pipeline = Pipeline(connections.settings, connections.requests)
        self._first_line: FirstLine | None = FirstLine()
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._reading = True
        self._counted = False
        """Whether this connection counts against the memory budget."""
        self._unread = 0
        """Bytes of unsent replies: the transport keeps each reply until its last byte is sent."""
        self._scheduled = self._in_turn = False
        self._awaited = ""
        """The part of a request, such as ``head``, whose deadline is running; empty without a deadline."""
        self._identity: ConnectionIdentity | None = None
        """Authentication of this connection, created when first needed."""
        self._token = ""
        """The token against whose connection limit this connection counts."""
        self.deadline = 0.0

    # --- asyncio.Protocol --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection and start its first deadline, or refuse it if there are too many."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._connections.admit(self, self._address):
            transport.write(raw.refusal(Unavailable("Too many connections"), "close"))
            transport.close()
            self._transport = None
            return
        # Let pause_writing be called for any unsent byte, so that each reply is known to be sent or not.
        transport.set_write_buffer_limits(high=0)
        self._awaited = "first byte"
        self._connections.expect(self, self._connections.settings.first_byte_s)

    def data_received(self, data: bytes) -> None:
        """Process bytes; the first byte and the first line decide the protocol."""
        if self._transport is None:
            return
        first_line = self._first_line
        if first_line is not None:
            # The record type of a handshake begins every TLS connection, and no raw or HTTP request
            if data[0] == 0x16 and first_line.empty:
                self._shake_hands(data)
                return
            is_http = first_line.feed(data)
            if is_http is None:
                if first_line.data:
                    self._await("head")
                return
            data, self._first_line = first_line.data, None
            if self._sniffer is not None and self._turned_away(self._sniffer, is_http=is_http):
                return
            if is_http:
                self._hand_over(data)
                return
        self._pipeline.feed(data)
        self._take_turn()

    def eof_received(self) -> bool:
        """Answer requests received so far, and cancel waits: the client sends nothing more."""
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
        """Cancel waiting commands, and requeue jobs whose replies were not sent."""
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
        """Start no new command while the client does not read its replies."""
        self._pipeline.pause()
        self._awaited = ""
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Continue with later requests: everything written so far has been sent."""
        self._unread = 0
        self._pipeline.resume()
        self._connections.expect_nothing(self)
        self._write()
        self._take_turn()

    # --- Connection --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Close the connection of a slow client, after an error reply if the client can still read it."""
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
        """Close after the requests received so far are answered."""
        self._pipeline.finish()
        self._close_when_finished()

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of replies that the client has not read."""
        if self._transport is None or not self._pipeline.paused:
            return 0
        return self._unread + self._pipeline.answers_bytes

    def shed(self) -> None:
        """Abort the connection to free its memory."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside ------------------------------------------------------------------------------------------

    def _account(self) -> None:
        """Update the memory budget; close the connection if it exceeds the budget."""
        transport, pipeline, memory = self._transport, self._pipeline, self._connections.memory
        if transport is None:
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
        """Hand a TLS connection to the sniffer; without a certificate, send an alert and close."""
        transport = self._let_go()
        if self._sniffer is None:
            transport.write(NO_TLS)
            transport.close()
            return
        inside = partial(RawConnection, self._connections, self._http)
        self._sniffer.shake_hands(transport, self._address, data, inside)

    def _turned_away(self, sniffer: TLSSniffer, *, is_http: bool) -> bool:
        """Refuse a plain connection if TLS is required; return whether it was refused."""
        error = sniffer.refusal(self._address)
        if error is None:
            return False
        transport = self._let_go()
        transport.write(problem_bytes(error, closes=True) if is_http else raw.refusal(error, "close"))
        transport.close()
        return True

    def _let_go(self) -> asyncio.Transport:
        """Stop counting this connection; return its transport for another protocol."""
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
        """Submit commands that may start, at most ``pipelined_max``, so that other connections get a turn."""
        pipeline, service = self._pipeline, self._service
        self._in_turn = True
        pipeline.draining = service.draining
        check = self._caller if service.access.asks else None
        left = self._turn_max
        while left and (exchange := pipeline.begin(check)) is not None:
            left -= 1
            if self._awaited:
                self._await_nothing()
            if not exchange.refused:
                self._submit(exchange)
            if pipeline.writable:
                self._write()
            if not (pipeline.buffer or pipeline.ended):
                break
        self._in_turn = pipeline.wants_turn = False
        if not left:
            self._schedule_turn()
        elif pipeline.closing and pipeline.finished:
            self._close_when_finished()
            return
        holds = pipeline.holds_bytes
        if holds or self._awaited or not self._reading:
            self._watch()
        if holds or self._counted:
            self._account()

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_scheduled_turn)

    def _take_scheduled_turn(self) -> None:
        self._scheduled = False
        self._take_turn()

    def _submit(self, exchange: Exchange) -> None:
        service, memory = self._service, self._connections.memory
        prepared = exchange.prepared
        if prepared is not None and prepared.simple and not (service.access.asks or exchange.size):
            exchange.connection = self
            try:
                service.enqueue(exchange)  # the common case
            except CommandError as error:
                self._pipeline.answer(exchange, error)
                return
            exchange.submission = exchange
            if exchange.waits and self._pipeline.ended:
                service.leave(exchange)
            return
        command = exchange.template
        try:
            if (service.access.asks or command.signed) and not command.open:
                exchange.caller = self._caller(exchange.authorization)
            elif type(command) is Authenticate:  # quicker than isinstance, which pydantic makes slow
                assert isinstance(exchange.command, Authenticate)
                principal = self._asking().authenticate(exchange.command.token)
                self._pipeline.answer(exchange, service.access.identity(principal))
                return
        except CommandError as error:
            exchange.closes |= isinstance(error, TooManyWrong)
            self._pipeline.answer(exchange, error)
            return
        if exchange.size:
            exchange.payer = self._token
            if not memory.borrow(exchange.size, exchange.payer):
                self._pipeline.answer(exchange, full())
                return
        try:
            exchange.connection = self
            exchange.submission = submission = service.put(exchange)
        except CommandError as error:
            if exchange.size:
                memory.give_back(exchange.size, exchange.payer)
            self._pipeline.answer(exchange, error)
            return
        if exchange.data is not None:  # answered already: break the reference cycle
            exchange.submission = None
        elif exchange.overtakes:
            self._pipeline.hold_back(exchange)
        if exchange.waits and submission is not None and self._pipeline.ended:
            service.leave(submission)

    def _asking(self) -> ConnectionIdentity:
        if self._identity is None:
            self._identity = ConnectionIdentity(self._service.access, self._address)
        return self._identity

    def _caller(self, authorization: str) -> Principal:
        caller = self._asking().caller(authorization, self._transport)
        if caller.name != self._token:
            self._connections.belongs(self, caller.name)
            self._token = caller.name
        return caller

    def answered(self, exchange: Exchange, outcome: Outcome) -> bool:
        """Write the outcome of a command; return False if its client cannot receive it."""
        if exchange.size:
            self._connections.memory.give_back(exchange.size, exchange.payer)
        waiter, submission = None, exchange.submission
        if submission is not None:
            waiter = submission.waiter
            exchange.submission = None  # breaks a reference cycle that only the garbage collector would free
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        pipeline = self._pipeline
        pipeline.draining = self._service.draining
        delivered = pipeline.answer(exchange, outcome, waiter=waiter)
        if pipeline.writable:
            self._write()
        if pipeline.paused or pipeline.answers_bytes:
            self._account()
        return delivered

    def _write(self) -> None:
        """Write finished replies in order, as long as the transport sends each of them immediately.

        So at most one reply is sent partially. If the connection breaks, jobs of that reply are requeued,
        while jobs of earlier replies stay with the client, which may have read them.
        """
        pipeline, transport = self._pipeline, self._transport
        if transport is None:
            return
        while pipeline.writable and not pipeline.paused and not transport.is_closing():
            data = pipeline.next_bytes()
            transport.write(data)
            if pipeline.paused:
                self._unread += len(data)
            elif transport.is_closing():  # the write failed: the connection was broken
                pipeline.pause()
        if pipeline.wants_turn and not self._in_turn:
            if pipeline.finished:
                transport.close()
            else:
                self._schedule_turn()

    def _close_when_finished(self) -> None:
        if self._transport is not None and self._pipeline.finished:
            self._transport.close()

    def _watch(self) -> None:
        """Set the current deadline, and pause reading from a client too far ahead of its replies."""
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
        """Start the deadline for a part of a request, unless it is already running."""
        if self._awaited != part:
            self._awaited = part
            settings = self._connections.settings
            self._connections.expect(self, settings.body_s if part == "body" else settings.head_s)
