"""The client for plain code: blocking sockets, safe to share between threads.

A call takes an idle connection or makes one, so that no thread queues behind another's wait.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Sequence
from typing import Any, Self, TypeVar

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.client.address import AnyAddress, UnixAddress, addresses_of
from bedrockjobs.client.exchange import (
    ANSWER_BYTES_MAX,
    Answer,
    AnswerReader,
    ConnectionLost,
    MalformedAnswer,
    ServerUnreachable,
    UnreadableAnswer,
    answer_s,
    reply_of,
    request_bytes,
)
from bedrockjobs.client.tries import NOT_DONE, TRIES_MAX, Route, Tries
from bedrockjobs.commands import Command, Reply

CONNECT_S = 5.0
"""Time for one connection to be made."""

IDLE_MAX = 32
"""Idle connections that are kept; one more is closed when its call is over."""

READ_BYTES = 262_144
"""Size of one read: a whole answer of usual size at once."""

R = TypeVar("R", bound=Reply)

_CLOCK = SystemClock()


class _Connection:
    """One connection, used by one call at a time."""

    def __init__(self, address: AnyAddress) -> None:
        """Connect; raises ServerUnreachable."""
        self.address = address
        try:
            self._socket = _connected(address)
        except (OSError, UnicodeError) as error:
            raise ServerUnreachable(f"cannot connect to {address}: {error}") from error

    @property
    def fresh(self) -> bool:
        """Tell whether the connection is open and silent; any byte now would be an end or a stray answer."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, command: Command[Any], request: bytes, bytes_max: int) -> Answer:
        """Send a request and return its answer; raises ConnectionLost."""
        limit_s = answer_s(command)
        deadline = _CLOCK.monotonic() + limit_s
        reader = AnswerReader(bytes_max)
        answer: Answer | None = None
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(request)
            while answer is None:
                answer = reader.feed(self._receive(deadline))
        except MalformedAnswer as error:
            raise UnreadableAnswer(command, self.address, str(error)) from None
        except TimeoutError:
            raise ConnectionLost(command, self.address, f"nothing came within {limit_s:g} s") from None
        except OSError as error:
            raise ConnectionLost(command, self.address, str(error)) from error
        return answer

    def _receive(self, deadline: float) -> bytes:
        """Return what comes next; raises OSError where nothing does."""
        left = deadline - _CLOCK.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the connection was closed")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _connected(address: AnyAddress) -> socket.socket:
    if not isinstance(address, UnixAddress):
        made = socket.create_connection(address, timeout=CONNECT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(CONNECT_S)
        made.connect(address.path)
    except BaseException:
        made.close()
        raise
    return made


class Client:
    """Calls commands on a server and waits for their replies.

    >>> with Client("localhost:8888") as client:
    ...     job_id = client.call(CreateJob(name="foo", data={"value": 1})).job_id

    One client may serve many threads. It is not to be carried over a fork.
    """

    def __init__(
        self,
        server: str | Sequence[str] | None = None,
        *,
        tries: int = TRIES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Name the server: ``host:port`` or ``unix:/path``, a comma list or a sequence, tried in turn.

        None stands for ``BEDROCKJOBS_SERVER``, else ``127.0.0.1:8888``. ``tries`` bounds how often a command
        goes to each address. Nothing is connected before the first call. Raises ValueError for a bad address.
        """
        self._route = Route(addresses_of(server))
        self._tries = tries
        self._answer_bytes_max = answer_bytes_max
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def call(self, command: Command[R]) -> R:
        """Send a command and return its typed reply.

        Raises the CommandError of a refusal, ServerUnreachable where nothing was sent, and ConnectionLost
        where the outcome is unknown.
        """
        answer = self.exchange(command)
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error

    def exchange(self, command: Command[Any]) -> Answer:
        """Send a command and return the answer as it came; raises as ``call`` does."""
        request = request_bytes(command)
        tries = Tries(command, self._route, self._tries)
        while True:
            address = self._route.current
            try:
                return self._exchange_once(command, request, address)
            except (ConnectionError, *NOT_DONE) as error:
                pause = tries.pause_after(error, address)
            self._closed.wait(pause)

    def close(self) -> None:
        """Close the idle connections; a call after this is an error."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def _exchange_once(self, command: Command[Any], request: bytes, address: AnyAddress) -> Answer:
        connection = self._connection(address)
        keep = False
        try:
            answer = connection.exchange(command, request, self._answer_bytes_max)
            keep = not answer.closing
        finally:
            self._give_back(connection, keep)
        answer.check()
        return answer

    def _connection(self, address: AnyAddress) -> _Connection:
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise RuntimeError("the client is closed")
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(address)
            if connection.address == address and connection.fresh:
                return connection
            connection.close()

    def _give_back(self, connection: _Connection, keep: bool) -> None:
        with self._lock:
            if keep and not self._closed.is_set() and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
                return
        connection.close()
