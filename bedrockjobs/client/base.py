"""The core of both clients, without I/O.

It picks the server, retries, and keeps idle connections. Each operation is a generator that yields the I/O
steps to perform, a connection to make, a request to exchange or a pause, and receives their outcomes. The
blocking and the asynchronous client only perform the steps.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.client.address import Address, AnyAddress, addresses_of
from bedrockjobs.client.credentials import Credentials
from bedrockjobs.client.ending import Told, end_of_job, own_run
from bedrockjobs.client.exchange import ANSWER_BYTES_MAX, Answer, UnreadableAnswer, reply_of, request_bytes
from bedrockjobs.client.pool import C, Pool
from bedrockjobs.client.tries import LOOK_S, TRIES_MAX, Route, Tries
from bedrockjobs.commands import Command, Ping, Reply, RunReply

CONNECT_S = 5.0
"""Time limit for making a connection."""

R = TypeVar("R", bound=Reply)
V = TypeVar("V")

_CLOCK = SystemClock()


class Connect(NamedTuple):
    """Step: connect to an address; its outcome is the connection."""

    address: AnyAddress
    limit_s: float


class Exchange(NamedTuple):
    """Step: send a request on a connection; its outcome is the answer."""

    connection: Any
    command: Command[Any]
    request: bytes
    limit_s: float | None = None
    """None: as long as the command may take."""


Steps = Generator[Connect | Exchange | float, Any, V]
"""The I/O steps of an operation; a float is a pause in seconds. An error of a step is thrown in."""


class BaseClient(Generic[C]):
    """The state and the logic of a client."""

    def __init__(
        self,
        server: str | Sequence[str] | None = None,
        *,
        tries: int = TRIES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        clock: Clock | None = None,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Set the server: ``host:port``, ``https://host:port`` or ``unix:/path``, or a list of these.

        From a list the client uses the first server. If it fails, the client moves to the next one, and
        returns to the first once it answers again. None means ``BEDROCKJOBS_SERVER``, else
        ``127.0.0.1:8888``. ``tries`` limits the attempts at each address. Nothing is connected before the
        first call.

        Each request carries ``token``, or the token in ``token_file``. ``https://`` means TLS: the client
        verifies the server's certificate against the system's CAs or ``ca``, and presents ``cert`` with
        ``key``; all three are paths of PEM files. Defaults come from ``BEDROCKJOBS_TOKEN``,
        ``BEDROCKJOBS_TOKEN_FILE``, ``BEDROCKJOBS_CA``, ``BEDROCKJOBS_CERT`` and ``BEDROCKJOBS_KEY``. Raises
        InvalidArgument, a ValueError, for a bad address, token or file.
        """
        self._route = Route(addresses_of(server))
        self._credentials = Credentials(token=token, token_file=token_file, ca=ca, cert=cert, key=key)
        if any(isinstance(each, Address) and each.tls for each in self._route.addresses):
            _ = self._credentials.context  # report unusable files now, not at the first call
        self._tries_max = tries
        self._answer_bytes_max = answer_bytes_max
        self._clock = SystemClock() if clock is None else clock
        self._pool: Pool[C] = Pool()
        _clients.add(self)

    def _after_fork(self) -> None:
        """Drop connections and locks shared with the parent process."""
        self._pool.forget()
        self._route.unlock()

    @property
    def server(self) -> AnyAddress:
        """Return the address in use."""
        return self._route.current

    @property
    def has_token(self) -> bool:
        """Return whether requests carry a token."""
        return self._credentials.has_token

    @property
    def known(self) -> bool:
        """Return whether the client identifies itself, by a token or a certificate."""
        return self._credentials.has_token or self._credentials.has_certificate

    def renew(self) -> None:
        """Reload the token and TLS files for later requests and connections.

        Raises InvalidArgument for a bad file and then changes nothing.
        """
        self._credentials.renew()

    def leave(self, server: AnyAddress) -> bool:
        """Move on to the next address, unless ``server`` is no longer in use; return whether it moved.

        For callers with a shorter time limit than the client's own.
        """
        return self._route.leave(server, self._clock.monotonic())

    def _exchange_steps(self, command: Command[Any]) -> Steps[Answer]:
        """Send a command, retrying as its kind allows, and return the answer."""
        yield from self._probe_first_server()
        tries = Tries(command, self._route, self._tries_max)
        while True:
            address = self._route.current
            try:
                answer = yield from self._exchange_once(command, address)
            except (ConnectionError, CommandError) as error:
                pause = self._pause_after(tries, error, address)
            else:
                return answer
            yield pause

    def _wait_steps(self, job_id: int, timeout: float | None) -> Steps[RunReply]:
        """Wait until a job has ended and return its last run."""
        asking, began = end_of_job(job_id, timeout, own_run()), self._clock.monotonic()
        asked = next(asking)
        while True:
            told: Told = 0.0
            if isinstance(asked, float):
                yield asked
            else:
                try:
                    told = self._reply(asked, (yield from self._exchange_steps(asked)))
                except CommandError as error:
                    told = error
            try:
                asked = asking.send((told, self._clock.monotonic() - began))
            except StopIteration as ended:
                return cast("RunReply", ended.value)

    def _exchange_once(self, command: Command[Any], address: AnyAddress) -> Steps[Answer]:
        connection = self._pool.take(address)
        if connection is None:
            connection = yield Connect(address, CONNECT_S)
        reusable = False
        try:
            answer: Answer = yield Exchange(connection, command, self._request(command))
            reusable = not answer.closing
        finally:
            self._pool.give_back(connection, reusable=reusable)
        answer.check()
        return answer

    def _probe_first_server(self) -> Steps[None]:
        """Return to the first server if a probe is due and it answers a Ping."""
        first = self._route.to_look_at(self._clock.monotonic())
        if first is None:
            return
        until = _CLOCK.monotonic() + LOOK_S
        good = False
        try:
            connection = yield Connect(first, LOOK_S)
            try:
                left_s = max(until - _CLOCK.monotonic(), 0.0)
                answer: Answer = yield Exchange(connection, Ping(), self._request(Ping()), left_s)
                good = answer.code == 200 and not answer.closing
            finally:
                self._pool.give_back(connection, reusable=good)
        except ConnectionError:
            return
        if good:
            self._route.come_back()

    def _pause_after(self, tries: Tries, error: Exception, address: AnyAddress) -> float:
        """Return the pause before the next attempt; raise the error to report if there is none.

        A Forbidden is retried once if the token file has a new token.
        """
        if isinstance(error, Forbidden) and tries.may_renew() and self._credentials.renewed():
            return 0.0
        return tries.pause_after(error, address, self._clock.monotonic())

    def _request(self, command: Command[Any]) -> bytes:
        """Return the bytes of a request with the current token."""
        return request_bytes(command, self._credentials.header)

    def _reply(self, command: Command[R], answer: Answer) -> R:
        """Return the typed reply of an answer; raises UnreadableAnswer."""
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error


_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
