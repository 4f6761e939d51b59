"""Access without a token before there is one: each way of connecting, times the settings.

Nobody can tell from an address whether a request over HTTP was passed on by a proxy on the same machine, nor
whether a browser sends it for the page of another site.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bedrockjobs.databases import StartError
from tests.certificates import Authority
from tests.conftest import Serve
from tests.protocol.talk import Talk, post, request
from tests.runs.bearer import admin_of

FIRST = {"name": "root", "roles": "read"}
"""Asks for the first token, which must be admin: 405 says that its sender may have one."""

MAY = 405

XFF = "X-Forwarded-For"
FORWARDED = {
    "no header": None,
    "a stranger": "203.0.113.9",
    "with a port": "203.0.113.9:443",
    "brackets": "[2001:db8::1]:443",
    "unknown": "unknown",
    "nothing": "",
    "this machine": "127.0.0.1",
    "the proxy": "127.0.0.1, 127.0.0.1",
}
"""What a proxy on this machine may say of whom it asks for."""

RAW = ("raw", "raw over unix")
TCP = tuple(f"http, {name}" for name in FORWARDED)
UNIX = tuple(f"http over unix, {name}" for name in FORWARDED)
LOCAL_HOSTS = ("localhost", "127.0.0.1:8888", "[::1]")
PUBLIC = "jobs.example.com"
ADDRESSES = ("10.0.0.7:8888", "[2001:db8::7]", "jobs", "jobs.default.svc")
FOREIGN = (
    "evil.example",
    "localhost.evil.example",
    "evil.local.example:8888",
    "[::1",
    "10.0.0.7.evil.example",
)
ALL = (*RAW, *TCP, *UNIX, *(f"host {host}" for host in (*LOCAL_HOSTS, PUBLIC, *ADDRESSES, *FOREIGN)))

_local = tuple(f"host {host}" for host in LOCAL_HOSTS)
_addresses = tuple(f"host {host}" for host in ADDRESSES)
_public = (f"host {PUBLIC}",)

PROXY = {"trusted_proxies": "127.0.0.1"}
BEYOND = {"host": "0.0.0.0"}
SETTINGS: dict[str, tuple[dict[str, object], tuple[str, ...], tuple[str, ...]]] = {
    # the settings, by which ways the first token may be made, and by which others anything else may be done
    "none": ({}, (*RAW, *TCP, *UNIX, *_local), ()),
    "public hosts": ({"public_hosts": PUBLIC}, RAW, (*TCP, *UNIX, *_local, *_public)),
    "a proxy": (PROXY, RAW, UNIX),
    "a proxy by unix": ({"trusted_proxies": "unix"}, RAW, (*TCP, *_local)),
    "behind a proxy": ({**PROXY, "behind_proxy": True}, RAW, ()),
    "behind another": ({"trusted_proxies": "10.0.0.2", "behind_proxy": True, "unix_role": "admin"}, RAW, ()),
    "all of them": ({**PROXY, **BEYOND, "behind_proxy": True, "public_hosts": PUBLIC}, RAW, ()),
    "beyond, insecure": ({**BEYOND, "insecure": True}, (*RAW, *TCP, *UNIX, *_local, *_addresses), ()),
    "beyond, a name": (
        {**BEYOND, "insecure": True, "public_hosts": PUBLIC},
        RAW,
        (*TCP, *UNIX, *_local, *_public, *_addresses),
    ),
    "beyond, TLS": ({**BEYOND, "tls_cert": "cert"}, (*RAW, *TCP, *UNIX, *_local), ()),
}


async def _codes(way: str, port: int, unix: Path) -> tuple[int, int]:
    """Return the codes of an attempt to make the first token and of a create, by one way."""
    kind, _, rest = way.partition(", ")
    host = way.removeprefix("host ") if way.startswith("host ") else "localhost"
    given = FORWARDED.get(rest)
    headers = {} if given is None else {XFF: given}
    if way in RAW:
        sent = [request("CreateToken", **FIRST), request("CreateJob", name="a")]
    else:
        sent = [
            post("CreateToken", FIRST, headers, host=host),
            post("CreateJob", {"name": "a"}, headers, host=host),
        ]
    codes = []
    for data in sent:
        over_unix = "unix" in kind
        talk = Talk(*await asyncio.open_unix_connection(str(unix))) if over_unix else await Talk.open(port)
        async with talk:
            talk.send(data)
            reply = await talk.reply()
            codes.append(reply.json["code"] if reply.body and "code" in reply.json else reply.code)
    return codes[0], codes[1]


@pytest.mark.parametrize("name", SETTINGS)
async def test_every_way_to_come_without_a_token(serve: Serve, tmp_path: Path, name: str) -> None:
    settings, token_by, else_by = SETTINGS[name]
    if "tls_cert" in settings:
        settings = {**settings, **Authority(tmp_path / "tls").serving()}
    unix = tmp_path / "s"
    live = await serve(**{"unix": str(unix), **settings})
    found = {way: await _codes(way, live.port, unix) for way in ALL}
    expected = {way: (True, True) if way in token_by else (False, way in else_by) for way in ALL}
    assert {way: (token == MAY, job == 200) for way, (token, job) in found.items()} == expected
    assert {code for codes in found.values() for code in codes} <= {200, MAY, 403}
    assert (await admin_of(live)).token, "the machine itself may always"


async def test_somebody_whom_a_trusted_proxy_names_is_no_visitor(serve: Serve) -> None:
    live = await serve(**PROXY, proxy_user_header="X-User", proxy_role="admin")
    async with await Talk.open(live.port) as talk:
        talk.send(post("CreateToken", {"name": "root", "roles": "admin"}, {"X-User": "ada"}))
        assert (await talk.reply()).code == 200


async def test_behind_a_proxy_nobody_has_the_role_of_the_unix_socket_over_http(
    serve: Serve, tmp_path: Path
) -> None:
    unix = tmp_path / "s"
    live = await serve(unix=str(unix), unix_role="admin", behind_proxy=True, trusted_proxies="10.0.0.2")
    await admin_of(live)
    for data, code in ((request("ListTokens"), 200), (post("ListTokens"), 401)):
        async with Talk(*await asyncio.open_unix_connection(str(unix))) as talk:
            talk.send(data)
            assert (await talk.reply()).code == code


@pytest.mark.parametrize("more", [{}, {"User-Agent": "a", "X-Else": "b"}])
async def test_with_a_token_a_server_is_asked_by_any_name(serve: Serve, more: dict[str, str]) -> None:
    live = await serve(host="0.0.0.0", insecure=True)
    root = await admin_of(live)
    async with await live.connect() as talk:
        for host in ("localhost", "jobs.example.com", "jobs.example.com"):
            talk.send(post("CreateJob", {"name": "a"}, {**root.headers, **more}, host=host))
            assert (await talk.reply()).code == 200, host
            talk.send(post("CreateJob", {"name": "a"}, more, host=host))
            assert (await talk.reply()).code == 401, host


async def test_a_proxy_that_is_not_named_is_refused_at_the_start(serve: Serve) -> None:
    with pytest.raises(
        StartError, match="behind_proxy: expected the proxy's address in trusted_proxies"
    ) as it:
        await serve(behind_proxy=True)
    assert it.value.status == 2
