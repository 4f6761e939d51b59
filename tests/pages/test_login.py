"""The login: a token becomes a session that the pages and their buttons use, and that ends."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bedrockjobs import pages
from bedrockjobs.commands import COMMANDS
from bedrockjobs.engine.handlers import access
from bedrockjobs.pages.login import FORM_BYTES_MAX, _target_page
from bedrockjobs.protocol.authentication import SESSION_COOKIE
from bedrockjobs.protocol.http import HTTPFront
from tests.certificates import Authority
from tests.conftest import Live, Serve
from tests.protocol.talk import DEADLINE_S, Reply, Talk
from tests.runs.bearer import Bearer, admin_of

BROWSER = {"Accept": "text/html"}


async def posted(live: Live, path: str, form: str, **headers: str) -> Reply:
    """Send a form as a browser does."""
    kind = "application/x-www-form-urlencoded"
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}"]
    head += [f"Content-Length: {len(form)}", *(f"{name}: {value}" for name, value in headers.items())]
    async with await Talk.open(live.port) as talk:
        talk.send(("\r\n".join([*head, "", ""]) + form).encode())
        return await talk.reply()


async def logged_in(live: Live, token: str, to: str = "/ui/jobs") -> str:
    """Log in; return the cookie."""
    reply = await posted(live, "/ui/login", f"token={token}&to={to}", Origin="http://localhost")
    assert (reply.code, reply.headers["location"]) == (303, to)
    cookie = reply.headers["set-cookie"]
    assert re.search(r"; HttpOnly; Max-Age=43200; Path=/; SameSite=Strict", cookie), cookie
    return cookie.partition(";")[0]


async def test_a_browser_is_led_to_the_login_and_back(live: Live) -> None:
    root = await admin_of(live)
    anybody = Bearer(live)
    led = await anybody.get("/ui/jobs?name=a%2F%2A", **BROWSER)
    assert (led.code, led.headers["location"]) == (303, "/ui/login?to=%2Fui%2Fjobs%3Fname%3Da%252F%252A")
    form = await anybody.get("/ui/login?to=%2Fui%2Fjobs", **BROWSER)
    assert form.code == 200
    assert 'name="to" value="/ui/jobs"' in form.body
    cookie = await logged_in(live, root.token)
    page = await anybody.get("/ui/jobs", Cookie=cookie, **BROWSER)
    assert page.code == 200
    assert "Log out root" in page.body
    assert (await live.http("CreateJob", {"name": "a"}, Cookie=cookie, Origin="http://localhost")).code == 200
    assert (
        await live.http("CreateJob", {"name": "a"}, Cookie=cookie, Origin="http://evil.example")
    ).code == 403


async def test_a_password_of_a_proxy_is_no_token(live: Live) -> None:
    """A proxy passes on what it asked for itself; the session counts, and a token before it."""
    root = await admin_of(live)
    cookie = await logged_in(live, root.token)
    answers = [
        (await Bearer(live).get("/ListJobs", Cookie=cookie, Authorization=given)).code
        for given in ("Basic YWRhOngK", "Bearer bj_wrong")
    ]
    assert answers == [200, 401]


async def test_a_wrong_token_and_one_that_may_not_look_are_refused(live: Live) -> None:
    root = await admin_of(live)
    worker = await root.token_for("w", "work")
    blind = await root.token_for("n", "read", noData=True)
    for token, status in (("bj_wrong", 401), ("", 401), (worker.token, 403)):
        reply = await posted(live, "/ui/login", f"token={token}&to=/ui/")
        assert reply.code == status
        assert 'class="problem"' in reply.body
        assert "set-cookie" not in reply.headers
    assert (await logged_in(live, blind.token)).startswith(SESSION_COOKIE), "it sees pages without data"
    assert (await posted(live, "/ui/login", "token=x&to=/ui/", Origin="http://evil.example")).code == 403
    assert (await posted(live, "/ui/login", "x" * (FORM_BYTES_MAX + 1))).code == 400


async def test_a_session_sees_the_names_of_its_token(live: Live) -> None:
    root = await admin_of(live)
    for name in ("a/seen", "b/other"):
        await root.ok("CreateJob", name=name)
    narrow = await root.token_for("n", "read", "a/*")
    cookie = await logged_in(live, narrow.token)
    page = await Bearer(live).get("/ui/jobs", Cookie=cookie, **BROWSER)
    assert (page.code, "other" in page.body) == (200, False)
    assert "which sees a/*" in page.body


async def test_the_session_ends_by_logging_out_with_the_token_and_after_twelve_hours(
    serve: Serve, clock: object
) -> None:
    live = await serve(clock)
    root = await admin_of(live)
    assert access.LOGIN_S == 12 * 3_600
    anybody = Bearer(live)
    cookie = await logged_in(live, root.token)
    out = await posted(live, "/ui/logout", "", Cookie=cookie)
    assert (out.code, out.headers["location"]) == (303, "/ui/login")
    assert (await anybody.get("/ListJobs", Cookie=cookie)).code == 401
    reader = await root.token_for("r", "read")
    of_reader = await logged_in(live, reader.token)
    assert (await anybody.get("/ListJobs", Cookie=of_reader)).code == 200
    await root.ok("RotateToken", name="r")
    assert (await anybody.get("/ListJobs", Cookie=of_reader)).code == 401
    cookie = await logged_in(live, root.token)
    live.advance(access.LOGIN_S)
    assert (await anybody.get("/ListJobs", Cookie=cookie)).code == 401


async def test_there_are_not_too_many_logins(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert access.LOGINS_PER_TOKEN_MAX == 20
    monkeypatch.setattr(access, "LOGINS_PER_TOKEN_MAX", 4)
    root = await admin_of(live)
    cookies = []
    for count in range(1, 6):
        cookies.append(await logged_in(live, root.token))
        codes = [(await Bearer(live).get("/ListJobs", Cookie=cookie)).code for cookie in cookies]
        assert codes == ([200] * count if count <= 4 else [401, 200, 200, 200, 200])


async def test_who_logs_in_again_and_again_ends_sessions_of_their_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOGINS_PER_TOKEN_MAX", 4)
    live = await serve(behind_proxy=True, trusted_proxies="127.0.0.1")
    root = await admin_of(live)
    away = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    other = {**away, "X-Forwarded-For": "192.0.2.2"}
    first = await _cookie(live, root.token, **away)
    for _ in range(6):
        last = await _cookie(live, root.token, **other)
    for cookie in (first, last):
        assert (await Bearer(live).get("/ListJobs", Cookie=cookie, **other)).code == 200


async def _cookie(live: Live, token: str, **headers: str) -> str:
    """Log in with some headers; return the cookie."""
    reply = await posted(live, "/ui/login", f"token={token}", **headers)
    return reply.headers["set-cookie"].partition(";")[0]


async def test_a_proxy_with_tls_makes_the_cookie_secure(serve: Serve) -> None:
    live = await serve(behind_proxy=True, trusted_proxies="10.0.0.2", root_path="/queue")
    root = await admin_of(live)
    reply = await posted(live, "/queue/ui/login", f"token={root.token}&to=/ui/")
    assert reply.headers["location"] == "/queue/ui/"
    assert re.search(
        rf"^__Secure-{SESSION_COOKIE}=\S+; HttpOnly; Max-Age=43200; Path=/queue; SameSite=Strict; Secure",
        reply.headers["set-cookie"],
    )


async def test_a_page_is_found_without_its_folder_also_before_the_login(serve: Serve) -> None:
    live = await serve(behind_proxy=True, trusted_proxies="10.0.0.2", root_path="/queue")
    await admin_of(live)
    for path in ("/queue/failures?name=a", "/failures?name=a"):  # some proxies cut the prefix off
        reply = await Bearer(live).get(path, **BROWSER)
        assert (reply.code, reply.headers["location"]) == (302, "/queue/ui/failures?name=a")
    reply = await Bearer(live).get("/queue/ListJobs", **BROWSER)
    assert reply.code == 401, "a command is no page"


async def test_buttons_of_what_one_may_not_do_are_not_shown(live: Live) -> None:
    root = await admin_of(live)
    await root.ok("CreateJob", name="a")
    reader = await root.token_for("r", "read")
    shown = (await root.get("/ui/jobs/1", **BROWSER)).body
    assert {"DeleteJob", "TriggerJob"} <= set(re.findall(r'data-command="(\w+)"', shown))
    assert not re.findall(r'data-command="(\w+)"', (await reader.get("/ui/jobs/1", **BROWSER)).body)


@pytest.mark.parametrize(
    ("given", "page"),
    [
        ("/ui/jobs?name=a", "/ui/jobs?name=a"),
        ("", "/ui/"),
        ("//evil.example", "/ui/"),
        ("/ui/\\evil", "/ui/"),
        ("https://evil.example/ui/", "/ui/"),
        ("/ui/login", "/ui/"),
        ("/ui/\r\nX: y", "/ui/"),
        ("/ui/" + "a" * 2_000, "/ui/"),
    ],
)
def test_only_pages_of_ours_are_led_to(given: str, page: str) -> None:
    assert _target_page(given) == page


PATHS = (
    "/ListJobs",
    "/Status",
    "/QueryJob?jobID=1",
    "/openapi.json",
    "/nothing",
    "/metrics",
    "/ui/",
    "/ui/static/x",
)


async def test_no_cache_keeps_what_a_session_is_answered(live: Live) -> None:
    root = await admin_of(live)
    cookie = await logged_in(live, root.token)
    await root.ok("CreateJob", name="a", data={"x": "y" * 200_000})
    for path in PATHS:
        headers = (await Bearer(live).get(path, Cookie=cookie)).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert "cache-control" in headers, path
    reply = await live.http("GetJob", {"name": "a"}, Cookie=cookie, Origin="http://localhost")
    assert (reply.code, reply.headers["cache-control"]) == (200, "no-store")
    assert "cache-control" not in (await root.get("/Status")).headers, "a token is no browser's"


async def test_no_cache_keeps_any_kind_of_reply_to_a_session(live: Live) -> None:
    """Replies of each command that reads, refusals of each command, and each page and file."""
    cookie = await logged_in(live, (await admin_of(live)).token)
    within = {"Cookie": cookie, "Origin": "http://localhost"}
    codes = set()
    for name, command in COMMANDS.items():
        for body in ({}, {"connection": []}) if command.reads else ({"connection": []},):
            reply = await live.http(name, body, **within)
            assert reply.headers["x-content-type-options"] == "nosniff", (name, body, reply)
            assert reply.headers["cache-control"] == "no-store", (name, body, reply)
            codes.add(reply.code)
    assert codes >= {200, 400}
    for route in pages.routes(live.server.service, live.server.settings):
        if route.method == "GET" and route.path != "/ui/live":
            path = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "1", route.path)
            headers = (await Bearer(live).get(path, Cookie=cookie)).headers
            assert headers["x-content-type-options"] == "nosniff", path
            assert "cache-control" in headers, path


async def head_of(live: Live, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Return the status and the headers of a reply whose body may never end."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Length: 0"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    async with await Talk.open(live.port) as talk, asyncio.timeout(DEADLINE_S):
        talk.send("\r\n".join([*lines, "", ""]))
        head = (await talk.reader.readuntil(b"\r\n\r\n")).decode()
    status, *given = head.strip().split("\r\n")
    pairs = (line.partition(": ") for line in given)
    return int(status.split()[1]), {name.lower(): value for name, _, value in pairs}


async def test_no_cache_keeps_what_is_neither_a_command_nor_a_page(live: Live) -> None:
    """Streams, what they send as a page, each other route, and what is no route."""
    root = await admin_of(live)
    await root.ok("CreateJob", name="a")
    run = (await root.ok("GetJob", name="a", worker="w"))["runID"]
    within = {"Cookie": await logged_in(live, root.token), "Origin": "http://localhost"}
    for path in ("/ui/live", "/events", f"/runs/{run}/output"):
        code, headers = await head_of(live, "GET", path, {**within, "Accept": "text/event-stream"})
        assert (code, headers["content-type"]) == (200, "text/event-stream"), (path, headers)
        assert headers["cache-control"] == "no-store", (path, headers)
        assert headers["x-content-type-options"] == "nosniff", (path, headers)
    front = HTTPFront(live.server.service, live.server.settings, local_only=True)
    routes = [(one.method, one.path) for one in front._routes() if one.path[1:] not in COMMANDS]
    assert {("GET", "/livez"), ("GET", "/docs"), ("POST", "/cronken/events")} <= {*routes}
    others = ("/metrics", "/healthz", "/no/such", "/ui/x")
    routes += [*(("GET", path) for path in others), ("PUT", "/docs")]
    for method, route in routes:
        path = re.sub(r"\{\w+[^{}]*\}", str(run), route)
        code, headers = await head_of(live, method, path, within)
        assert code != 500, (path, headers)
        assert headers["cache-control"] == "no-store", (path, headers)
        assert headers["x-content-type-options"] == "nosniff", (path, headers)


async def test_over_tls_the_cookie_is_this_hosts_alone(serve: Serve, tmp_path: Path) -> None:
    """A cookie that another host of the domain, or somebody without TLS, has planted is none."""
    live = await serve(**Authority(tmp_path / "tls").serving(), behind_proxy=True, trusted_proxies="10.0.0.2")
    root = await admin_of(live)
    reply = await posted(live, "/ui/login", f"token={root.token}&to=/ui/")
    cookie = reply.headers["set-cookie"]
    assert re.match(
        rf"__Host-{SESSION_COOKIE}=\S+; HttpOnly; Max-Age=43200; Path=/; SameSite=Strict; Secure", cookie
    )
    pair = cookie.partition(";")[0]
    codes = [
        (await Bearer(live).get("/ListJobs", Cookie=given)).code
        for given in (pair, pair.removeprefix("__Host-"), pair.replace("__Host-", "__Secure-"))
    ]
    assert codes == [200, 401, 401]
    out = await posted(live, "/ui/logout", "", Cookie=pair)
    assert out.headers["set-cookie"].startswith(f'__Host-{SESSION_COOKIE}=""')
    assert (await Bearer(live).get("/ListJobs", Cookie=pair)).code == 401
