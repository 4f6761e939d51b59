"""What both clients are made of: where they call, how often they try, the connections they keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.client.address import AnyAddress, addresses_of
from bedrockjobs.client.exchange import ANSWER_BYTES_MAX, Answer, UnreadableAnswer, reply_of
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
    ) -> None:
        """Name the server: ``host:port`` or ``unix:/path``, a comma list or a sequence.

        Of several the first is used; one that fails is left for the next in the list, and the first is used
        again once it answers. None stands for ``BEDROCKJOBS_SERVER``, else ``127.0.0.1:8888``. ``tries``
        bounds how often a command goes to each address; ``clock`` is the machine's if left out. Nothing is
        connected before the first call. Raises ValueError for a bad address.
        """
        self._route = Route(addresses_of(server))
        self._tries_max = tries
        self._answer_bytes_max = answer_bytes_max
        self._clock = SystemClock() if clock is None else clock
        self._pool: Pool[C] = Pool()
        self._busy: set[C] = set()
        """Connections on which a call waits, where a change of the server concerns them."""

    @property
    def server(self) -> AnyAddress:
        """Return the address that is used: the one that answered, where the last call was answered."""
        return self._route.current

    def leave(self, server: AnyAddress) -> bool:
        """Use the next address of the list from now on, and tell so, unless ``server`` was left already.

        For a caller that gave a call less time than the client does, and had no answer in it.
        """
        return self._route.leave(server, self._clock.monotonic())

    def _pause_after(self, tries: Tries, error: Exception, address: AnyAddress) -> float:
        """Return the seconds before the next try; raises what is to be told where there is none."""
        return tries.pause_after(error, address, self._clock.monotonic())

    def _tries(self, command: Command[Any]) -> Tries:
        """Return the tries that a command has."""
        return Tries(command, self._route, self._tries_max)

    def _reply(self, command: Command[R], answer: Answer) -> R:
        """Return the typed reply of an answer; raises UnreadableAnswer where it is none."""
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error
