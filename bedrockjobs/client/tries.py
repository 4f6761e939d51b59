"""When a command is sent again, where to, and after how long. No I/O, no clock.

A command goes out again where nothing of it can have been done: no connection was made, or the server said
that nothing was committed (500, 503, 555). Where the answer was lost, it goes out again only if doing it
twice is the same as once. The tries are bounded in any case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from bedrockjobs.base.errors import ServerFault, TimedOut, Unavailable
from bedrockjobs.client.address import AnyAddress
from bedrockjobs.client.exchange import ConnectionLost, ServerUnreachable, UnreadableAnswer
from bedrockjobs.commands import Command

TRIES_MAX = 6
"""Tries at each address. With the pauses between them they span a server's restart, about three seconds."""

BACKOFF_FIRST_S = 0.1
"""The first pause; each further one is twice as long."""

BACKOFF_MAX_S = 5.0
"""The longest pause: a server that is back is noticed within it."""

NOT_DONE = (ServerFault, Unavailable, TimedOut)
"""Refusals that say: nothing was committed, the same request may be sent again. (429 is retryable too, but a
limit that is reached lasts longer than our tries.)"""


def backoff_s(failures: int) -> float:
    """Return the pause after so many failures in a row: doubled each time, halved at most by chance."""
    longest = min(BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads the clients of a server that came back


class Route:
    """The addresses of a client and which of them is used: the one that worked last."""

    def __init__(self, addresses: Sequence[AnyAddress]) -> None:
        """Begin with the first address."""
        self.addresses = tuple(addresses)
        self._at = 0

    @property
    def current(self) -> AnyAddress:
        """Return the address to use."""
        return self.addresses[self._at % len(self.addresses)]

    def leave(self, failed: AnyAddress) -> None:
        """Go on to the next address, unless another call has already left the failed one."""
        if failed == self.current:
            self._at += 1


class Tries:
    """The tries of one command."""

    def __init__(self, command: Command[Any], route: Route, tries_max: int) -> None:
        """Allow ``tries_max`` tries at each address of the route."""
        self._repeatable = command.repeatable
        self._route = route
        self._tries_max = tries_max * len(route.addresses)
        self._failures = 0

    def pause_after(self, error: Exception, failed: AnyAddress) -> float:
        """Return the seconds to wait before the next try; raises the error where there is none."""
        if not self._may_repeat(error):
            raise error
        self._route.leave(failed)
        self._failures += 1
        if self._failures >= self._tries_max:
            raise error
        rounds, within = divmod(self._failures, len(self._route.addresses))
        return 0.0 if within else backoff_s(rounds)

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, UnreadableAnswer):
            return False
        if isinstance(error, ConnectionLost):
            return self._repeatable
        return isinstance(error, (ServerUnreachable, *NOT_DONE))
