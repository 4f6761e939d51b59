"""One raw connection: requests in, answers out in order; the first line may hand it over to HTTP.

Commands of one connection are begun as they come, so that a pipeline shares commits; but nothing is begun
behind a command that may wait or that is read elsewhere, so that a pipeline does what it would do in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from bedrockjobs.base.errors import CommandError, NotFound, TimedOut, Unavailable
from bedrockjobs.commands import Command, command_named
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.connections import Connections

HTTP_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"})
"""First words that make a connection HTTP, in exactly this spelling."""

_LONGEST_METHOD = max(map(len, HTTP_METHODS))

HTTPFactory = Callable[[], asyncio.Protocol]


class _Slot:
    """The place of one request in the order of answers."""

    __slots__ = ("closes", "data", "held", "outcome", "submission", "waits")

    def __init__(self, closes: bool) -> None:
        self.closes = closes
        self.waits = False
        self.held: Command[Any] | None = None
        """A read that begins when all before it is done, so that it sees what they did."""
        self.data: bytes | None = None
        self.submission: Submission | None = None
        self.outcome: Outcome | None = None


class RawConnection(asyncio.Protocol):
    """A connection from its first byte to its last, unless it turns out to be HTTP."""

    __slots__ = (
        "_address",
        "_ahead_bytes_max",
        "_awaited",
        "_blocker",
        "_closing",
        "_connections",
        "_eof",
        "_http",
        "_parser",
        "_paused",
        "_pipelined_max",
        "_reading",
        "_scheduled",
        "_slots",
        "_sniffed",
        "_transport",
        "_unsent",
        "deadline",
    )  # fmt: skip

    def __init__(self, connections: Connections, http: HTTPFactory) -> None:
        """Belong to ``connections``; ``http`` makes the protocol that takes an HTTP connection over."""
        self._connections = connections
        self._http = http
        self._parser = raw.RawParser(connections.settings, connections.requests)
        self._pipelined_max = connections.settings.pipelined_max
        self._ahead_bytes_max = connections.settings.body_bytes_max
        self._slots: deque[_Slot] = deque()
        self._unsent: list[Outcome] = []
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._sniffed: bytearray | None = bytearray()
        self._blocker: _Slot | None = None
        self._paused = self._eof = self._closing = False
        self._reading = True
        self._scheduled = False
        self._awaited = ""
        """The part of a request that has a deadline."""
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
        if self._sniffed is not None:
            self._sniffed += data
            del self._sniffed[: len(self._sniffed) - len(self._sniffed.lstrip(b"\r\n"))]
            verdict = _is_http(self._sniffed)
            if verdict is None:
                if self._sniffed:
                    self._await("head")
                return
            data, self._sniffed = bytes(self._sniffed), None
            if verdict:
                self._hand_over(data)
                return
        self._parser.feed(data)
        self._advance()

    def eof_received(self) -> bool:
        """Answer what has been asked, but wait for nothing any more."""
        self._eof = True
        if self._sniffed:
            self._parser.feed(bytes(self._sniffed))
            self._sniffed = None
        for slot in self._slots:
            if slot.waits and slot.submission is not None:
                self._connections.service.leave(slot.submission)
        self._advance()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Let waiters go, and put back jobs whose answers were not sent."""
        if self._transport is None:
            return
        self._transport = None
        self._connections.dismiss(self, self._address)
        for slot in self._slots:
            if slot.submission is not None and slot.data is None:
                self._connections.service.leave(slot.submission)
            elif slot.outcome is not None:
                self._unsent.append(slot.outcome)
        self._slots.clear()
        for outcome in self._unsent:
            self._connections.service.undelivered(outcome)
        self._unsent.clear()

    def pause_writing(self) -> None:
        """Begin nothing more while the client does not read."""
        self._paused = True
        self._awaited = ""
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Go on: all that was written has been sent."""
        self._paused = False
        self._unsent.clear()
        self._connections.expect_nothing(self)
        self._advance()

    # --- Connection --------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Close on a client that is too slow, with a word where it may still read one."""
        if self._transport is None:
            return
        if not self._paused and self._parser.begun:
            part = "body" if self._parser.in_body else "head"
            self._transport.write(raw.refusal(TimedOut(detail=f"the {part} took too long"), "close"))
        if self._paused:
            self._transport.abort()
        else:
            self._transport.close()

    def finish(self) -> None:
        """Close when all that was asked is answered."""
        self._closing = True
        if not self._slots:
            self._close()

    # --- inside ------------------------------------------------------------------------------------------

    def _hand_over(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._connections.dismiss(self, self._address)
        self._transport = None
        protocol = self._http()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    def _advance(self) -> None:
        """Begin the requests that are there, as far as the order allows and others are not kept waiting."""
        left = self._pipelined_max
        while self._parser.buffered and not (self._blocker or self._paused or self._closing):
            if len(self._slots) >= self._pipelined_max:
                break
            if not left:
                self._advance_soon()
                self._watch()
                return
            left -= 1
            try:
                request = self._parser.next_request()
            except CommandError as error:
                slot = _Slot(closes=True)
                self._slots.append(slot)
                self._fill(slot, error)
                return
            if request is None:
                break
            self._await_nothing()
            self._begin(request)
        if self._eof and not (self._slots or self._paused):
            self._close()
        self._watch()

    def _advance_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._scheduled = False
        self._advance()

    def _watch(self) -> None:
        """Set the deadline that fits, and stop reading from a client that is too far ahead."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused:
            pass  # the deadline is for reading what was answered
        elif self._slots or not self._parser.begun:
            self._await_nothing()
        else:
            self._await("body" if self._parser.in_body else "head")
        ahead = (
            self._paused
            or self._parser.buffered > self._ahead_bytes_max
            or len(self._slots) >= self._pipelined_max
        )
        if ahead and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not ahead and not self._reading:
            self._reading = True
            self._transport.resume_reading()

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

    def _begin(self, request: raw.Request) -> None:
        wish = request.headers.get("connection", "").lower()
        slot = _Slot(closes=wish in ("close", "forget"))
        self._slots.append(slot)
        service = self._connections.service
        try:
            command = request.command or self._read(request)
            if wish == "forget":
                service.submit(command, _forgotten)
                self._fill_forgotten(slot)
                return
            slot.waits = command.waiting
            elsewhere = command.where in ("reader", "presence")
            if slot.waits or elsewhere:
                self._blocker = slot
            if elsewhere and len(self._slots) > 1:
                slot.held = command
            else:
                self._submit(slot, command)
        except CommandError as error:
            self._blocker = None
            if wish == "forget":
                self._fill_forgotten(slot)
            else:
                self._fill(slot, error)

    def _read(self, request: raw.Request) -> Command[Any]:
        """Return the command of a request; raises CommandError."""
        command = command_named(request.verb).read_raw(request.headers, request.body)
        if command.asked_again:
            self._connections.requests.remember(request, command)
        return command

    def _submit(self, slot: _Slot, command: Command[Any]) -> None:
        service = self._connections.service
        slot.submission = service.submit(command, partial(self._answered, slot))
        if self._eof and slot.waits and slot.submission is not None:
            service.leave(slot.submission)

    def _answered(self, slot: _Slot, outcome: Outcome) -> bool:
        """Take the outcome of a command; return False if its client cannot get it."""
        if self._transport is None or self._transport.is_closing():
            return False
        submission, slot.submission = (
            slot.submission,
            None,
        )  # the two hold each other, which only the collector would undo
        if slot is self._blocker:
            self._blocker = None
            if submission is not None and submission.waiter is not None and self._eof and _hands_out(outcome):
                # It waited, and its client has said that it will not: the job goes back.
                self._fill(slot, _nothing(cast(Answer, outcome)))
                self._advance()
                return False
            self._fill(slot, outcome)
            self._advance()
        else:
            self._fill(slot, outcome)
        return True

    def _fill_forgotten(self, slot: _Slot) -> None:
        slot.data = raw.FORGOTTEN
        self._flush()

    def _fill(self, slot: _Slot, outcome: Outcome) -> None:
        if self._connections.service.draining:
            self._closing = True
        connection = "close" if slot.closes or self._closing else ""
        if isinstance(outcome, CommandError):
            slot.data = raw.refusal(outcome, connection)
        else:
            slot.data = raw.answer(outcome.body, connection)
            slot.outcome = outcome if outcome.taken else None
        self._flush()

    def _flush(self) -> None:
        """Write the answers that are there, in order."""
        slots, transport = self._slots, self._transport
        if transport is None:
            return
        was_full = len(slots) >= self._pipelined_max
        while slots and slots[0].data is not None:
            slot = slots.popleft()
            transport.write(cast(bytes, slot.data))
            if self._paused and slot.outcome is not None:
                self._unsent.append(slot.outcome)
            if slot.closes:
                slots.clear()
                self._closing = True
        if slots and slots[0].held is not None:
            held, slots[0].held = slots[0].held, None
            self._submit(slots[0], held)
        elif not slots and self._closing:
            self._close()
        elif was_full or (not slots and (self._eof or self._parser.buffered)):
            self._advance_soon()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _is_http(data: bytearray) -> bool | None:
    """Tell whether a connection that began with these bytes is HTTP; None while it cannot be told."""
    line = bytes(data[: _LONGEST_METHOD + 1])
    word, space, _ = line.partition(b" ")
    if space:
        return word in HTTP_METHODS
    if b"\n" in line or b"\r" in line or len(line) > _LONGEST_METHOD:
        return False
    return None if any(method.startswith(line) for method in HTTP_METHODS) else False


def _hands_out(outcome: Outcome) -> bool:
    return isinstance(outcome, Answer) and bool(outcome.taken)


def _nothing(outcome: Answer) -> Outcome:
    """Return what a waiting command is told instead of a job that it does not get."""
    return Answer('{"job":null}') if outcome.body.startswith('{"job":') else NotFound("No job found")


def _forgotten(_: Outcome) -> bool:
    return False
