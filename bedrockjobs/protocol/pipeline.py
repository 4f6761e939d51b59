"""The order of one raw connection: bytes in, commands out, outcomes in, bytes out. It does no I/O.

Commands of one connection are begun as they come, so that a pipeline shares commits. But nothing is begun
behind a command that may wait, that is done elsewhere than by the writer, or that closes the connection; and
a command that is done elsewhere begins when all before it is answered. So a pipeline does what its commands
would do one by one.

Whoever has the socket calls ``feed`` with what came, ``begin`` until it returns None, ``answer`` with each
outcome, and ``next_bytes`` while there is something ``writable``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from bedrockjobs.base.config import CONNECTION_BYTES_FREE, LOOKS_PIPELINED_MAX, NAMES_AT_ONCE
from bedrockjobs.base.errors import CommandError, NotFound, TimedOut, TooManyWrong, UnknownCommand
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, command_named
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome, Submission
from bedrockjobs.protocol import raw
from bedrockjobs.protocol.raw import Request, RequestCache


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "authorization",
        "closes",
        "command",
        "data",
        "held",
        "outcome",
        "size",
        "submission",
        "waits",
        "warning",
    )

    def __init__(self, closes: bool) -> None:
        """Begin without a command; ``closes`` says whether the connection ends after the answer."""
        self.closes = closes
        self.authorization = ""
        """What the request says of who sends it."""
        self.size = 0
        """The bytes of the request, 0 where they are too few to be counted."""
        self.warning = ""
        """What the answer says about headers that look misspelled."""
        self.waits = False
        """Whether the command may wait."""
        self.held = False
        """Whether the command must not begin before all that precede it are answered."""
        self.command: Command[Any] | None = None
        """What is to be submitted; None where the request was refused."""
        self.data: bytes | None = None
        """The answer, once it is known."""
        self.outcome: Answer | None = None
        """What the answer hands out, where it hands out jobs."""
        self.submission: Submission | None = None
        """By what whoever submitted the command can let it go; the pipeline does not look at it."""


class Pipeline:
    """The requests of one raw connection and their answers, in order."""

    __slots__ = (
        "_ahead_bytes_max",
        "_blocker",
        "_buffer",
        "_ended",
        "_exchanges",
        "_lost",
        "_parser",
        "_pipelined_max",
        "_requests",
        "_unsent",
        "answers_bytes",
        "closing",
        "draining",
        "feed",
        "paused",
        "wants_turn",
        "writable",
    )

    def __init__(self, settings: Settings, requests: RequestCache | None = None) -> None:
        """Work within the limits of ``settings``; connections may share ``requests``."""
        self._requests = requests or RequestCache()
        self._parser = raw.RawParser(settings, self._requests)
        self._buffer = self._parser.buffer
        self.feed = self._parser.feed
        """Take bytes of the client."""
        self._pipelined_max = settings.pipelined_max
        self._ahead_bytes_max = settings.body_bytes_max
        self._exchanges: deque[Exchange] = deque()
        self._blocker: Exchange | None = None
        """The exchange behind which nothing begins."""
        self._unsent: list[Answer] = []
        self._ended = self._lost = False
        self.paused = False
        """Whether the client does not read what was written."""
        self.answers_bytes = 0
        """Size of the answers that are known and not yet taken by ``next_bytes``."""
        self.closing = False
        """Whether nothing more is begun, and the connection ends when it is ``finished``."""
        self.draining = False
        """Whether the server stops: the next answer says so and is the last that is begun."""
        self.writable = False
        """Whether the next answer in order is there."""
        self.wants_turn = False
        """Whether ``begin``, ``awaits``, ``ahead`` and ``finished`` must be asked again without new bytes."""

    # --- in ----------------------------------------------------------------------------------------------

    def eof(self) -> list[Exchange]:
        """Take note that nothing more comes in; return the exchanges whose commands must not wait longer.

        What came in before is still begun and answered. A command begun from now on must not wait either.
        """
        self._ended = True
        return [exchange for exchange in self._exchanges if exchange.waits and exchange.data is None]

    @property
    def ended(self) -> bool:
        """Tell whether the client has said that nothing more comes in."""
        return self._ended

    def begin(self, check: Callable[[str], object] | None = None) -> Exchange | None:
        """Return the next exchange, whose command is to be submitted now; None where nothing may begin.

        An exchange without a command was refused, and its answer is there already. ``check`` is given the
        ``Authorization`` of a large request before its body is kept and before it is read, which costs more
        than to send it; it raises CommandError.
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
        if self._buffer:
            self._parser.check = check
            try:
                request = self._parser.next_request()
            except CommandError as error:
                return self._break(error)
        if request is None:
            if self._ended and not exchanges:
                self.closing = True
            return None
        if request.ordinary:  # most requests
            exchange = Exchange(closes=False)
            exchange.authorization, exchange.command = request.authorization, request.command
            exchanges.append(exchange)
            return exchange
        wish = request.headers.get("connection", "").lower()
        exchange = Exchange(wish in ("close", "forget"))
        exchange.authorization = request.authorization
        if self._parser.size > CONNECTION_BYTES_FREE:
            exchange.size = self._parser.size
        exchanges.append(exchange)
        if exchange.closes:
            self._blocker = exchange
        try:
            if exchange.size and check is not None:
                check(exchange.authorization)
            exchange.command = command = request.command or self._read(request, exchange)
        except CommandError as error:
            of_http = request.like_http or "host" in request.headers
            from_browser = of_http and isinstance(error, UnknownCommand)
            if from_browser or isinstance(error, TooManyWrong):
                # What a browser sends may look like commands in its body: nothing behind it is begun.
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
        if command.where in ("reader", "presence") or (
            command.reads and len(exchanges) > LOOKS_PIPELINED_MAX
        ):
            self._blocker = exchange
            if len(exchanges) > 1:
                exchange.held = True
                return None
        elif _is_barrier(command):
            self._blocker = exchange
        return exchange

    def answer(self, exchange: Exchange, outcome: Outcome, *, waited: bool = False) -> bool:
        """Take the outcome of a command; return False where the client does not get it: its jobs go back.

        ``waited`` says that the command did wait for the job in its outcome.
        """
        if exchange.data is not None or self._lost:  # forgotten, or nobody is there
            return False
        delivered = True
        if exchange is self._blocker:
            if not exchange.closes:
                self._blocker = None
                if self._buffer:
                    self.wants_turn = True
            if waited and self._ended and isinstance(outcome, Answer) and outcome.taken:
                # Its client has said that it waits no longer, while the job was on its way.
                outcome, delivered = _nothing(outcome), False
        if self.draining:
            self.closing = True
        connection = "close" if exchange.closes or self.closing else ""
        if isinstance(outcome, CommandError):
            exchange.data = raw.refusal(outcome, connection)
        else:
            exchange.data = raw.answer(outcome.body, connection)
            if outcome.taken:
                exchange.outcome = outcome
        if exchange.warning:
            exchange.data = raw.with_warning(exchange.data, exchange.warning)
        self.answers_bytes += len(exchange.data)
        if exchange is self._exchanges[0]:
            self.writable = True
        return delivered

    def time_out(self) -> None:
        """Answer that the part of a request that is awaited took too long; without one, answer nothing."""
        part = self.awaits
        if part and not self.closing:
            self._break(TimedOut(detail=f"the {part} took too long"))

    def refuse(self, error: CommandError) -> None:
        """Answer what is being sent with a refusal, and begin nothing behind it."""
        self._break(error)

    def finish(self) -> None:
        """Begin nothing more; what was begun is answered."""
        self.closing = True

    def lose(self) -> tuple[list[Exchange], list[Answer]]:
        """Take note that the client is gone.

        Return the exchanges whose commands are under way, which may end, and the answers that were not sent,
        whose jobs go back. What is answered later is not delivered.
        """
        self._lost = self.closing = True
        begun = [exchange for exchange in self._exchanges if exchange.data is None and not exchange.held]
        unsent = self._unsent if self.paused else []
        unsent += [exchange.outcome for exchange in self._exchanges if exchange.outcome is not None]
        self._unsent = []
        self._exchanges.clear()
        self._blocker = None
        self.writable = False
        return begun, unsent

    # --- out ---------------------------------------------------------------------------------------------

    def next_bytes(self) -> bytes:
        """Return the next answer in order, which must be ``writable``.

        It counts as sent when the next one is asked for, unless ``pause`` is called before ``resume``.
        """
        if self._unsent and not self.paused:
            self._unsent.clear()
        exchanges = self._exchanges
        full = len(exchanges) >= self._pipelined_max
        exchange = exchanges.popleft()
        data = exchange.data
        assert data is not None
        self.answers_bytes -= len(data)
        if exchange.outcome is not None:
            self._unsent.append(exchange.outcome)
        if exchange.closes:
            self.closing = True
        if exchanges:
            following = exchanges[0]
            self.writable = following.data is not None
            if full or following.held:
                self.wants_turn = True
        else:
            self.writable = False
            if self._buffer or self._parser.partial or self.closing or self._ended or full:
                self.wants_turn = True
        return data

    def pause(self) -> None:
        """Take note that the last answer is not yet sent whole: nothing begins until ``resume``."""
        self.paused = True

    def resume(self) -> None:
        """Take note that all answers so far are sent."""
        self.paused = False
        self._unsent.clear()

    @property
    def holds_bytes(self) -> bool:
        """Tell whether a request holds bytes that is not whole, or an answer that is not written."""
        return bool(self._buffer or self.answers_bytes or self._parser.partial is not None)

    @property
    def request_bytes(self) -> int:
        """Return the bytes that a request holds that is not whole, or will."""
        return self._parser.held

    @property
    def awaits(self) -> raw.Part:
        """Return the part of a request that the client must now send in time; ask ``begin`` before."""
        if self._exchanges or self.paused:
            return ""
        return self._parser.awaits

    @property
    def ahead(self) -> bool:
        """Tell whether the client is so far ahead that no more should be read of it."""
        return (
            self.paused
            or len(self._exchanges) >= self._pipelined_max
            or len(self._buffer) > self._ahead_bytes_max
        )

    @property
    def finished(self) -> bool:
        """Tell whether the connection is to be closed: nothing is to be begun or answered any more."""
        return self.closing and not self._exchanges

    # --- inside ------------------------------------------------------------------------------------------

    def _read(self, request: Request, exchange: Exchange) -> Command[Any]:
        """Return the command of a request; raises CommandError."""
        kind = command_named(request.verb)
        exchange.warning = kind.slips(request.headers)
        command = kind.read_raw(request.headers, request.body)
        if not exchange.warning:  # a cached request would be answered without it
            ordinary = command.where == "writer" and not (
                command.reads or exchange.closes or _is_barrier(command)
            )
            self._requests.remember(request, command, ordinary=ordinary)
        return command

    def _break(self, error: CommandError) -> Exchange:
        """Answer what cannot be read, and begin nothing behind it."""
        self._blocker = exchange = Exchange(closes=True)
        self._exchanges.append(exchange)
        self.answer(exchange, error)
        return exchange

    def _fill(self, exchange: Exchange, data: bytes) -> None:
        exchange.data = data
        self.answers_bytes += len(data)
        if exchange is self._exchanges[0]:
            self.writable = True


def _is_barrier(command: Command[Any]) -> bool:
    """Return whether later commands of the connection wait until this one is answered."""
    return command.waiting or (command.asks and command.names_asked > NAMES_AT_ONCE)


def _nothing(outcome: Answer) -> Outcome:
    """Return what a waiting command is told instead of a job that it does not get."""
    return Answer('{"job":null}') if outcome.body.startswith('{"job":') else NotFound("No job found")
