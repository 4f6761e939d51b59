"""Paths and methods over HTTP: unknown paths, and unsupported methods of known ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

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


async def test_routes_are_made_once_when_they_are_asked_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = LateRoutes.make

    def counted(routes: LateRoutes, path: str) -> web.UrlDispatcher:
        made.append(path)
        return make(routes, path)

    monkeypatch.setattr(LateRoutes, "make", counted)
    live = await serve()
    assert (await live.ask("CreateJob", name="a")).code == 200
    assert (await live.http("CreateJob", {"name": "a"})).code == 200
    assert not made
    for _ in range(2):
        assert (await _ask(live, "GET /livez")).code == 200
        assert (await _ask(live, "GET /ListLimits")).code == 200
    assert made == ["/livez", "/ListLimits"]


def _answered(name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=f"{name} {dict(request.match_info)}")

    return answer


ALIKE = (
    ("GET", "/a/new"),
    ("POST", "/a/{id}"),
    ("GET", "/a/{id}"),
    ("GET", "/a"),
    ("PUT", "/a/{id}/b"),
    ("GET", "/{rest:.+}"),
)
"""Routes of which several may match a path."""


async def test_routes_that_are_made_late_are_found_as_aiohttp_finds_them() -> None:
    routes = [web.route(method, path, _answered(f"{method} {path}")) for method, path in ALIKE]
    late = LateRoutes(lambda: routes)
    every = web.UrlDispatcher()
    every.add_routes(routes)
    for method in ("GET", "POST", "PUT", "DELETE"):
        for path in ("/", "/a", "/a/", "/a/new", "/a/1", "/a/1/b", "/a/new/b", "/b", "/a%2Fnew"):
            request = make_mocked_request(method, path)
            wanted = await every.resolve(request)
            found, allowed = await late.resolve(request)
            if wanted.http_exception is None:
                assert found is not None, (method, path)
                assert (found.handler, dict(found)) == (wanted.handler, dict(wanted)), (method, path)
            else:
                refused = wanted.http_exception
                methods = refused.allowed_methods if isinstance(refused, web.HTTPMethodNotAllowed) else set()
                assert (found, allowed) == (None, methods), (method, path)
    assert len(late) == len(every.routes())
    assert {route.method for route in late} == {route.method for route in every.routes()}
