"""The clients: the bytes they send and read, when they send again, and what they tell their caller."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

import bedrockjobs
from bedrockjobs.base.config import Settings
from bedrockjobs.base.errors import (
    ERRORS,
    BadArguments,
    CommandError,
    MockMismatch,
    NotFound,
    ServerFault,
    Unavailable,
    UnexpectedAnswer,
    error_for,
)
from bedrockjobs.client import (
    Address,
    AsyncClient,
    Client,
    ConnectionLost,
    ServerUnreachable,
    UnixAddress,
    UnreadableAnswer,
    addresses_of,
    backoff_s,
)
from bedrockjobs.client.exchange import AnswerReader, MalformedAnswer, answer_s, request_bytes
from bedrockjobs.client.pool import IDLE_MAX, Pool
from bedrockjobs.client.tries import BACKOFF_MAX_S
from bedrockjobs.commands import (
    CreateJob,
    Empty,
    FinishJob,
    GetJobs,
    JobIDReply,
    Ping,
    Query,
    QueryReply,
    Status,
    ThenReply,
)
from bedrockjobs.server import Server
from tests.worker.fake_server import DEADLINE_S, FakeServer


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """Yield a running server."""
    async with FakeServer() as running:
        yield running


class Blocking:
    """The blocking client behind the face of the other, so that one test tries both."""

    def __init__(self, *arguments, **more):
        self._client = Client(*arguments, **more)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self._client.close()

    async def call(self, command):
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.to_thread(self._client.call, command)

    async def exchange(self, command):
        return await asyncio.to_thread(self._client.exchange, command)


@pytest.fixture(params=[Blocking, AsyncClient], ids=["blocking", "async"])
def kind(request, monkeypatch):
    """Yield both clients, with short pauses between their tries."""
    monkeypatch.setattr("bedrockjobs.client.tries.BACKOFF_FIRST_S", 0.001)
    return request.param


ANSWER = b"404 No job found\r\nContent-Length: 3\r\nerror: a: b\r\nConnection: close\r\n\r\n{ }"


@pytest.mark.parametrize("size", [1, 2, 7, len(ANSWER)])
def test_answer_in_pieces(size):
    reader = AnswerReader()
    read = [reader.feed(ANSWER[at : at + size]) for at in range(0, len(ANSWER), size)]
    assert read[:-1] == [None] * (len(read) - 1)
    answer = read[-1]
    assert (answer.code, answer.reason, answer.body, answer.closing) == (404, "No job found", b"{ }", True)
    with pytest.raises(NotFound, match="404 No job found: a: b"):
        answer.check()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "expected a status line like '200 OK', got 'HTTP/1.1 200 OK'"),
        (b"\r\n\r\n", "expected a status line"),
        (b"200 OK\r\nno colon\r\n\r\n", "a header line has no colon: 'no colon'"),
        (b"200 OK\r\n\r\n", "expected Content-Length with a number, got ''"),
        (b"200 OK\r\nContent-Length: -1\r\n\r\n", "expected Content-Length with a number, got '-1'"),
        (b"200 OK\r\nContent-Length: 1001\r\n\r\n", "its 1001 bytes are over the limit of 1000"),
        (b"200 OK\r\nContent-Length: 2\r\n\r\n{}200", "3 bytes came after the answer"),
        (b"x" * 70_000, "its head is larger than 65536 bytes"),
    ],
)
def test_malformed_answers(data, words):
    reader = AnswerReader(1000)
    with pytest.raises(MalformedAnswer, match=words):
        _ = [reader.feed(data[at : at + 5_000]) for at in range(0, len(data), 5_000)]


def test_request():
    command = CreateJob(name="é", data='{"a":2.50}')
    body = '{"data":{"a":2.50},"name":"é"}'.encode()
    assert request_bytes(command) == b"CreateJob\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, 30),
        ({"timeout": 5_000}, 30),
        ({"connection": "Wait"}, 90),
        ({"connection": "wait", "timeout": 500}, 30.5),
    ],
)
def test_time_for_an_answer(given, seconds):
    assert answer_s(GetJobs(names=["a"], num_results=1, **given)) == seconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:1", [("localhost", 1)]),
        ("http://h:2/", [("h", 2)]),
        ("h", [("h", 8888)]),
        ("[::1]:3", [("::1", 3)]),
        ("::1", [("::1", 8888)]),
        ("a, b:2", [("a", 8888), ("b", 2)]),
        (["a", "b:2"], [("a", 8888), ("b", 2)]),
        ("unix:8", [("unix", 8)]),
        ("unix:/run/j.sock", [UnixAddress("/run/j.sock")]),
        ("UNIX:///run/my jobs, h", [UnixAddress("/run/my jobs"), ("h", 8888)]),
        (f"unix:/{'x' * 106}", [UnixAddress(f"/{'x' * 106}")]),
    ],
)
def test_addresses(text, found):
    assert list(addresses_of(text)) == found


@pytest.mark.parametrize(
    "text",
    [
        "", "https://h", "h:0", "h:65536", "h:1/path", "h:x", "a@b", "a,,b", " ", [],
        "unix:", "unix:/", "unix:j.sock", "unix:/folder/", "unix:/a\0b", f"unix:/{'x' * 107}", "/run/j.sock",
    ],
)  # fmt: skip
def test_bad_addresses(text):
    with pytest.raises(ValueError, match=r"^server: expected "):
        addresses_of(text)


def test_bad_addresses_name_every_form():
    with pytest.raises(ValueError, match=r"host:port, .* or unix:/path, got 'unix:j.sock'$"):
        addresses_of("unix:j.sock")
    assert [str(address) for address in addresses_of("h:1,unix:/run/j.sock")] == ["h:1", "unix:/run/j.sock"]


def test_address_from_the_environment(monkeypatch):
    monkeypatch.delenv("BEDROCKJOBS_SERVER", raising=False)
    assert addresses_of() == (Address("127.0.0.1", 8888),)
    monkeypatch.setenv("BEDROCKJOBS_SERVER", "[::1]:9")
    assert [str(address) for address in addresses_of()] == ["[::1]:9"]


def test_backoff_grows_to_its_limit():
    assert all(0.05 <= backoff_s(1) <= 0.1 for _ in range(50))
    assert all(BACKOFF_MAX_S / 2 <= backoff_s(1_000_000) <= BACKOFF_MAX_S for _ in range(50))


async def test_typed_replies_and_refusals(server, kind):
    server.answers["Query"] = b'200 OK\r\nContent-Length: 12\r\n\r\n[[1,"a"],[]]'
    server.answers["QueryJob"] = b"299 Odd\r\nContent-Length: 0\r\n\r\n"
    server.refusals["FinishJob"] = deque(["402 Malformed jobID\r\nerror: jobID: digits", "999 Strange"])
    async with kind(server.address) as client:
        assert await client.call(CreateJob(name="Foo", data={"a": 1})) == JobIDReply(job_id=1)
        assert await client.call(Ping()) == Empty()
        assert await client.call(Query(query="select 1;")) == QueryReply(rows=[[1, "a"], []])
        with pytest.raises(BadArguments, match=r"^402 Malformed jobID: jobID: digits$"):
            await client.call(FinishJob(job_id=1))
        with pytest.raises(UnexpectedAnswer):
            await client.call(FinishJob(job_id=1))
        found = await client.call(GetJobs(names=["F*"], num_results=5, worker="w"))
        assert [(job.job_id, job.data, job.run_id, job.attempt) for job in found.jobs] == [
            (1, {"a": 1}, 101, 1)
        ]
        assert await client.call(FinishJob(job_id=1, run_id=101)) == ThenReply()
    assert server.connections == 1


async def test_reply_to_what_was_only_queued(server, kind):
    server.answers["CreateJob"] = b"202 Successfully queued\r\nContent-Length: 0\r\n\r\n"
    async with kind(server.address) as client:
        reply = await client.call(CreateJob(name="a", connection="forget"))
        assert isinstance(reply, JobIDReply)
        assert reply.model_fields_set == set()
        assert (await client.exchange(CreateJob(name="a", connection="forget"))).code == 202


async def test_server_that_is_not_there(server, kind):
    await server.stop()
    async with kind(server.address, tries=3) as client:
        with pytest.raises(ServerUnreachable, match=f"^cannot connect to {server.address}: "):
            await client.call(CreateJob(name="a"))


async def test_unix_socket(tmp_path, kind):
    path = str(tmp_path / "s")
    live = Server(Settings(port=0, database=str(tmp_path / "jobs.db"), unix=path, wal_bytes=0))
    await live.start()
    try:
        assert live.where().endswith(f" and unix:{path}")
        async with kind(f"unix:{tmp_path}/none,unix:{path}") as client:
            job_id = (await client.call(CreateJob(name="a"))).job_id
            assert (await client.call(GetJobs(names=["a"], num_results=1))).jobs[0].job_id == job_id
            assert (await client.call(Status())).connections == 1
    finally:
        await live.stop()
    async with kind(f"unix:{path}", tries=1) as client:
        with pytest.raises(ServerUnreachable, match=f"^cannot connect to unix:{path}: "):
            await client.call(Ping())


async def test_next_address_is_tried(server, kind):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    async with kind(f"{nobody},{server.address}", tries=1) as client:
        await client.call(Ping())
        await client.call(Ping())
    assert server.connections == 1


async def test_lost_answer(server, kind):
    """What may be done twice is sent again; of what may not, the caller is told that nobody knows."""
    server.lost = {"Ping": 2, "CreateJob": 1}
    async with kind(server.address) as client:
        await client.call(Ping())
        assert len(server.of("Ping")) == 3
        with pytest.raises(ConnectionLost, match=r"no answer to CreateJob .* the outcome is unknown"):
            await client.call(CreateJob(name="a"))
        assert len(server.of("CreateJob")) == 1
        assert await client.call(CreateJob(name="a")) == JobIDReply(job_id=2)


HERE = Address("a", 1)


@dataclass(eq=False)
class Kept:
    """A connection of which only the pool knows."""

    address: Address = HERE
    fresh: bool = True
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def test_pool_gives_the_connection_used_last_to_the_address_asked_for():
    pool: Pool[Kept] = Pool()
    older, newer, stale, elsewhere = Kept(), Kept(), Kept(), Kept(Address("b", 1))
    for connection in (older, newer, stale, elsewhere):
        pool.give_back(connection, reusable=True)
    stale.fresh = False
    assert [pool.take(HERE) for _ in range(3)] == [newer, older, None]
    assert (stale.closed, elsewhere.closed) == (True, True)
    assert (older.closed, newer.closed) == (False, False)


def test_pool_keeps_what_is_reusable_up_to_a_number_and_nothing_once_it_is_closed():
    pool: Pool[Kept] = Pool()
    broken, *kept, one_more, late = [Kept() for _ in range(IDLE_MAX + 3)]
    pool.give_back(broken, reusable=False)
    for connection in (*kept, one_more):
        pool.give_back(connection, reusable=True)
    assert [it.closed for it in (broken, one_more, *kept)] == [True, True, *[False] * IDLE_MAX]
    pool.close()
    pool.give_back(late, reusable=True)
    assert all(it.closed for it in (*kept, late))
    with pytest.raises(RuntimeError, match="closed"):
        pool.take(HERE)


def test_error_for_a_status_line_is_the_one_that_the_server_raised():
    """Two errors share the code 500: one says that the server failed, the other judges the command."""
    for kind in ERRORS:
        assert type(error_for(kind.code, kind.default_reason)) is kind
    assert type(error_for(500, "Anything else")) is ServerFault
    assert type(error_for(999, "Mock Mismatch")) is UnexpectedAnswer


def test_retryable_are_the_errors_that_say_nothing_of_the_command():
    retryable = {kind.code for kind in ERRORS if kind.retryable}
    assert retryable == {429, 500, 503, 555}
    assert not any(kind.retryable for kind in (CommandError, MockMismatch, UnexpectedAnswer))


async def test_mismatch_of_marks_is_told_at_once(server, kind):
    server.refusals["FinishJob"] = deque(["500 Mock Mismatch\r\nerror: data: mockRequest"] * 2)
    async with kind(server.address) as client:
        with pytest.raises(MockMismatch):
            await client.call(FinishJob(job_id=1))
    assert len(server.of("FinishJob")) == 1


@pytest.mark.parametrize("refusal", ["500 Internal Server Error", "503 Service Unavailable", "555 Timeout"])
async def test_what_was_not_done_is_sent_again(server, kind, refusal):
    server.refusals["CreateJob"] = deque([refusal] * 2)
    async with kind(server.address) as client:
        assert await client.call(CreateJob(name="a")) == JobIDReply(job_id=1)
    assert len(server.of("CreateJob")) == 3


async def test_tries_are_bounded(server, kind):
    server.refusals["CreateJob"] = deque(["503 Service Unavailable"] * 10)
    server.lost = {"Ping": 10}
    async with kind(server.address, tries=4) as client:
        with pytest.raises(Unavailable):
            await client.call(CreateJob(name="a"))
        with pytest.raises(ConnectionLost):
            await client.call(Ping())
    assert (len(server.of("CreateJob")), len(server.of("Ping"))) == (4, 4)


async def test_restart_between_two_calls(server, kind):
    """A kept connection that has died is noticed before anything is sent on it."""
    async with kind(server.address) as client:
        await client.call(CreateJob(name="a"))
        await server.stop()
        await server.start()
        assert await client.call(CreateJob(name="a")) == JobIDReply(job_id=2)
    assert len(server.of("CreateJob")) == 2


async def test_connection_that_the_server_closes_is_not_kept(server, kind):
    server.answers["Ping"] = b"200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with kind(server.address) as client:
        await client.call(Ping())
        await client.call(Ping())
    assert server.connections == 2


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad\r\n\r\n", b"200 OK\r\nContent-Length: 3\r\n\r\n{a}"])
async def test_unreadable_answer_is_not_asked_for_again(server, kind, answer):
    server.answers["Query"] = answer
    async with kind(server.address) as client:
        with pytest.raises(UnreadableAnswer):
            await client.call(Query(query="select 1;"))
    assert len(server.of("Query")) == 1


async def test_answer_over_the_limit(server, kind):
    server.answers["Ping"] = b"200 OK\r\nContent-Length: 2000000000\r\n\r\n"
    async with kind(server.address, answer_bytes_max=1_000_000) as client:
        with pytest.raises(UnreadableAnswer, match="2000000000 bytes are over the limit of 1000000"):
            await client.call(Ping())


async def test_answer_that_does_not_come(server, kind, monkeypatch):
    for module in ("blocking", "asynchronous"):
        monkeypatch.setattr(f"bedrockjobs.client.{module}.answer_s", lambda _: 0.05)
    async with kind(server.address) as client:
        with pytest.raises(ConnectionLost, match=r"nothing came within 0\.05 s; the outcome is unknown"):
            await client.call(GetJobs(names=["a"], num_results=1, connection="wait"))


async def test_closed_client(server, kind):
    client = kind(server.address)
    async with client:
        await client.call(Ping())
    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.call(Ping())
    await server.until(lambda: not server._writers)


async def test_calls_do_not_queue_behind_a_wait(server, kind):
    async with kind(server.address) as client:
        waiting = asyncio.ensure_future(client.call(GetJobs(names=["a"], num_results=1, connection="wait")))
        await server.until(lambda: server.of("GetJobs"))
        await client.call(CreateJob(name="a"))
        assert [job.job_id for job in (await waiting).jobs] == [1]
    assert server.connections == 2


async def test_hurry_ends_a_wait_and_loses_nothing(server):
    hurry = asyncio.Event()
    wait = GetJobs(names=["a"], num_results=1, connection="wait")
    async with AsyncClient(server.address) as client:
        for at_the_end in (False, True):
            hurry.clear()
            server.answers_at_the_end = at_the_end
            waiting = asyncio.ensure_future(client.call(wait, hurry=hurry))
            await server.until(lambda at_the_end=at_the_end: server.waits == 1 + at_the_end)
            server._queue.append((5, "a", "{}"))  # the wait is not woken
            hurry.set()
            if at_the_end:
                assert (await waiting).jobs[0].job_id == 5
            else:
                with pytest.raises(NotFound):
                    await waiting
                server._queue.clear()


async def test_cancelled_call_leaves_no_connection(server):
    async with AsyncClient(server.address) as client:
        waiting = asyncio.ensure_future(client.call(GetJobs(names=["a"], num_results=1, connection="wait")))
        await server.until(lambda: server.of("GetJobs"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await server.until(lambda: not server._writers)
        await client.call(Ping())


def test_package_is_light_and_has_what_it_names():
    code = "import sys, bedrockjobs; assert not {'pydantic', 'asyncio'} & set(sys.modules); dir(bedrockjobs)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(getattr(bedrockjobs, name).__name__ == name for name in bedrockjobs.__all__)
    assert bedrockjobs.Client is Client
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = bedrockjobs.Nothing
