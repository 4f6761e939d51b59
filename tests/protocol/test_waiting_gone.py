"""Waiting GetJobs whose client is gone: their jobs return to the queue."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from tests.conftest import Live, Serve
from tests.protocol.talk import DEADLINE_S, request
from tests.protocol.waiters import LONG_MS, http_wait_for, wait_for

# --- nobody there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["reset", "close"])
@pytest.mark.parametrize("waiter", ["raw", "http"])
async def test_a_client_that_left_gets_nothing(live: Live, way: str, waiter: str) -> None:
    gone = await (wait_for(live, "foo") if waiter == "raw" else http_wait_for(live, name="foo"))
    there = await wait_for(live, "foo")
    gone.reset() if way == "reset" else gone.writer.close()
    await live.waiting(1)
    await live.ask("CreateJob", name="foo")
    assert (await there.reply()).json["jobID"] == 1
    assert (await live.row(1))["attempt"] == 1


@pytest.mark.parametrize("waiter", ["raw", "http"])
async def test_a_job_whose_taker_is_gone_goes_back_as_it_was(still: Live, waiter: str) -> None:
    """The hand-over and the goodbye cross: the job is taken, and then it shows that nobody is there."""
    await still.ask("CreateJob", name="foo", retryAfter="+5 SECONDS", data='{"a":1}')
    await still.ask("GetJob", name="foo")
    before = await still.row(1)
    await (wait_for(still, "foo") if waiter == "raw" else http_wait_for(still, name="foo"))
    await _cross(still, lambda: still.advance(5))
    assert await still.row(1) == before, "state, nextRun, lastRun, data with its count, attempt"
    assert (await still.ask("GetJob", name="foo")).json["data"] == {"a": 1, "retryAfterCount": 1}


async def _cross(live: Live, cause: Any) -> None:
    """Do ``cause``, and drop every waiting connection before its hand-over reaches the event loop."""
    dispatcher = live.server.dispatcher
    deliver, crossed = dispatcher._deliver, asyncio.Event()

    def late(outcomes: Any) -> None:
        if not any(getattr(outcome, "taken", ()) for _, outcome in outcomes):
            deliver(outcomes)
            return
        for connection in list(live.server._connections.open):
            transport = getattr(connection, "_transport", None) or getattr(connection, "transport", None)
            transport.abort()
        asyncio.get_running_loop().call_later(0.02, _then, outcomes)

    def _then(outcomes: Any) -> None:
        deliver(outcomes)
        crossed.set()

    dispatcher._deliver = late  # type: ignore[method-assign]
    cause()
    async with asyncio.timeout(DEADLINE_S):
        await crossed.wait()
    dispatcher._deliver = deliver  # type: ignore[method-assign]
    await live.until(lambda: dispatcher.waiting == 0)


async def test_a_job_that_went_back_goes_to_the_next_waiter(still: Live) -> None:
    await wait_for(still, "foo")
    await still.ask("CreateJob", name="foo", firstRun="2026-11-21 03:30:00")
    await _cross(still, lambda: still.advance(5))
    talk = await still.connect()
    talk.send(request("GetJob", name="foo", Connection="wait", timeout=LONG_MS))
    assert (await talk.reply()).json["jobID"] == 1
    assert (await still.row(1))["attempt"] == 1


async def test_an_answer_that_was_not_read_puts_the_jobs_back(serve: Serve) -> None:
    live = await serve(write_s=0.2)
    big = '{"x":"' + "y" * 1_000_000 + '"}'
    for _ in range(8):
        await live.ask("CreateJob", name="big", data=big, retryAfter="+1 HOUR")
    reader = live.client_socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", live.port))
    reader.sendall(request("GetJobs", name="big", numResults=8))
    await live.until(lambda: live.server.service.connections == 1)
    async with asyncio.timeout(10):
        while live.server.service.connections:
            await asyncio.sleep(0.01)
    reader.close()
    await live.settle()
    talk = await live.connect()
    rows = (await talk.ask("Query", query="SELECT DISTINCT state, attempt, lastRun FROM jobs;")).json
    assert rows == [["QUEUED", 0, ""]]
    assert "retryAfterCount" not in (await talk.ask("GetJob", name="big")).body


async def test_of_several_answers_only_those_that_were_not_sent_are_undone(live: Live) -> None:
    """A client has read the first of some large answers when its connection breaks."""
    count = 5
    for _ in range(count):
        await live.ask("CreateJob", name="big", data='{"x":"' + "y" * 3_000_000 + '"}')
    loop = asyncio.get_running_loop()
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.setblocking(False)
        await loop.sock_connect(reader, ("127.0.0.1", live.port))
        await loop.sock_sendall(reader, request("GetJob", name="big", worker="w") * count)
        read, first = bytearray(), -1
        while first < 0 or read.find(b"200 OK", first) < 0:
            searched = max(0, len(read) - len(b'"runID":'))  # it comes in thousands of pieces
            read += await loop.sock_recv(reader, 65536)
            first = read.find(b'"runID":', searched) if first < 0 else first
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await live.connections(0)
    async with asyncio.timeout(DEADLINE_S):
        while (states := await _states(live))[-1] != "QUEUED":
            await asyncio.sleep(0.01)
    assert states[0] == "RUNNING"


async def _states(live: Live) -> list[str]:
    """Return the states of all jobs."""
    reply = await live.ask("Query", query="SELECT state FROM jobs ORDER BY jobID;", format="json")
    return [state for (state,) in reply.json["rows"]]


@pytest.mark.parametrize("waiter", ["raw", "http"])
async def test_a_stopping_server_answers_who_waits(live: Live, waiter: str) -> None:
    talk = await (wait_for(live, "foo") if waiter == "raw" else http_wait_for(live, name="foo"))
    await live.server.stop()
    reply = await talk.reply()
    assert (reply.code, reply.headers["connection"] if waiter == "raw" else "close") == (404, "close")
    assert await talk.ended() == b""


async def test_a_stopping_server_closes_idle_connections_and_begins_nothing_more(serve: Serve) -> None:
    live = await serve()
    idle, waiting = await live.connect(), await wait_for(live, "foo")
    assert (await idle.ask("Ping")).code == 200
    waiting.send(request("CreateJob", name="late"))
    assert (await idle.ask("Ping")).code == 200, "what was sent before has been read too"
    await live.server.stop()
    assert await idle.ended() == b""
    reply = await waiting.reply()
    assert (reply.status, reply.headers["connection"]) == ("404 No job found", "close")
    assert await waiting.ended() == b""
    again = await serve(database=live.server.settings.database)
    assert (await again.ask("Query", query="SELECT count(*) FROM jobs;")).json == [[0]]


async def test_thousand_waiters_and_one_job(live: Live) -> None:
    talks = [await live.connect() for _ in range(1000)]
    for number, talk in enumerate(talks):
        talk.send(request("GetJob", name=f"n{number % 10}", Connection="wait", timeout=LONG_MS))
    await live.waiting(1000)
    await live.ask("CreateJob", name="n7")
    await live.waiting(999)
    assert (await talks[7].reply()).json["name"] == "n7"


# --- whoever has said all it had to say ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "given", "answer"),
    [
        ("Heartbeat", {"worker": "w"}, {"stop": [], "quiet": False}),
        (
            "Heartbeat",
            {"worker": "w", "runIDs": "99"},
            {"stop": [{"runID": 99, "signal": "LOST"}], "quiet": False},
        ),
        ("Events", {"after": "-1"}, {"events": []}),
        ("GetJob", {"name": "a"}, None),
    ],
    ids=["heartbeat", "quiet heartbeat", "events", "job"],
)
async def test_after_the_end_of_input_nothing_waits(
    live: Live, verb: str, given: dict[str, str], answer: dict[str, Any] | None
) -> None:
    await live.settle()
    async with await live.connect() as talk:
        talk.send(request(verb, **given, Connection="wait", timeout=60_000))
        await live.settle()
        talk.end()
        reply = await talk.reply()
    assert (reply.json if reply.body else None) == answer
