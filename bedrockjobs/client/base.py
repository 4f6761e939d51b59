"""What both clients are made of: where they call, how often they try, the connections they keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from bedrockjobs.client.address import addresses_of
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
    ) -> None:
        """Name the server: ``host:port`` or ``unix:/path``, a comma list or a sequence, tried in turn.

        None stands for ``BEDROCKJOBS_SERVER``, else ``127.0.0.1:8888``. ``tries`` bounds how often a command
        goes to each address. Nothing is connected before the first call. Raises ValueError for a bad address.
        """
        self._route = Route(addresses_of(server))
        self._tries_max = tries
        self._answer_bytes_max = answer_bytes_max
        self._pool: Pool[C] = Pool()

    def _tries(self, command: Command[Any]) -> Tries:
        """Return the tries that a command has."""
        return Tries(command, self._route, self._tries_max)

    def _reply(self, command: Command[R], answer: Answer) -> R:
        """Return the typed reply of an answer; raises UnreadableAnswer where it is none."""
        try:
            return reply_of(command, answer)
        except ValueError as error:
            raise UnreadableAnswer(command, self._route.current, str(error)) from error
