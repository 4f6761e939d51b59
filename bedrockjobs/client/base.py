"""What both clients are made of: where they call, how often they try, the connections they keep."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.client.address import Address, AnyAddress, addresses_of
from bedrockjobs.client.credentials import Credentials
from bedrockjobs.client.exchange import ANSWER_BYTES_MAX, Answer, UnreadableAnswer, reply_of, request_bytes
from bedrockjobs.client.pool import C, Pool
from bedrockjobs.client.tries import TRIES_MAX, Route, Tries
from bedrockjobs.commands import Command, Reply

CONNECT_S = 5.0
"""Time for one connection to be made."""

R = TypeVar("R", bound=Reply)


class BaseClient(Generic[C]):
    """A client without its I/O."""

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
        """Name the server: ``host:port``, ``https://host:port`` or ``unix:/path``, or several in a list.

        Of several the first is used; one that fails is left for the next in the list, and the first is used
        again once it answers. None stands for ``BEDROCKJOBS_SERVER``, else ``127.0.0.1:8888``. ``tries``
        bounds how often a command goes to each address; ``clock`` is the machine's if left out. Nothing is
        connected before the first call.

        ``token`` is sent with each request, or the one in ``token_file``. ``https://`` is TLS: the server's
        certificate is verified by those whom the system trusts, or by ``ca``; ``cert`` and ``key`` are what
        the client shows. All are paths of PEM files. What is left out comes from ``BEDROCKJOBS_TOKEN``,
        ``BEDROCKJOBS_TOKEN_FILE``, ``BEDROCKJOBS_CA``, ``BEDROCKJOBS_CERT`` and ``BEDROCKJOBS_KEY``. Raises
        InvalidArgument, a ValueError, for a bad address, token or file.
        """
        self._route = Route(addresses_of(server))
        self._credentials = Credentials(token=token, token_file=token_file, ca=ca, cert=cert, key=key)
        if any(isinstance(each, Address) and each.tls for each in self._route.addresses):
            _ = self._credentials.context  # files that cannot be used are told now
        self._tries_max = tries
        self._answer_bytes_max = answer_bytes_max
        self._clock = SystemClock() if clock is None else clock
        self._pool: Pool[C] = Pool()
        _clients.add(self)
        self._busy: set[C] = set()
        """Connections on which a call waits, where a change of the server concerns them."""

    def _after_fork(self) -> None:
        """Be a client of its own in a process that was just forked."""
        self._pool.forget()
        self._route.unlock()

    @property
    def server(self) -> AnyAddress:
        """Return the address that is used: the one that answered, where the last call was answered."""
        return self._route.current

    @property
    def has_token(self) -> bool:
        """Tell whether a token is sent with each request."""
        return self._credentials.has_token

    @property
    def known(self) -> bool:
        """Tell whether it says who it is, by a token or by a certificate."""
        return self._credentials.has_token or self._credentials.has_certificate

    def renew(self) -> None:
        """Read the files of the token and of TLS again, for requests and connections to come.

        Raises InvalidArgument for one that is bad, and then keeps all as it was.
        """
        self._credentials.renew()

    def leave(self, server: AnyAddress) -> bool:
        """Use the next address of the list from now on, and tell so, unless ``server`` was left already.

        For a caller that gave a call less time than the client does, and had no answer in it.
        """
        return self._route.leave(server, self._clock.monotonic())

    def _pause_after(self, tries: Tries, error: Exception, address: AnyAddress) -> float:
        """Return the seconds before the next try; raises what is to be told where there is none.

        A refusal is tried once more where the file of the token has another one by now.
        """
        if isinstance(error, Forbidden) and tries.may_renew() and self._credentials.renewed():
            return 0.0
        return tries.pause_after(error, address, self._clock.monotonic())

    def _tries(self, command: Command[Any]) -> Tries:
        """Return the tries that a command has."""
        return Tries(command, self._route, self._tries_max)

    def _request(self, command: Command[Any]) -> bytes:
        """Return the bytes of a request with the token of now."""
        return request_bytes(command, self._credentials.header)

    def _reply(self, command: Command[R], answer: Answer) -> R:
        """Return the typed reply of an answer; raises UnreadableAnswer where it is none."""
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error


_clients: weakref.WeakSet[BaseClient[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
