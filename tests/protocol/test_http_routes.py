"""Paths and methods over HTTP: unknown paths, and unsupported methods of known ones."""

from __future__ import annotations

import pytest
from aiohttp import web

from bedrockjobs.protocol.http import LateRoutes
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply


async def _ask(live: Live, line: str, body: str = "") -> Reply:
    async with await live.connect() as talk:
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        talk.send(head + body)
        return await talk.reply()


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("GET /CreateJob", "POST"),
        ("PUT /QueryJob", "GET,POST"),
        ("POST /events", "GET"),
        ("DELETE /livez", "GET,HEAD"),
        ("GET /cronken/events", "POST"),
        ("DELETE /ListJobs", "GET,POST"),
    ],
)
async def test_another_method_is_answered_with_those_that_are_taken(
    live: Live, line: str, allowed: str
) -> None:
    reply = await _ask(live, line)
    assert reply.code == 405
    assert reply.headers["allow"] == allowed
    assert reply.headers["content-type"] == "application/problem+json"


async def test_a_command_that_does_not_exist_is_told_from_a_page_that_does_not(live: Live) -> None:
    command = await _ask(live, "POST /NoCommand")
    assert (command.code, command.json["code"]) == (404, 430)
    page = await _ask(live, "GET /no/page")
    assert (page.code, page.json["code"]) == (404, 404)


async def test_sql_that_is_no_select_is_the_client_s_fault(live: Live) -> None:
    reply = await live.http("Query", {"query": "DELETE FROM jobs;"})
    assert (reply.code, reply.json["code"]) == (400, 502)


async def test_an_event_with_a_name_that_no_command_takes_is_refused(live: Live) -> None:
    reply = await live.http("cronken/events", {"action": "pause", "args": "x" * 300})
    assert reply.code == 400
    assert reply.json["detail"].startswith("name: expected at most 255")


async def test_routes_are_made_once_and_not_for_plain_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[LateRoutes] = []
    make = LateRoutes.make

    def counted(routes: LateRoutes) -> web.UrlDispatcher:
        made.append(routes)
        return make(routes)

    monkeypatch.setattr(LateRoutes, "make", counted)
    live = await serve()
    assert (await live.ask("CreateJob", name="a")).code == 200
    assert (await live.http("CreateJob", {"name": "a"})).code == 200
    assert not made
    for _ in range(2):
        assert (await _ask(live, "GET /livez")).code == 200
    assert len(made) == 1
