"""A primary and its standby; a test may kill either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from tests.postgresql.cluster import Node, url_of
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S

STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{}'"


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline


class Pair:
    """A primary, and a standby that follows it through a proxy."""

    def __init__(self, *, synchronous: bool = True) -> None:
        """Start both, and wait until the one follows the other."""
        self.primary = Node()
        self.primary.start()
        self._old: list[Node] = []
        self._synchronous = synchronous
        self.new_standby()

    def new_standby(self) -> None:
        """Give the primary, which has lost its standby, a new one."""
        self.stream = Proxy(self.primary.port)
        """What the standby is sent by."""
        self.standby = Node(self.primary.url)
        self.standby.follow(url_of(self.stream.port))
        self.standby.start()
        if self._synchronous:
            self.synchronize()
        else:
            until(lambda: self.primary.do(STREAMING.format("async")) == [(1,)])

    def synchronize(self) -> None:
        """Make commits wait for the standby."""
        self.primary.do("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.primary.do("SELECT pg_reload_conf()")
        until(lambda: self.primary.do(STREAMING.format("sync")) == [(1,)])

    def replace(self) -> None:
        """Give the promoted server a new standby, and remove the files of lost servers."""
        while self._old:
            self._old.pop().stop()
        self.primary = self.standby
        self.new_standby()

    @property
    def url(self) -> str:
        """Return the URL of the writable server."""
        return url_of(self.primary.port, self.standby.port)

    def fail_over(self) -> None:
        """Kill the primary, and promote the standby."""
        self.primary.kill()
        self.stream.close()
        self._old.append(self.primary)
        self.standby.promote()

    def close(self) -> None:
        """End all."""
        self.stream.close()
        for node in {self.standby, self.primary, *self._old}:
            node.stop()


@contextmanager
def pair(*, synchronous: bool = True) -> Iterator[Pair]:
    """Yield a new pair."""
    both = Pair(synchronous=synchronous)
    try:
        yield both
    finally:
        both.close()


def waits_for_standby(node: Node, *, but: int = 0) -> int:
    """Return the number of commits that wait for a standby, except that of one backend."""
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> {but}"
    return int(node.do(waiting)[0][0])
