"""A server that is killed while it sends a message: the next one sends it again, and says so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tests.reliability.servers import STARTED_S, Server

pytestmark = pytest.mark.reliability


async def ask(port: int, command: str, **body: Any) -> Any:
    """Do a command over HTTP."""
    async with (
        ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/{command}", json=body) as reply,
    ):
        assert reply.status == 200, await reply.text()
        return await reply.json()


async def test_a_message_is_sent_again_whose_sender_was_killed(tmp_path: Path) -> None:
    came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answer = asyncio.Event()

    async def take(request: web.Request) -> web.Response:
        came.put_nowait(await request.json())
        await answer.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    async with TestServer(app) as receiver, asyncio.timeout(STARTED_S):
        async with Server(tmp_path / "jobs.db") as server:
            port = await server.listening()
            await ask(port, "PutRule", name="r", on="failed", to=str(receiver.make_url("/")))
            await ask(port, "CreateJob", name="a")
            await ask(port, "GetJob", name="a", worker="w")
            await ask(port, "FailJob", jobID=1, error="no disk")
            first = await came.get()
        answer.set()
        async with Server(tmp_path / "jobs.db") as server:
            port = await server.listening()
            second = await came.get()
            while (rule := (await ask(port, "ListRules"))["rules"][0])["sent"] == 0:
                await asyncio.sleep(0.05)
    assert not first["data"]["repeated"]
    assert second["data"]["repeated"]
    assert second["id"] == first["id"]
    assert second["data"]["events"] == first["data"]["events"]
    assert (rule["sent"], rule["tries"]) == (1, 0)
