"""When a command is sent again, where to, and after how long. No I/O, no clock.

A command goes out again where nothing of it can have been done: no connection was made, or the server said
that nothing was committed (500, 503, 555). Where the answer was lost, it goes out again only if doing it
twice is the same as once. The tries are bounded in any case.

Of several servers the one that fails is left for the next in the list, whether or not the command goes out
again. After a while the first one is asked whether it is back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

from bedrockjobs.base.errors import ServerFault, TimedOut, Unavailable
from bedrockjobs.client.address import AnyAddress
from bedrockjobs.client.exchange import ConnectionLost, ServerNotTrusted, ServerUnreachable, UnreadableAnswer
from bedrockjobs.commands import Command

TRIES_MAX = 6
"""Tries at each address. With the pauses between them they span a server's restart, about three seconds."""

BACKOFF_FIRST_S = 0.1
"""The first pause; each further one is twice as long."""

BACKOFF_MAX_S = 5.0
"""The longest pause: a server that is back is noticed within it."""

RETURN_S = 30.0
"""Time between two looks whether the first server is back: load returns to it soon, and a server that keeps
failing takes one look and one try of each client in that time."""

LOOK_S = 1.0
"""Time for such a look. One call waits for it, and a server that is slower has no need of more load."""

NOT_DONE = (ServerFault, Unavailable, TimedOut)
"""Refusals that say: nothing was committed, the same request may be sent again. (429 is retryable too, but a
limit that is reached lasts longer than our tries.)"""


def backoff_s(failures: int) -> float:
    """Return the pause after so many failures in a row: doubled each time, halved at most by chance."""
    longest = min(BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads the clients of a server that came back


class Route:
    """The addresses of a client and which of them is used: the first, or the next one that was not left.

    Safe to share between threads.
    """

    def __init__(self, addresses: Sequence[AnyAddress]) -> None:
        """Begin with the first address."""
        self.addresses = tuple(addresses)
        self._at = 0
        self._looked_at = 0.0
        self._lock = threading.Lock()

    @property
    def current(self) -> AnyAddress:
        """Return the address to use."""
        return self.addresses[self._at]

    def unlock(self) -> None:
        """Have a lock of its own in a process that was just forked: another thread may have held it."""
        self._lock = threading.Lock()

    def leave(self, failed: AnyAddress, now: float) -> bool:
        """Go on to the next address, and tell so, unless another call has already left the failed one.

        ``now`` is a moment of a monotonic clock, in seconds.
        """
        with self._lock:
            if failed != self.current or len(self.addresses) == 1:
                return False
            if self._at == 0:
                self._looked_at = now
            self._at = (self._at + 1) % len(self.addresses)
            return True

    def to_look_at(self, now: float) -> AnyAddress | None:
        """Return the first address where it is time to see whether it answers again, else None.

        Only one caller gets it in ``RETURN_S``.
        """
        if self._at == 0:
            return None
        with self._lock:
            if self._at == 0 or now - self._looked_at < RETURN_S:
                return None
            self._looked_at = now
            return self.addresses[0]

    def come_back(self) -> None:
        """Use the first address again: it answers."""
        with self._lock:
            self._at = 0


class Tries:
    """The tries of one command."""

    def __init__(self, command: Command[Any], route: Route, tries_max: int) -> None:
        """Allow ``tries_max`` tries at each address of the route."""
        self._repeatable = command.repeatable
        self._route = route
        self._tries_max = tries_max * len(route.addresses)
        self._failures = 0
        self._renewed = False
        self._answered: Exception | None = None
        """The most telling of the tries before: an answer that was lost, else a refusal."""
        self._unreachable: dict[AnyAddress, ServerUnreachable] = {}

    def pause_after(self, error: Exception, failed: AnyAddress, now: float) -> float:
        """Return the seconds to wait before the next try; raises what is to be told where there is none.

        ``now`` is a moment of a monotonic clock, in seconds.
        """
        if isinstance(error, (ConnectionError, *NOT_DONE)):
            self._route.leave(failed, now)
        if isinstance(error, ServerUnreachable):
            self._unreachable[failed] = error
        self._failures += 1
        if not self._may_repeat(error) or self._failures >= self._tries_max:
            raise self._told(error)
        if not isinstance(error, ServerUnreachable) and not isinstance(self._answered, ConnectionLost):
            self._answered = error
        rounds, within = divmod(self._failures, len(self._route.addresses))
        return 0.0 if within else backoff_s(rounds)

    def may_renew(self) -> bool:
        """Tell, once, that a command may be tried again with another token."""
        before, self._renewed = self._renewed, True
        return not before

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, UnreadableAnswer):
            return False
        if isinstance(error, ServerNotTrusted):  # which time alone does not change
            return len(self._route.addresses) > len(self._unreachable)
        if isinstance(error, ConnectionLost):
            return self._repeatable
        return isinstance(error, (ServerUnreachable, *NOT_DONE))

    def _told(self, error: Exception) -> Exception:
        """Return the error that tells of all tries: that a server was not there is the least of it."""
        if not isinstance(error, ServerUnreachable):
            return error
        if self._answered is not None:
            return self._answered
        if len(self._unreachable) == 1:
            return error
        return ServerUnreachable("; ".join(map(str, self._unreachable.values())))
