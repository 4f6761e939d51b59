"""The client for plain code: blocking sockets, safe to share between threads.

A call takes an idle connection or makes one, so that no thread queues behind another's wait.
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any, Self, TypeVar, cast

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.client.address import AnyAddress, UnixAddress
from bedrockjobs.client.base import CONNECT_S, BaseClient
from bedrockjobs.client.credentials import Credentials
from bedrockjobs.client.ending import Told, end_of_job, own_run
from bedrockjobs.client.exchange import (
    Answer,
    AnswerReader,
    ConnectionLost,
    MalformedAnswer,
    ServerUnreachable,
    UnreadableAnswer,
    answer_s,
    unreachable,
)
from bedrockjobs.client.tries import LOOK_S
from bedrockjobs.commands import Command, Ping, Reply, RunReply

READ_BYTES = 262_144
"""Size of one read: a whole answer of usual size at once."""

R = TypeVar("R", bound=Reply)

_CLOCK = SystemClock()


class _Connection:
    """One connection, used by one call at a time."""

    def __init__(self, address: AnyAddress, limit_s: float, credentials: Credentials) -> None:
        """Connect within ``limit_s``, twice that with TLS; raises ServerUnreachable."""
        self.address = address
        try:
            self._socket = _connected(address, limit_s)
            if not isinstance(address, UnixAddress) and address.tls:
                self._socket = _encrypted(self._socket, address.host, credentials.context)
        except (OSError, ValueError) as error:
            raise unreachable(address, error) from error

    @property
    def fresh(self) -> bool:
        """Tell whether the connection is open and silent; any byte now would be an end or a stray answer."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(
        self, command: Command[Any], request: bytes, bytes_max: int, limit_s: float | None = None
    ) -> Answer:
        """Send a request and return its answer, within ``limit_s`` if given; raises ConnectionLost."""
        limit_s = answer_s(command) if limit_s is None else limit_s
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


def _connected(address: AnyAddress, limit_s: float) -> socket.socket:
    if not isinstance(address, UnixAddress):
        made = socket.create_connection((address.host, address.port), timeout=limit_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(limit_s)
        made.connect(address.path)
    except BaseException:
        made.close()
        raise
    return made


def _encrypted(plain: socket.socket, host: str, context: ssl.SSLContext) -> socket.socket:
    """Return a connection with TLS over a plain one, which is closed where that fails."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


class Client(BaseClient[_Connection]):
    """Calls commands on a server and waits for their replies.

    >>> with Client("localhost:8888") as client:
    ...     job_id = client.call(CreateJob(name="foo", data={"value": 1})).job_id

    One client may serve many threads. After a fork both processes may use it: each has its own connections.
    """

    def call(self, command: Command[R]) -> R:
        """Send a command and return its typed reply.

        Raises the CommandError of a refusal, ServerUnreachable where nothing was sent, and ConnectionLost
        where the outcome is unknown.
        """
        return self._reply(command, self.exchange(command))

    def exchange(self, command: Command[Any]) -> Answer:
        """Send a command and return the answer as it came; raises as ``call`` does."""
        tries = self._tries(command)
        self._look_back()
        while True:
            address = self._route.current
            try:
                return self._exchange_once(command, self._request(command), address)
            except (ConnectionError, CommandError) as error:
                pause = self._pause_after(tries, error, address)
            self._pool.closed.wait(pause)

    def wait_for_job(self, job_id: int, timeout: float | None = None) -> RunReply:
        """Wait until a job has ended well and return its last run, with its ``result``.

        For jobs that end, and are taken by workers with a name. ``timeout`` is in seconds, None: no limit.
        Raises JobFailed, JobNotEnded after the timeout, NoResult if nobody knows, WaitNeverEnds in a run that
        the job waits for, and what ``call`` does. Warns after 5 s of a job that no live worker takes.
        """
        asking, began = end_of_job(job_id, timeout, own_run()), self._clock.monotonic()
        asked = next(asking)
        while True:
            told: Told = 0.0
            if isinstance(asked, float):
                self._pool.closed.wait(asked)
            else:
                try:
                    told = self.call(asked)
                except CommandError as error:
                    told = error
            try:
                asked = asking.send((told, self._clock.monotonic() - began))
            except StopIteration as ended:
                return cast("RunReply", ended.value)

    def close(self) -> None:
        """Close the idle connections; a call after this is an error."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def _exchange_once(self, command: Command[Any], request: bytes, address: AnyAddress) -> Answer:
        connection = self._pool.take(address) or _Connection(address, CONNECT_S, self._credentials)
        reusable = False
        try:
            answer = connection.exchange(command, request, self._answer_bytes_max)
            reusable = not answer.closing
        finally:
            self._pool.give_back(connection, reusable=reusable)
        answer.check()
        return answer

    def _look_back(self) -> None:
        """Use the first server again if it is time to look and it answers; nothing else is sent to see it."""
        first = self._route.to_look_at(self._clock.monotonic())
        if first is None:
            return
        until = _CLOCK.monotonic() + LOOK_S
        try:
            connection = _Connection(first, LOOK_S, self._credentials)
        except ServerUnreachable:
            return
        good = False
        try:
            left_s = max(until - _CLOCK.monotonic(), 0.0)
            answer = connection.exchange(Ping(), self._request(Ping()), self._answer_bytes_max, left_s)
            good = answer.code == 200 and not answer.closing
        except ConnectionLost:
            pass
        finally:
            self._pool.give_back(connection, reusable=good)
        if good:
            self._route.come_back()
