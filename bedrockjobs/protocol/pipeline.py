"""The pipeline of one raw connection: bytes in, commands out, outcomes in, bytes out. No I/O.

Commands of a connection start as they arrive, so that a pipeline shares commits. While a command may wait,
runs outside the writer, or is going to close the connection, no later command starts; and a command that runs
outside the writer starts only when all commands before it are answered. So a pipeline has the same effect as
its commands sent one by one.

The owner of the socket calls ``feed`` with received bytes, ``begin`` until it returns None, ``answer`` with
each outcome, and ``next_bytes`` while a reply is ``writable``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bedrockjobs.base.config import CONNECTION_BYTES_FREE, NAMES_AT_ONCE, READS_PIPELINED_MAX
from bedrockjobs.base.errors import CommandError, TimedOut, TooManyWrong, UnknownCommand
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, command_named
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.take import nothing
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.engine.waiters import Waiter
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.raw import Request, RequestCache


class ReplyWriter(Protocol):
    """Writes the replies of a connection."""

    def answered(self, exchange: Exchange, outcome: Outcome) -> bool:
        """Write the outcome of a command; return False if its client cannot receive it."""


class Exchange(Submission):
    """One request, from its bytes to its reply; the command is None if the request was refused."""

    authorization = ""
    """The ``Authorization`` of the request."""
    size = 0
    """Size of the request in bytes, or 0 if it is too small to be counted."""
    payer = ""
    """The token against whose share of the memory budget the size counts."""
    warning = ""
    """Warning in the reply about headers that look misspelled."""
    waits = False
    """Whether the command may wait."""
    held = False
    """Whether the command must not start until all commands before it are answered."""
    refused = False
    """Whether the request could not be read, so that there is no command to submit."""
    closes = False
    """Whether the connection closes after the reply."""
    data: bytes | None = None
    """The bytes of the reply, once known."""
    outcome: Answer | None = None
    """The answer, if it carries jobs."""
    submission: Submission | None = None
    """Handle with which the owner of the socket can cancel the command."""
    connection: ReplyWriter
    """The connection that writes the reply; set before the command is submitted."""

    def deliver(self, outcome: Outcome) -> bool:
        """Write the outcome; return False if its client cannot receive it."""
        return self.connection.answered(self, outcome)

    def parked(self) -> None:
        """Drop the parsed command to free its memory: the command was executed, and its reply waits for a
        job."""
        self.prepared = self._command = None
        vars(self).pop("template", None)


class Pipeline:
    """The requests of one raw connection and their replies, in order."""

    __slots__ = (
        "_ahead_bytes_max",
        "_blocker",
        "_exchanges",
        "_lost",
        "_parser",
        "_pipelined_max",
        "_requests",
        "_unsent",
        "answers_bytes",
        "buffer",
        "closing",
        "draining",
        "ended",
        "feed",
        "paused",
        "wants_turn",
        "writable",
    )

    def __init__(self, settings: Settings, requests: RequestCache | None = None) -> None:
        """Apply the limits in ``settings``; connections may share the cache ``requests``."""
        self._requests = requests or RequestCache()
        self._parser = raw.RawParser(settings, self._requests)
        self.buffer = self._parser.buffer
        """Received bytes of requests that have not begun."""
        self.feed = self._parser.feed
        """Add received bytes."""
        self._pipelined_max = settings.pipelined_max
        self._ahead_bytes_max = settings.body_bytes_max
        self._exchanges: list[Exchange] = []  # an empty deque takes 760 bytes
        self._blocker: Exchange | None = None
        """The exchange after which no command may start."""
        self._unsent: Answer | None = None
        """The last reply, if it carries jobs; it may be sent only in part."""
        self._lost = False
        self.ended = False
        """Whether the client has closed its sending side."""
        self.paused = False
        """Whether the client has not yet read all written bytes."""
        self.answers_bytes = 0
        """Bytes of replies that ``next_bytes`` has not yet returned."""
        self.closing = False
        """Whether no further command starts, and the connection closes when ``finished``."""
        self.draining = False
        """Whether the server is draining: the next reply announces it, and no command starts after it."""
        self.writable = False
        """Whether the next reply in order is ready."""
        self.wants_turn = False
        """Whether ``begin``, ``awaits``, ``ahead`` and ``finished`` must be checked again without new
        bytes."""

    # --- in ----------------------------------------------------------------------------------------------

    def eof(self) -> list[Exchange]:
        """Record the end of input; return the exchanges whose waits must be cancelled.

        Requests received before are still executed and answered, but must not wait.
        """
        self.ended = True
        return [exchange for exchange in self._exchanges if exchange.waits and exchange.data is None]

    def begin(self, check: Callable[[str], object] | None = None) -> Exchange | None:
        """Return the next exchange to submit, or None if none may start.

        An exchange without a command was refused and already has its reply. ``check`` is called with the
        ``Authorization`` of a large request before its body is buffered and parsed, since parsing costs more
        than sending; it raises CommandError to refuse the request.
        """
        exchanges = self._exchanges
        blocker = self._blocker
        if blocker is not None:
            if not blocker.held or self.paused or exchanges[0] is not blocker:
                return None
            blocker.held = False
            return blocker
        if self.paused or self.closing or len(exchanges) >= self._pipelined_max:
            return None
        request = None
        if self.buffer:
            self._parser.check = check
            try:
                request = self._parser.next_request()
            except CommandError as error:
                return self._break(error)
        if request is None:
            if self.ended and not exchanges:
                self.closing = True
            return None
        if request.ordinary:  # the common case
            exchange = Exchange()
            exchange.authorization = request.authorization
            exchange.prepared = prepared = request.prepared
            assert prepared is not None
            exchange.template, exchange.value = prepared.command, request.value
            exchanges.append(exchange)
            if request.waits:
                exchange.waits = True
                self._blocker = exchange
            return exchange
        wish = request.headers.get("connection", "").lower()
        exchange = Exchange()
        exchange.closes = wish in ("close", "forget")
        exchange.authorization = request.authorization
        if self._parser.size > CONNECTION_BYTES_FREE:
            exchange.size = self._parser.size
        exchanges.append(exchange)
        if exchange.closes:
            self._blocker = exchange
        try:
            if exchange.size and check is not None:
                check(exchange.authorization)
            if request.prepared is None:
                exchange.command = command = self._read(request, exchange)
            else:
                exchange.prepared, exchange.value = request.prepared, request.value
                exchange.template = command = request.prepared.command
        except CommandError as error:
            exchange.refused = True
            of_http = request.like_http or "host" in request.headers
            from_browser = of_http and isinstance(error, UnknownCommand)
            if from_browser or isinstance(error, TooManyWrong):
                # A browser's body may look like commands, so nothing after it is executed.
                exchange.closes, self._blocker = True, exchange
            if wish == "forget":
                self._fill(exchange, raw.FORGOTTEN)
            else:
                self.answer(exchange, error)
            return exchange
        if wish == "forget":
            self._fill(exchange, raw.FORGOTTEN)
            return exchange
        exchange.waits = command.waiting
        exchange.alone = len(exchanges) == 1 and not self.buffer
        if command.where in ("reader", "presence") or (
            command.reads and len(exchanges) > READS_PIPELINED_MAX
        ):
            self._blocker = exchange
            if len(exchanges) > 1:
                exchange.held = True
                return None
        elif command.waiting or _asks_for_many(command):
            self._blocker = exchange
        return exchange

    def hold_back(self, exchange: Exchange) -> None:
        """Start no further command before this exchange is answered, since its command runs in parallel."""
        self._blocker = exchange

    def answer(self, exchange: Exchange, outcome: Outcome, *, waiter: Waiter | None = None) -> bool:
        """Set the outcome of an exchange; return False if its jobs must be requeued.

        ``waiter`` is the waiter to which the outcome gives jobs, if there is one.
        """
        if exchange.data is not None or self._lost:  # already answered (``forget``), or the client is gone
            return False
        delivered = True
        if exchange is self._blocker:
            if not exchange.closes:
                self._blocker = None
                if self.buffer:
                    self.wants_turn = True
            if self.ended and waiter is not None and isinstance(outcome, Answer) and outcome.taken:
                # The client closed its sending side while the job was being handed out.
                outcome, delivered = nothing(waiter.request), False
        if self.draining:
            self.closing = True
        connection = "close" if exchange.closes or self.closing else ""
        if isinstance(outcome, CommandError):
            data = raw.refusal(outcome, connection)
        else:
            data = raw.answer(outcome.body, connection)
            if outcome.taken:
                exchange.outcome = outcome
        if exchange.warning:
            data = raw.with_warning(data, exchange.warning)
        exchange.data = data
        self.answers_bytes += len(data)
        if exchange is self._exchanges[0]:
            self.writable = True
        return delivered

    def time_out(self) -> None:
        """Answer that a part of a request took too long, if the pipeline awaits a part."""
        part = self.awaits
        if part and not self.closing:
            self._break(TimedOut(detail=f"the {part} took too long"))

    def refuse(self, error: CommandError) -> None:
        """Answer the request being received with an error, and start nothing after it."""
        self._break(error)

    def finish(self) -> None:
        """Start no more commands; commands in progress are still answered."""
        self.closing = True

    def lose(self) -> tuple[list[Exchange], list[Answer]]:
        """Record that the client is gone.

        Return the exchanges in progress, which may be cancelled, and the unsent answers, whose jobs must be
        requeued. Later outcomes are not delivered.
        """
        self._lost = self.closing = True
        begun = [exchange for exchange in self._exchanges if exchange.data is None and not exchange.held]
        replies = [self._unsent] if self.paused else []
        replies += [exchange.outcome for exchange in self._exchanges]
        unsent = [outcome for outcome in replies if outcome is not None]
        self._unsent = None
        self._exchanges.clear()
        self._blocker = None
        self.writable = False
        return begun, unsent

    # --- out ---------------------------------------------------------------------------------------------

    def next_bytes(self) -> bytes:
        """Return the bytes of the next reply; call this only while ``writable``.

        The reply counts as sent at the next call or, if ``pause`` is called first, at ``resume``.
        """
        exchanges = self._exchanges
        full = len(exchanges) >= self._pipelined_max
        exchange = exchanges.pop(0)
        data = exchange.data
        assert data is not None
        self.answers_bytes -= len(data)
        self._unsent = exchange.outcome
        if exchange.closes:
            self.closing = True
        if exchanges:
            following = exchanges[0]
            self.writable = following.data is not None
            if full or following.held:
                self.wants_turn = True
        else:
            self.writable = False
            if self.buffer or self._parser.partial or self.closing or self.ended or full:
                self.wants_turn = True
        return data

    def pause(self) -> None:
        """Record that the last reply is not completely sent: nothing starts until ``resume``."""
        self.paused = True

    def resume(self) -> None:
        """Record that all replies so far have been sent."""
        self.paused = False
        self._unsent = None

    @property
    def holds_bytes(self) -> bool:
        """Return whether an incomplete request, or an unwritten or unread reply, holds memory."""
        return bool(self.buffer or self.answers_bytes or self.paused or self._parser.partial is not None)

    @property
    def request_bytes(self) -> int:
        """Return the bytes that an incomplete request holds or is going to hold."""
        return self._parser.held

    @property
    def awaits(self) -> raw.Part:
        """Return the part of a request that the client must send in time; call ``begin`` first."""
        if self._exchanges or self.paused:
            return ""
        return self._parser.awaits

    @property
    def ahead(self) -> bool:
        """Return whether the client has sent so much ahead of its replies that reading should pause."""
        return (
            self.paused
            or len(self._exchanges) >= self._pipelined_max
            or len(self.buffer) > self._ahead_bytes_max
        )

    @property
    def finished(self) -> bool:
        """Return whether the connection should close: nothing is left to start or answer."""
        return self.closing and not self._exchanges

    # --- inside ------------------------------------------------------------------------------------------

    def _read(self, request: Request, exchange: Exchange) -> Command[Any]:
        """Return the command of a request; raises CommandError."""
        command_class = command_named(request.verb)
        exchange.warning = command_class.spelling_warning(request.headers)
        command = command_class.read_raw(request.headers, request.body)
        if not exchange.warning:  # a cached request would lose the warning
            ordinary = command.where == "writer" and not (
                command.reads or exchange.closes or _asks_for_many(command)
            )
            self._requests.remember(request, command, ordinary=ordinary)
        return command

    def _break(self, error: CommandError) -> Exchange:
        """Answer an unreadable request with an error, and start nothing after it."""
        self._blocker = exchange = Exchange()
        exchange.closes = exchange.refused = True
        self._exchanges.append(exchange)
        self.answer(exchange, error)
        return exchange

    def _fill(self, exchange: Exchange, data: bytes) -> None:
        exchange.data = data
        self.answers_bytes += len(data)
        if exchange is self._exchanges[0]:
            self.writable = True


def _asks_for_many(command: Command[Any]) -> bool:
    """Return whether a command asks for so many names that later commands wait for its reply."""
    return command.asks and command.names_asked > NAMES_AT_ONCE
