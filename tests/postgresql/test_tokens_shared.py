"""Servers that share a database know the same tokens: what is done at one of them holds at the others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from bedrockjobs.base.settings import Settings
from bedrockjobs.server import Server
from tests.conftest import Live, begin
from tests.postgresql.cluster import CLUSTER, SCHEMA, emptied
from tests.protocol.talk import Talk, request
from tests.runs.bearer import Bearer, admin_of

HOLDS_S = 2.0
"""Time in which a change has to hold everywhere."""


async def until(bearer: Bearer, code: int) -> None:
    """Ask until it is answered so."""
    async with asyncio.timeout(HOLDS_S):
        while (await bearer.http("ListJobs")).code != code:
            await asyncio.sleep(0.02)


async def test_a_token_holds_at_all_servers_and_so_does_its_end() -> None:
    async with AsyncExitStack() as stack:
        CLUSTER.engine().close()
        servers = []
        for name in ("one", "two"):
            given = Settings(port=0, server_name=name, database=CLUSTER.url, database_schema=SCHEMA)
            server = Server(given)
            await begin(server)
            stack.push_async_callback(server.stop)
            servers.append(Live(server, stack))
        root = await admin_of(servers[0])
        await until(Bearer(servers[1]), 401)
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
        CLUSTER.do(emptied(SCHEMA))
