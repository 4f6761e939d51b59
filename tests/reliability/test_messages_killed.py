"""If a server is killed while it sends a message, the next server sends it again, with a mark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tests.reliability.servers import STARTED_S, Forked

pytestmark = pytest.mark.reliability


async def ask(port: int, command: str, **body: Any) -> Any:
    """Execute a command over HTTP."""
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
        async with Forked(tmp_path / "jobs.db") as server:
            port = await server.listening()
            await ask(port, "PutRule", name="r", on="failed", to=str(receiver.make_url("/")))
            await ask(port, "CreateJob", name="a")
            await ask(port, "GetJob", name="a", worker="w")
            await ask(port, "FailJob", jobID=1, error="no disk")
            first = await came.get()
        answer.set()
        async with Forked(tmp_path / "jobs.db") as server:
            port = await server.listening()
            second = await came.get()
            while (rule := (await ask(port, "ListRules"))["rules"][0])["sent"] == 0:
                await asyncio.sleep(0.05)
    assert not first["data"]["repeated"]
    assert second["data"]["repeated"]
    assert second["id"] == first["id"]
    assert second["data"]["events"] == first["data"]["events"]
    assert (rule["sent"], rule["tries"]) == (1, 0)


KILLED_AFTER_S = (0.0, 0.001, 0.003, 0.006, 0.012, 0.025, 0.05, 0.2)
"""Times after a failure at which the server is killed: before its message goes, meanwhile, and after it."""


async def test_kills_at_any_moment_lose_none_and_repeats_are_marked(tmp_path: Path) -> None:
    came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        came.put_nowait(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/", take)
    messages: list[dict[str, Any]] = []
    told: set[str] = set()
    async with TestServer(app) as receiver:
        for number, delay_s in enumerate((*KILLED_AFTER_S, None)):
            async with Forked(tmp_path / "jobs.db") as server, asyncio.timeout(STARTED_S):
                port = await server.listening()
                if number == 0:
                    await ask(port, "PutRule", name="r", on="failed", to=str(receiver.make_url("/")))
                if delay_s is not None:
                    made = await ask(port, "CreateJob", name=f"a{number}")
                    await ask(port, "GetJob", name=f"a{number}", worker="w")
                    await ask(port, "FailJob", **made, error="no disk")
                    await asyncio.sleep(delay_s)
                    continue
                while len(told) < len(KILLED_AFTER_S):
                    messages.append(await came.get())
                    told |= {event["name"] for event in messages[-1]["data"]["events"]}
    ids: set[str] = set()
    for message in messages:
        assert message["id"] not in ids or message["data"]["repeated"], "what came before says so"
        ids.add(message["id"])
    assert told == {f"a{number}" for number in range(len(KILLED_AFTER_S))}
