"""The socket of one HTTP connection: aiohttp's, with deadlines, and a fast path for plain requests.

aiohttp parses what comes and queues it. A request that is plain is taken out of that queue and done by
callbacks alone; while none is under way, and the next one is not plain, aiohttp's own task goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from hmac import compare_digest
from http import HTTPStatus
from typing import Any, cast

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from bedrockjobs.base.caller import Caller
from bedrockjobs.base.errors import BadRequest, CommandError, ServerFault, TooManyWrong
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.fast_path import FastPath, HandedOver
from bedrockjobs.protocol.gate import authorization_of
from bedrockjobs.protocol.http_answers import problem

log = logging.getLogger(__name__)


class HTTPConnection(RequestHandler):
    """A connection from the first byte of a request of HTTP to its last."""

    __slots__ = (
        "_address",
        "_closes",
        "_connections",
        "_fast_path",
        "_handed_over",
        "_in_turn",
        "_shown",
        "_submission",
        "_under_way",
        "_unsent",
        "_writing",
        "deadline",
    )

    def __init__(
        self, connections: Connections, server: web.Server, fast_path: FastPath, **options: Any
    ) -> None:
        """Belong to ``connections``; the rest is aiohttp's."""
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._connections = connections
        self._fast_path = fast_path
        self._address = ""
        self._under_way: Any = None
        """The plain request that is under way, as it was in the queue."""
        self._in_turn = False
        self._shown: tuple[bytes, Caller | None] = b"", None
        """The ``Authorization`` of the plain request before, and whose it is."""
        self._submission: Submission | None = None
        """By what its command can be let go."""
        self._closes = False
        """Whether the connection ends with the answer of the plain request."""
        self._handed_over: HandedOver | None = None
        self._unsent: Outcome | None = None
        """What was answered last, as long as its client does not read."""
        self._writing = 0
        """What is kept of what is being written, until its last byte is sent."""
        self.deadline = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if isinstance(peer, tuple) else ""
        if not self._connections.admit(self, self._address):
            cast(asyncio.Transport, transport).abort()
            return
        self._waiter = self._loop.create_future()
        super().connection_made(transport)

    async def start(self) -> None:
        """Do what aiohttp's task does, once a request is there that is not plain."""
        if self._waiter is not None:
            try:
                await self._waiter
            finally:
                self._waiter = None
        await super().start()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection; let its command go, and put back jobs whose answer was not sent."""
        if self in self._connections.open:
            self._connections.dismiss(self, self._address)
        super().connection_lost(exc)
        service = self._connections.service
        if self._submission is not None:
            service.leave(self._submission)
        handed_over = self.hand_over()
        if handed_over is not None and handed_over.answer is not None:
            service.undelivered(handed_over.answer)
        if self._unsent is not None:
            service.undelivered(self._unsent)
            self._unsent = None

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that has begun must be complete in time."""
        waiter, self._waiter = self._waiter, None  # aiohttp's task must not take what is plain
        super().data_received(data)
        self._waiter = waiter
        if self._messages:
            self._end_on_a_fault()
        if self._messages or self._under_way or self._current_request is not None:
            self._connections.expect_nothing(self)
        elif not self._connections.expects(self):
            self._connections.expect(self, self._connections.settings.head_s)
        self._take_turn()

    def _end_on_a_fault(self) -> None:
        """Read nothing more behind what is no HTTP."""
        fault = getattr(self._messages[-1][0], "exc", None)
        if fault is not None:
            fault.__traceback__ = None  # it holds all that was sent, in a circle
            if self.transport is not None:
                self.transport.pause_reading()

    @property
    def unread_bytes(self) -> int:
        """Return the size of the answers that its client leaves unread."""
        if not self._paused or self.transport is None:
            return 0
        return max(self._writing, self.transport.get_write_buffer_size())

    def writes(self, size: int) -> None:
        """Take note of the size of what is written next; the transport gets it in a copy, with its head."""
        self._writing = 2 * size

    def shed(self) -> None:
        """Close at once: others need the memory."""
        if self.transport is not None:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Give the client its time to read what was answered."""
        super().pause_writing()
        if not self._connections.memory.hold(self, self.unread_bytes):
            self.shed()
        self._connections.expect(self, self._connections.settings.write_s)

    def resume_writing(self) -> None:
        """Go on: all that was written has been sent."""
        super().resume_writing()
        self._connections.memory.hold(self, 0)
        self._connections.expect_nothing(self)
        self._unsent = None
        self._take_turn()

    def expire(self) -> None:
        """Close: the head took too long, or the answer is not read."""
        if self._paused and self.transport is not None:
            self.transport.abort()
        else:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP; aiohttp would write a traceback to the log for it.

        Raises ConnectionError where the client is gone, which aiohttp takes for the end of the connection.
        """
        if isinstance(exc, ConnectionError):
            raise exc
        if isinstance(exc, UnicodeEncodeError):  # by what aiohttp quotes of a header
            status, message = HTTPStatus.BAD_REQUEST, "expected headers in UTF-8"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        words = (message or "").strip().splitlines()
        response = problem(BadRequest(detail=words[0][:200] if words else "expected HTTP/1.1"), status)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer, and hold neither it nor the request any longer.

        aiohttp's task would until the next request: 16 MiB and more for each client that stays connected.
        """
        if isinstance(resp, web.Response) and isinstance(resp.body, bytes):
            self.writes(len(resp.body))
        written = await super().finish_response(request, resp, start_time)
        self._writing = 0
        request._read_bytes = None
        if isinstance(written[0], web.Response):
            written[0].body = None
        return written

    def finish(self) -> None:
        """Close when the present request is answered."""
        if self._under_way:
            self._closes = True
            return
        self.close()
        if self._current_request is None and not self._paused:  # ``expire`` ends what is not read
            self.force_close()

    # --- plain requests ----------------------------------------------------------------------------------

    def hand_over(self) -> HandedOver | None:
        """Return, once, what is known of the request that aiohttp's task goes on with."""
        found, self._handed_over = self._handed_over, None
        return found

    def _take_turn(self) -> None:
        """Begin the requests that are next as long as they are plain; wake aiohttp's task for any other."""
        if self._in_turn:
            return
        self._in_turn = True
        while self._messages and not (self._under_way or self._paused or self._closes):
            waiter = self._waiter
            if waiter is None or waiter.done():  # the task is at work
                break
            message, payload = self._messages[0]
            kind = self._fast_path.kind_of(message, payload)
            if kind is None:
                self._wake_task()
                break
            self._under_way = self._messages.popleft()
            self._closes = cast(RawRequestMessage, message).should_close
            self._begin(kind, cast(RawRequestMessage, message), payload)
        self._in_turn = False

    def _begin(self, kind: type[Command[Any]], message: RawRequestMessage, payload: StreamReader) -> None:
        command = caller = None
        service = self._connections.service
        try:
            if (service.access.asks or kind.signed) and not kind.open:
                caller = self._caller_of(authorization_of(message.raw_headers))
            command = self._fast_path.read(kind, payload)
            if command.connection is not None and command.connection.lower() == "forget":
                self._go_the_usual_way(HandedOver(command))
                return
            submission = service.submit(command, partial(self._answered, command), caller)
            if self._under_way:
                self._submission = submission
        except CommandError as error:
            self._closes |= isinstance(error, TooManyWrong)
            self._answered(command, error)
        except Exception:
            log.exception("a plain HTTP request failed")
            self._answered(command, ServerFault())

    def _caller_of(self, authorization: bytes) -> Caller:
        """Return who sends a plain request; most show what they have shown before."""
        gate = self._fast_path.gate
        before, caller = self._shown
        if caller is None or not compare_digest(before, authorization) or not gate.goes_on(caller):
            caller = gate.of_plain(authorization, self.transport)
            self._shown = authorization, caller
        return caller

    def _answered(self, command: Command[Any] | None, outcome: Outcome) -> bool:
        """Answer; return False where the client cannot get it."""
        self._submission = None
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        data = self._fast_path.answer(outcome, closes=self._closes)
        if data is None:
            assert command is not None
            assert isinstance(outcome, Answer)
            self._go_the_usual_way(HandedOver(command, outcome))
            return True
        transport.write(data)
        if self._paused and isinstance(outcome, Answer) and outcome.taken:
            self._unsent = outcome
        self._under_way = None
        if self._closes:
            transport.close()
        else:
            self._go_on()
        return True

    def _go_the_usual_way(self, handed_over: HandedOver) -> None:
        self._messages.appendleft(self._under_way)
        self._under_way = None
        self._handed_over = handed_over
        self._wake_task()
        if self._closes:
            self.close()

    def _wake_task(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _go_on(self) -> None:
        """Go on behind a request that is answered; the parser goes on as it does for aiohttp's task."""
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        self._take_turn()

    def _process_keepalive(self) -> None:
        if self._under_way:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()
