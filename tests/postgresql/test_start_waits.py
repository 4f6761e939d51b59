"""A starting server waits for temporary faults, as a running one does; other faults end the start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import StartError
from bedrockjobs.server import Server
from bedrockjobs.store.base import StoreAway, StoreError, StoreFull
from bedrockjobs.store.postgresql.connect_checks import ReadOnlyDatabase, UnfitDatabase, start_fault
from bedrockjobs.store.postgresql.session import BadURL, DatabaseSession
from bedrockjobs.store.schema import SchemaError
from tests.conftest import Live
from tests.postgresql.cluster import CLUSTER, quiet_port
from tests.postgresql.proxy import Proxy
from tests.protocol.talk import DEADLINE_S, Talk

SCHEMA = "waited"
ROLE = "waiting"
WAITS = "waiting for the database: database: "


class Place:
    """A database of a separate role, behind a proxy."""

    def __init__(self, proxy: Proxy, patch: pytest.MonkeyPatch) -> None:
        """Use a proxy to the cluster."""
        self.proxy, self._patch = proxy, patch
        url = CLUSTER.url.replace("tester@", f"{ROLE}@").replace(f":{CLUSTER.port}/", f":{proxy.port}/")
        self.port = quiet_port()
        self.settings = Settings(port=self.port, database=url, database_schema=SCHEMA, command_s=0.2)

    async def alter(self, what: str) -> None:
        """Alter the role, outside of the event loop, and end its connections."""
        await self.do(f"ALTER ROLE {ROLE} {what}")
        await self.do(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")

    async def do(self, sql: str) -> None:
        """Execute a statement as an administrator."""
        await asyncio.to_thread(CLUSTER.do, sql)

    async def shut(self) -> None:
        """Refuse all connections."""
        await asyncio.to_thread(self.proxy.shut)

    async def open(self) -> None:
        """Let clients connect again."""
        await asyncio.to_thread(self.proxy.open)

    async def fill(self) -> None:
        """Let each statement fail because the disk is full."""

        def full(*_: Any, **__: Any) -> Any:
            raise StoreFull("could not extend file")

        self._patch.setattr(DatabaseSession, "run_statements", full)

    async def empty(self) -> None:
        """Let statements succeed again."""
        self._patch.undo()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Return a database, without tables."""
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP ROLE IF EXISTS {ROLE}")
    CLUSTER.do(f"CREATE ROLE {ROLE} LOGIN; CREATE SCHEMA {SCHEMA} AUTHORIZATION {ROLE}")
    proxy = Proxy(CLUSTER.port)
    try:
        yield Place(proxy, monkeypatch)
    finally:
        monkeypatch.undo()
        proxy.close()
        CLUSTER.do(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ROLE}'")
        CLUSTER.do(f"DROP SCHEMA {SCHEMA} CASCADE; DROP OWNED BY {ROLE} CASCADE; DROP ROLE {ROLE}")


Act = Callable[[Place], Awaitable[None]]

CAUSES: dict[str, tuple[Act, Act, str]] = {
    "unreachable": (Place.shut, Place.open, "Check host and port, and whether it runs"),
    "too many connections": (
        lambda place: place.alter("CONNECTION LIMIT 0"),
        lambda place: place.alter("CONNECTION LIMIT -1"),
        "Raise the connection limit",
    ),
    "read-only": (
        lambda place: place.alter("SET default_transaction_read_only = on"),
        lambda place: place.alter("RESET default_transaction_read_only"),
        "name the primary",
    ),
    "full": (Place.fill, Place.empty, "Free space there"),
}
"""Temporary faults: how each begins and ends, and the message of a starting server."""


WHILE_IT_WAITS = [
    ("GET /livez HTTP/1.1\r\n", "200 OK"),
    ("GET /readyz HTTP/1.1\r\n", "503 Service Unavailable"),
    ("GET /readyz HTTP/1.1\r\n", WAITS),
    ("GET /readyz HTTP/1.1\r\nAuthorization: Bearer bj_wrong\r\n", WAITS),
    ("Ping\n\n", "200 OK"),
    ("CreateJob\nname: a\n\n", "503 "),
    ("CreateJob\nname: a\nAuthorization: Bearer bj_wrong\n\n", "503 "),
    ("Authenticate\ntoken: bj_wrong\n\n", "503 "),
    ("Status\n\n", "503 "),
    ("QueryJob\njobID: 1\n\n", "503 "),
    ("GetJob\nname: *\nConnection: wait\n\n", "503 "),
    ("Heartbeat\nworker: w\n\n", "503 "),
    *(
        (f"{path} HTTP/1.1\r\n{header}", "503 Service Unavailable")
        for path in ("POST /CreateJob", "GET /ListJobs", "GET /ui/", "GET /metrics", "GET /events", "GET /no")
        for header in ("", "Authorization: Bearer bj_wrong\r\n", "Cookie: bedrockjobs_session=x\r\n")
    ),
]
"""Requests to a server that waits for its database, and what is in their answers."""


async def answer(port: int, ask: str) -> str:
    """Return the whole answer to a request on a connection of its own."""
    if "HTTP" in ask:
        ask += "Host: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(ask.encode())
        if "HTTP" not in ask:
            writer.write_eof()
        return (await reader.read()).decode()
    finally:
        writer.close()


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_start_waits_for_what_a_running_server_waits_for(
    place: Place, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    caplog.set_level("INFO", "bedrockjobs")
    begin, end, words = CAUSES[cause]
    async with AsyncExitStack() as stack:
        server = Server(place.settings)
        await begin(place)
        start = asyncio.ensure_future(server.start())
        stack.callback(start.cancel)

        def said() -> list[str]:
            return [text for text in caplog.messages if text.startswith(WAITS)]

        async with asyncio.timeout(DEADLINE_S):
            while not any("meanwhile are refused" in text for text in caplog.messages):
                assert not start.done(), start.result()
                await asyncio.sleep(0.01)
            for ask, expected in WHILE_IT_WAITS:
                assert expected in await answer(place.port, ask), ask
            await end(place)
            await start
            assert server.port == place.port
        stack.push_async_callback(server.stop)
        assert len(said()) == 1, "it is said once"
        assert words in said()[0]
        assert "the database can be used" in caplog.messages
        live = Live(server, stack)
        assert (await live.ask("CreateJob", name="a")).json == {"jobID": 1}
        await begin(place)  # and it waits as well while it runs
        async with asyncio.timeout(DEADLINE_S):
            while (await live.ask("CreateJob", name="a")).code != 503:
                await asyncio.sleep(0.01)
            assert await ready(live) == 503
            await end(place)
            while (await live.ask("CreateJob", name="a")).code != 200:
                await asyncio.sleep(0.01)
            while await ready(live) != 200:
                await asyncio.sleep(0.01)


async def ready(live: Live) -> int:
    """Return the status code of `/readyz`."""
    async with await Talk.open(live.port) as talk:
        talk.send(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return (await talk.reply()).code


MISTAKES: dict[str, tuple[Callable[[str], str], str]] = {
    "an unknown parameter": (lambda url: f"{url}?bad=1", "the URL cannot be read"),
    "an unknown database": (lambda url: f"{url.rpartition('/')[0]}/missing", "CREATE DATABASE"),
    "an unknown role": (lambda url: url.replace(f"{ROLE}@", "nobody@"), "Create the role"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_ends_the_start_at_once(place: Place, mistake: str) -> None:
    change, words = MISTAKES[mistake]
    server = Server(place.settings.model_copy(update={"database": change(place.settings.database)}))
    with pytest.raises(StartError, match=words) as refused:
        async with asyncio.timeout(DEADLINE_S):
            await server.start()
    assert refused.value.status == 78


PASSING: list[StoreError] = [
    StoreAway("connection refused"),
    StoreAway("FATAL:  the database system is starting up"),
    StoreAway("FATAL:  the database system is shutting down"),
    StoreAway("FATAL:  sorry, too many clients already"),
    StoreAway("session is read-only"),
    ReadOnlyDatabase("the database is read-only"),
    StoreFull("could not extend file"),
    StoreError("canceling statement due to statement timeout (57014)"),
    StoreError("could not obtain lock (55P03)"),
]

LASTING: list[StoreError | SchemaError] = [
    SchemaError("schema version 9"),
    BadURL("invalid port"),
    UnfitDatabase("fsync is off"),
    StoreAway('FATAL:  password authentication failed for user "x"'),
    StoreAway("no pg_hba.conf entry"),
    StoreAway("server does not support SSL, but SSL was required"),
    StoreAway("SSL error: certificate verify failed"),
    StoreError("permission denied (42501)"),
    StoreError("an unknown error (XX000)"),
]


async def test_what_a_start_waits_for() -> None:
    assert [start_fault(error).sentence for error in PASSING if not start_fault(error).passes] == []
    assert [start_fault(error).sentence for error in LASTING if start_fault(error).passes] == []
    assert {start_fault(error).status for error in PASSING} == {69}
    assert {start_fault(error).status for error in LASTING[:-1]} == {78}
