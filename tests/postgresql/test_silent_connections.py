"""Connections that fall silent without breaking: they are closed in time, and replaced."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import PG_CONNECT_S_MAX
from bedrockjobs.base.errors import TimedOut
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql import peers
from bedrockjobs.store.postgresql import read_connection as lines
from bedrockjobs.store.postgresql.peers import PostgreSQLPeers
from bedrockjobs.store.postgresql.reader import PostgreSQLReader
from tests.pace import in_time
from tests.postgresql.cluster import CLUSTER, SCHEMA, url_of
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S

LINE_S_MAX = 0.3
"""How long a line waits here for an answer that never comes."""

QUERY_S = 1.0
"""How long a query may take here that is answered, on a busy machine too."""

Line = Callable[..., Any]


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    """Return a function that opens a server's peer connection by a URL, on an empty database."""
    CLUSTER.empty(SCHEMA)
    lines = []

    async def line(
        name: str, url: str, on_notification: Callable[[str], object] = lambda text: None
    ) -> PostgreSQLPeers:
        lines.append(line := PostgreSQLPeers(url, SCHEMA, name, f"session-{name}", SystemClock()))
        line.on_notification = on_notification
        await line.connect("1")
        return line

    yield line
    for each in lines:
        await each.close()


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the event loop until a condition is true."""
    deadline = monotonic() + DEADLINE_S
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0.001)


async def test_who_gets_no_answer_to_what_it_tells_listens_anew(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listening connection may be dead: since it only receives, nothing shows that its peer is gone."""
    heard: list[str] = []
    proxy = Proxy(CLUSTER.port)
    try:
        behind, other = await line("a", url_of(proxy.port), heard.append), await line("b", CLUSTER.url)
        await until(lambda: heard == [""])
        await other.publish("one")
        await until(lambda: heard == ["", "one"])
        proxy.swallow("down")
        await other.publish("two")
        began = monotonic()
        with monkeypatch.context() as brief:  # answered exchanges have the usual time limit
            brief.setattr(peers, "LINE_S_MAX", LINE_S_MAX)
            with pytest.raises(StoreAway, match="no answer within"):
                await behind.publish("")
        assert in_time(monotonic() - began, 10 * LINE_S_MAX)
        proxy.swallow()
        await behind.publish("")
        await until(lambda: heard == ["", "one", ""])  # which says that anything may be new
        await other.publish("three")
        await until(lambda: heard == ["", "one", "", "three"])
    finally:
        proxy.close()


async def test_a_read_that_nobody_answers_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelling it instead would take psycopg ten more seconds, to send PostgreSQL the cancellation."""
    monkeypatch.setattr(lines, "ANSWER_S", LINE_S_MAX)
    CLUSTER.empty(SCHEMA)
    proxy = Proxy(CLUSTER.port)
    reader = PostgreSQLReader(url_of(proxy.port), Settings(query_s=QUERY_S), SCHEMA)
    try:
        await reader.open()
        assert await reader.query("SELECT 1;", "rows") == "[[1]]"
        proxy.swallow("down")
        began = monotonic()
        with pytest.raises(TimedOut, match="its connection was closed"):
            await reader.query("SELECT 2;", "rows")
        assert in_time(monotonic() - began, 10 * LINE_S_MAX)
        proxy.swallow()
        assert await reader.query("SELECT 3;", "rows") == "[[3]]"
    finally:
        await reader.close()
        proxy.close()


async def test_a_host_that_is_gone_without_a_word_is_noticed_by_both_connections(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets cannot be lost here, so the test reads the sockets' timeout options."""
    connect = psycopg.AsyncConnection.connect
    made: list[psycopg.AsyncConnection[Any]] = []

    async def noted(*given: Any, **named: Any) -> psycopg.AsyncConnection[Any]:
        made.append(await connect(*given, **named))
        return made[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", noted)
    await line("a", CLUSTER.url)
    await line("b", f"{CLUSTER.url}?keepalives_idle=77")
    await until(lambda: len(made) == 4)
    idle = []
    for connection in made:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == PG_CONNECT_S_MAX * 1000
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 1
            idle.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
    assert sorted(idle) == [PG_CONNECT_S_MAX] * 2 + [77] * 2  # the URL can override it
