"""Servers that share a database have the same tokens: a change at one applies at all."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import pytest

from bedrockjobs.base.principal import ANONYMOUS
from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import Live, begin
from tests.pages.test_login import logged_in, posted
from tests.postgresql.cluster import CLUSTER, SCHEMA, emptied
from tests.protocol.talk import Talk, request
from tests.runs.bearer import Bearer, admin_of

HOLDS_S = 2.0
"""Time in which a change has to hold everywhere."""


async def until(bearer: Bearer, code: int) -> None:
    """Repeat a request until it gets the expected reply."""
    async with asyncio.timeout(HOLDS_S):
        while (await bearer.http("ListJobs")).code != code:
            await asyncio.sleep(0.02)


async def pair_of(stack: AsyncExitStack) -> list[Live]:
    """Start two servers of one database."""
    CLUSTER.empty(SCHEMA)
    stack.callback(CLUSTER.do, emptied(SCHEMA))
    servers = []
    for name in ("one", "two"):
        given = Settings(port=0, server_name=name, database=CLUSTER.url, database_schema=SCHEMA)
        server = Server(given)
        await begin(server)
        stack.push_async_callback(server.stop)
        servers.append(Live(server, stack))
    return servers


async def pair_with_admin(stack: AsyncExitStack) -> tuple[list[Live], Bearer]:
    """Start two servers and create the first token, which both know from now on."""
    servers = await pair_of(stack)
    root = await admin_of(servers[0])
    await until(Bearer(servers[1]), 401)  # before it knows, the second one serves everybody
    return servers, root


async def test_a_token_holds_at_all_servers_and_so_does_its_end() -> None:
    async with AsyncExitStack() as stack:
        servers, root = await pair_with_admin(stack)
        reader = await root.token_for("r", "read")
        there = Bearer(servers[1], reader.token)
        await until(there, 200)
        async with await Talk.open(servers[1].port) as talk:
            assert (await talk.ask("Authenticate", token=reader.token)).code == 200
            talk.send(request("Events", after=-1, name="none", Connection="wait", timeout=60_000))
            await root.ok("RevokeToken", name="r")
            async with asyncio.timeout(HOLDS_S):
                assert (await talk.reply()).status == "403 Forbidden"
        assert (await there.http("ListJobs")).code == 401


class Session(Bearer):
    """A logged-in browser."""

    def __init__(self, live: Live, cookie: str) -> None:
        """Show ``cookie`` to ``live``."""
        super().__init__(live)
        self._cookie = cookie

    @property
    def headers(self) -> dict[str, str]:
        """Return the request headers of the session."""
        return {"Cookie": self._cookie}


async def followed(session: Session) -> Talk:
    """Open the event stream of the pages."""
    talk = await Talk.open(session.live.port)
    lines = ["GET /ui/live HTTP/1.1", "Host: localhost", f"Cookie: {session.headers['Cookie']}", "", ""]
    talk.send("\r\n".join(lines).encode())
    assert b" 200 " in await talk.reader.readline()
    return talk


@pytest.mark.parametrize("end", ["logout", "revoked", "rotated"])
async def test_a_session_ends_at_all_servers_with_its_streams(end: str) -> None:
    async with AsyncExitStack() as stack:
        (one, two), root = await pair_with_admin(stack)
        reader = await root.token_for("r", "read")
        cookie = await logged_in(one, reader.token)
        there = Session(two, cookie)
        await until(there, 200)
        talk = await stack.enter_async_context(await followed(there))
        if end == "logout":
            assert (await posted(one, "/ui/logout", "", Cookie=cookie)).code == 303
        else:
            await root.ok("RevokeToken" if end == "revoked" else "RotateToken", name="r")
        async with asyncio.timeout(HOLDS_S):
            with suppress(ConnectionError):
                await talk.reader.read()  # until it is cut
        assert (await there.http("ListJobs")).code == 401
        assert (await there.get("/ui/", Accept="text/html")).code == 303, "led to the login"


async def test_clients_without_a_token_are_the_same_at_all_servers_and_their_streams_end() -> None:
    async with AsyncExitStack() as stack:
        (_, two), root = await pair_with_admin(stack)
        there = Bearer(two)
        await root.ok("AllowAnonymous", roles="read")
        await until(there, 200)
        talk = await stack.enter_async_context(await Talk.open(two.port))
        talk.send("GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        assert b" 200 " in await talk.reader.readline()
        await root.ok("RevokeToken", name=ANONYMOUS)
        async with asyncio.timeout(HOLDS_S):
            with suppress(ConnectionError):
                await talk.reader.read()  # until it is cut
        await until(there, 401)
