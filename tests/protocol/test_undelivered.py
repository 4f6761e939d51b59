"""Replies with jobs whose clients may be gone: undone only if the client cannot have got the whole reply.

Each test lets a client leave in an exact moment of a hand-out: after the commit, and before, while or after
its reply is written.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.handlers import take
from bedrockjobs.protocol.http_connection import HTTPConnection
from tests.certificates import Authority
from tests.conftest import Live, Serve
from tests.protocol.talk import DEADLINE_S, post, request
from tests.protocol.waiters import LONG_MS

SMALL, LARGE = "y" * 2_000, Random(0).randbytes(300_000).hex()
"""Data of jobs: what fits into the buffers of any socket, and what does not, even compressed."""


class Client:
    """A client whose socket can be closed between two steps of the server, which shares its event loop."""

    def __init__(self, sock: socket.socket, *, by_aiohttp: bool) -> None:
        """Talk over an open socket; ``by_aiohttp``: replies are written by aiohttp."""
        self._sock = sock
        self.by_aiohttp = by_aiohttp

    @classmethod
    async def open(cls, port: int, way: Way, context: ssl.SSLContext) -> Client:
        """Connect."""

        def connect() -> socket.socket:
            sock = socket.socket()
            sock.settimeout(DEADLINE_S)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(("127.0.0.1", port))
            return context.wrap_socket(sock, server_hostname="localhost") if way.tls else sock

        return cls(await asyncio.to_thread(connect), by_aiohttp=bool(way.headers))

    async def send(self, data: bytes) -> None:
        """Send a request."""
        await asyncio.to_thread(self._sock.sendall, data)

    def end(self) -> None:
        """Close the sending side, over TLS with a close_notify, and read on."""
        if not isinstance(self._sock, ssl.SSLSocket):
            self._sock.shutdown(socket.SHUT_WR)
            return
        self._sock.settimeout(0)
        with suppress(ssl.SSLWantReadError):
            self._sock.unwrap()
        self._sock.settimeout(DEADLINE_S)

    async def rest(self) -> bytes:
        """Return what the server sends until it closes."""
        received = b""
        with suppress(ssl.SSLZeroReturnError):  # both sides have said close_notify
            while data := await asyncio.to_thread(self._sock.recv, 65_536):
                received += data
        self._sock.close()
        return received

    def reset(self) -> None:
        """Reset the connection; the server's next write fails, whether or not it has noticed."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


class Way(NamedTuple):
    """How a client asks."""

    http: bool = False
    tls: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    def bytes_of(self, command: str, given: dict[str, Any]) -> bytes:
        """Return the bytes of a request."""
        if self.http:
            return post(command, given, dict(self.headers))
        return request(command, **given)


WAYS = {
    "raw": Way(),
    "raw over TLS": Way(tls=True),
    "HTTP": Way(http=True),
    "HTTP over TLS": Way(http=True, tls=True),
    "HTTP, written by aiohttp": Way(http=True, headers=(("Accept-Encoding", "gzip"),)),
    "HTTP, read and written by aiohttp": Way(http=True, headers=(("X-Unknown", "1"),)),
    "HTTP, written by aiohttp over TLS": Way(http=True, tls=True, headers=(("X-Unknown", "1"),)),
}

Deliver = Callable[[], None]


async def _noticed(live: Live, client: Client, deliver: Deliver) -> None:
    """The server knows that the client is gone when the reply is ready."""
    client.reset()
    await live.connections(0)
    deliver()


async def _unnoticed(live: Live, client: Client, deliver: Deliver) -> None:
    """The client is gone, and the server's write is the first to find out."""
    if not client.by_aiohttp:
        client.reset()
        deliver()
        return
    writes, gone = HTTPConnection.writes, asyncio.Event()

    def reset_and_write(self: HTTPConnection, size: int) -> None:
        client.reset()
        gone.set()
        writes(self, size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HTTPConnection, "writes", reset_and_write)
        deliver()
        await gone.wait()


async def _whole(live: Live, client: Client, deliver: Deliver) -> None:
    """The reply has left the process when the client resets the connection, perhaps unread."""
    deliver()
    if (connection := next(iter(live.server._connections.open), None)) is not None:
        await _answered(live, connection)
    client.reset()


async def _part(live: Live, client: Client, deliver: Deliver) -> None:
    """A part of the reply is still in the process."""
    deliver()
    (connection,) = live.server._connections.open
    await live.until(lambda: connection.unread_bytes > 0)
    client.reset()


async def _answered(live: Live, connection: Any) -> None:
    if isinstance(connection, HTTPConnection):
        await live.until(lambda: connection._idle)


class Moment(NamedTuple):
    """When the client leaves."""

    leave: Callable[[Live, Client, Deliver], Awaitable[None]]
    stays: bool
    """Whether the run stays: the client may have the whole reply."""
    data: str = SMALL


MOMENTS = {
    "noticed before the reply": Moment(_noticed, stays=False),
    "unnoticed before the reply": Moment(_unnoticed, stays=False),
    "unnoticed before a large reply": Moment(_unnoticed, stays=False, data=LARGE),
    "within the reply": Moment(_part, stays=False, data=LARGE),
    "after the reply": Moment(_whole, stays=True),
}

Asked = Callable[[int], tuple[str, dict[str, Any]]]

ASKED: dict[str, Asked] = {
    "GetJob": lambda _: ("GetJob", {"name": "wanted", "worker": "w"}),
    "GetJob without a worker": lambda _: ("GetJob", {"name": "wanted"}),
    "GetJobs": lambda _: ("GetJobs", {"name": "wanted", "numResults": 3, "worker": "w"}),
    "FinishJob": lambda first: ("FinishJob", {"jobID": first, "thenGet": "wanted", "worker": "w"}),
    "FinishJobs": lambda first: (
        "FinishJobs",
        {"jobs": [{"jobID": first}], "thenGet": "wanted", "worker": "w"},
    ),
}
"""What a client sends to get a job, perhaps with the end of the one that it has."""

LARGE_ONES = ("GetJob", "FinishJobs")
"""What is asked for if the reply is large; the other replies are written by the same code."""


async def stays(live: Live, way: Way, moment: Moment, asked: str, context: ssl.SSLContext) -> bool:
    """Let a client leave in a moment of a hand-out; return whether the run of the job stays."""
    first = (await live.ask("CreateJob", name="first")).json["jobID"]
    await live.ask("GetJob", name="first", worker="w")
    created = await live.http("CreateJob", {"name": "wanted", "data": {"x": moment.data}})
    assert created.code == 200, created
    job_id = created.json["jobID"]
    before = await live.row(job_id)
    client = await Client.open(live.port, way, context)
    outcomes = await _held(live, client.send(way.bytes_of(*ASKED[asked](first))))
    for connection in live.server._connections.open:
        _narrow(connection)
    async with asyncio.timeout(DEADLINE_S):
        await moment.leave(live, client, lambda: live.server.dispatcher._deliver(outcomes))
    await live.connections(0)
    await live.settle()
    after = await live.row(job_id)
    sql = f"SELECT count(*) FROM runs WHERE jobID = {job_id};"
    ((runs,),) = (await live.ask("Query", query=sql, format="json")).json["rows"]
    if after["state"] != "RUNNING":
        assert (after, runs) == (before, 0)
        again = (await live.ask("GetJob", name="wanted", worker="v")).json
        assert (again["jobID"], again["attempt"]) == (job_id, 1), "it was ready at once"
        return False
    assert (after["attempt"], runs) == (1, asked != "GetJob without a worker")
    return True


async def _held(live: Live, cause: Awaitable[Any]) -> Any:
    """Await what causes a hand-out; return the outcomes of that transaction, which are not delivered yet."""
    dispatcher: Dispatcher = live.server.dispatcher
    deliver, held = dispatcher._deliver, asyncio.get_running_loop().create_future()

    def hold(outcomes: Any) -> None:
        if any(getattr(outcome, "taken", ()) for _, outcome in outcomes):
            dispatcher._deliver = deliver  # type: ignore[method-assign]
            held.set_result(outcomes)
        else:
            deliver(outcomes)

    dispatcher._deliver = hold  # type: ignore[method-assign]
    await cause
    async with asyncio.timeout(DEADLINE_S):
        return await held


def _narrow(connection: Any) -> None:
    """Let the socket of a connection buffer little."""
    sock = connection._transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)


async def walk(live: Live, way: str, context: ssl.SSLContext) -> dict[tuple[str, str], bool]:
    """Return for each moment, and for all that can be asked for then, whether the run stayed."""
    return {
        (leaves, asked): await stays(live, WAYS[way], moment, asked, context)
        for leaves, moment in MOMENTS.items()
        for asked in (LARGE_ONES if moment.data is LARGE else ASKED)
    }


def expected() -> dict[tuple[str, str], bool]:
    """Return what ``walk`` is to find."""
    return {
        (leaves, asked): moment.stays
        for leaves, moment in MOMENTS.items()
        for asked in (LARGE_ONES if moment.data is LARGE else ASKED)
    }


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_stays_only_if_its_client_may_know_it(serve: Serve, tmp_path: Path, way: str) -> None:
    authority = Authority(tmp_path / "tls")
    live = await serve(**authority.serving())
    assert await walk(live, way, authority.trusting()) == expected()


@pytest.mark.parametrize("fault", ["never undone", "always undone"])
async def test_the_walk_sees_what_is_undone_wrongly(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The negative control."""
    answered = HTTPConnection.answered
    if fault == "never undone":
        monkeypatch.setattr(take, "put_back", lambda context, taken: None)
    else:
        monkeypatch.setattr(HTTPConnection, "answered", lambda *given: answered(*given) and False)
    authority = Authority(tmp_path / "tls")
    live = await serve(**authority.serving())
    found = await walk(live, "HTTP", authority.trusting())
    assert set(found.values()) == {fault == "never undone"}


# --- other moments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_undoes_a_reply_that_was_not_read(serve: Serve, tmp_path: Path, way: str) -> None:
    authority = Authority(tmp_path / "tls")
    live = await serve(**authority.serving(), drain_s=0.05)
    await live.http("CreateJob", {"name": "wanted", "data": {"x": LARGE}})
    await live.ask("CreateJob", name="read")
    assert (await live.ask("GetJob", name="read", worker="w")).code == 200
    await live.connections(0)
    client = await Client.open(live.port, WAYS[way], authority.trusting())
    outcomes = await _held(live, client.send(WAYS[way].bytes_of(*ASKED["GetJob"](0))))
    (connection,) = live.server._connections.open
    _narrow(connection)
    live.server.dispatcher._deliver(outcomes)
    await live.until(lambda: connection.unread_bytes > 0)
    await live.server.stop()
    again = await serve(database=live.server.settings.database)
    assert [(await again.row(job_id))["state"] for job_id in (1, 2)] == ["QUEUED", "RUNNING"]
    client.reset()


NOTHING = {
    "GetJob": b"404 No job found",
    "GetJob without a worker": b"404 No job found",
    "GetJobs": b"404 No job found",
    "FinishJob": b'{"job":null}',
    "FinishJobs": b'{"results":[{"jobID":1,"code":200,"reason":"OK"}],"jobs":[]}',
}
"""What a take without a job is answered."""


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("way", ["raw", "raw over TLS"])
async def test_a_client_that_ends_its_input_during_a_hand_out_gets_no_job(
    serve: Serve, tmp_path: Path, way: str, asked: str
) -> None:
    authority = Authority(tmp_path / "tls")
    live = await serve(**authority.serving())
    await live.ask("CreateJob", name="first")
    await live.ask("GetJob", name="first", worker="w")
    await live.connections(0)
    client = await Client.open(live.port, WAYS[way], authority.trusting())
    command, given = ASKED[asked](1)
    await client.send(request(command, **given, Connection="wait", timeout=LONG_MS))
    await live.waiting(1)
    (connection,) = live.server._connections.open
    outcomes = await _held(live, live.http("CreateJob", {"name": "wanted", "connection": "forget"}))
    client.end()
    await live.until(lambda: connection._pipeline.ended)
    live.server.dispatcher._deliver(outcomes)
    assert NOTHING[asked] in await client.rest()
    await live.settle()
    row = await live.row(2)
    assert (row["state"], row["attempt"]) == ("QUEUED", 0)
    if asked.startswith("Finish"):
        assert (await live.ask("QueryJob", jobID=1)).code == 404, "its run ended"


async def test_a_reply_that_its_token_may_no_longer_have_is_undone(serve: Serve) -> None:
    """The token ends between the hand-out and the moment in which aiohttp writes the reply."""
    live = await serve()
    admin = (await live.ask("CreateToken", name="admin", roles="admin")).json["token"]
    as_admin = {"Authorization": f"Bearer {admin}"}
    created = await live.http("CreateToken", {"name": "w", "roles": ["work"]}, **as_admin)
    as_worker = {"Authorization": f"Bearer {created.json['token']}"}
    await live.http("CreateJob", {"name": "wanted", "data": {"x": SMALL}}, **as_admin)
    talk, headers = await live.connect(), {**as_worker, "Accept-Encoding": "gzip"}
    talk.send(post("GetJob", {"name": "wanted", "worker": "w"}, headers))
    outcomes = await _held(live, asyncio.sleep(0))
    await live.http("RevokeToken", {"name": "w"}, **as_admin)
    live.server.dispatcher._deliver(outcomes)
    assert (await talk.reply()).code == 401
    await live.until(lambda: not live.server.dispatcher.pending)
    found = await live.http("GetJob", {"name": "wanted", "worker": "w"}, **as_admin)
    assert found.json["attempt"] == 1
    talk.send(post("QueryJob", {"jobID": 1}, {**as_admin, "X-Unknown": "1"}))
    assert (await talk.reply()).json["state"] == "RUNNING", "the next request has a reply of its own"
