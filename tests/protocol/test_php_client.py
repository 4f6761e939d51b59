r"""Requests of Bedrock's official PHP client and worker manager, byte for byte, and their expectations.

The client writes the method line, then every header on its own line in CRLF, always with ``Connection:
wait``, ``timeout: 110000`` and its own bookkeeping headers; values that are arrays are JSON with every
backslash doubled. It reads a head up to the blank line, then exactly ``Content-Length`` bytes, and keeps the
connection for hours.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.clock import SystemClock
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, Talk
from tests.runs.bearer import admin_of

BOOKKEEPING = {
    "Connection": "wait",
    "timeout": "110000",
    "priority": "500",
    "lastIP": "127.0.0.1",
    "requestID": "Xq7RtY",
    "logParam": "worker@host",
    "writeConsistency": "ASYNC",
    "host": "db1.example",
}
"""What the client adds to every request."""


def php_json(value: Any) -> str:
    r"""Return JSON as PHP spells it (``\/``, ``\u00e9``), each backslash doubled for the header line."""
    return json.dumps(value, separators=(",", ":")).replace("/", "\\/").replace("\\", "\\\\")


def php_request(command: str, headers: dict[str, Any], *, idempotent: bool = False, body: str = "") -> bytes:
    """Return the bytes of one request of the client."""
    lines = [command]
    for name, value in {**headers, **BOOKKEEPING, "idempotent": "1" if idempotent else "0"}.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, (dict, list)):
            value = php_json(value)
        lines.append(f"{name}: {value}")
    lines += [f"Content-Length: {len(body.encode())}", "", body]
    return "\r\n".join(lines).encode()


class PHPClient:
    """One kept connection that reads as strictly as the client does."""

    def __init__(self, talk: Talk) -> None:
        """Use a connection."""
        self.talk = talk

    async def call(self, command: str, headers: dict[str, Any] | None = None, **more: Any) -> Reply:
        """Send a request and return the answer, checked for all that the client demands of any."""
        self.talk.send(php_request(command, headers or {}, **more))
        return await self.read()

    async def read(self) -> Reply:
        """Read an answer; what came behind the one before would be its first line."""
        reply = await self.talk.reply()
        assert re.fullmatch(r"\d{3} [^\r\n]+", reply.status)
        if reply.code == 200:
            assert reply.status == "200 OK"
        names = [line.partition(":")[0] for line in reply.lines]
        assert names.count("Content-Length") == 1, "spelled exactly so, once"
        assert "commitCount" not in names
        assert reply.headers.get("content-type", "application/json") == "application/json"
        assert "content-encoding" not in reply.headers
        assert reply.code == 200 or not reply.body or reply.json is not None, "an error's body: empty or JSON"
        assert "connection" not in reply.headers, "it stays open"
        return reply


@pytest.fixture(params=["document", "current"])
async def served(request: pytest.FixtureRequest, serve: Serve) -> Live:
    """Return a server in each mode."""
    return await serve(compatibility=request.param)


@pytest.fixture
async def php(served: Live) -> AsyncIterator[PHPClient]:
    """Return a client on one connection, which lasts for the whole test."""
    client = PHPClient(await served.connect())
    yield client
    assert (await client.call("Ping")).code == 200, "the connection is still good"


async def test_the_bytes_of_a_request() -> None:
    sent = php_request("GetJob", {"name": "a/b", "data": {"q": 'é"\\'}}, idempotent=True)
    assert sent == (
        b"GetJob\r\nname: a/b\r\n" + b'data: {"q":"\\\\u00e9\\\\"\\\\\\\\"}\r\n'
        b"Connection: wait\r\ntimeout: 110000\r\npriority: 500\r\nlastIP: 127.0.0.1\r\nrequestID: Xq7RtY\r\n"
        b"logParam: worker@host\r\nwriteConsistency: ASYNC\r\nhost: db1.example\r\nidempotent: 1\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


async def test_a_life(php: PHPClient) -> None:
    data = {"path": "C:\\tmp\\x", "text": 'say "hi"\n', "url": "https://x/y", "é": "ü€😀", "n": 1, "f": 2.5}
    reply = await php.call(
        "CreateJob",
        {
            "name": "www-prod/Foo",
            "data": data,
            "firstRun": "",
            "repeat": "",
            "unique": False,
            "jobPriority": 500,
        },
    )
    assert (reply.status, reply.json) == ("200 OK", {"jobID": 1})
    job = (await php.call("GetJob", {"name": "www-prod/*", "getMockedJobs": False})).json
    assert job["data"] == data
    assert (await php.call("UpdateJob", {"jobID": 1, "data": {"step": 2}}, idempotent=True)).code == 200
    job = (await php.call("QueryJob", {"jobID": 1}, idempotent=True)).json
    assert (job["data"], job["state"]) == ({"step": 2}, "RUNNING")
    reply = await php.call("FinishJob", {"jobID": 1, "data": {"done": True}}, idempotent=True)
    assert (reply.status, reply.lines, reply.body) == ("200 OK", ("Content-Length: 0",), "")
    assert (await php.call("QueryJob", {"jobID": 1}, idempotent=True)).status == "404 No job with this jobID"


async def test_types_in_answers(php: PHPClient) -> None:
    await php.call("CreateJob", {"name": "1234567", "data": {}, "repeat": "", "retryAfter": ""})
    text = (await php.call("GetJob", {"name": "1234567"})).body
    job = json.loads(text)
    assert (type(job["jobID"]), type(job["priority"])) == (int, int)
    assert (job["name"], job["repeat"], job["retryAfter"], job["lastRun"]) == ("1234567", "", "", "")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", job["created"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", job["nextRun"])
    assert '"data":{}' in text


@pytest.mark.parametrize(
    "data",
    [
        "{}",
        '{"list":[],"map":{}}',
        '{"n":2.0,"z":-0.0,"e":1E5}',
        '{"id":9223372036854775807,"u":18446744073709551615}',
        '{"b":[true,false,null]}',
        '{"z":1,"a":2}',
    ],
)
async def test_the_spelling_of_data_is_kept(php: PHPClient, data: str) -> None:
    await php.call("CreateJob", {"name": "spelled", "data": data})
    assert f'"data":{data},' in (await php.call("GetJob", {"name": "spelled"})).body
    await php.call("UpdateJob", {"jobID": 1, "data": data})
    assert f'"data":{data},' in (await php.call("QueryJob", {"jobID": 1})).body
    reply = await php.call("CreateJobs", {"jobs": f'[{{"name":"spelled","data":{data}}}]'})
    assert reply.json == {"jobIDs": [2]}
    assert f'"data":{data},' in (await php.call("GetJob", {"name": "spelled"})).body


async def test_data_of_families_is_embedded(php: PHPClient) -> None:
    await php.call("CreateJob", {"name": "parent", "data": '{"p":2.0}'})
    await php.call("GetJob", {"name": "parent"})
    await php.call("CreateJob", {"name": "child", "data": '{"c":[]}', "parentJobID": 1})
    await php.call("FinishJob", {"jobID": 1}, idempotent=True)
    child = (await php.call("GetJob", {"name": "child"})).body
    assert '"parentData":{"p":2.0},"parentJobID":1' in child
    await php.call("FinishJob", {"jobID": 2, "data": '{"c":-0.0}'}, idempotent=True)
    parent = (await php.call("GetJob", {"name": "parent"})).body
    assert '"finishedChildJobs":[{"data":{"c":-0.0},"jobID":2}]' in parent
    assert '"cancelledChildJobs":[]' in parent


async def test_nothing_waits_that_did_not_ask_for_it(served: Live) -> None:
    """The timeout comes with every command; without ``Connection: wait`` it means nothing."""
    talk = await served.connect()
    talk.send("GetJob\r\nname: none\r\ntimeout: 110000\r\nContent-Length: 0\r\n\r\n")
    assert (await talk.reply()).status == "404 No job found"


async def test_a_waiting_get_waits_for_its_timeout(serve: Serve, clock: Any) -> None:
    live = await serve(clock)
    client = PHPClient(await live.connect())
    client.talk.send(php_request("GetJob", {"name": "none"}))
    await live.waiting(1)
    live.advance(109.9)
    assert await client.talk.silent()
    live.advance(0.1)
    assert (await client.read()).status == "404 No job found"
    assert (await client.call("Ping")).code == 200


async def test_create_and_the_generic_priority(php: PHPClient) -> None:
    await php.call("CreateJob", {"name": "p", "jobPriority": 850})
    assert (await php.call("QueryJob", {"jobID": 1})).json["priority"] == 850
    php.talk.send("CreateJob\r\nname: p\r\npriority: 1000\r\nContent-Length: 0\r\n\r\n")
    assert (await php.read()).json == {"jobID": 2}
    assert (await php.call("QueryJob", {"jobID": 2})).json["priority"] == 1000
    php.talk.send("GetJob\r\nname: p\r\npriority: 250\r\nContent-Length: 0\r\n\r\n")
    assert (await php.read()).json["jobID"] == 2, "the generic priority says nothing about which job"
    php.talk.send("CreateJob\r\nname: p\r\npriority: 7\r\njobPriority: 750\r\nContent-Length: 0\r\n\r\n")
    assert (await php.read()).json == {"jobID": 3}


async def test_a_batch_in_one_line(php: PHPClient) -> None:
    jobs = [{"name": f"batch/{n}", "data": {"text": 'é/"\\' * 500, "n": n}} for n in range(500)]
    sent = php_request("CreateJobs", {"jobs": jobs})
    assert len(sent) > 1024 * 1024
    php.talk.send(sent)
    assert (await php.read()).json == {"jobIDs": list(range(1, 501))}
    found = (await php.call("GetJobs", {"name": "batch/*", "numResults": 500})).json["jobs"]
    assert [job["data"]["n"] for job in found] == list(range(500))
    assert found[0]["data"]["text"] == jobs[0]["data"]["text"]  # type: ignore[index]


async def test_a_long_line_in_pieces_of_a_few_bytes(php: PHPClient) -> None:
    await php.talk.drip(php_request("CreateJob", {"name": "drip", "data": {"x": "y" * 5_000}}))
    assert (await php.read()).json == {"jobID": 1}


async def test_empty_arrays_of_php(php: PHPClient) -> None:
    reply = await php.call("CreateJobs", {"jobs": [{"name": "a", "data": []}, {"name": "a", "data": {}}]})
    assert reply.json == {"jobIDs": [1, 2]}
    assert '"data":{}' in (await php.call("GetJob", {"name": "a"})).body
    reply = await php.call("CreateJobs", {"jobs": [{"name": "a", "data": [1]}]})
    assert reply.status == "402 Data is not a valid JSON Object"
    reply = await php.call("CreateJob", {"name": "a", "data": ""})
    assert reply.status == "402 Data is not a valid JSON Object", "where its JSON could not be made"


async def test_commands_that_arrive_twice(php: PHPClient) -> None:
    """After a lost answer the client sends an idempotent command again."""
    await php.call("CreateJob", {"name": "once"})
    await php.call("CreateJob", {"name": "again", "repeat": "FINISHED, +1 HOUR"})
    await php.call("CreateJob", {"name": "retried"})
    await php.call("CreateJob", {"name": "failed"})
    for name in ("once", "again", "retried", "failed"):
        assert (await php.call("GetJob", {"name": name})).code == 200
    for command, job_id, second in (
        ("FinishJob", 1, 404),
        ("FinishJob", 2, 405),
        ("RetryJob", 3, 405),
        ("FailJob", 4, 405),
    ):
        headers = {"jobID": job_id, "delay": 60} if command == "RetryJob" else {"jobID": job_id}
        assert (await php.call(command, headers, idempotent=True)).code == 200
        assert (await php.call(command, headers, idempotent=True)).code == second
    assert (await php.call("DeleteJob", {"jobID": 4}, idempotent=True)).code == 200
    assert (await php.call("DeleteJob", {"jobID": 4}, idempotent=True)).code == 404


async def test_errors_are_words_in_a_header(php: PHPClient) -> None:
    for command, headers, code in (
        ("CreateJob", {"data": {}}, 402),
        ("CreateJob", {"name": "x", "repeat": "never"}, 402),
        ("CreateJobs", {"jobs": "nonsense"}, 401),
        ("QueryJob", {"jobID": "12x"}, 402),
        ("CancelJob", {"jobID": 99}, 404),
        ("Query", {"query": "SELEC 1;"}, 402),
        ("Query", {"query": "DELETE FROM jobs;"}, 502),
    ):
        reply = await php.call(command, headers)
        assert (reply.code, reply.body) == (code, ""), command
        assert reply.headers["error"]
        assert reply.headers["content-length"] == "0"


async def test_a_command_that_does_not_exist_ends_the_connection(served: Live) -> None:
    """It names a host with every command; one that is none of ours is taken for a browser's."""
    talk = await served.connect()
    talk.send(php_request("NoSuchCommand", {}))
    reply = await talk.reply()
    assert (reply.code, reply.body, reply.headers["connection"]) == (430, "", "close")
    assert await talk.ended() == b""


async def test_the_worker_manager(php: PHPClient) -> None:
    """It asks for many, hands back what it cannot start, and renames what it gives back."""
    for n in range(4):
        await php.call("CreateJob", {"name": "www/A", "data": {"n": n}, "retryAfter": "+5 MINUTES"})
    found = (await php.call("GetJobs", {"name": "www/A,www/B", "numResults": 3})).json["jobs"]
    assert [job["jobID"] for job in found] == [1, 2, 3]
    reply = await php.call("RequeueJobs", {"jobIDs": "2,3,99", "decrementFailures": True}, idempotent=True)
    assert (reply.status, reply.body) == ("200 OK", "")
    job = (await php.call("QueryJob", {"jobID": 2})).json
    assert (job["state"], job["data"]["retryAfterCount"], job["nextRun"]) == ("QUEUED", 0, job["created"])
    reply = await php.call("RetryJob", {"jobID": 1, "delay": 0, "name": "www/B", "data": {"n": 10}})
    assert reply.code == 200
    job = (await php.call("GetJob", {"name": "www/B"})).json
    assert (job["jobID"], job["data"]) == (1, {"n": 10})


def _accepted(port: int) -> socket.socket:
    """Return the server's end of the connection from a port, which is a socket of this process too.

    Only sockets are looked at: to close a second descriptor of a database frees the locks of the first.
    """
    for open_file in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if not str(open_file.readlink()).startswith("socket:"):
                continue
            found = socket.socket(fileno=os.dup(int(open_file.name)))
            with contextlib.suppress(OSError):
                if found.getpeername()[1:2] == (port,):
                    return found
            found.close()
    raise AssertionError(f"no connection from port {port}")


async def test_dead_clients_are_found_by_the_kernel(php: PHPClient) -> None:
    """An idle raw connection has no deadline; TCP keepalive finds the peers that are gone."""
    assert (await php.call("Ping")).code == 200
    with _accepted(php.talk.writer.get_extra_info("sockname")[1]) as accepted:
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        between = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        times = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert idle + between * times <= 75


@pytest.mark.parametrize("refused", [True, False])
async def test_a_connection_the_server_closes_says_so_first(serve: Serve, refused: bool) -> None:
    live = await serve(SystemClock())
    talk = await live.connect()
    if refused:
        talk.send("Ping\r\nContent-Length: x\r\n\r\n")
    else:
        talk.send(php_request("GetJob", {"name": "none"}))
        await live.waiting(1)
        await live.server.stop()
    reply = await talk.reply()
    assert "Connection: close" in reply.lines, "in lower case"
    assert await talk.ended() == b""


async def test_a_header_is_enough_for_a_token(served: Live) -> None:
    """As the page on the client has it: on one kept connection, beside all its other headers."""
    root = await admin_of(served)
    shop = await root.token_for("shop", "produce,work", "mail/*")
    async with await Talk.open(served.port) as talk:
        client = PHPClient(talk)
        token = {"Authorization": f"Bearer {shop.token}"}
        assert (await client.call("CreateJob", {"name": "mail/a", **token}, idempotent=True)).code == 200
        assert (await client.call("CreateJob", {"name": "mail/a"})).status == "403 Forbidden"
        assert (await client.call("CreateJob", {"name": "other", **token})).code == 404
        assert (await client.call("GetJob", {"name": "mail/*", **token})).json["name"] == "mail/a"
