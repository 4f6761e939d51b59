"""Hostile input ends in an error or a closed connection, never in a traceback or in growing memory."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from time import monotonic, thread_time

import pytest

from tests.conftest import Live, Serve
from tests.engines import sqlite_only
from tests.pace import in_time, slowness
from tests.protocol.talk import Reply, Talk, post, request

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])
"""What is refused does not depend on the event loop; one is enough."""

MIB = 1024 * 1024

SOON_S = 1.0
"""How long a hostile request may take, on a busy machine; a tenth of a second is the aim."""


def memory() -> int:
    """Return the bytes of memory that this process holds, server and test together."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _json(data: str) -> str:
    return '{"name":"evil","data":' + data + "}"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
EVIL_DATA = {
    "100,000 levels of objects": DEEP,
    "100,000 levels of arrays": '{"a":' + "[" * 100_000 + "]" * 100_000 + "}",
    "65 levels": '{"a":' * 65 + "1" + "}" * 65,
    "100,000 unclosed": '{"a":' * 100_000,
    "a number of a million digits": '{"n":' + "9" * 1_000_000 + "}",
    "a fraction of a million digits": '{"n":0.' + "9" * 1_000_000 + "e400}",
    "beyond a double": '{"n":1e400}',
    "a huge exponent": '{"n":1e999999999}',
    "NaN": '{"n":NaN}',
    "Infinity": '{"n":-Infinity}',
    "a lone surrogate": '{"s":"\\ud800"}',
    "a lone surrogate as a key": '{"\\udfff":1}',
    "a raw control character": '{"s":"\x01"}',
    "truncated": '{"a":1',
    "more behind": '{"a":1} {"b":2}',
    "a trailing comma": '{"a":1,}',
    "single quotes": "{'a':1}",
    "a comment": '{"a":1/**/}',
    "nothing": "",
    "an array": "[1,2]",
    "a string": '"text"',
    "null as text": "nul",
}
FINE_DATA = {
    "64 levels": '{"a":' * 64 + "1" + "}" * 64,
    "duplicate keys": '{"a":1,"a":2}',
    "an escaped NUL": '{"s":"\\u0000"}',
    "a pair of surrogates": '{"s":"\\ud83d\\ude00"}',
    "a long string": '{"s":"' + "x" * 1_000_000 + '"}',
    "a long integer": '{"n":' + "9" * 300 + "}",
    "minus zero": '{"n":-0.0}',
    "many keys": "{" + ",".join(f'"k{n}":{n}' for n in range(50_000)) + "}",
}


async def ask_http(live: Live, body: str | bytes) -> Reply:
    talk = await live.connect()
    data = body if isinstance(body, bytes) else body.encode()
    talk.send(
        b"POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(data), data)
    )
    return await talk.reply()


async def ask_raw_header(live: Live, data: str) -> Reply:
    return await live.ask("CreateJob", name="evil", data=data)


async def ask_raw_body(live: Live, body: str) -> Reply:
    talk = await live.connect()
    data = body.encode()
    talk.send(b"CreateJob\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))
    return await talk.reply()


async def test_data_that_is_refused(live: Live) -> None:
    for kind, data in EVIL_DATA.items():
        begun = monotonic()
        reply = await ask_raw_header(live, data)
        assert (reply.status, reply.body) == ("402 Data is not a valid JSON Object", ""), kind
        assert len(reply.headers["error"]) < 1_100, kind
        reply = await ask_http(live, _json(data))
        assert (reply.code, reply.json["code"]) == (400, 402), kind
        assert reply.json["reason"] in ("Data is not a valid JSON Object", "Malformed body"), kind
        assert (await ask_raw_body(live, _json(data))).code == 402, kind
        reply = await live.ask("CreateJobs", jobs=f"[{_json(data)}]")
        assert reply.code in (401, 402), kind
        assert in_time(monotonic() - begun, 4 * SOON_S), kind
        assert (await live.ask("Query", query="SELECT count(*) FROM jobs;")).body == "[[0]]", kind


@pytest.mark.parametrize("kind", FINE_DATA)
async def test_data_that_is_kept_as_it_is(live: Live, kind: str) -> None:
    data = FINE_DATA[kind]
    assert (await ask_raw_header(live, data)).json == {"jobID": 1}
    assert (await ask_http(live, _json(data))).json == {"jobID": 2}
    first, second = await live.ask("GetJob", name="evil"), await live.ask("GetJob", name="evil")
    assert f'"data":{data},"jobID":2' in second.body
    if "\\" in data:  # a header's backslashes are undone
        assert first.json["data"] == second.json["data"]
    else:
        assert f'"data":{data},"jobID":1' in first.body


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"CreateJob\r\nname: a\x00b\r\n\r\n", "402 Malformed name"),
        (b"CreateJob\r\nname: a\\u0000b\r\n\r\n", "402 Malformed name"),
        (b"CreateJob\r\nname: a\\u000ab\r\n\r\n", "402 Malformed name"),
        (b"CreateJob\r\nname: a\\ud800b\r\n\r\n", "402 Malformed name"),
        (b"CreateJob\r\nname: \x7f\r\n\r\n", "402 Malformed name"),
        (b"CreateJob\x00\r\nname: a\r\n\r\n", "430 Unrecognized command"),
        (b"\x00\r\n\r\n", "430 Unrecognized command"),
        (b"CreateJob\r\nname: \xff\xfe\r\n\r\n", "400 Malformed request"),
        (b"Ping\r\nContent-Length: 1\r\nCONTENT-LENGTH: 1\r\n\r\na", "400 Malformed Content-Length"),
        (b"\xff\xfe\xfd\r\n\r\n", "400 Malformed request"),
        (b"CreateJob\r\nname: a\r\nContent-Length: 2\r\n\r\n\xff\xff", "400 Malformed request"),
        (b"Ping\r\nContent-Length: -1\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: 1e3\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: \xd9\xa3\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nContent-Length: 2147483648\r\n\r\n", "413 Request too large"),
        (b"Ping\r\nContent-Length: " + b"9" * 10_000 + b"\r\n\r\n", "413 Request too large"),
        (b"Ping\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "400 Malformed Content-Length"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400 Malformed chunk"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "400 Malformed chunk"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "400 Malformed chunk"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "413 Request too large"),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5_000, "400 Malformed chunk"),
        (b"Ping\r\n" + b"a: b\r\n" * 101 + b"\r\n", "400 Too many headers"),
        (b"GetJob\r\nname: x\r\ntimeout: " + b"9" * 5_000 + b"\r\n\r\n", "402 Malformed timeout"),
        (b"QueryJob\r\njobID: " + b"9" * 5_000 + b"\r\n\r\n", "402 Malformed jobID"),
        (b"QueryJob\r\njobID: \xd9\xa3\r\n\r\n", "402 Malformed jobID"),
        (b"Query\r\nquery: SELECT char(0);\x00;\r\n\r\n", "402 Bad query"),
        pytest.param(
            b"Query\r\nquery: SELECT CAST(x'ff' AS TEXT);\r\n\r\n",
            "402 Bad query",
            marks=sqlite_only("PostgreSQL does not build text from invalid bytes"),
        ),
    ],
)
async def test_raw_requests_that_are_refused(live: Live, sent: bytes, status: str) -> None:
    talk = await live.connect()
    talk.send(sent)
    reply = await talk.reply()
    assert (reply.status, reply.body) == (status, "")
    assert all(len(line) < 1_200 for line in reply.lines)
    if status.startswith("4") and status[:3] in ("400", "413"):
        assert reply.headers["connection"] == "close"
        assert await talk.ended() == b""
    else:
        assert (await talk.ask("Ping")).code == 200


async def test_what_a_browser_sends_with_a_method_of_its_own_does_nothing(live: Live) -> None:
    talk = await live.connect()
    talk.send(b"PROPFIND / HTTP/1.1\r\nHost: localhost\r\n\r\nCreateJob\r\nname: smuggled\r\n\r\n")
    reply = await talk.reply()
    assert (reply.status, reply.headers["connection"]) == ("430 Unrecognized command", "close")
    assert await talk.ended() == b""
    assert (await live.ask("QueryJob", jobID=1)).code == 404


async def test_a_client_may_name_the_host_with_commands_that_there_are(live: Live) -> None:
    talk = await live.connect()
    for _ in range(2):
        assert (await talk.ask("CreateJob", name="a", host="db1.example")).code == 200
    assert (await talk.ask("Nonsense")).code == 430
    assert (await talk.ask("Ping")).code == 200


HTTP = b"POST /CreateJob HTTP/1.1\r\nHost: localhost\r\n"


REFUSED = [
    (HTTP + b"Content-Length: 2147483648\r\n\r\n", 413),
    (HTTP + b"Content-Length: abc\r\n\r\n", 400),
    (HTTP + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (HTTP + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (HTTP + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 400),
    (HTTP + b"a: b\r\n" * 120 + b"\r\n", 400),
    (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"POST / \x00\xff\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 403),
    (b"GET / HTTP/1.1\r\nHost: localhost:port\r\n\r\n", 200),
    (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
    (b"POST /Ping HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\nContent-Length: 0\r\n\r\n", 403),
    (b"POST /Ping HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 0\r\n\r\n", 403),
    (b"POST /Ping HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n", 403),
    (b"POST /%00 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 404),
    (b"POST /%FF/%2e%2e HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 404),
    (b"POST /createjob HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 404),
    (b"DELETE /CreateJob HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
    (HTTP + b"Content-Length: 2\r\n\r\n\xff\xff", 400),
    (HTTP + b"Content-Length: 2\r\n\r\n[]", 400),
    (HTTP + b"Content-Length: 8\r\n\r\n" + b'{"n":"x"', 400),
    (HTTP + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 400),
    (HTTP + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n\r\n%FF=%00", 400),
    (HTTP + b"Prefer: wait=" + b"9" * 5_000 + b"\r\nContent-Length: 2\r\n\r\n{}", 400),
    (HTTP + b"Expect: something\r\nContent-Length: 2\r\n\r\n{}", 417),
]


async def test_http_requests_that_are_refused(live: Live) -> None:
    for sent, code in REFUSED:
        talk = await live.connect()
        talk.send(sent)
        assert (await talk.reply()).code == code, sent[:100]
        assert (await live.http("Ping")).code == 200, sent[:100]


async def test_chunks_that_go_wrong(live: Live) -> None:
    talk = await live.connect()
    talk.send(HTTP + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n")
    assert (await talk.reply()).code == 400
    assert (await live.http("Ping")).code == 200


async def test_chunks_that_go_wrong_later_end_as_a_body_that_does_not_come(serve: Serve) -> None:
    live = await serve(body_s=0.5)
    talk = await live.connect()
    talk.send(HTTP + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
    opened = live.server._connections.open
    await live.until(lambda: any(getattr(each, "_active", False) for each in opened))
    talk.send(b"zz\r\n")
    assert (await talk.reply()).code == 504, "aiohttp does not tell the handler that reads the body"
    assert (await live.http("Ping")).code == 200


GET_LARGE = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def test_a_closed_http_body_is_no_fault(live: Live) -> None:
    for _ in range(3):
        talk = await live.connect()
        talk.send(HTTP + b"Content-Length: 100\r\n\r\n{")
        await asyncio.sleep(0)
        talk.reset()
    assert (await live.http("Ping")).code == 200


@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"CreateJob\r\nname: ", b"x" * 65_536),
        (b"x" * 100, b"x" * 65_536),
        (b"CreateJob\r\n", b"a: b\r\n" * 10_000),
        (b"\r\n", b"\r\n" * 32_768),
        (b"Ping\r\n\r\n", b"\r\n" * 32_768),
        (b"Ping\r\nTransfer-Encoding: chunked\r\n\r\n", (b"8000\r\n" + b"x" * 32_768 + b"\r\n") * 2),
        (b"Ping\r\nContent-Length: 900000\r\n\r\n", b"y" * 65_536),
        (b"GetJob\r\nname: none\r\nConnection: wait\r\ntimeout: 60000\r\n\r\n", b"Ping\r\n\r\n" * 8_000),
        (b"GetJob\r\nname: none\r\nConnection: wait\r\ntimeout: 60000\r\n\r\n", b"x" * 65_536),
        (b"Ping\r\n\r\n", b"Ping\r\n\r\n" * 8_000),
        (b"Help\r\n\r\n", b"Help\r\n\r\n" * 8_000),
        (b"Ping\r\nConnection: close\r\n\r\n", b"Ping\r\n\r\n" * 8_000),
        (b"POST /CreateJob HTTP/1.1\r\n", b"X-Y: zzzzzzzzzzz\r\n" * 4_000),
        (HTTP + b"Transfer-Encoding: chunked\r\n\r\n", (b"8000\r\n" + b"x" * 32_768 + b"\r\n") * 2),
        (HTTP + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 8_000),
        (GET_LARGE, GET_LARGE * 1_000),
    ],
    ids=range(16),
)
async def test_a_flood_costs_no_memory(serve: Serve, start: bytes, again: bytes) -> None:
    """A client that sends without end and reads nothing."""
    live = await serve(body_bytes_max=MIB, write_s=60)
    normal = await live.connect()
    assert (await normal.ask("Ping")).code == 200
    client = live.client_socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    client.connect(("127.0.0.1", live.port))
    client.setblocking(False)
    before, sent = memory(), 0
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(client, start)
        async with asyncio.timeout(0.7):
            while sent < 64 * MIB:
                await loop.sock_sendall(client, again)
                sent += len(again)
    except (TimeoutError, ConnectionError):
        pass  # the server reads no more, or has closed
    grown = memory() - before
    assert grown < 12 * MIB, f"{grown / MIB:.0f} MiB more after {sent / MIB:.0f} MiB were sent"
    begun = monotonic()
    assert (await normal.ask("Ping")).code == 200
    assert in_time(monotonic() - begun, SOON_S)
    client.close()


async def test_a_flood_of_requests_leaves_others_their_turn(live: Live) -> None:
    normal, greedy = await live.connect(), await live.connect()
    greedy.send(request("Ping") * 200_000)
    slowest = 0.0
    for _ in range(20):
        begun = thread_time()  # of the processor, which serves others of this machine too
        assert (await normal.ask("Ping")).code == 200
        slowest = max(slowest, thread_time() - begun)
    assert slowest / slowness() < 0.25, f"a normal client waited for {slowest:.2f} s"
    greedy.reset()


async def test_bytes_of_a_large_request_in_small_pieces(live: Live) -> None:
    """Header lines of a megabyte in pieces of a few bytes are normal, and cost no more than they must."""
    talk = await live.connect()
    whole = request("CreateJob", name="pieces", data='{"x":"' + "y" * 1_000_000 + '"}')
    begun = monotonic()
    for at in range(0, len(whole), 97):
        talk.send(whole[at : at + 97])
        if at % 970 == 0:
            await asyncio.sleep(0)
    assert (await talk.reply()).json == {"jobID": 1}
    assert in_time(monotonic() - begun, 5)


async def test_a_pattern_made_to_be_slow(live: Live) -> None:
    for n in range(20):
        await live.ask("CreateJob", name="a" * 250 + str(n))
    begun = monotonic()
    reply = await live.ask("GetJob", name="*a" * 19 + "*b")
    assert reply.code == 404
    assert in_time(monotonic() - begun, SOON_S)


@pytest.mark.parametrize("way", ["names", "thenGet", "crash"])
async def test_an_endless_pattern_poisons_nothing(live: Live, way: str) -> None:
    """SQLite gives up on patterns over 50,000 bytes; whoever waits with one must not hurt the others."""
    pattern = "*" + "x" * 60_000
    await live.ask("CreateJob", name="t")
    await live.ask("GetJob", name="t")
    if way == "names":
        reply = await live.ask("GetJob", names=f'["{pattern}"]', Connection="wait", timeout=100)
        assert reply.status == "402 Malformed names"
    elif way == "thenGet":
        reply = await live.ask("FinishJob", jobID=1, thenGet=pattern, Connection="wait", timeout=100)
        assert reply.status == "402 Malformed thenGet"
    else:
        assert (await live.ask("CrashBedrockJob", names=f'["{pattern}"]')).status == "402 Malformed names"
    assert (await live.ask("CreateJob", name="victim")).json == {"jobID": 2}
    assert (await live.ask("GetJob", name="v*")).json["jobID"] == 2


async def test_a_reset_in_the_middle_of_everything(live: Live) -> None:
    for data in (b"", b"P", b"Ping\r\n", request("Ping") * 50, request("Query", query="SELECT 1;") * 5, HTTP):
        for _ in range(5):
            talk = await Talk.open(live.port)
            talk.send(data)
            await asyncio.sleep(0)
            talk.reset()
    await live.connections(0)
    assert (await live.ask("Ping")).code == 200
    assert (await live.http("Ping")).code == 200


async def test_a_form_of_very_many_fields(live: Live) -> None:
    body = "a&" * 500_000
    talk = await live.connect()
    begun = monotonic()
    talk.send(
        "POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    )
    assert (await talk.reply()).code == 400
    assert in_time(monotonic() - begun, SOON_S)


async def test_posts_of_a_browser_from_elsewhere_are_refused(live: Live) -> None:
    talk = await live.connect()
    talk.send(post("CreateJob", {"name": "csrf"}, {"Origin": "http://localhost.evil.example"}))
    assert (await talk.reply()).code == 403
    assert (await live.ask("GetJob", name="csrf")).code == 404
