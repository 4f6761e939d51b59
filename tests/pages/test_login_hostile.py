"""Hostile requests to the login, and traces of a session: no error, no write, no stream."""

from __future__ import annotations

import pytest

from bedrockjobs import pages
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.engine.access import WRONG_A_SECOND_MAX
from bedrockjobs.engine.handlers.access import LOGIN_S
from tests.conftest import Live, Serve
from tests.pages.test_login import logged_in, posted
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer, admin_of

FORM = "application/x-www-form-urlencoded"


def login(kind: str, body: str, size: int | None = None) -> str:
    """Return a request to log in, with a body of some type."""
    length = len(body) if size is None else size
    head = (
        "POST /ui/login HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
    )
    return "\r\n".join([*head, "", body])


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("multipart/form-data", "x", 400),
        ("multipart/form-data; boundary=a", "--a\r\n\r\n", 400),
        ("application/json", '{"token":"x"}', 400),
        ("text/plain", "token=x", 400),
        (f"{FORM}; charset=nonsense", "token=x", 401),
        (f"{FORM}; charset=utf-16", "token=x", 401),
        (FORM, "token=%ff%fe%00&to=%ed%a0%80&&=&%", 401),
        (FORM, "token=bj_&token=bjr_1_1_&to=/ui/", 401),
        (FORM, "&".join("a=b" for _ in range(1_000)), 401),
        (FORM, "", 401),
    ],
)
async def test_whatever_is_sent_is_refused(still: Live, kind: str, body: str, code: int) -> None:
    await admin_of(still)
    async with await Talk.open(still.port) as talk:
        talk.send(login(kind, body))
        reply = await talk.reply()
    assert reply.code == code, reply
    assert "set-cookie" not in reply.headers


async def test_a_form_that_does_not_come_is_not_waited_for(serve: Serve) -> None:
    live = await serve(body_s=0.05)
    await admin_of(live)
    async with await Talk.open(live.port) as talk:
        talk.send(login(FORM, "tok", size=100))
        assert (await talk.reply()).code == 504
        assert await talk.ended() == b""


async def test_logging_out_without_a_session_writes_nothing(live: Live) -> None:
    await admin_of(live)
    await live.server.dispatcher.settle()
    before = live.server.dispatcher.commits
    for cookie in ("bedrockjobs_session=x", "a=b"):
        assert (await posted(live, "/ui/logout", "", Cookie=cookie)).code == 303
    assert live.server.dispatcher.commits == before


@pytest.mark.parametrize("path", ["/events?after=-1", "/ui/live"])
async def test_a_stream_ends_with_its_session_alone(live: Live, path: str) -> None:
    root = await admin_of(live)
    mine, others = [await logged_in(live, root.token) for _ in range(2)]
    async with await stream(live, path, mine) as ended, await stream(live, path, others) as stays:
        assert (await posted(live, "/ui/logout", "", Cookie=mine)).code == 303
        await ended.ended()
        assert await stays.silent()
    assert (await Bearer(live).get("/ListJobs", Cookie=others)).code == 200


async def stream(live: Live, path: str, cookie: str) -> Talk:
    """Return a connection on which a stream has begun, and told where it stands."""
    talk = await Talk.open(live.port)
    talk.send(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nCookie: {cookie}\r\n\r\n"
    )
    await talk.reader.readuntil(b"retry: 2000\n\n\r\n" if path == "/ui/live" else b": 2\nid: 2\n\n\r\n")
    return talk


async def test_pages_are_kept_fresh_no_longer_than_the_session(
    serve: Serve, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "POLL_S", 0.01)
    live = await serve(clock)
    root = await admin_of(live)
    async with await stream(live, "/ui/live", await logged_in(live, root.token)) as talk:
        live.advance(LOGIN_S)
        await talk.ended()


async def test_wrong_logins_are_counted_by_the_address_before_the_proxy(
    serve: Serve, clock: ManualClock
) -> None:
    live = await serve(clock, trusted_proxies="127.0.0.1")
    await admin_of(live)
    codes = [
        (await posted(live, "/ui/login", "token=bj_x", **{"X-Forwarded-For": "192.0.2.7"})).code
        for _ in range(WRONG_A_SECOND_MAX + 1)
    ]
    other = await posted(live, "/ui/login", "token=bj_x", **{"X-Forwarded-For": "192.0.2.8"})
    assert (codes.count(401), other.code) == (WRONG_A_SECOND_MAX, 401)
    assert codes[-1] == 429
