"""No spelling of a path, no method and no earlier request gives access without the required token."""

from __future__ import annotations

import pytest

from tests.conftest import Live
from tests.protocol.talk import Talk
from tests.runs.bearer import Bearer, admin_of

HIDDEN = "hidden/from/strangers"

PATHS = [
    *("/ui/static/../jobs", "/ui/static/..%2fjobs", "/ui/static/%2e%2e/jobs", "/ui/login/../jobs"),
    *("/ui/logout/../jobs", "/ui//jobs", "/%75i/jobs", "/ui/jobs/", "/ui/jobs;x", "http://localhost/ui/jobs"),
    *("//ListJobs", "/./ListJobs", "/ListJobs/", "/listjobs", "/ListJobs%00", "/ListJobs;x"),
    *("http://localhost/ListJobs", "/ping/../ListJobs", "/ping/..%2fListJobs", "/metrics/", "/%6detrics"),
    *("/status/../ListJobs", "/livez/../ListJobs", "/docs", "/openapi.json", "/events", "/cronken/events"),
]


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_is_not_opened_by_its_spelling(live: Live, path: str) -> None:
    root = await admin_of(live)
    await root.ok("CreateJob", name=HIDDEN)
    for method in ("GET", "POST", "HEAD", "OPTIONS"):
        async with await Talk.open(live.port) as talk:
            head = "Host: localhost\r\nContent-Length: 0\r\nConnection: close"
            talk.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n\r\n")
            answer = (await talk.ended()).decode()
        assert HIDDEN not in answer
        assert int(answer.split()[1]) in (303, 401, 403, 404, 405), (method, answer)


REQUESTS = ("POST /Status", "POST /ListJobs", "GET /ListJobs?limit=1", "GET /ui/jobs")


@pytest.mark.parametrize("second", REQUESTS)
@pytest.mark.parametrize("first", REQUESTS)
async def test_a_token_counts_for_its_own_request_alone(live: Live, first: str, second: str) -> None:
    """Over HTTP a proxy may send the requests of many people on one connection."""
    root = await admin_of(live)
    head = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
    async with await Talk.open(live.port) as talk:
        talk.send(f"{first} {head}Authorization: Bearer {root.token}\r\n\r\n")
        assert (await talk.reply()).code == 200
        talk.send(f"{second} {head}\r\n")
        assert (await talk.reply()).code == 401


async def test_what_was_said_on_a_raw_connection_opens_no_http(live: Live) -> None:
    root = await admin_of(live)
    async with await Talk.open(live.port) as talk:
        assert (await talk.ask("Authenticate", token=root.token)).code == 200
        talk.send("GET /ListJobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in (await talk.ended())
    assert (await Bearer(live).http("ListJobs")).code == 401
