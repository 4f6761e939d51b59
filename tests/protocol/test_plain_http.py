"""Plain HTTP requests take a path of their own: it must reply as the usual one does, and lose nothing."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import CONNECTION_BYTES_FREE, REQUEST_CACHED_BYTES_MAX, REQUESTS_CACHED_MAX
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS
from bedrockjobs.engine.access import Access
from bedrockjobs.protocol import http_connection
from bedrockjobs.protocol.authentication import HTTPAuthentication, Origins, Proxies
from bedrockjobs.protocol.http_connection import AHEAD_BYTES_MAX, HTTPConnection, PlainHTTP
from bedrockjobs.protocol.pipeline import Exchange
from tests.conftest import Live, Serve
from tests.effort import crossed
from tests.protocol.talk import DEADLINE_S, Reply, post

USUAL = {"X-Not-Plain": "1"}
"""A header that means nothing, but is not known to mean nothing."""

READ_BYTES_MAX = 256 * 1024
"""The most that the event loop reads at once."""

BODIES: list[tuple[str, Any]] = [
    ("Ping", {}),
    ("Ping", ""),
    ("CreateJob", {"name": "a", "data": {"x": 1.50}}),
    ("CreateJob", {"name": "ü", "data": {"x": "é"}}),
    ("GetJob", {"name": "nobody"}),
    ("GetJob", {"name": "nobody", "connection": "wait", "timeout": 1}),
    ("FinishJob", {"jobID": 12345}),
    ("CreateJob", {"name": 5}),
    ("CreateJob", {"name": "a", "nmae": "b"}),
    ("CreateJob", "{"),
    ("CreateJob", "[]"),
    ("CreateJob", {"name": "a", "connection": "forget"}),
    ("CreateJobs", {"jobs": []}),
    ("NoSuchCommand", {}),
    ("QueryJob", {"jobID": 12345}),
    ("ListJobs", {}),
    ("Status", {}),
    ("Query", {"query": "SELECT 1 AS one;"}),
    ("Heartbeat", {"worker": "w"}),
]


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Note each request that was answered as a plain one (True), or handed over by it (False)."""
    noted: list[bool] = []

    def note(where: Any, name: str, *, plain: bool) -> None:
        before = getattr(where, name)

        def noting(*given: Any, **named: Any) -> Any:
            noted.append(plain)
            return before(*given, **named)

        monkeypatch.setattr(where, name, noting)

    note(http_connection, "answer_bytes", plain=True)
    note(http_connection, "problem_bytes", plain=True)
    note(HTTPConnection, "_hand_over", plain=False)
    return noted


def told(reply: Reply) -> tuple[Any, ...]:
    """Return what of an answer must be the same however it was found."""
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    body = reply.body
    if reply.code == 200 and body.startswith("{"):
        body = json.dumps(sorted(json.loads(body)))  # numbers and times go on
        headers.pop("content-length")
    return reply.status, headers, body


@pytest.mark.parametrize(
    ("asked", "more"),
    crossed(BODIES, [{}, {"Connection": "close"}, {"Accept-Encoding": "gzip"}]),
    ids=lambda value: str(value)[:40],
)
async def test_both_ways_answer_alike(live: Live, asked: tuple[str, Any], more: dict[str, str]) -> None:
    command, body = asked
    assert told(await live.http(command, body, **more)) == told(
        await live.http(command, body, **{**more, **USUAL})
    )


async def test_it_is_taken(live: Live, answered: list[bool]) -> None:
    """On a new connection, on one that was used before, and after a request that aiohttp answered."""
    talk = await live.connect()
    for command in ("CreateJob", "GetJob", "GetJob"):
        talk.send(post(command, {"name": "a"}))
        await talk.reply()
    assert answered == [True, True, True]
    await live.http("Ping", **USUAL)
    assert answered == [True, True, True]
    talk.send(post("Ping", headers=USUAL))
    assert (await talk.reply()).code == 200
    talk.send(post("Ping"))
    assert (await talk.reply()).code == 200
    assert answered == [True] * 4


@pytest.mark.parametrize(
    "more",
    [
        {"Origin": "http://elsewhere.example"},
        {"Host": "elsewhere.example"},
        {"Content-Encoding": "gzip"},
        {"If-Match": '"1"'},
        {"Prefer": "wait=1"},
        {"Transfer-Encoding": "chunked"},
    ],
)
async def test_a_header_that_means_something_goes_the_usual_way(
    live: Live, answered: list[bool], more: dict[str, str]
) -> None:
    talk = await live.connect()
    talk.send(post("Ping", headers=more))
    await talk.ended(0.5) if "Transfer-Encoding" in more else await talk.reply()
    assert answered == []


HEADS = {
    "http.client": ("Accept-Encoding: identity", "Content-Type: application/json"),
    "requests": (
        "User-Agent: python-requests/2.32.5",
        "Accept-Encoding: gzip, deflate, zstd",
        "Accept: */*",
        "Connection: keep-alive",
        "Content-Type: application/json",
    ),
    "aiohttp": (
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        "User-Agent: Python/3.11 aiohttp/3.14.5",
        "Content-Type: application/json",
    ),
    "httpx": (
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        "Connection: keep-alive",
        "User-Agent: python-httpx/0.28.1",
        "Content-Length: {length}",
        "Content-Type: application/json",
    ),
    "fetch": (
        "Connection: keep-alive",
        "Content-Type: application/json",
        "Accept: */*",
        "Accept-Language: *",
        "User-Agent: node",
        "Accept-Encoding: gzip, deflate",
    ),
    "Go": (
        "User-Agent: Go-http-client/1.1",
        "Content-Type: application/json; charset=utf-8",
        "Accept-Encoding: gzip",
    ),
    "curl -d": ("User-Agent: curl/8.5.0", "Accept: */*", "Content-Type: application/x-www-form-urlencoded"),
}
"""Headers of clients that people use, after Host; Content-Length comes last if it is not among them."""


@pytest.mark.parametrize("client", HEADS)
@pytest.mark.parametrize("segments", ["whole", "head and body", "halves"])
async def test_each_client_is_plain_however_its_request_is_cut(
    live: Live, answered: list[bool], client: str, segments: str
) -> None:
    """Most clients send the body after the head, in a packet of its own."""
    body = b'{"name": "a", "data": {"x": 1}}'
    lines = ["POST /CreateJob HTTP/1.1", "Host: localhost", *HEADS[client]]
    if not any(line.startswith("Content-Length") for line in lines):
        lines.append("Content-Length: {length}")
    head = "\r\n".join([*lines, "", ""]).format(length=len(body)).encode()
    cut = {"whole": len(head + body), "head and body": len(head), "halves": len(head) // 2}[segments]
    async with await live.connect() as talk:
        for number in range(1, 4):
            talk.send((head + body)[:cut])
            await talk.writer.drain()
            await live.http("Ping")  # the server has read the first segment
            talk.send((head + body)[cut:])
            assert (await talk.reply()).json == {"jobID": number}
    assert len(answered) == 6


def reader() -> PlainHTTP:
    """Return what reads the heads of a server that lets everybody in."""
    settings = Settings()
    gate = HTTPAuthentication(Access(SystemClock(), settings, reachable=False), Proxies("", ""), settings)
    return PlainHTTP(Origins(local_only=False, names="", open_to_all=True), gate, settings)


REFUSED_HEADS = [
    "POST /Ping HTTP/1.0\r\nHost: a",
    "POST /Ping  HTTP/1.1\r\nHost: a",
    "post /Ping HTTP/1.1\r\nHost: a",
    "POST /Ping HTTP/1.1\r\nHost: a\r\n folded",
    "POST /Ping HTTP/1.1\r\nHost : a",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nHost: b",
    "POST /Ping HTTP/1.1\r\nHost: a\rX: b",
    "POST /Ping HTTP/1.1\r\nHost: a\x00",
    "POST /Ping HTTP/1.1\r\nno colon",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length: +1",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length:",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
    "POST /Ping HTTP/1.1\r\nHost: a\r\ntransfer-encoding: identity",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nExpect: 100-continue",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket",
    "POST /Ping HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Transfer-Encoding",
    "\r\nPOST /Ping HTTP/1.1\r\nHost: a",
    "POST /Ping HTTP/1.1\r\n" + "\r\n".join(f"X{number}: y" for number in range(101)),
]


@pytest.mark.parametrize("head", REFUSED_HEADS)
def test_a_head_outside_the_narrow_grammar_is_left_to_aiohttp(head: str) -> None:
    """Two parsers that disagree about where a request ends would let one smuggle a second."""
    plain = reader()
    assert plain.head(f"{head}\r\n\r\n".encode()) is None


async def test_what_aiohttp_gets_for_good_is_still_answered_in_order(live: Live) -> None:
    talk = await live.connect()
    chunked = (
        b"POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nC\r\n" + b'{"name":"a"}' + b"\r\n0\r\n\r\n"
    )
    talk.send(post("Ping") + chunked + post("GetJob", {"name": "a"}) + post("Ping"))
    replies = [await talk.reply() for _ in range(4)]
    assert [reply.code for reply in replies] == [200] * 4
    assert [reply.json.get("jobID") for reply in replies[1:3]] == [1, 1]


async def test_expect_continue_is_answered_and_the_connection_goes_on(live: Live) -> None:
    body = b'{"name":"a"}'
    head = f"POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    async with await live.connect() as talk:
        talk.send(f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n")
        assert (await talk.reply()).code == 100
        talk.send(body + post("Ping"))
        assert (await talk.reply()).json == {"jobID": 1}
        assert (await talk.reply()).code == 200


async def test_what_was_asked_before_the_end_of_the_input_is_answered(live: Live) -> None:
    """``nc -N`` closes its sending half at once; a job that such a client waits for is not handed out."""
    talk = await live.connect()
    talk.send(post("CreateJob", {"name": "a"}) + post("CreateJob", {"name": "b"}))
    talk.end()
    assert [(await talk.reply()).json["jobID"] for _ in range(2)] == [1, 2]
    assert await talk.ended() == b""
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "c", "connection": "wait"}))
    await live.waiting(1)
    talk.end()
    await live.waiting(0)
    assert await talk.ended() == b""


LARGE = {"name": "a", "data": {"text": "x" * 2 * CONNECTION_BYTES_FREE}}


@pytest.mark.parametrize(
    ("ahead", "behind"),
    [
        (post("CreateJob", LARGE), b""),
        (post("CreateJob", {"name": "a"}, USUAL), b""),
        (post("CreateJob", {"name": "a"}), post("CreateJob", LARGE)),
        (post("CreateJob", LARGE), post("CreateJob", {"name": "a"}) * 300),
        (post("CreateJob", {"name": "a"}) * 300, b""),
    ],
)
async def test_whatever_was_sent_before_the_end_of_the_input_is_answered(
    live: Live, ahead: bytes, behind: bytes
) -> None:
    """Large bodies and unusual headers, which take another way, and more requests than one turn takes."""
    talk = await live.connect()
    talk.send(ahead + behind)
    talk.end()
    count = (ahead + behind).count(b"POST ")
    assert [(await talk.reply()).json for _ in range(count)] == [
        {"jobID": number} for number in range(1, count + 1)
    ]
    assert await talk.ended() == b""


@pytest.mark.parametrize(
    "waits",
    [
        post("GetJob", {"name": "none"}, {"Prefer": "wait=60"}),
        b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
    ],
)
@pytest.mark.parametrize("ended", ["before", "after"])
async def test_a_wait_ends_with_the_input(live: Live, waits: bytes, ended: str) -> None:
    talk = await live.connect()
    talk.send(waits)
    if ended == "after":
        await live.settle()
    talk.end()
    await talk.ended()
    await live.waiting(0)


async def test_a_client_that_sends_ahead_is_read_no_further(live: Live) -> None:
    """The worst case: a client whose first request waits sends megabytes of others behind it."""
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "a", "connection": "wait"}))
    await live.waiting(1)
    count = 2_000
    many = post("Ping", headers={"User-Agent": "x" * 1_000}) * count
    talk.send(many)
    (connection,) = (one for one in live.server._connections.open if isinstance(one, HTTPConnection))
    await live.until(lambda: not connection._reading)
    assert len(connection._buffer) < AHEAD_BYTES_MAX + READ_BYTES_MAX < len(many)
    await live.http("CreateJob", {"name": "a"})
    assert (await talk.reply()).json["jobID"] == 1
    assert [(await talk.reply()).code for _ in range(count)] == [200] * count


async def test_a_body_that_does_not_come_is_not_waited_for(serve: Serve) -> None:
    live = await serve(body_s=0.2)
    async with await live.connect() as talk:
        talk.send(post("CreateJob", {"name": "a"})[:-3])
        reply = await talk.reply()
        assert (reply.code, reply.json["code"]) == (504, 555)
        assert await talk.ended() == b""


async def test_a_foreign_host_is_refused(live: Live, answered: list[bool]) -> None:
    talk = await live.connect()
    for _ in range(2):
        talk.send(post("Ping", host="elsewhere.example"))
        assert (await talk.reply()).code == 403
    assert answered == []


def test_heads_are_cached_up_to_a_limit() -> None:
    """The worst case: a client that sends another head each time, and heads that are too long to keep."""
    plain = reader()
    for number in range(REQUESTS_CACHED_MAX + 50):
        head = plain.head(f"POST /Ping HTTP/1.1\r\nHost: host{number}\r\n\r\n".encode())
        assert head is not None
        assert head.command_class is COMMANDS["Ping"]
    assert len(plain.heads) == REQUESTS_CACHED_MAX
    long = b"x" * REQUEST_CACHED_BYTES_MAX
    plain.head(b"POST /Ping HTTP/1.1\r\nHost: a\r\nUser-Agent: %b\r\n\r\n" % long)
    assert len(plain.heads) == REQUESTS_CACHED_MAX


MEMBERS = [
    *('"name":"a"', '"name":"b"', '"name":""', '"name":null', '"name":5', '"na\\u006de":"a"', '"nmae":"a"'),
    *('"data":{}', '"data":{"k":1.50}', '"data":[]', '"data":[1]', '"data":null', '"data":"{}"', '"data":""'),
    *('"data":"{\\"k\\":1}"', '"data":{"k":"\\ud800"}', '"data":{"k":1e999}', '"data":{"k":NaN}'),
    *('"jobID":1', '"jobID":7', '"jobID":"7"', '"jobID":0', '"jobID":-1', '"jobID":1.0', '"jobID":true'),
    *('"jobID":null', '"jobID":[]', '"jobID":99999999999999999999', '"thenGet":"a"', '"thenGet":""'),
    *('"connection":"wait"', '"timeout":5', '"timeout":-5', '"jobPriority":1000', '"jobPriority":7'),
    *(
        '"uniqueKey":"k"',
        '"uniqueKey":"l"',
        '"uniqueKey":""',
        '"uniqueKey":5',
        '"uniqueKey":null',
        '"data":{"l":2}',
    ),
    *('"data":{"l":3},"uniqueKey":"m"', '"uniqueFor":60'),
    *('"repeat":"FINISHED, +1 DAY"', '"names":["a"]', '"names":[]', "5", '"data":{"k":1},"data":{"k":2}'),
    *(
        '"data":{"jobID":7,"data":{"uniqueKey":"k"}}',
        '"data":{"s":"}\\",\\"name\\":{"}',
        '"data":[ ]',
        '"data":[}',
    ),
    *(
        '"jobID":007',
        '"jobID":"007"',
        '"jobID":"7',
        '"jobID":7"',
        '"jobID":7e0',
        '"jobID":1234567890123456789',
    ),
    *('"uniqueKey":"\\u00fc"', '"uniqueKey":"a\\"b"', '"uniqueKey":"a\tb"', '"uniqueKey":"}"', '"data" : {}'),
]
FREQUENT = {
    "CreateJob": ['"name":"a"', '"name":"a"', '"data":{}', '"data":{"k":1.50}', '"uniqueKey":"k"'],
    "FinishJob": ['"jobID":1', '"jobID":7', '"jobID":"7"', '"thenGet":"a"'],
    "GetJob": ['"name":"a"', '"name":"b"', '"connection":"wait"'],
    "RetryJob": ['"jobID":1', '"jobID":7'],
}
"""Members of requests that are valid more often."""
BETWEEN = [",", ",", ",", ",", ", ", " ,\r\n\t", "\xa0,"]
"""Between two members: mostly what clients write, some of it not JSON."""


def read(plain: PlainHTTP, kind: str, body: bytes, more: bytes = b"") -> tuple[Any, bool]:
    """Return the command that the connection reads from a body, or the error; and whether it was cached."""
    head = plain.head(b"POST /%b HTTP/1.1\r\nHost: a%b\r\n\r\n" % (kind.encode(), more))
    assert head is not None
    exchange = Exchange()
    try:
        plain.read(exchange, head, body)
    except CommandError as error:
        return (type(error), error.reason, error.detail), False
    assert exchange.command is not None
    assert exchange.template.connection == exchange.command.connection
    return exchange.command, exchange.prepared is not None


FORM = b"\r\nContent-Type: application/x-www-form-urlencoded"


@pytest.mark.parametrize("kind", FREQUENT)
def test_a_cached_command_is_read_as_a_new_one(kind: str) -> None:
    """Random bodies of a few members, so that most differ from a cached one in one value."""
    dice, warm, cached = random.Random(1), reader(), 0
    for _ in range(3_000):
        comma, content_type = dice.choice(BETWEEN), dice.choice([b"", FORM])
        members = comma.join(
            dice.choices(dice.choice([MEMBERS, FREQUENT[kind]]), k=dice.choice([1, 2, 2, 3]))
        )
        body = f"{dice.choice(['', ' '])}{{{members}}}{dice.choice(['', chr(10)])}".encode()
        (found, was_cached), (new, _) = (read(one, kind, body, content_type) for one in (warm, reader()))
        assert found == new, body
        if not isinstance(found, tuple):
            assert found.model_fields_set == new.model_fields_set, body
        cached += was_cached
    assert cached > 100 or kind == "RetryJob"
    assert bool(cached) is (kind != "RetryJob")


BODIES_CUT = [
    ("CreateJob", '{"name":"a","data":%s}', ['{"k":1}', '{ "k": {} }', '"{}"', "{}"]),
    ("CreateJob", '{"data": %s, "name": "a"}\n', ['{"k":1}', '{"k":"}"}']),
    ("CreateJob", '{"name":"a","data":{"jobID":1},"uniqueKey":%s}', ['"k"', '"\\u00fc"', '"ü"']),
    ("CreateJob", '{"uniqueKey": %s, "data": {}, "name": "a"}', ['"k"', '"l"']),
    ("FinishJob", '{"jobID":%s}', ["1", "999999999999999999"]),
    ("FinishJob", '{ "jobID": %s, "thenGet": "a" }', ["1", '"2"']),
    ("GetJob", '{"name":"a"}', [()]),
]
"""Bodies that clients repeat, with the value that differs, and values."""


@pytest.mark.parametrize(("kind", "body", "values"), BODIES_CUT)
def test_what_repeats_is_cached_at_the_second_time(kind: str, body: str, values: list[Any]) -> None:
    plain = reader()
    for value in [*values, *values]:
        text = body % value
        command, _ = read(plain, kind, text.encode(), FORM)
        assert command == COMMANDS[kind].read_json(text)
    assert all(read(plain, kind, (body % value).encode())[1] for value in values)
    assert sum(each is not None for each in plain._prepared.values()) == 1, "all of them share one"


MISLEADING = [
    ("FinishJob", '{"data":{"jobID":5},"jobID":5}', '{"data":{"jobID":6},"jobID":5}'),
    ("FinishJob", '{"jobID":5,"j\\u006fbID":5}', '{"jobID":6,"j\\u006fbID":5}'),
    ("CreateJob", '{"name":"a","data":{},"d\\u0061ta":{}}', '{"name":"a","data":{"k":1},"d\\u0061ta":{}}'),
    ("CreateJob", '{"data":{"k":{}},"name":"a"}', '{"data":{"k":{}},"uniqueKey":"k","m":{},"name":"a"}'),
    ("GetJob", "name=a", "name=a"),
]
"""A body that may be cached, and another that looks like it but for a value."""


@pytest.mark.parametrize(("kind", "body", "other"), MISLEADING)
def test_a_value_that_is_not_the_whole_of_its_field_is_not_cut_out(kind: str, body: str, other: str) -> None:
    plain = reader()
    for _ in range(3):
        read(plain, kind, body.encode(), FORM)
    for content_type in (b"", FORM):
        expected, _ = read(reader(), kind, other.encode(), content_type)
        assert read(plain, kind, other.encode(), content_type)[0] == expected


def test_commands_are_cached_up_to_a_limit() -> None:
    plain = reader()
    for number in range(REQUESTS_CACHED_MAX + 50):
        for _ in range(2):
            read(plain, "CreateJob", b'{"name":"n%d","data":{"long":"%b"}}' % (number, b"x" * 10_000))
    assert len(plain._prepared) == REQUESTS_CACHED_MAX
    kept = [each.command for each in plain._prepared.values() if each is not None]
    assert len(kept) == REQUESTS_CACHED_MAX
    assert max(len(command.wire()) for command in kept) < REQUEST_CACHED_BYTES_MAX
    last = [*plain._prepared]
    names = [f"n{number:0100}" for number in range(100)]
    assert not isinstance(read(plain, "GetJob", json.dumps({"names": names}).encode())[0], tuple)
    assert [*plain._prepared] == last


async def test_a_pipeline_of_plain_and_other_requests_is_answered_in_order(live: Live) -> None:
    talk = await live.connect()
    get = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    large = post("CreateJob", {"name": "large", "data": {"x": "y" * 2 * CONNECTION_BYTES_FREE}})
    talk.send(
        post("CreateJob", {"name": "a"})
        + get
        + post("GetJob", {"name": "a"})
        + large
        + post("GetJob", {"name": "large"})
        + post("GetJob", {"name": "none"}, USUAL)
        + post("GetJob", {"name": "none", "connection": "wait", "timeout": 20})
        + post("Ping") * 30
    )
    replies = [await talk.reply() for _ in range(37)]
    assert [reply.code for reply in replies] == [200] * 5 + [404] * 2 + [200] * 30
    assert replies[1].body == "ok\n"
    assert [replies[place].json["jobID"] for place in (0, 2, 3, 4)] == [1, 1, 2, 2]


async def test_a_pipeline_longer_than_the_parser_reads_ahead_is_answered_in_order(live: Live) -> None:
    talk = await live.connect()
    talk.send((post("CreateJob", {"name": "a"}) + post("Ping") + post("QueryJob", {"jobID": 999_999})) * 200)
    replies = [await talk.reply() for _ in range(600)]
    assert [reply.json["jobID"] for reply in replies[::3]] == list(range(1, 201))
    assert [reply.code for reply in replies[1::3]] == [200] * 200
    assert [reply.code for reply in replies[2::3]] == [404] * 200


async def test_a_request_in_small_pieces(live: Live, answered: list[bool]) -> None:
    talk = await live.connect()
    await talk.drip(post("CreateJob", {"name": "a"}))
    assert (await talk.reply()).json == {"jobID": 1}
    talk.send(post("Ping"))
    assert (await talk.reply()).code == 200
    assert answered[-1]


@pytest.mark.parametrize("size", [10, 3 * CONNECTION_BYTES_FREE])
async def test_a_client_that_leaves_while_it_waits_takes_nothing(live: Live, size: int) -> None:
    talk = await live.connect()
    talk.send(post("Ping") + post("GetJob", {"name": "a", "connection": "wait"}))
    await talk.reply()
    await live.waiting(1)
    talk.reset()
    await live.waiting(0)
    await live.http("CreateJob", {"name": "a", "data": {"x": "y" * size}})
    assert (await live.row(1))["state"] == "QUEUED"
    assert (await live.http("GetJob", {"name": "a", "worker": "w"})).json["attempt"] == 1


async def test_a_large_job_reaches_its_waiter(live: Live) -> None:
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "a", "connection": "wait"}))
    await live.waiting(1)
    await live.http("CreateJob", {"name": "a", "data": {"x": "y" * 3 * CONNECTION_BYTES_FREE}})
    assert len((await talk.reply()).json["data"]["x"]) == 3 * CONNECTION_BYTES_FREE
    talk.send(post("FinishJob", {"jobID": 1}))
    assert (await talk.reply()).code == 200


async def test_a_wait_outlives_the_time_that_idle_connections_have(serve: Serve) -> None:
    live = await serve(idle_http_s=0.2)
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "a", "connection": "wait", "timeout": 600}))
    assert (await talk.reply()).code == 404
    assert await talk.ended() == b"", "it was idle for too long"


async def test_a_server_that_stops_answers_what_is_under_way(live: Live) -> None:
    talk = await live.connect()
    talk.send(post("GetJob", {"name": "a", "connection": "wait"}))
    await live.waiting(1)
    stopping = asyncio.ensure_future(live.server.stop())
    assert (await talk.reply()).code == 404
    assert await talk.ended() == b""
    await stopping


IDLE_AFTER = {
    "a plain request": post("Ping"),
    "a page": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "chunks": b"POST /Ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_", IDLE_AFTER)
async def test_a_server_that_stops_does_not_wait_for_idle_connections(serve: Serve, request_: str) -> None:
    live = await serve(drain_s=600)
    talk = await live.connect()
    talk.send(IDLE_AFTER[request_])
    assert (await talk.reply()).code == 200
    async with asyncio.timeout(DEADLINE_S):
        await live.server.stop()
    assert await talk.ended() == b""


async def test_a_fault_in_a_command_is_an_answer(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    told: list[str] = []
    monkeypatch.setattr(http_connection.log, "exception", told.append)  # a traceback that is wanted

    monkeypatch.setattr(PlainHTTP, "read", fail)
    talk = await live.connect()
    talk.send(post("Ping") * 2)
    assert [(await talk.reply()).code for _ in range(2)] == [500, 500]
    assert told == ["a plain HTTP request failed"] * 2
