"""Plain HTTP requests take a path of their own: it must answer as the usual way does, and lose nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import CONNECTION_BYTES_FREE, HOSTS_REMEMBERED_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.access import Access
from bedrockjobs.protocol import http_connection
from bedrockjobs.protocol.fast_path import FastPath
from bedrockjobs.protocol.gate import Gate
from bedrockjobs.protocol.host_check import Origins
from bedrockjobs.protocol.proxies import Proxies
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, post

USUAL = {"X-Not-Plain": "1"}
"""A header that means nothing, but is not known to mean nothing."""

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
    """Note each request that was answered by the fast path (True), or handed over by it (False)."""
    noted: list[bool] = []
    answer = FastPath.answer

    def noting(outcome: Any, *, closes: bool) -> bytes | None:
        data = answer(outcome, closes=closes)
        noted.append(data is not None)
        return data

    monkeypatch.setattr(FastPath, "answer", staticmethod(noting))
    return noted


def told(reply: Reply) -> tuple[Any, ...]:
    """Return what of an answer must be the same however it was found."""
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    body = reply.body
    if reply.code == 200 and body.startswith("{"):
        body = json.dumps(sorted(json.loads(body)))  # numbers and times go on
        headers.pop("content-length")
    return reply.status, headers, body


@pytest.mark.parametrize(("command", "body"), BODIES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("more", [{}, {"Connection": "close"}, {"Accept-Encoding": "gzip"}])
async def test_both_ways_answer_alike(live: Live, command: str, body: Any, more: dict[str, str]) -> None:
    assert told(await live.http(command, body, **more)) == told(
        await live.http(command, body, **{**more, **USUAL})
    )


async def test_it_is_taken(live: Live, answered: list[bool]) -> None:
    """With this version of aiohttp, on a new connection and on one that was used before."""
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


async def test_a_foreign_host_is_refused(live: Live, answered: list[bool]) -> None:
    talk = await live.connect()
    for _ in range(2):
        talk.send(post("Ping", host="elsewhere.example"))
        assert (await talk.reply()).code == 403
    assert answered == []


def test_hosts_are_remembered_up_to_a_limit() -> None:
    """The worst case: a client that names another host each time."""
    access = Access(SystemClock(), Settings(), reachable=False)
    front = FastPath(Origins(local_only=False, names="", open_to_all=True), Gate(access, Proxies("", "")))
    let_in = [front._lets_in(f"host{number}".encode()) for number in range(HOSTS_REMEMBERED_MAX + 50)]
    assert let_in == [True] * HOSTS_REMEMBERED_MAX + [False] * 50
    assert len(front._hosts) == HOSTS_REMEMBERED_MAX


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


async def test_a_fault_in_a_command_is_an_answer(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    told: list[str] = []
    monkeypatch.setattr(http_connection.log, "exception", told.append)  # a traceback that is wanted

    monkeypatch.setattr(FastPath, "read", staticmethod(fail))
    talk = await live.connect()
    talk.send(post("Ping") * 2)
    assert [(await talk.reply()).code for _ in range(2)] == [500, 500]
    assert told == ["a plain HTTP request failed"] * 2
