"""A primary and its standby, either of which a test may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

import psycopg

from tests.postgresql.cluster import Node, url_of
from tests.postgresql.proxy import Proxy

DEADLINE_S = 20
SYNCHRONOUS = {"synchronous_standby_names": "standby"}
STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{}'"


def until(condition: Callable[[], bool]) -> None:
    """Ask for a condition until it holds."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline


class Pair:
    """A primary, a standby that follows it through a proxy, and what became of them."""

    def __init__(self, *, synchronous: bool = True) -> None:
        """Start both, and wait until the one follows the other."""
        self.primary = Node(settings=SYNCHRONOUS if synchronous else None)
        self.primary.start()
        self.primary.do("ALTER SYSTEM SET wal_sender_timeout = '20s'")
        self._old: list[Node] = []
        self._synchronous = synchronous
        self.new_standby()

    def new_standby(self) -> None:
        """Give the primary another standby; it has none."""
        self.stream = Proxy(self.primary.port)
        """What the standby is sent by."""
        self.standby = Node(self._base_url(), settings=SYNCHRONOUS if self._synchronous else None)
        self.standby.follow(url_of(self.stream.port))
        self.standby.start()
        kind = "sync" if self._synchronous else "async"
        until(lambda: self.primary.do(STREAMING.format(kind)) == [(1,)])

    def _base_url(self) -> str:
        return self.primary.url

    @property
    def url(self) -> str:
        """Return the URL of whichever can be written."""
        return url_of(self.primary.port, self.standby.port)

    def fail_over(self) -> None:
        """Kill the primary, and make the standby the primary."""
        self.primary.kill()
        self.stream.close()
        self._old.append(self.primary)
        self.standby.promote()

    def close(self) -> None:
        """End all."""
        with suppress(RuntimeError):
            self.stream.close()
        for node in (self.standby, self.primary, *self._old):
            node.stop()


@contextmanager
def pair(*, synchronous: bool = True) -> Iterator[Pair]:
    """Yield a new pair."""
    both = Pair(synchronous=synchronous)
    try:
        yield both
    finally:
        both.close()


def waits_for_standby(node: Node) -> bool:
    """Tell whether a commit waits for its standby."""
    with suppress(psycopg.Error):
        found = node.do("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return found[0][0] > 0
    return False
