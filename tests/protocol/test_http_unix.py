"""Both protocols over a unix socket, and links below a proxy's path, as settings have them."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from bedrockjobs.databases import StartError
from tests.conftest import Serve
from tests.protocol.talk import Talk, post, request


async def _open(path: Path) -> Talk:
    return Talk(*await asyncio.open_unix_connection(str(path)))


async def test_both_protocols_are_spoken_over_it(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    live = await serve(unix=str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert str(path) in live.server.where()
    async with await _open(path) as talk:
        talk.send(request("CreateJob", name="a"))
        assert (await talk.reply()).json == {"jobID": 1}
    async with await _open(path) as talk:
        talk.send(post("QueryJob", {"jobID": 1}))
        assert (await talk.reply()).json["name"] == "a"
    await live.server.stop()
    assert not path.exists()


async def test_a_socket_that_a_killed_server_left_is_replaced(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    await serve(unix=str(path))
    async with await _open(path) as talk:
        talk.send(request("Ping"))
        assert (await talk.reply()).code == 200


async def test_a_socket_in_use_or_a_file_is_left_alone(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    await serve(unix=str(path))
    with pytest.raises(StartError, match="another program listens there"):
        await serve(unix=str(path))
    async with await _open(path) as talk:
        talk.send(request("Ping"))
        assert (await talk.reply()).code == 200
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(StartError, match=r"cannot listen: unix: .*: a file that is not a socket is there"):
        await serve(unix=str(file))
    assert file.read_text() == "mine"
    with pytest.raises(StartError, match=f"there is no folder {tmp_path}/none"):
        await serve(unix=str(tmp_path / "none" / "s"))


async def test_links_begin_with_root_path(serve: Serve) -> None:
    live = await serve(root_path="/queue")
    for name in ("a", "b"):
        await live.http("queue/CreateJob", {"name": name})
    reply = await live.http("ListJobs", {"limit": 1})
    assert reply.headers["link"].startswith("</queue/ListJobs?")


async def test_no_browser_opens_a_unix_socket_so_any_host_may_be_named(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    await serve(unix=str(path))
    async with await _open(path) as talk:
        talk.send(post("Ping", host="x"))
        assert (await talk.reply()).code == 200


NAMES = "queue.example.com, Other.example.com"


@pytest.mark.parametrize(
    ("host", "origin", "code"),
    [
        ("queue.example.com", "", 200),
        ("queue.example.com", "https://queue.example.com", 200),
        ("queue.example.com:8443", "https://queue.example.com:8443", 200),
        ("127.0.0.1:8888", "https://queue.example.com", 200),  # a proxy that puts its own Host
        ("localhost", "https://other.example.com", 200),
        ("localhost", "https://evil.example.com", 403),
        ("queue.example.com", "https://evil.example.com", 403),
        ("queue.example.com.evil.com", "", 403),
        ("evil.example.com", "", 403),
        ("localhost", "null", 403),
    ],
)
async def test_a_proxys_names_are_let_in(serve: Serve, host: str, origin: str, code: int) -> None:
    live = await serve(public_hosts=NAMES)
    async with await Talk.open(live.server.port) as talk:
        talk.send(post("Ping", headers={"Origin": origin} if origin else {}, host=host))
        reply = await talk.reply()
    assert reply.code == code
    if code == 403:
        assert "expected" in reply.json["detail"]


async def test_a_host_that_is_refused_says_which_option_lets_it_in(serve: Serve) -> None:
    live = await serve()
    async with await Talk.open(live.server.port) as talk:
        talk.send(post("Ping", host="queue.example.com"))
        assert "--public-hosts" in (await talk.reply()).json["detail"]
