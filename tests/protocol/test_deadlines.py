"""Clients that are too slow are closed in time, and only they."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest

from bedrockjobs.protocol import connections
from tests.conftest import Live, Serve
from tests.pace import in_time
from tests.protocol.talk import Talk, post, request

NEVER_S = 300.0
"""A deadline that no test reaches."""

DEADLINE = 0.5
"""The deadline that a test shortens."""

LATE_S = 2.5
"""How much later than its deadline a connection may be closed: a sweep, a second in which aiohttp goes on
reading a refused body, and a busy machine."""

SLOW_EACH = 5
"""Slow clients of one kind at once."""

ALL = {
    "first_byte_s": NEVER_S,
    "head_s": NEVER_S,
    "body_s": NEVER_S,
    "write_s": NEVER_S,
    "idle_http_s": NEVER_S,
}


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SWEEP_S", 0.1)


Doing = Callable[[Talk], Awaitable[Any]]

_dripping: set[asyncio.Future[None]] = set()


def sends(data: str | bytes) -> Doing:
    """Send something and then nothing more."""

    async def doing(talk: Talk) -> None:
        talk.send(data)

    return doing


def drips(start: str, again: str) -> Doing:
    """Send something, and then a byte now and again until the server closes."""

    async def doing(talk: Talk) -> None:
        talk.send(start)

        async def dripping() -> None:
            while not talk.reader.at_eof() and not talk.writer.is_closing():
                talk.send(again)
                await asyncio.sleep(0.05)

        _dripping.add(task := asyncio.ensure_future(dripping()))
        task.add_done_callback(_dripping.discard)

    return doing


def asks_first(data: bytes, then: Doing) -> Doing:
    """Send a good request, read its answer, and go on."""

    async def doing(talk: Talk) -> None:
        talk.send(data)
        assert (await talk.reply()).code == 200
        for _ in range(20):
            await asyncio.sleep(0)  # lets aiohttp put the answered request away
        await then(talk)

    return doing


RAW_HEAD = "CreateJob\r\nname: slow\r\n"
RAW_BODY = "CreateJob\r\nname: slow\r\nContent-Length: 1000\r\n\r\n{"
RAW_CHUNKS = "CreateJob\r\nname: slow\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"
HTTP_HEAD = "POST /CreateJob HTTP/1.1\r\nHost: localhost\r\n"
HTTP_BODY = HTTP_HEAD + "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
HTTP_CHUNKS = HTTP_HEAD + "Transfer-Encoding: chunked\r\n\r\n5\r\n{"


HTTP_CHUNKED = (
    HTTP_HEAD.replace("CreateJob", "Ping") + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
).encode()
GET_LIVEZ = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"

KINDS: dict[str, dict[str, Doing]] = {
    "first_byte_s": {"silent": sends(""), "blank lines only": sends("\r\n")},
    "head_s": {
        "a letter": sends("C"),
        "a letter of HTTP": sends("G"),
        "a method": sends("POST"),
        "half a raw head": sends(RAW_HEAD),
        "half an HTTP head": sends(HTTP_HEAD),
        "dripped raw head": drips(RAW_HEAD, "x"),
        "dripped HTTP head": drips(HTTP_HEAD, "x"),
        "dripped verb": drips("", "x"),
        "endless raw headers": drips(RAW_HEAD, "a: b\r\n"),
        "half a second raw head": asks_first(request("Ping"), sends(RAW_HEAD)),
        "half a second HTTP head": asks_first(post("Ping"), sends(HTTP_HEAD)),
        "dripped second raw head": asks_first(request("Ping"), drips(RAW_HEAD, "x")),
        "dripped second HTTP head": asks_first(post("Ping"), drips(HTTP_HEAD, "x")),
        "half a pipelined raw head": asks_first(request("Ping") + RAW_HEAD.encode(), sends("")),
        "half a pipelined HTTP head": asks_first(post("Ping") + HTTP_HEAD.encode(), sends("")),
    },
    "idle_http_s": {
        "idle HTTP": asks_first(post("Ping"), sends("")),
        "idle HTTP after a commit": asks_first(post("CreateJob", {"name": "idle"}), sends("")),
        "idle HTTP after a page": asks_first(GET_LIVEZ, sends("")),
        "idle HTTP after chunks": asks_first(HTTP_CHUNKED, sends("")),
    },
    "body_s": {
        "half a raw body": sends(RAW_BODY),
        "half an HTTP body": sends(HTTP_BODY),
        "half raw chunks": sends(RAW_CHUNKS),
        "half HTTP chunks": sends(HTTP_CHUNKS),
        "dripped raw body": drips(RAW_BODY, " "),
        "dripped HTTP body": drips(HTTP_BODY, " "),
        "no raw body behind a command": asks_first(
            request("CreateJob", name="first") + RAW_BODY[:-1].encode(), sends("")
        ),
        "half a second raw body": asks_first(request("Ping"), sends(RAW_BODY)),
        "half a second HTTP body": asks_first(post("Ping"), sends(HTTP_BODY)),
    },
}
"""The slow clients, by the setting that ends them."""


@pytest.mark.parametrize("name", KINDS)
async def test_slow_clients_are_closed_at_their_deadline(serve: Serve, name: str) -> None:
    live = await serve(**{**ALL, name: DEADLINE})
    normal = await live.connect()
    assert (await normal.ask("Ping")).code == 200

    async def one(doing: Doing) -> tuple[float, bytes]:
        talk = await live.connect()
        begun = monotonic()
        await doing(talk)
        said = await talk.ended()
        return monotonic() - begun, said

    clients = {
        (kind, number): asyncio.ensure_future(one(doing))
        for kind, doing in KINDS[name].items()
        for number in range(SLOW_EACH)
    }
    pings = 0
    while not all(client.done() for client in clients.values()):
        begun = monotonic()
        assert (await normal.ask("Ping")).code == 200
        assert in_time(monotonic() - begun, 0.5), "a normal client suffers"
        pings += 1
        await asyncio.sleep(0.01)
    assert pings > 5
    for (kind, _), client in clients.items():
        taken, said = await client
        assert taken > DEADLINE - 0.05, f"{kind}: closed after {taken:.2f} s"
        assert in_time(taken - DEADLINE, LATE_S), f"{kind}: closed after {taken:.2f} s"
        assert said == b"" or b" Timeout" in said or b"504 Gateway Timeout" in said, f"{kind}: {said!r}"
    await live.connections(1)
    assert (await normal.ask("CreateJob", name="normal")).code == 200
    assert (await normal.ask("GetJob", name="slow")).code == 404


async def test_each_part_of_a_request_has_its_own_time(serve: Serve) -> None:
    """A head that came late in its time leaves the body all of its own."""
    live = await serve(**{**ALL, "head_s": 3.0, "body_s": 12.0})
    raw, http = await live.connect(), await live.connect()
    raw.send("CreateJob\r\nname: parts\r\n")
    http.send(HTTP_HEAD)
    await asyncio.sleep(1.6)
    raw.send("Content-Length: 2\r\n\r\n{")
    http.send("Content-Type: application/json\r\nContent-Length: 16\r\n\r\n{")
    await asyncio.sleep(1.6)
    raw.send("}")
    http.send('"name":"parts"}')
    assert {(await talk.reply()).json["jobID"] for talk in (raw, http)} == {1, 2}


async def test_an_idle_raw_connection_is_never_closed(serve: Serve) -> None:
    live = await serve(first_byte_s=1.0, head_s=1.0, body_s=1.0, write_s=1.0, idle_http_s=1.0)
    talk, waiting = await live.connect(), await live.connect()
    assert (await talk.ask("Ping")).code == 200
    waiting.send(request("GetJob", name="w", Connection="wait", timeout=60_000))
    http = await live.connect()
    http.send(post("Ping"))
    assert (await http.reply()).code == 200
    assert await http.ended() == b""
    await asyncio.sleep(0.5)
    assert (await talk.ask("CreateJob", name="w")).json == {"jobID": 1}
    assert (await waiting.reply()).json["jobID"] == 1


async def test_a_waiting_http_request_is_not_idle(serve: Serve) -> None:
    live = await serve(first_byte_s=0.5, head_s=0.5, body_s=0.5, write_s=0.5, idle_http_s=0.5)
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "none", "connection": "wait", "timeout": 1500}))
    assert (await talk.reply()).code == 404


async def test_what_a_slow_client_is_told(serve: Serve) -> None:
    live = await serve(**{**ALL, "head_s": 0.2, "body_s": 0.2})
    for start, part in ((RAW_HEAD, "head"), (RAW_BODY, "body")):
        talk = await live.connect()
        talk.send(start)
        reply = await talk.reply()
        assert (reply.status, reply.headers["connection"]) == ("555 Timeout", "close")
        assert part in reply.headers["error"]
        assert await talk.ended() == b""
    talk = await live.connect()
    talk.send(HTTP_BODY)
    reply = await talk.reply()
    assert (reply.code, reply.json["code"]) == (504, 555)


def _greedy(live: Live) -> socket.socket:
    """Return a connection that will not read: its window is as small as the kernel lets it be."""
    client = live.client_socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", live.port))
    client.setblocking(False)
    return client


@pytest.mark.parametrize("protocol", ["raw", "http"])
async def test_answers_that_are_not_read(serve: Serve, protocol: str) -> None:
    live = await serve(**{**ALL, "write_s": 0.5})
    normal = await live.connect()
    data = '{"x":"' + "y" * 3_000_000 + '"}'
    await live.ask("CreateJob", name="big", data=data)
    one = request("QueryJob", jobID=1) if protocol == "raw" else post("QueryJob", {"jobID": 1})
    clients = [_greedy(live) for _ in range(SLOW_EACH)]
    for client in clients:
        client.send(one * 4)
    await live.connections(1 + SLOW_EACH)
    begun = monotonic()
    await live.connections(1)
    taken = monotonic() - begun
    for client in clients:
        client.close()
    assert taken > 0.4
    assert in_time(taken - 0.5, LATE_S)
    assert (await normal.ask("Ping")).code == 200


@pytest.mark.parametrize("protocol", ["raw", "http"])
async def test_a_slow_reader_gets_everything(serve: Serve, protocol: str) -> None:
    """The deadline is for an answer of which nothing is read, not for a slow line."""
    live = await serve(**{**ALL, "write_s": 5.0})
    data = '{"x":"' + "y" * 2_000_000 + '"}'
    await live.ask("CreateJob", name="big", data=data)
    client = _greedy(live)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(
        client, request("QueryJob", jobID=1) if protocol == "raw" else post("QueryJob", {"jobID": 1})
    )
    got = b""
    while not got.endswith(b'"state":"QUEUED"}'):
        async with asyncio.timeout(10):
            got += await loop.sock_recv(client, 20_000)
    assert got.count(b"y") >= 2_000_000
    client.close()
