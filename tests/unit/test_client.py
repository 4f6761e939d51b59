"""The clients: their retries and errors."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import bedrockjobs
from bedrockjobs.base.errors import BadArguments, MockMismatch, NotFound, Unavailable, UnexpectedAnswer
from bedrockjobs.base.settings import Settings
from bedrockjobs.client import AsyncClient, Client, ConnectionLost, ServerUnreachable, UnreadableAnswer
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
from tests.unit.client_kinds import Blocking
from tests.worker.fake_server import FakeServer


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """Yield a running server."""
    async with FakeServer() as running:
        yield running


@pytest.fixture(params=[Blocking, AsyncClient], ids=["blocking", "async"])
def kind(request, monkeypatch):
    """Yield both clients, with short pauses between attempts."""
    monkeypatch.setattr("bedrockjobs.client.base.BACKOFF_FIRST_S", 0.001)
    return request.param


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


async def test_error_for_a_server_that_was_not_chosen_says_how_to_choose(server, kind, monkeypatch):
    await server.stop()
    host, port = server.address.split(":")
    monkeypatch.setattr("bedrockjobs.client.address.DEFAULT_PORT", int(port))
    monkeypatch.delenv("BEDROCK_SERVER", raising=False)
    errors = {}
    for how, variables in {"default": {}, "variable": {"BEDROCKJOBS_SERVER": server.address}}.items():
        with monkeypatch.context() as environment:
            for name, value in variables.items():
                environment.setenv(name, value)
            client = kind(tries=1)
        async with client:
            with pytest.raises(ServerUnreachable, match=f"^cannot connect to {host}:{port}: ") as told:
                await client.call(Ping())
        errors[how] = str(told.value)
    hint = "; BEDROCKJOBS_SERVER names another server"
    assert errors["default"].endswith(hint)
    assert hint not in errors["variable"]


async def test_unix_socket(tmp_path, kind):
    path = str(tmp_path / "s")
    live = Server(
        Settings(port=0, database=str(tmp_path / "jobs.db"), unix=path, wal_bytes=0, ballast_bytes=0)
    )
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
    """A repeatable command is sent again; for others, the caller learns that the outcome is unknown."""
    server.lost = {"Ping": 2, "CreateJob": 1}
    async with kind(server.address) as client:
        await client.call(Ping())
        assert len(server.of("Ping")) == 3
        with pytest.raises(ConnectionLost, match=r"no answer to CreateJob .* the outcome is unknown"):
            await client.call(CreateJob(name="a"))
        assert len(server.of("CreateJob")) == 1
        assert await client.call(CreateJob(name="a")) == JobIDReply(job_id=2)


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
    """A broken idle connection is noticed before anything is sent on it."""
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
    monkeypatch.setattr("bedrockjobs.client.base.answer_s", lambda _: 0.05)
    async with kind(server.address) as client:
        with pytest.raises(
            ConnectionLost, match=r"nothing was received within 0\.05 s; the outcome is unknown"
        ):
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
    named = set(bedrockjobs.__all__) - {"EMPTIED"}
    assert all(getattr(bedrockjobs, name).__name__ == name for name in named)
    assert bedrockjobs.Client is Client
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = bedrockjobs.Nothing


def test_the_client_works_in_other_event_loops() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def ask() -> int:
        async with FakeServer() as server, AsyncClient(server.address) as client:
            return (await client.call(CreateJob(name="a"))).job_id

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == 1


CALLS = 100
"""Calls of each process after a fork: on one connection, hardly a dozen go well."""


@pytest.fixture
def echo() -> Iterator[str]:
    """Yield the address of a threaded server that gives each job the number in its name as jobID."""

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.readline():
                length = 0
                while (line := self.rfile.readline()) not in (b"\r\n", b""):
                    length = int(line.partition(b":")[2])
                found = json.loads(self.rfile.read(length) or b"{}")
                body = b'{"jobID":%d}' % int(found.get("name", "0") if head.startswith(b"CreateJob") else 0)
                self.wfile.write(b"200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    class Threads(socketserver.ThreadingTCPServer):
        daemon_threads, allow_reuse_address = True, True

    with Threads(("127.0.0.1", 0), Connection) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def ask_blocking(client: Client, first: int) -> int:
    """Create jobs and return the number of replies that belonged to another request."""
    return sum(client.call(CreateJob(name=str(at))).job_id != at for at in range(first, first + CALLS))


def ask_async(client: AsyncClient, first: int) -> int:
    """The same in a separate event loop."""

    async def ask() -> int:
        return sum(
            [(await client.call(CreateJob(name=str(at)))).job_id != at for at in range(first, first + CALLS)]
        )

    return asyncio.run(ask())


@pytest.mark.parametrize(("made", "ask"), [(Client, ask_blocking), (AsyncClient, ask_async)])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_that_is_carried_over_a_fork_has_its_own_answers(
    echo: str, made: Callable[[str], Any], ask: Callable[[Any, int], int]
) -> None:
    client = made(echo)
    assert ask(client, 1_000) == 0  # from now on it has a connection
    child = os.fork()
    if child == 0:
        try:
            os._exit(min(ask(client, 2_000), 100))
        finally:
            os._exit(101)
    wrong = ask(client, 3_000)
    assert (wrong, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) == (0, 0)
    del client
    gc.collect()  # what event loops left that are closed


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_is_kept_from_one_event_loop_to_the_next(echo: str) -> None:
    client = AsyncClient(echo)
    assert [ask_async(client, first) for first in (1_000, 2_000, 3_000)] == [0, 0, 0]
    del client
    gc.collect()  # what the event loops left that are closed
