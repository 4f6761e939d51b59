"""The socket of one raw connection: it moves bytes and sets deadlines; what they mean is the pipeline's.

The first line may hand the connection over to HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from bedrockjobs.base.caller import Caller
from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import CommandError, TooManyWrong, Unavailable
from bedrockjobs.commands import Authenticate
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.asker import Asker
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.doorway import NO_TLS, TLS_BYTE, Doorway
from bedrockjobs.protocol.first_line import FirstLine
from bedrockjobs.protocol.http_answers import problem_bytes
from bedrockjobs.protocol.memory import full
from bedrockjobs.protocol.pipeline import Exchange, Pipeline

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

    def __init__(self, connections: Connections, http: HTTPFactory, doorway: Doorway | None = None) -> None:
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
        self._asker: Asker | None = None
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

    def _turned_away(self, doorway: Doorway, *, is_http: bool) -> bool:
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

    def _asking(self) -> Asker:
        if self._asker is None:
            self._asker = Asker(self._service.access, self._address)
        return self._asker

    def _caller(self, authorization: str) -> Caller:
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
