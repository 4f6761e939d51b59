"""Whole servers on one PostgreSQL database, used over the network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_UNAVAILABLE, StartError
from bedrockjobs.server import Server
from tests.conftest import Live, begin
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.talk import DEADLINE_S, Talk

Start = Callable[..., Any]

PAGES = [
    "/ui/",
    "/ui/jobs",
    "/ui/schedules",
    "/ui/workers",
    "/ui/failures",
    "/ui/events",
    "/ui/upcoming",
    "/ui/workflows",
    "/ui/limits",
    "/ui/kept",
    "/ui/notifications",
    "/ui/access",
]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Return a function that starts a server with a name, the first on an empty database."""
    CLUSTER.empty(SCHEMA)
    async with AsyncExitStack() as stack:

        async def start(name: str, **more: Any) -> Live:
            given = {
                "database": CLUSTER.url,
                "database_schema": SCHEMA,
                "database_direct": CLUSTER.url,
                **more,
            }
            server = Server(Settings(port=0, server_name=name, **given))
            await begin(server)
            stack.push_async_callback(server.stop)
            return Live(server, stack)

        yield start


async def test_a_job_created_at_one_server_is_done_by_a_worker_of_another(start: Start) -> None:
    a, b = await start("a"), await start("b")
    waiting = asyncio.ensure_future(
        a.http(
            "GetJob",
            {"name": "mail*", "worker": "w", "heartbeat": True, "connection": "wait", "timeout": 20_000},
        )
    )
    await a.waiting(1)
    assert (await b.http("CreateJob", {"name": "mail/1", "data": {"to": "x"}})).json == {"jobID": 1}
    taken = (await asyncio.wait_for(waiting, DEADLINE_S)).json
    assert (taken["jobID"], taken["data"]) == (1, {"to": "x"})
    assert (await b.http("Heartbeat", {"worker": "w", "runIDs": [taken["runID"]]})).json["stop"] == []
    assert (await b.http("FinishJob", {"jobID": 1, "runID": taken["runID"]})).code == 200
    shown = (await a.http("QueryRun", {"runID": taken["runID"]})).json
    assert (shown["status"], shown["worker"]) == ("success", "w")


async def test_raw_clients_are_served(start: Start) -> None:
    a = await start("a")
    assert (await a.ask("CreateJob", name="x", data='{"a":1}')).json == {"jobID": 1}
    assert (await a.ask("GetJob", name="x")).json["data"] == {"a": 1}
    assert (await a.ask("FinishJob", jobID=1)).code == 200
    assert (await a.ask("QueryJob", jobID=1)).code == 404


async def test_servers_are_listed_and_their_passwords_are_not(start: Start) -> None:
    url = CLUSTER.url.replace("tester@", "tester:secret@")
    a = await start("a", database=url, database_direct=url)
    await start("b")
    await a.until(lambda: len(a.server.service.presence.servers_alive()) == 2)
    servers = (await a.http("ListServers")).json["servers"]
    assert [server["name"] for server in servers] == ["a", "b"]
    assert servers[0]["address"] == a.server.where()
    assert {server["state"] for server in servers} <= {"starting", "serving"}
    status = (await a.http("Status")).json["database"]
    assert status == url.replace("secret", "***")


async def test_each_server_tells_of_all_on_its_pages_and_in_its_metrics(start: Start) -> None:
    a, b = await start("a"), await start("b")
    for worker in ("w1", "w2"):
        await b.http("Heartbeat", {"worker": worker})
    presence = a.server.service.presence

    def shown() -> dict[str, tuple[int, str]]:
        return {one.name: (one.workers, one.state) for one in presence.servers_alive()}

    await a.until(lambda: shown() == {"a": (0, "serving"), "b": (2, "serving")})
    metrics = await page(a, "/metrics")
    assert 'bedrockjobs_servers{state="serving"} 2.0' in metrics
    assert 'bedrockjobs_server_workers{server="b"} 2.0' in metrics
    workers = await page(a, "/ui/workers")
    assert "2 servers share the database." in workers
    assert b.server.where() in workers.replace("<wbr>", "")
    first, *others = presence.servers
    presence.servers = [first._replace(pulse="2026-01-01 00:00:00.000"), *others]
    assert shown()["a"] == (0, "silent"), "it was not heard of for 3 s"


async def page(live: Live, path: str) -> str:
    """Return a page."""
    async with await Talk.open(live.port) as talk:
        talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode())
        reply = await talk.reply()
    assert reply.code == 200, reply
    return reply.body


async def test_who_looks_sees_the_same_at_each_server(start: Start) -> None:
    a, b = await start("a"), await start("b")
    for number in range(3):
        await a.http("CreateJob", {"name": f"mail/{number}"})
    await b.http("PauseJobs", {"name": "mail/1", "reason": "why not"})
    await a.http("CreateJob", {"name": "tick", "repeat": "CRON 0 9 * * *"})
    looks = [("ListJobs", {}), ("ListSchedules", {}), ("Overview", {}), ("ExplainJob", {"jobID": 2})]
    for command, body in looks:
        one, other = await a.http(command, body), await b.http(command, body)
        assert one.code == 200, one
        assert {**one.json, "now": 0} == {**other.json, "now": 0}
    query = {"query": "SELECT jobID, name FROM jobs ORDER BY jobID;", "format": "json"}
    assert (await b.http("Query", query)).json == {
        "headers": ["jobID", "name"],
        "rows": [[1, "mail/0"], [2, "mail/1"], [3, "mail/2"], [4, "tick"]],
    }


async def test_pages_and_metrics_are_served(start: Start) -> None:
    a = await start("a")
    await a.http("CreateJob", {"name": "mail/1"})
    for path in (*PAGES, "/ui/jobs/1", "/metrics", "/livez", "/readyz"):
        async with await Talk.open(a.port) as talk:
            talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n".encode())
            reply = await talk.reply()
        assert reply.code == 200, (path, reply)


async def test_a_name_is_refused_while_a_server_lives_that_has_it(start: Start) -> None:
    await start("a")
    with pytest.raises(
        StartError, match="server_name: a live server of this database has the name a"
    ) as raised:
        await start("a")
    assert raised.value.status == EXIT_UNAVAILABLE


async def test_a_server_that_stops_gives_its_waiters_back_and_leaves(start: Start) -> None:
    a, b = await start("a"), await start("b")
    waiting = asyncio.ensure_future(b.http("GetJob", {"name": "x", "connection": "wait", "timeout": 20_000}))
    await b.waiting(1)
    await b.server.stop()
    assert (await asyncio.wait_for(waiting, DEADLINE_S)).code == 404
    await a.until(lambda: [row.name for row in a.server.service.presence.servers_alive()] == ["a"])
    events = (await a.http("Events")).json["events"]
    assert [(one["kind"], one["name"]) for one in events][-1] == ("server left", "b")
