"""Every limit that an operator sets: input just within it is accepted, input just beyond it is refused."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base import principal
from bedrockjobs.base.clock import ManualClock, SystemClock
from bedrockjobs.base.config import ADDRESSES_TRACKED_MAX, TOKEN_SHARE
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol import sse
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.listener import ACCEPTED_AT_ONCE_MAX, ARRIVALS_MAX, Arrivals
from tests.conftest import Live, Serve
from tests.engines import sqlite_only
from tests.pace import in_time
from tests.protocol.talk import DEADLINE_S, post, request
from tests.runs.bearer import Bearer, admin_of

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])
"""What is refused does not depend on the event loop; one is enough."""


async def test_connections(serve: Serve) -> None:
    live = await serve(connections_max=3)
    talks = [await live.connect() for _ in range(3)]
    for talk in talks:
        assert (await talk.ask("Ping")).code == 200
    for data in (request("Ping"), post("Ping")):
        refused = await live.connect()
        refused.send(data)
        reply = await refused.reply()
        assert (reply.status, reply.headers["connection"]) == ("503 Too many connections", "close")
        assert await refused.ended() == b""
    assert (await talks[0].ask("Ping")).code == 200
    await talks[1].close()
    await live.connections(2)
    assert (await live.ask("Ping")).code == 200
    talks[2].send(request("GetJob", name="w", Connection="wait", timeout=60_000))
    await live.waiting(1)
    assert (await talks[0].ask("CreateJob", name="w")).code == 200
    assert (await talks[2].reply()).code == 200


async def test_connections_per_address(live: Live) -> None:
    settings = Settings(connections_per_address_max=2)
    connections = Connections(live.server.service, SystemClock(), settings)
    made: list[Any] = [object() for _ in range(6)]
    assert [connections.admit(each, "192.0.2.1") for each in made[:3]] == [True, True, False]
    assert connections.admit(made[3], "192.0.2.2"), "another address has its own"
    assert all(connections.admit(object(), "127.0.0.1") for _ in range(5)), "this machine has no limit"  # type: ignore[arg-type]
    connections.dismiss(made[0], "192.0.2.1")
    assert connections.admit(made[4], "192.0.2.1")
    assert not connections.admit(made[5], "192.0.2.1")


async def test_new_connections_per_address_and_second(live: Live) -> None:
    settings = Settings(connections_per_address_max=2, new_connections_per_address_max=10)
    clock = ManualClock(SystemClock().now())
    connections = Connections(live.server.service, clock, settings)
    for address, other in (("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:0:1::1")):
        assert [connections.arrives(address) for _ in range(4)] == [True, True, False, False]
        assert connections.arrives(other), "another address has its own"
        clock.advance(0.1)
        assert [connections.arrives(address) for _ in range(2)] == [True, False]
    assert not connections.arrives("2001:db8::2"), "it is of the same net"
    assert all(connections.arrives("127.0.0.1") for _ in range(100)), "this machine has no limit"
    for number in range(2 * ADDRESSES_TRACKED_MAX):
        connections.arrives(f"a{number}")
    assert len(connections._arrivals) <= ADDRESSES_TRACKED_MAX


async def _tried(port: int, source: str) -> bytes:
    """Ping from an address; return what comes, nothing if the connection is reset."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        writer.write(request("Ping"))
        found = await reader.readline()
        writer.close()
    except ConnectionError:
        return b""
    return found


async def test_who_connects_too_often_is_reset_and_keeps_nobody_else_waiting(serve: Serve) -> None:
    live = await serve(connections_per_address_max=3, new_connections_per_address_max=1)
    found = [await _tried(live.port, "127.0.0.2") for _ in range(20)]
    assert found[:3] == [b"200 OK\r\n"] * 3
    assert found.count(b"") >= 10
    assert await _tried(live.port, "127.0.0.3") == b"200 OK\r\n"
    assert (await live.ask("Ping")).code == 200


async def test_many_connections_are_accepted_in_one_turn(live: Live) -> None:
    """A client that comes behind others waits for no turn of the event loop for each of them."""
    port, count = live.port, ACCEPTED_AT_ONCE_MAX - 1
    clients = []
    for _ in range(count):  # the server, which is in this loop, does nothing meanwhile
        client = live.client_socket()
        client.connect(("127.0.0.1", port))
        clients.append(client)
    before = live.server.service.connections
    turns = 0
    while live.server.service.connections < before + count:
        await asyncio.sleep(0)
        turns += 1
        assert turns < count // 2
    for client in clients:
        client.close()


async def test_new_connections_of_an_address_wait_for_few_of_each_other_one() -> None:
    arrivals = Arrivals()
    place: dict[socket.socket, str] = {}

    def add(address: str) -> str:
        accepted = socket.socket()
        place[accepted] = address
        surplus = arrivals.add(address, accepted)
        return "" if surplus is None else place[surplus]

    floods = [f"192.0.2.{number}" for number in range(10)]
    for number in range(ARRIVALS_MAX):
        assert add(floods[number % len(floods)]) == ""
    lost = {add(address) for address in (*floods, "198.51.100.1")}
    assert lost <= {*floods}, "nobody else loses a connection"
    assert len(arrivals) == ARRIVALS_MAX
    first = [place[accepted] for accepted in arrivals.some(len(floods) + 1)]
    assert sorted(first) == sorted((*floods, "198.51.100.1")), "addresses take turns"
    assert len(arrivals.some(2 * ARRIVALS_MAX)) == ARRIVALS_MAX - len(first)
    assert not arrivals
    for accepted in place:
        accepted.close()


async def test_a_flood_of_an_address_does_not_stay_before_others_in_the_queue_of_the_kernel(
    live: Live,
) -> None:
    """Else that queue runs over, and the next client tries again after 1 s, 3 s and 7 s."""
    flood = [_connecting("127.0.0.2", live.port) for _ in range(2 * ARRIVALS_MAX)]
    other = _connecting("127.0.0.3", live.port)
    turns = 0
    while not live.server._connections._addresses["127.0.0.3"]:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 10, "it waits for its turn, and not for the flood"
    for client in (*flood, other):
        client.close()


def _connecting(source: str, port: int) -> socket.socket:
    client = socket.socket()
    client.setblocking(False)
    client.bind((source, 0))
    client.connect_ex(("127.0.0.1", port))
    return client


async def test_many_connections_of_one_address_all_get_their_turn(live: Live) -> None:
    assert not Arrivals().full
    clients = []
    for _ in range(ARRIVALS_MAX + 200):  # this machine's own address, which has no rate
        client = live.client_socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", live.port))
        clients.append(client)
    await live.until(lambda: live.server.service.connections >= len(clients))
    for client in clients:
        client.close()


async def test_a_token_has_half_of_the_connections(serve: Serve) -> None:
    live = await serve(connections_max=3 * TOKEN_SHARE)
    root = await admin_of(live)
    greedy, other = await root.token_for("greedy", "work", "a/*"), await root.token_for("other", "read")
    talks = []
    for way in ("raw", "HTTP", "HTTP with a route"):
        talk = await live.connect()
        if way == "raw":
            talk.send(request("GetJob", name="a/b", Connection="wait", timeout=60_000, **greedy.headers))
        elif way == "HTTP":
            talk.send(post("GetJob", {"name": "a/b"}, greedy.headers))
            assert (await talk.reply()).code == 404
        else:
            talk.send(post("GetJob", {"name": "a/b"}, {**greedy.headers, "X-Other": "1"}))
            assert (await talk.reply()).code == 404
        talks.append(talk)
    await live.waiting(1)
    for data in (
        request("GetJob", name="a/b", **greedy.headers),
        post("GetJob", {"name": "a/b"}, greedy.headers),
        post("GetJob", {"name": "a/b"}, {**greedy.headers, "X-Other": "1"}),
    ):
        async with await live.connect() as talk:
            talk.send(data)
            reply = await talk.reply()
            assert reply.code == 429, reply
    assert (await other.http("ListJobs")).code == 200
    await talks.pop().close()
    await live.connections(2)
    assert (await greedy.http("GetJob", name="a/b")).code == 404


async def test_a_token_has_half_of_the_streams(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    root = await admin_of(live)
    greedy, other = await root.token_for("greedy", "read"), await root.token_for("other", "read")
    monkeypatch.setattr(principal, "TOKEN_SHARE", sse.STREAMS_MAX // 2)  # so that it is two
    ask = "GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nAuthorization: {}\r\n\r\n"

    async def first_line(bearer: Bearer) -> bytes:
        talk = await live.connect()
        talk.send(ask.format(bearer.headers["Authorization"]).encode())
        return await talk.reader.readline()

    assert [(await first_line(greedy))[9:12] for _ in range(3)] == [b"200", b"200", b"429"]
    assert (await first_line(other))[9:12] == b"200"


async def test_pending_commands(serve: Serve) -> None:
    live = await serve(pending_max=5)
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name="p") for _ in range(20)))
    replies = [await talk.reply() for _ in range(20)]
    refused = [reply for reply in replies if reply.code != 200]
    assert {reply.status for reply in refused} == {"503 Too many commands are waiting"}
    assert refused[0].headers["error"] == "try again in a moment"
    rows = (await live.ask("Query", query="SELECT count(*) FROM jobs;")).json
    assert rows == [[20 - len(refused)]], "nothing of a refused command was done"
    assert (await live.ask("CreateJob", name="p")).code == 200


async def test_waiting_commands_are_not_pending(serve: Serve) -> None:
    live = await serve(pending_max=2)
    for count in range(1, 6):
        talk = await live.connect()
        talk.send(request("GetJob", name="w", Connection="wait", timeout=60_000))
        await live.waiting(count)
    await live.until(lambda: live.server.dispatcher.pending == 0)
    assert (await live.ask("CreateJob", name="w")).code == 200


async def test_commands_of_one_commit(serve: Serve) -> None:
    live = await serve(batch_max=10, pipelined_max=1000)
    talk = await live.connect()
    before = live.server.dispatcher.commits
    talk.send(b"".join(request("CreateJob", name="b") for _ in range(500)))
    for _ in range(500):
        assert (await talk.reply()).code == 200
    commits = live.server.dispatcher.commits - before
    assert commits >= 50, "no commit has more than batch_max"
    assert commits < 250, "but commands share commits"


async def test_http_head(serve: Serve) -> None:
    live = await serve(head_bytes_max=2_000)
    assert (await live.http("Ping", None, X="y" * 1_900)).code == 200
    reply = await live.http("Ping", None, X="y" * 2_100)
    assert (reply.code, reply.json["code"]) == (400, 400)


async def test_body(serve: Serve) -> None:
    live = await serve(body_bytes_max=100_000)
    room = 100_000 - len('{"name":"b","data":{"x":""}}')
    body = '{"name":"b","data":{"x":"%s"}}'
    assert (await live.http("CreateJob", body % ("y" * room))).code == 200
    reply = await live.http("CreateJob", body % ("y" * (room + 1)))
    assert (reply.code, reply.json["code"]) == (413, 413)
    for data, code in ((body % ("y" * room), 200), (body % ("y" * (room + 1)), 413)):
        talk = await live.connect()
        talk.send(f"CreateJob\r\nContent-Length: {len(data)}\r\n\r\n{data}")
        assert (await talk.reply()).code == code
    for size, code in ((99_900, 200), (100_001, 413)):
        talk = await live.connect()
        talk.send(f"CreateJob\r\nname: h\r\nx: {'y' * (size - 22)}\r\n\r\n")
        assert (await talk.reply()).code == code


async def test_headers(serve: Serve) -> None:
    live = await serve(headers_max=10)
    for count, code in ((10, 200), (11, 400)):
        talk = await live.connect()
        talk.send("Ping\r\n" + "a: b\r\n" * count + "\r\n")
        assert (await talk.reply()).code == code
        talk = await live.connect()
        talk.send(
            "POST /Ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
            + "a: b\r\n" * (count - 2)
            + "\r\n"
        )
        assert (await talk.reply()).code == code


async def test_query_time_and_rows_and_bytes(serve: Serve) -> None:
    live = await serve(query_s=0.1, query_rows_max=10, query_bytes_max=1_024)
    on_postgresql = live.server.settings.on_postgresql
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x < %d) SELECT x FROM c;"
    assert len((await live.ask("Query", query=many % 10)).json) == 10
    assert (await live.ask("Query", query=many % 11)).status == "502 Too many rows"
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c;"
    assert (await live.ask("Query", query=endless)).status == "555 Timeout"
    assert (await live.http("Query", {"query": endless})).code == 504
    large = "SELECT repeat('00', %d) AS x;" if on_postgresql else "SELECT hex(zeroblob(%d)) AS x;"
    assert (await live.ask("Query", query=large % 500)).code == 200
    assert (await live.ask("Query", query=large % 600)).status == "502 Answer too large"
    if not on_postgresql:  # which has the room for it
        assert (await live.ask("Query", query="SELECT zeroblob(1000000000);")).code == 502
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]


async def test_queries_at_once(serve: Serve) -> None:
    live = await serve(query_s=0.3, query_waiting_max=2)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c;"
    asked = [live.ask("Query", query=endless) for _ in range(4)]
    found = sorted(reply.status for reply in await asyncio.gather(*asked))
    assert found == ["429 Too many queries", "429 Too many queries", "555 Timeout", "555 Timeout"]


async def test_drain_time(serve: Serve) -> None:
    """A client that reads nothing holds a stopping server up for drain_s, not longer."""
    live = await serve(drain_s=0.3)
    await live.ask("CreateJob", name="big", data='{"x":"' + "y" * 4_000_000 + '"}')
    client = live.client_socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", live.port))
    before = live.server.dispatcher.commands
    client.sendall(request("QueryJob", jobID=1))
    await live.until(lambda: live.server.dispatcher.commands > before)
    began = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        await live.server.stop()
    assert in_time(time.monotonic() - began, 5)
    client.close()


@sqlite_only("about the lock of the file")
async def test_a_locked_database_is_busy_after_its_time(serve: Serve) -> None:
    live = await serve(busy_s=0.2)
    other = sqlite3.connect(live.server.settings.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    reply = await live.ask("CreateJob", name="b")
    assert reply.status == "503 Database busy"
    other.execute("ROLLBACK")
    other.close()
    assert (await live.ask("CreateJob", name="b")).json == {"jobID": 1}


@sqlite_only("about the file's write-ahead log")
async def test_the_log_is_grown_at_start(serve: Serve) -> None:
    live = await serve(wal_bytes=2 * 1024 * 1024)
    assert Path(live.server.settings.database + "-wal").stat().st_size >= 2 * 1024 * 1024
    assert (await live.ask("CreateJob", name="b")).json == {"jobID": 1}
