"""Features of HTTP: idempotency keys, pagination links, entity tags, gzip, GET, sub-paths."""

from __future__ import annotations

import gzip
import json
from contextlib import AsyncExitStack
from urllib.parse import quote

import pytest
from aiohttp import ClientConnectionResetError, web
from aiohttp.test_utils import make_mocked_request

from bedrockjobs.base.config import KEY_CHARS_MAX
from bedrockjobs.protocol.http import HTTPFront
from bedrockjobs.protocol.http_answers import GZIP_BYTES_MIN, takes_gzip
from bedrockjobs.protocol.http_connection import AiohttpProtocol, HTTPConnection
from tests.conftest import Live
from tests.protocol.talk import Reply, post


async def _get(live: Live, path: str, **headers: str) -> Reply:
    async with await live.connect() as talk:
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: localhost",
            *(f"{k}: {v}" for k, v in headers.items()),
            "",
            "",
        ]
        talk.send("\r\n".join(lines))
        return await talk.reply()


# --- Idempotency-Key -------------------------------------------------------------------------------------


async def test_the_same_key_makes_one_job(live: Live) -> None:
    first = await live.http("CreateJob", {"name": "a"}, **{"Idempotency-Key": "k1"})
    again = await live.http("CreateJob", {"name": "a"}, **{"Idempotency-Key": "k1"})
    by_attribute = await live.http("CreateJob", {"name": "a", "idempotencyKey": "k1"})
    other = await live.http("CreateJob", {"name": "a"}, **{"Idempotency-Key": "k2"})
    assert first.json == again.json == by_attribute.json
    assert other.json != first.json


async def test_key_and_attribute_may_be_the_same_but_not_differ(live: Live) -> None:
    body = {"name": "a", "idempotencyKey": "one"}
    assert (await live.http("CreateJob", body, **{"Idempotency-Key": "one"})).code == 200
    refused = await live.http("CreateJob", body, **{"Idempotency-Key": "two"})
    assert (refused.code, refused.json["reason"]) == (400, "Malformed Idempotency-Key")
    long = await live.http("CreateJob", {"name": "a"}, **{"Idempotency-Key": "k" * (KEY_CHARS_MAX + 1)})
    assert (long.code, long.json["reason"]) == (400, "Malformed idempotencyKey")


async def test_the_key_is_nothing_to_other_commands(live: Live) -> None:
    assert (await live.http("Ping", {}, **{"Idempotency-Key": "k"})).code == 200


async def test_the_trace_of_the_request_stays_with_the_job(live: Live) -> None:
    trace, other = (f"00-{'a' * 32}-{digit * 16}-01" for digit in "bc")
    await live.http("CreateJob", {"name": "a"}, traceparent=trace)
    await live.http("CreateJob", {"name": "b", "traceparent": other}, traceparent=trace)
    await live.http("CreateJob", {"name": "c"}, traceparent="ff")
    found = [(await live.http("GetJob", {"name": name})).json.get("traceparent") for name in "abc"]
    assert found == [trace, other, None]


# --- GET and pages ---------------------------------------------------------------------------------------


async def test_commands_that_only_look_are_answered_to_get(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a b"})).json["jobID"]
    reply = await _get(live, f"/ListJobs?name={quote('a *')}&limit=10&state=QUEUED")
    assert [job["jobID"] for job in reply.json["jobs"]] == [job_id]
    assert (await _get(live, "/Status")).json["state"] == "serving"
    assert (await _get(live, "/ListJobs?state=nothing")).json["reason"] == "Malformed state"
    assert (await _get(live, "/ListJobs?states=QUEUED")).json["reason"] == "Unknown attribute states"


@pytest.mark.parametrize("verb", ["GetJob", "CreateJob", "Heartbeat", "AdvanceClock"])
async def test_commands_that_do_more_are_not(live: Live, verb: str) -> None:
    reply = await _get(live, f"/{verb}?jobID=1")
    assert (reply.code, reply.headers["allow"]) == (405, "POST")


async def test_a_full_page_leads_to_the_next_and_the_last_one_nowhere(live: Live) -> None:
    jobs = [{"name": "batch/é&", "firstRun": "2050-01-01 00:00:00"} for _ in range(5)]
    made = (await live.http("CreateJobs", {"jobs": jobs})).json["jobIDs"]
    reply = await live.http("ListJobs", {"name": "batch/é&", "limit": 2, "timeout": 5})
    seen = []
    for _ in range(5):
        seen += [job["jobID"] for job in reply.json["jobs"]]
        if "link" not in reply.headers:
            break
        address, _, rest = reply.headers["link"].removeprefix("<").partition(">")
        assert rest == '; rel="next"'
        assert "timeout" not in address
        reply = await _get(live, address)
    assert seen == made
    assert "link" not in reply.headers


async def test_every_paged_list_goes_on_behind_its_last_row(live: Live) -> None:
    await live.http("CreateJob", {"name": "s", "repeat": "CRON @never"})
    for name in ("p", "q"):
        await live.http("PauseJobs", {"name": name})
        await live.http("CreateJob", {"name": name})
        await live.http("CreateJob", {"name": f"run-{name}"})
        await live.http("GetJob", {"name": f"run-{name}", "worker": "w"})
    events = (await live.http("Events", {"limit": 1})).headers["link"]
    assert events.startswith("</Events?limit=1&after=")
    runs = await live.http("ListRuns", {"limit": 1})
    (first,) = runs.json["runs"]
    following = await _get(live, runs.headers["link"].partition(">")[0][1:])
    assert following.json["runs"][0]["runID"] < first["runID"]
    assert "link" in (await live.http("ListSchedules", {"limit": 1})).headers
    assert "link" not in (await live.http("ListSchedules", {"limit": 2})).headers


# --- entity tags -----------------------------------------------------------------------------------------


async def test_the_entity_tag_of_a_job_changes_with_the_job(live: Live) -> None:
    job_id = (await live.http("CreateJob", {"name": "a"})).json["jobID"]
    first = await live.http("QueryJob", {"jobID": job_id})
    again = await live.http("QueryJob", {"jobID": job_id})
    assert first.headers["etag"] == again.headers["etag"]
    await live.http("UpdateJob", {"jobID": job_id, "data": {"a": 1}})
    assert (await live.http("QueryJob", {"jobID": job_id})).headers["etag"] != first.headers["etag"]


# --- gzip ------------------------------------------------------------------------------------------------


async def _raw(live: Live, command: str, body: object, **headers: str) -> tuple[dict[str, str], bytes]:
    async with await live.connect() as talk:
        talk.send(post(command, body, {"Connection": "close", **headers}))
        head, _, rest = (await talk.ended()).partition(b"\r\n\r\n")
    lines = (line.partition(":") for line in head.decode().split("\r\n")[1:])
    return {name.lower(): value.strip() for name, _, value in lines}, rest


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "in a thread"])
async def test_a_large_answer_is_compressed_for_who_takes_it(live: Live, size: int) -> None:
    made = await live.http("CreateJob", {"name": "a", "data": {"x": "y" * (GZIP_BYTES_MIN + size)}})
    asked = {"jobID": made.json["jobID"]}
    headers, body = await _raw(live, "QueryJob", asked, **{"Accept-Encoding": "br, gzip"})
    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "Accept-Encoding"
    assert int(headers["content-length"]) == len(body) < GZIP_BYTES_MIN + size
    plain_headers, plain = await _raw(live, "QueryJob", asked)
    assert "content-encoding" not in plain_headers
    assert gzip.decompress(body) == plain
    taken, job = await _raw(live, "GetJob", {"name": "a"}, **{"Accept-Encoding": "gzip"})
    assert taken["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(job))["jobID"] == asked["jobID"]


async def test_a_small_answer_is_not_compressed(live: Live) -> None:
    headers, body = await _raw(live, "Ping", {}, **{"Accept-Encoding": "gzip"})
    assert "content-encoding" not in headers
    assert body == b"{}"


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("GZIP ; q=1.0, br", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, br", False),
        ("xgzip", False),
    ],
)
def test_gzip_is_for_who_asks_for_it(accepted: str, taken: bool) -> None:
    assert takes_gzip(accepted) is taken


# --- waiting ---------------------------------------------------------------------------------------------


async def test_prefer_wait_waits_with_get_too(live: Live) -> None:
    async with await live.connect() as talk:
        talk.send("GET /Events?after=-1&kind=paused HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=20\r\n\r\n")
        assert await talk.silent()
        await live.http("PauseJobs", {"name": "x"})
        reply = await talk.reply()
    assert [event["name"] for event in reply.json["events"]] == ["x"]


# --- below a path ----------------------------------------------------------------------------------------


class _Below(Live):
    """Another door to a live server."""

    own_port = 0

    @property
    def port(self) -> int:
        """Return the port of the door."""
        return self.own_port


async def test_below_a_path_links_begin_with_it_and_requests_may(live: Live) -> None:
    async def more(_: web.Request) -> web.Response:
        return web.Response(text="more")

    server = live.server
    front = HTTPFront(
        server.service, server.settings, local_only=True, root_path="/queue", more=[web.get("/more", more)]
    )
    runner = web.AppRunner(front.application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(runner.cleanup)
        below = _Below(server, stack)
        below.own_port = runner.addresses[0][1]
        await below.http("CreateJob", {"name": "a"})
        await below.http("queue/CreateJob", {"name": "b"})
        reply = await below.http("queue/ListJobs", {"limit": 1})
        assert reply.headers["link"] == '</queue/ListJobs?limit=1&after=1>; rel="next"'
        assert (await _get(below, "/queue/more")).body == (await _get(below, "/more")).body == "more"
        description = await _get(below, "/queue/openapi.json")
        assert description.json["servers"] == [{"url": "/queue"}]
        assert (await below.http("queue/NoCommand", {})).json["code"] == 430


async def test_an_array_that_curl_calls_a_form_is_read_as_json(live: Live) -> None:
    head = (
        "POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    )
    async with await live.connect() as talk:
        talk.send(f"{head}Content-Length: 2\r\n\r\n[]")
        reply = await talk.reply()
    assert (reply.code, reply.json["reason"]) == (400, "Malformed body")
    assert "expected a JSON object" in reply.json["detail"]


# --- clients that are gone -------------------------------------------------------------------------------


async def test_a_client_that_is_gone_is_no_fault(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    """A page that is written piece by piece finds that out; aiohttp would write a traceback to the log."""
    talk = await live.connect()
    talk.send("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await talk.reply()).code == 200
    (connection,) = (one for one in live.server._connections.open if isinstance(one, HTTPConnection))
    request = make_mocked_request("GET", "/")
    protocol = connection._aiohttp
    assert isinstance(protocol, AiohttpProtocol)
    with pytest.raises(ConnectionResetError):
        protocol.handle_error(request, 500, ClientConnectionResetError("Cannot write to closing transport"))
    assert not [record for record in caplog.records if record.exc_info]
