"""The user that a proxy names is accepted from a trusted proxy only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from bedrockjobs.databases import StartError
from bedrockjobs.engine import access
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, Talk, post
from tests.runs.bearer import admin_of

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
"""Two addresses of this machine: the second one is the proxy's."""

SETTINGS = {"trusted_proxies": ELSEWHERE, "proxy_user_header": "X-Forwarded-User", "proxy_role": "operate"}


async def asked(
    live: Live, command: str, body: Any = None, *, origin: str = ELSEWHERE, **headers: str
) -> Reply:
    """Return the answer to a request from an address of this machine."""
    talk = Talk(*await asyncio.open_connection(HERE, live.port, local_addr=(origin, 0)))
    async with talk:
        talk.send(post(command, body, {name.replace("_", "-"): value for name, value in headers.items()}))
        return await talk.reply()


async def page(live: Live, path: str, headers: Mapping[str, str]) -> Reply:
    """Return a page as the proxy gets it."""
    talk = Talk(*await asyncio.open_connection(HERE, live.port, local_addr=(ELSEWHERE, 0)))
    async with talk:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        talk.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
        return await talk.reply()


async def test_whoever_the_proxy_names_is_let_in_with_the_role_of_all(serve: Serve) -> None:
    live = await serve(**SETTINGS)
    root = await admin_of(live)
    assert (await asked(live, "ListJobs", X_Forwarded_User="ada")).code == 200
    paused = await asked(
        live,
        "PauseJobs",
        {"name": "mail/*", "by": "eve"},
        X_Forwarded_User="ada",
        X_Forwarded_For="192.0.2.7",
    )
    assert paused.code == 200
    assert (await asked(live, "ListTokens", X_Forwarded_User="ada")).code == 403
    (entry,) = [
        each for each in (await root.http("ListAudit")).json["entries"] if each["command"] == "PauseJobs"
    ]
    assert (entry["by"], entry["address"]) == ("ada", "192.0.2.7")
    assert (await page(live, "/ui/", {"X-Forwarded-User": "ada"})).code == 200


@pytest.mark.parametrize(
    ("origin", "headers"),
    [
        (HERE, {"X_Forwarded_User": "ada"}),
        (ELSEWHERE, {}),
        (ELSEWHERE, {"X_Forwarded_User": ""}),
        (ELSEWHERE, {"X_User": "ada"}),
        (ELSEWHERE, {"X_Forwarded_For": "192.0.2.7"}),
    ],
)
async def test_nobody_else_is(serve: Serve, origin: str, headers: dict[str, str]) -> None:
    live = await serve(**SETTINGS)
    await admin_of(live)
    refused = await asked(live, "ListJobs", origin=origin, **headers)
    assert refused.code == 401
    assert json.loads(refused.body)["code"] == 403


async def test_without_any_token_the_proxy_still_has_to_name_somebody(serve: Serve) -> None:
    live = await serve(**{**SETTINGS, "proxy_role": "read"})
    assert (await asked(live, "CreateJob", {"name": "a"})).code == 401
    assert (await asked(live, "CreateJob", {"name": "a"}, X_Forwarded_User="ada")).code == 403
    assert (await asked(live, "ListJobs", X_Forwarded_User="ada")).code == 200
    for sent in ("Basic YWRhOng=", "Bearer bj_none", "bj_none"):  # which everybody can send through it
        assert (await asked(live, "ListJobs", Authorization=sent)).code == 401
        known = await asked(live, "CreateJob", {"name": "a"}, X_Forwarded_User="ada", Authorization=sent)
        assert known.code == 403
    assert (await asked(live, "CreateJob", {"name": "a"}, origin=HERE)).code == 200  # as of old


async def test_a_token_goes_before_what_the_proxy_says(serve: Serve) -> None:
    live = await serve(**SETTINGS)
    root = await admin_of(live)
    authorization = f"Bearer {root.token}"
    reply = await asked(live, "ListTokens", X_Forwarded_User="ada", Authorization=authorization)
    assert reply.code == 200
    reply = await asked(live, "ListTokens", X_Forwarded_User="ada", Authorization="Bearer bj_none")
    assert reply.code == 401
    basic = "Basic YWRhOnNlY3JldA=="  # by which the user has logged in at the proxy
    assert (await asked(live, "ListJobs", X_Forwarded_User="ada", Authorization=basic)).code == 200
    assert (await asked(live, "ListJobs", Authorization=basic)).code == 401


async def test_names_are_forgotten_when_there_are_too_many(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PROXIED_MAX", 2)
    live = await serve(**SETTINGS)
    await admin_of(live)
    for name in "abcab":
        assert (await asked(live, "ListJobs", X_Forwarded_User=name)).code == 200
    assert len(live.server.service.access._proxied) <= 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"proxy_user_header": "X-User"},
            "proxy_user_header: expected the proxy's address in trusted_proxies",
        ),
        ({"trusted_proxies": "10.0.0.1/8"}, "networks or unix: 10.0.0.1/8 has host bits set"),
    ],
)
async def test_what_cannot_be_meant_is_told_at_the_start(
    serve: Serve, settings: dict[str, str], words: str
) -> None:
    with pytest.raises(StartError, match=words) as caught:
        await serve(**settings)
    assert caught.value.status == 2
