"""Access without a token before there is one: each way of connecting, times the settings.

Nobody can tell from an address whether a request over HTTP was passed on by a proxy on the same machine, nor
whether a browser sends it for the page of another site.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import Unauthenticated
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import StartError
from bedrockjobs.engine.access import Access
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
TLS = ("raw over TLS", "http over TLS")
CERTIFIED = ("raw with a certificate", "http with a certificate")
LOOPBACK6 = ("raw from ::1", "http from ::1")
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
    "beyond, TLS": ({**BEYOND, "tls_cert": "cert"}, (*RAW, *TCP, *UNIX, *_local, *TLS), ()),
    "TLS, public hosts": (
        {"tls_cert": "cert", "public_hosts": PUBLIC},
        (*RAW, TLS[0]),
        (*TCP, *UNIX, *_local, *_public, TLS[1]),
    ),
    "TLS, behind a proxy": (
        {**PROXY, "behind_proxy": True, "tls_cert": "cert", "tls_client_ca": "ca"},
        (*RAW, TLS[0], CERTIFIED[0]),
        (),
    ),
    "certificates": (
        {"tls_cert": "cert", "tls_client_ca": "ca"},
        (*RAW, *TCP, *UNIX, *_local, *TLS, *CERTIFIED),
        (),
    ),
    "beyond, certificates": (
        {**BEYOND, "tls_cert": "cert", "tls_client_ca": "ca", "insecure": True, "public_hosts": PUBLIC},
        (*RAW, TLS[0], CERTIFIED[0]),
        (*TCP, *UNIX, *_local, *_public, *_addresses, TLS[1], CERTIFIED[1]),
    ),
    "IPv6": ({"host": "::1"}, (*LOOPBACK6, "raw over unix", *UNIX), ()),
    "IPv6, public hosts": (
        {"host": "::1", "public_hosts": PUBLIC},
        (LOOPBACK6[0], "raw over unix"),
        (LOOPBACK6[1], *UNIX),
    ),
    "IPv6, a proxy": ({"host": "::1", "trusted_proxies": "::1"}, (LOOPBACK6[0], "raw over unix"), UNIX),
    "IPv6, behind a proxy": (
        {"host": "::1", "trusted_proxies": "::1", "behind_proxy": True},
        (LOOPBACK6[0], "raw over unix"),
        (),
    ),
}


def ways(settings: dict[str, object]) -> tuple[str, ...]:
    """Return how a visitor may come to a server with these settings."""
    if settings.get("host") == "::1":
        return (*LOOPBACK6, "raw over unix", *UNIX)
    more = (*(TLS if "tls_cert" in settings else ()), *(CERTIFIED if "tls_client_ca" in settings else ()))
    return (*ALL, *more)


TOKEN, JOB = ("CreateToken", FIRST), ("CreateJob", {"name": "a"})


async def _codes(
    way: str, port: int, unix: Path, authority: Authority, *asked: tuple[str, dict[str, str]]
) -> list[int]:
    """Return the codes of commands by one way, each on a connection of its own."""
    kind, _, rest = way.partition(", ")
    host = way.removeprefix("host ") if way.startswith("host ") else "localhost"
    given = FORWARDED.get(rest)
    headers = {} if given is None else {XFF: given}
    if kind.startswith("raw"):
        sent = [request(verb, **body) for verb, body in asked]
    else:
        sent = [post(verb, body, headers, host=host) for verb, body in asked]
    context = authority.trusting() if way in (*TLS, *CERTIFIED) else None
    if context is not None and way in CERTIFIED:
        context.load_cert_chain(*authority.sign("deploy"))
    codes = []
    for data in sent:
        if "unix" in kind:
            talk = Talk(*await asyncio.open_unix_connection(str(unix)))
        elif way in LOOPBACK6:
            talk = await Talk.open(port, "::1")
        else:
            named = {} if context is None else {"server_hostname": "localhost"}
            talk = Talk(*await asyncio.open_connection("127.0.0.1", port, ssl=context, **named))
        async with talk:
            talk.send(data)
            reply = await talk.reply()
            codes.append(reply.json["code"] if reply.body and "code" in reply.json else reply.code)
    return codes


@pytest.mark.parametrize("name", SETTINGS)
async def test_every_way_to_come_without_a_token(serve: Serve, tmp_path: Path, name: str) -> None:
    settings, token_by, else_by = SETTINGS[name]
    authority = Authority(tmp_path / "tls")
    if "tls_cert" in settings:
        files: dict[str, object] = {**authority.serving(), "tls_client_ca": str(authority.ca)}
        settings = {key: files.get(key, value) for key, value in {**files, **settings}.items()}
        if "tls_client_ca" not in SETTINGS[name][0]:
            del settings["tls_client_ca"]
    unix = tmp_path / "s"
    live = await serve(**{"unix": str(unix), **settings})
    found = {way: await _codes(way, live.port, unix, authority, TOKEN, JOB) for way in ways(settings)}
    expected = {way: (True, True) if way in token_by else (False, way in else_by) for way in found}
    assert {way: (token == MAY, job == 200) for way, (token, job) in found.items()} == expected
    assert {code for codes in found.values() for code in codes} <= {200, MAY, 403}
    over_ipv6 = settings.get("host") == "::1"
    async with await Talk.open(live.port, "::1" if over_ipv6 else "127.0.0.1") as talk:
        made = await talk.ask("CreateToken", name="root", roles="admin", anonymousRoles="produce")
    assert made.json["token"], "the machine itself may always"
    before = {way: job == 200 for way, (_, job) in found.items()}
    anonymous = {way: await _codes(way, live.port, unix, authority, JOB) == [200] for way in before}
    assert anonymous == before, "clients without a token come from where they could before"


LOOPBACK = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::ffff:127.9.9.9", "unix")
ELSEWHERE = ("10.0.0.7", "::ffff:10.0.0.7", "fe80::1%eth0", "2001:db8::7", "unknown via 127.0.0.1", "::")


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("insecure", [True, False])
@pytest.mark.parametrize("proxy", ["", "trusted_proxies", "public_hosts", "behind_proxy"])
def test_an_address_of_the_machine_in_each_of_its_forms(reachable: bool, insecure: bool, proxy: str) -> None:
    """Other addresses are those of visitors only where that is allowed, and no proxy's."""
    given = {
        "": {},
        "trusted_proxies": PROXY,
        "public_hosts": {"public_hosts": PUBLIC},
        "behind_proxy": {**PROXY, "behind_proxy": True},
    }[proxy]
    settings = Settings.model_validate({"insecure": insecure, **given})
    access = Access(SystemClock(), settings, reachable=reachable)
    for address in (*LOOPBACK, *ELSEWHERE):
        for http in (False, True):
            local = address in LOOPBACK and not (http and proxy == "behind_proxy")
            if local or not reachable or insecure:
                found = access.visitor(address, http=http)
                assert found.direct == (not (http and proxy)), (address, http)
            else:
                with pytest.raises(Unauthenticated):
                    access.visitor(address, http=http)


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
