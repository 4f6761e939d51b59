"""Decides whether, where and when a command is retried. No I/O, no clock.

A command is retried if nothing can have been done: no connection was made, or the server said that nothing
was committed (500, 503, 555). If the answer was lost, only idempotent commands are retried. The number of
attempts is limited.

A server that fails is left for the next one in the list, whether or not the command is retried. After a while
the first one is probed.
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
"""Attempts at each address; with the pauses they span a server's restart, about three seconds."""

BACKOFF_FIRST_S = 0.1
"""The first pause; each further one is twice as long."""

BACKOFF_MAX_S = 5.0
"""Maximum pause, so that a recovered server is noticed within it."""

RETURN_S = 30.0
"""Interval of probes of the first server: load returns soon, and a failing server gets one probe per client
in that time."""

LOOK_S = 1.0
"""Time limit of a probe, for which one call waits."""

NOT_DONE = (ServerFault, Unavailable, TimedOut)
"""Errors after which the same request may be sent again, since nothing was committed. (429 is retryable too,
but a limit lasts longer than our attempts.)"""


def backoff_s(failures: int) -> float:
    """Return the pause after some failures in a row: exponential backoff with jitter of up to one half."""
    longest = min(BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  spreads the clients of a server that came back


class Route:
    """The addresses of a client, and which one is in use. Thread-safe."""

    def __init__(self, addresses: Sequence[AnyAddress]) -> None:
        """Start with the first address."""
        self.addresses = tuple(addresses)
        self._at = 0
        self._looked_at = 0.0
        self._lock = threading.Lock()

    @property
    def current(self) -> AnyAddress:
        """Return the address in use."""
        return self.addresses[self._at]

    def unlock(self) -> None:
        """Replace the lock in a forked process; another thread may have held it."""
        self._lock = threading.Lock()

    def leave(self, failed: AnyAddress, now: float) -> bool:
        """Move on to the next address, unless another call already has; return whether it moved.

        ``now`` is a monotonic time in seconds.
        """
        with self._lock:
            if failed != self.current or len(self.addresses) == 1:
                return False
            if self._at == 0:
                self._looked_at = now
            self._at = (self._at + 1) % len(self.addresses)
            return True

    def to_look_at(self, now: float) -> AnyAddress | None:
        """Return the first address if a probe is due, else None.

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
        """Return to the first address, which answers again."""
        with self._lock:
            self._at = 0


class Tries:
    """The attempts of one command."""

    def __init__(self, command: Command[Any], route: Route, tries_max: int) -> None:
        """Allow ``tries_max`` attempts at each address of the route."""
        self._repeatable = command.repeatable
        self._route = route
        self._tries_max = tries_max * len(route.addresses)
        self._failures = 0
        self._renewed = False
        self._answered: Exception | None = None
        """The most telling earlier error: a lost answer, else a refusal."""
        self._unreachable: dict[AnyAddress, ServerUnreachable] = {}

    def pause_after(self, error: Exception, failed: AnyAddress, now: float) -> float:
        """Return the pause before the next attempt; raise the error to report if there is none.

        ``now`` is a monotonic time in seconds.
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
        """Return True once, if a command may be retried with a new token."""
        before, self._renewed = self._renewed, True
        return not before

    def _may_repeat(self, error: Exception) -> bool:
        if isinstance(error, UnreadableAnswer):
            return False
        if isinstance(error, ServerNotTrusted):  # retrying does not help
            return len(self._route.addresses) > len(self._unreachable)
        if isinstance(error, ConnectionLost):
            return self._repeatable
        return isinstance(error, (ServerUnreachable, *NOT_DONE))

    def _told(self, error: Exception) -> Exception:
        """Return the most telling error of all attempts; an unreachable server is the least telling."""
        if not isinstance(error, ServerUnreachable):
            return error
        if self._answered is not None:
            return self._answered
        if len(self._unreachable) == 1:
            return error
        return ServerUnreachable("; ".join(map(str, self._unreachable.values())))
