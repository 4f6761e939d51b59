"""The clients with several servers: failover, where commands are sent, and failback."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.errors import CommandError, Unavailable
from bedrockjobs.client import Address, AsyncClient, ConnectionLost, ServerUnreachable, addresses_of
from bedrockjobs.client.base import PROBE_S, RETURN_S, Route
from bedrockjobs.commands import CreateJob, Ping, UpdateJob
from tests.unit.cli_fake import run
from tests.unit.client_kinds import Blocking
from tests.worker.fake_server import DEADLINE_S, FakeServer

NOT_DONE = ["500 Internal Server Error", "503 Service Unavailable", "555 Timeout"]


@pytest.fixture(params=[Blocking, AsyncClient], ids=["blocking", "async"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield both clients, with short pauses between attempts."""
    monkeypatch.setattr("bedrockjobs.client.base.BACKOFF_FIRST_S", 0.001)
    return request.param


@pytest.fixture
async def servers() -> AsyncIterator[tuple[FakeServer, FakeServer]]:
    """Yield two running servers."""
    async with FakeServer() as first, FakeServer() as second:
        yield first, second


@pytest.fixture
def clock() -> ManualClock:
    """Return a standing clock."""
    return ManualClock(datetime(2026, 1, 1, tzinfo=UTC))


def both(servers: tuple[FakeServer, FakeServer]) -> str:
    """Return the addresses as typed."""
    return ",".join(server.address for server in servers)


def verbs(server: FakeServer) -> list[str]:
    """Return the verbs that a server received."""
    return [request.verb for request in server.requests]


async def test_the_first_that_is_named_is_used_as_long_as_it_answers(servers: Any, kind: Any) -> None:
    first, second = servers
    async with kind(f"{both(servers)},{first.address}") as client:
        for _ in range(3):
            await client.call(CreateJob(name="a"))
        assert str(client.server) == first.address
    assert (len(first.of("CreateJob")), second.connections) == (3, 0)


async def test_server_that_dies_between_two_calls(servers: Any, kind: Any) -> None:
    """The idle connection has ended and no new one opens: nothing was sent, so the next server is tried."""
    first, second = servers
    async with kind(both(servers)) as client:
        await client.call(CreateJob(name="a"))
        await first.stop()
        await client.call(CreateJob(name="b"))
        await client.call(CreateJob(name="c"))
        assert str(client.server) == second.address
    assert (len(first.of("CreateJob")), len(second.of("CreateJob"))) == (1, 2)
    assert second.connections == 1


@pytest.mark.parametrize("refusal", NOT_DONE)
async def test_server_that_is_not_ready(servers: Any, kind: Any, refusal: str) -> None:
    first, second = servers
    first.refusals["CreateJob"] = deque([refusal] * 10)
    async with kind(both(servers)) as client:
        await client.call(CreateJob(name="a"))
        await client.call(CreateJob(name="b"))
    assert (len(first.of("CreateJob")), len(second.of("CreateJob"))) == (1, 2)


async def test_swallowed_answer_to_what_may_be_done_twice(servers: Any, kind: Any) -> None:
    first, second = servers
    first.lost = {"Ping": 1}
    async with kind(both(servers)) as client:
        await client.call(Ping())
    assert (verbs(first), verbs(second)) == (["Ping"], ["Ping"])


async def test_swallowed_answer_to_what_may_not(servers: Any, kind: Any) -> None:
    """The error is raised without trying another server; the next command goes to the next server."""
    first, second = servers
    first.lost = {"CreateJob": 1}
    async with kind(both(servers)) as client:
        with pytest.raises(ConnectionLost, match=f"from {first.address}: .* the outcome is unknown"):
            await client.call(CreateJob(name="a"))
        assert not second.requests
        await client.call(CreateJob(name="b"))
    assert (len(first.of("CreateJob")), len(second.of("CreateJob"))) == (1, 1)


async def test_silent_server_is_left(servers: Any, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may be down, which only a missing reply shows."""
    monkeypatch.setattr("bedrockjobs.client.base.answer_s", lambda _: 0.05)
    first, second = servers
    first.silent = {"Ping", "CreateJob"}
    async with kind(both(servers)) as client:
        with pytest.raises(ConnectionLost, match="nothing was received within"):
            await client.call(CreateJob(name="a"))
        await client.call(CreateJob(name="b"))
    assert (verbs(first), verbs(second)) == (["CreateJob"], ["CreateJob"])


async def test_all_are_gone(servers: Any, kind: Any) -> None:
    first, second = servers
    await first.stop()
    await second.stop()
    async with kind(both(servers), tries=2) as client:
        with pytest.raises(ServerUnreachable) as told:
            await client.call(CreateJob(name="a"))
    for server in servers:
        assert str(told.value).count(f"cannot connect to {server.address}: ") == 1


async def test_all_refuse(servers: Any, kind: Any) -> None:
    for server in servers:
        server.refusals["CreateJob"] = deque(["503 Service Unavailable"] * 10)
    async with kind(both(servers), tries=2) as client:
        with pytest.raises(Unavailable):
            await client.call(CreateJob(name="a"))
    assert [len(server.of("CreateJob")) for server in servers] == [2, 2]


async def test_answer_that_was_lost_is_told_though_nobody_can_be_reached_afterwards(
    servers: Any, kind: Any
) -> None:
    """ServerUnreachable would say that nothing was sent."""
    first, second = servers
    first.lost = {"UpdateJob": 10}
    await second.stop()
    async with kind(both(servers), tries=1) as client:
        with pytest.raises(ConnectionLost, match="no answer to UpdateJob"):
            await client.call(UpdateJob(job_id=1, data={}))


@pytest.mark.parametrize("refusal", NOT_DONE)
async def test_refusal_is_told_though_the_other_is_not_there(servers: Any, kind: Any, refusal: str) -> None:
    """A caller that counts failures must see the server's error, although the standby refuses connections."""
    first, second = servers
    first.refusals["CreateJob"] = deque([refusal] * 10)
    await second.stop()
    async with kind(both(servers), tries=2) as client:
        for _ in range(2):
            with pytest.raises(CommandError, match=refusal):
                await client.call(CreateJob(name="a"))
    assert len(first.of("CreateJob")) == 4


async def test_coming_back(servers: Any, kind: Any, clock: ManualClock) -> None:
    first, second = servers
    await first.stop()
    async with kind(both(servers), clock=clock) as client:
        await client.call(CreateJob(name="a"))
        await first.start()
        clock.advance(RETURN_S - 0.1)
        await client.call(CreateJob(name="b"))
        assert not first.requests
        clock.advance(0.1)
        await client.call(CreateJob(name="c"))
        await client.call(CreateJob(name="d"))
    assert len(second.of("CreateJob")) == 2
    assert verbs(first) == ["Ping", "CreateJob", "CreateJob"]
    assert first.connections == 1, "the connection that looked is used"


@pytest.mark.parametrize("trouble", ["gone", "503 Service Unavailable", "lost", "silent"])
async def test_first_server_that_is_not_back_yet(
    servers: Any, kind: Any, clock: ManualClock, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command is sent to it, and it is not probed more often than specified."""
    assert PROBE_S < RETURN_S
    monkeypatch.setattr("bedrockjobs.client.base.PROBE_S", 0.05 if trouble == "silent" else 10.0)
    first, second = servers
    await first.stop()
    async with kind(both(servers), clock=clock) as client:
        await client.call(CreateJob(name="a"))
        if trouble != "gone":
            await first.start()
            first.refusals["Ping"] = deque([trouble] * 10 if trouble[0] == "5" else [])
            first.lost["Ping"] = 10 if trouble == "lost" else 0
            first.silent = {"Ping"} if trouble == "silent" else set()
        for _ in range(2):
            clock.advance(RETURN_S)
            for _ in range(3):
                await client.call(CreateJob(name="b"))
        assert str(client.server) == second.address
    assert len(second.of("CreateJob")) == 7
    assert verbs(first) == ([] if trouble == "gone" else ["Ping", "Ping"])


async def test_calls_at_once_look_once(servers: Any, clock: ManualClock) -> None:
    first, second = servers
    await first.stop()
    async with AsyncClient(both(servers), clock=clock) as client:
        await client.call(Ping())
        await first.start()
        first.silent = {"Ping"}
        clock.advance(RETURN_S)
        looking = asyncio.ensure_future(client.call(CreateJob(name="a")))
        await first.until(lambda: first.of("Ping"))
        await asyncio.gather(*(client.call(CreateJob(name="b")) for _ in range(5)))
        assert len(second.of("CreateJob")) == 5, "they do not wait for it"
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert len(first.of("Ping")) == 1


async def test_changing_over_in_a_wait_by_the_caller(servers: Any, clock: ManualClock) -> None:
    """A caller can set a shorter timeout than the client."""
    first, second = servers
    async with AsyncClient(both(servers), clock=clock) as client:
        await client.call(Ping())
        assert client.leave_server(client.server)
        assert not client.leave_server(addresses_of(first.address)[0]), "another has left it already"
        await client.call(Ping())
    assert (verbs(first), verbs(second)) == (["Ping"], ["Ping"])


async def test_who_waits_for_a_server_that_was_left_does_not_wait_long(
    servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedrockjobs.client.asynchronous.HURRY_S", 0.05)
    first, second = servers
    first.silent = {"UpdateJob"}
    async with AsyncClient(both(servers)) as client:
        waiting = asyncio.ensure_future(client.call(UpdateJob(job_id=1, data={})))
        await first.until(lambda: first.requests)
        assert not waiting.done()
        assert client.leave_server(client.server)
        async with asyncio.timeout(DEADLINE_S / 4):  # it would have had 30 s
            await waiting
    assert (verbs(first), verbs(second)) == (["UpdateJob"], ["UpdateJob"])


def test_route_goes_round_and_one_address_is_never_left() -> None:
    a, b, c = (Address(host, 1) for host in "abc")
    route = Route((a, b, c))
    seen = [route.current]
    for _ in range(3):
        assert route.move_on(route.current, 0.0)
        seen.append(route.current)
    assert seen == [a, b, c, a]
    assert route.first_to_probe(RETURN_S * 9) is None, "it is the first that is used"
    alone = Route((a,))
    assert not alone.move_on(a, 0.0)
    assert (alone.current, alone.first_to_probe(RETURN_S)) == (a, None)


def test_each_part_that_is_no_address_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^server: .*got 'h:x'; .*port from 1 to 65535, got 'h:0'; .*got ''$"
    ):
        addresses_of("good,h:x,h:0,,h:x")


async def test_command_line_names_the_one_that_answered(servers: Any) -> None:
    first, second = servers
    await first.stop()
    said = await asyncio.to_thread(run, "ping", "--server", both(servers))
    assert (said.exit_code, said.stdout.split()[0]) == (0, second.address)
    await second.stop()
    said = await asyncio.to_thread(run, "ping", env={"BEDROCKJOBS_SERVER": both(servers)})
    assert said.exit_code == 69
    assert all(f"cannot connect to {server.address}" in said.stderr for server in servers)
    said = await asyncio.to_thread(run, "ping", "--server", f"{first.address},h:x,ftp://y")
    assert said.exit_code == 2
    assert "got 'h:x'" in said.stderr
    assert "got 'ftp://y'" in said.stderr
