"""The blocking client, which threads may share.

Each call uses an idle connection or makes one, so that no thread waits for the call of another.
"""

from __future__ import annotations

import atexit
import os
import select
import socket
import ssl
import threading
from typing import Any, Self, TypeVar, cast

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.run_variables import run_variables
from bedrockjobs.client.address import (
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    RUN_SERVER_VARIABLE,
    RUN_TOKEN_VARIABLE,
    SERVER_VARIABLE,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    AnyAddress,
    Credentials,
    UnixAddress,
)
from bedrockjobs.client.base import BaseClient, Connect, SendRequest, Steps
from bedrockjobs.client.exchange import AnswerReader, Response
from bedrockjobs.commands import Command, Reply, RunReply

R = TypeVar("R", bound=Reply)
V = TypeVar("V")

_CLOCK = SystemClock()


class _BlockingConnection:
    """A connection, used by one call at a time."""

    def __init__(self, address: AnyAddress, limit_s: float, credentials: Credentials) -> None:
        """Connect within ``limit_s`` seconds, or twice that with TLS; raises OSError and ValueError."""
        self.address = address
        self._socket = _connected(address, limit_s)
        if not isinstance(address, UnixAddress) and address.tls:
            self._socket = _encrypted(self._socket, address.host, credentials.context)

    @property
    def is_reusable(self) -> bool:
        """Return whether the connection can be used again: it is open, and no unexpected data has arrived."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def exchange(self, request: bytes, bytes_max: int, limit_s: float) -> Response:
        """Send a request and return its answer; raises OSError and MalformedAnswer."""
        deadline = _CLOCK.monotonic() + limit_s
        reader = AnswerReader(bytes_max)
        answer: Response | None = None
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(request)
            while answer is None:
                answer = reader.feed(self._receive(deadline))
        except TimeoutError:
            raise TimeoutError(f"nothing was received within {limit_s:g} s") from None
        return answer

    def _receive(self, deadline: float) -> bytes:
        """Return the next bytes; raises OSError if the connection is closed or the deadline has passed."""
        remaining_s = deadline - _CLOCK.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining_s)
        data = self._socket.recv(262_144)  # most answers fit
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
    """Return a TLS connection on the socket ``plain``; close the socket on failure."""
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


class Client(BaseClient[_BlockingConnection]):
    """Calls commands on a server and waits for their replies.

    >>> with Client("localhost:8888") as client:
    ...     job_id = client.call(CreateJob(name="foo", data={"value": 1})).job_id

    Threads may share a client. After a fork both processes may use it: each makes its own connections.
    """

    def call(self, command: Command[R]) -> R:
        """Send a command and return its typed reply.

        Raises the server's CommandError, ServerUnreachable if nothing was sent, and ConnectionLost if the
        outcome is unknown.
        """
        return self._reply(command, self.exchange(command))

    def exchange(self, command: Command[Any]) -> Response:
        """Send a command and return the raw answer; raises the errors of ``call``."""
        return self._perform(self._exchange_steps(command))

    def wait_for_job(self, job_id: int, timeout: float | None = None) -> RunReply:
        """Wait until a job has ended successfully and return its last run, with its ``result``.

        Only a job that does not repeat ends, and runs are stored only for workers with a name. ``timeout`` is
        in seconds; None means no limit. Raises JobFailed, JobNotEnded on timeout, NoResult if the outcome is
        no longer known, WaitNeverEnds within a run that the job waits for, and the errors of ``call``. Warns
        after 5 s if no live worker takes the job.
        """
        return self._perform(self._wait_steps(job_id, timeout))

    def close(self) -> None:
        """Close the idle connections; the client can no longer be used."""
        self._pool.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def _perform(self, steps: Steps[V]) -> V:
        """Perform the I/O steps of an operation and return its result."""
        try:
            step = next(steps)
            while True:
                try:
                    outcome = self._perform_step(step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as ended:
            result: V = ended.value
            return result

    def _perform_step(self, step: Connect | SendRequest | float) -> Response | _BlockingConnection | None:
        if isinstance(step, SendRequest):
            connection: _BlockingConnection = step.connection
            return connection.exchange(step.request, self._answer_bytes_max, step.limit_s)
        if isinstance(step, Connect):
            return _BlockingConnection(step.address, step.limit_s, self._credentials)
        self._pool.closed.wait(step)
        return None


# The default client: one per process, created on first use.


VARIABLES = (
    SERVER_VARIABLE,
    RUN_SERVER_VARIABLE,
    TOKEN_VARIABLE,
    TOKEN_FILE_VARIABLE,
    RUN_TOKEN_VARIABLE,
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
)
"""The environment variables that configure the shared client; when one changes, a new client is made."""

_lock = threading.Lock()
_made: tuple[tuple[int, tuple[str | None, ...]], Client] | None = None


def shared_client() -> Client:
    """Return the process's client for the server that the environment names; threads share it.

    After a fork or a change of the environment, this function returns a new client. The caller need not close
    it. If several runs share the process, each run with a run token gets a client of its own, which is closed
    when the run ends. Raises InvalidArgument for an invalid environment.
    """
    global _made
    own = run_variables.get()
    if own is not None and RUN_TOKEN_VARIABLE in own:
        if own.client is None:
            own.client = Client()
        return cast("Client", own.client)
    wanted = (os.getpid(), tuple(os.environ.get(name) for name in VARIABLES))
    with _lock:
        if _made is None or _made[0] != wanted:
            made = (wanted, Client())
            _close()
            _made = made
        return _made[1]


def _close() -> None:
    if _made is not None:
        _made[1].close()


def _unlock() -> None:
    """Replace the lock in a forked process, because another thread may have held it during the fork."""
    global _lock
    _lock = threading.Lock()


atexit.register(_close)
os.register_at_fork(after_in_child=_unlock)
