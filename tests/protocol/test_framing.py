"""Where one request ends and the next begins, in which order they are answered, and protocol detection."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import product
from typing import Any

import pytest

from bedrockjobs.base.config import TYPOS_COMPARED_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, Command
from bedrockjobs.engine.submission import Submission
from bedrockjobs.protocol.raw import RawParser, Request
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, post, request

MORE_THAN_THE_PIPELINE_HOLDS = 200


def _job_ids(replies: list[Reply]) -> list[int]:
    return [reply.json["jobID"] for reply in replies]


# --- pipelines -------------------------------------------------------------------------------------------


async def test_a_pipeline_is_answered_in_order_and_completely(live: Live) -> None:
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name=f"p{n}") for n in range(100)))
    assert _job_ids([await talk.reply() for _ in range(100)]) == list(range(1, 101))


async def test_a_pipeline_longer_than_the_limit_is_answered_completely(serve: Serve) -> None:
    live = await serve(pipelined_max=4)
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name=f"p{n}") for n in range(MORE_THAN_THE_PIPELINE_HOLDS)))
    replies = [await talk.reply() for _ in range(MORE_THAN_THE_PIPELINE_HOLDS)]
    assert _job_ids(replies) == list(range(1, MORE_THAN_THE_PIPELINE_HOLDS + 1))


async def test_no_more_than_pipelined_max_commands_of_a_connection_are_under_way(serve: Serve) -> None:
    live = await serve(pipelined_max=4)
    dispatcher = live.server.dispatcher
    put, most = dispatcher.put, 0

    def counting(submission: Submission) -> None:
        nonlocal most
        put(submission)
        most = max(most, dispatcher.pending)

    live.server.service.enqueue = counting
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name="p") for _ in range(50)))
    assert len([await talk.reply() for _ in range(50)]) == 50
    assert 1 < most <= 4


async def test_every_kind_of_command_keeps_its_place_in_a_pipeline(live: Live) -> None:
    talk = await live.connect()
    count = "SELECT count(*) FROM jobs;"
    talk.send(
        request("CreateJob", name="a")
        + request("Query", query=count)
        + request("Ping")
        + request("NoSuchCommand")
        + request("CreateJob")
        + request("GetJob", name="a")
        + request("FinishJob", jobID=1)
        + request("Query", query=count)
        + request("Status")
    )
    replies = [await talk.reply() for _ in range(9)]
    assert [reply.code for reply in replies] == [200, 200, 200, 430, 402, 200, 200, 200, 200]
    assert replies[1].json == [[1]], "a Query sees what was before it in the pipeline"
    assert replies[7].json == [[0]]
    assert replies[5].json["jobID"] == 1
    assert replies[8].json["state"] == "serving"


async def test_nothing_behind_a_query_is_done_before_it(live: Live) -> None:
    talk = await live.connect()
    slow = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<100000) SELECT count(*) FROM c;"
    )
    for _ in range(5):
        talk.send(
            request("Query", query=slow)
            + request("Query", query="SELECT count(*) FROM jobs;")
            + request("CreateJob", name="later")
        )
    replies = [await talk.reply() for _ in range(15)]
    assert [reply.json for reply in replies[1::3]] == [[[n]] for n in range(5)]


async def test_a_waiting_take_blocks_only_what_is_behind_it(live: Live) -> None:
    talk, other = await live.connect(), await live.connect()
    talk.send(
        request("CreateJob", name="before")
        + request("GetJob", name="waited", Connection="wait", timeout=60_000)
        + request("CreateJob", name="behind")
    )
    assert (await talk.reply()).json == {"jobID": 1}
    await live.waiting(1)
    assert (await other.ask("GetJob", name="behind")).code == 404, "what is behind has not begun"
    assert (await other.ask("CreateJob", name="waited")).json == {"jobID": 2}
    assert (await talk.reply()).json["jobID"] == 2
    assert (await talk.reply()).json == {"jobID": 3}


async def test_a_refused_request_ends_nothing(live: Live) -> None:
    talk = await live.connect()
    for _ in range(3):
        assert (await talk.ask("CreateJob", name="x", jobPriority=7)).code == 402
        assert (await talk.ask("GetJob", name="nothing")).code == 404
        assert (await talk.ask("Ping")).code == 200


async def test_http_requests_may_be_pipelined(live: Live) -> None:
    talk = await live.connect()
    talk.send(b"".join(post("CreateJob", {"name": f"p{n}"}) for n in range(20)))
    assert _job_ids([await talk.reply() for _ in range(20)]) == list(range(1, 21))


# --- the end of the input --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 100])
async def test_what_was_received_before_the_end_is_answered(live: Live, count: int) -> None:
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name=f"e{n}") for n in range(count)))
    talk.end()
    assert _job_ids([await talk.reply() for _ in range(count)]) == list(range(1, count + 1))
    assert await talk.ended() == b""


async def test_queries_before_the_end_are_answered(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("CreateJob", name="q") + request("Query", query="SELECT count(*) FROM jobs;") * 3)
    talk.end()
    assert [(await talk.reply()).body for _ in range(4)] == ['{"jobID":1}', "[[1]]", "[[1]]", "[[1]]"]
    assert await talk.ended() == b""


async def test_after_the_end_nothing_waits(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("GetJob", name="none", Connection="wait", timeout=60_000))
    talk.end()
    assert (await talk.reply()).status == "404 No job found"
    assert await talk.ended() == b""


async def test_a_take_that_waits_already_is_answered_at_the_end_and_what_is_behind_it_too(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("GetJob", name="none", Connection="wait", timeout=60_000) + request("Ping"))
    await live.waiting(1)
    talk.send(request("CreateJob", name="last"))
    talk.end()
    assert (await talk.reply()).status == "404 No job found"
    assert (await talk.reply()).status == "200 OK"
    assert (await talk.reply()).json == {"jobID": 1}
    assert await talk.ended() == b""


async def test_a_waiting_take_after_the_end_gets_a_job_that_is_there(live: Live) -> None:
    talk = await live.connect()
    talk.send(
        request("CreateJob", name="here") + request("GetJob", name="here", Connection="wait", timeout=60_000)
    )
    talk.end()
    replies = [await talk.reply(), await talk.reply()]
    assert [reply.code for reply in replies] == [200, 200]
    assert (await live.row(1))["state"] == "RUNNING"


async def test_half_a_request_before_the_end_is_dropped(live: Live) -> None:
    talk = await live.connect()
    talk.send(request("Ping") + b"CreateJob\r\nname: half\r\n")
    talk.end()
    assert (await talk.reply()).code == 200
    assert await talk.ended() == b""
    assert (await live.ask("GetJob", name="half")).code == 404


# --- Connection ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["close", "Close", "CLOSE"])
async def test_connection_close_ends_after_the_answer(live: Live, word: str) -> None:
    talk = await live.connect()
    talk.send(request("Ping", Connection=word) + request("CreateJob", name="never"))
    reply = await talk.reply()
    assert (reply.status, reply.headers["connection"]) == ("200 OK", "close")
    assert await talk.ended() == b""


@pytest.mark.parametrize("word", ["close", "forget"])
async def test_nothing_behind_the_request_that_closes_is_done(live: Live, word: str) -> None:
    talk = await live.connect()
    talk.send(request("CreateJob", name="last", Connection=word) + request("CreateJob", name="never"))
    assert (await talk.reply()).headers["connection"] == "close"
    assert await talk.ended() == b""
    await live.settle()
    assert (await live.ask("Query", query="SELECT name FROM jobs;")).json == [["last"]]


async def test_connection_close_of_a_refusal_says_so_too(live: Live) -> None:
    talk = await live.connect()
    reply = await talk.ask("GetJob", name="none", Connection="close")
    assert (reply.status, reply.headers["connection"]) == ("404 No job found", "close")
    assert await talk.ended() == b""


async def test_connection_forget_is_answered_at_once_and_done(live: Live) -> None:
    talk = await live.connect()
    reply = await talk.ask("CreateJob", name="forgotten", Connection="forget")
    assert (reply.status, reply.headers["connection"], reply.body) == ("202 Successfully queued", "close", "")
    assert await talk.ended() == b""
    assert (await live.ask("GetJob", name="forgotten")).json["jobID"] == 1


async def test_a_job_taken_by_a_forgotten_get_goes_back(live: Live) -> None:
    await live.ask("CreateJob", name="kept")
    assert (await live.ask("GetJob", name="kept", Connection="forget")).code == 202
    assert (await live.ask("GetJob", name="kept", Connection="wait", timeout=10_000)).json["jobID"] == 1


async def test_connection_wait_on_other_commands_changes_nothing(live: Live) -> None:
    talk = await live.connect()
    reply = await talk.ask("CreateJob", name="w", Connection="wait", timeout=110_000)
    assert (reply.lines, reply.json) == (("Content-Length: 11",), {"jobID": 1})
    assert (await talk.ask("Ping", Connection="wait", timeout=110_000)).code == 200


async def test_http_forget_and_prefer(live: Live) -> None:
    reply = await live.http("CreateJob", {"name": "f", "connection": "forget"})
    assert (reply.code, reply.json) == (202, {})
    assert (await live.http("GetJob", {"name": "f"})).json["jobID"] == 1
    reply = await live.http("GetJob", {"name": "f"}, Prefer="wait=0")
    assert reply.code == 404
    assert reply.json["reason"] == "No job found"


# --- bodies ----------------------------------------------------------------------------------------------


async def test_a_json_body_adds_parameters_and_the_header_wins(live: Live) -> None:
    talk = await live.connect()
    body = json.dumps({"name": "body", "data": {"n": 1.50}, "jobPriority": 750, "unknown": 1})
    talk.send(f"CreateJob\r\nname: header\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    assert (await talk.reply()).json == {"jobID": 1}
    job = (await talk.ask("QueryJob", jobID=1)).json
    assert (job["name"], job["data"], job["priority"]) == ("header", {"n": 1.5}, 750)


async def test_a_body_in_utf8_is_counted_in_bytes(live: Live) -> None:
    talk = await live.connect()
    body = '{"name":"grüß","data":{"é":"ü€😀"}}'.encode()
    talk.send(b"CreateJob\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body) + request("Ping"))
    assert (await talk.reply()).json == {"jobID": 1}
    assert (await talk.reply()).code == 200
    reply = await talk.ask("GetJob", name="grüß")
    assert reply.json["data"] == {"é": "ü€😀"}


@pytest.mark.parametrize("body", ["", "   ", "not json", "[1]", '{"name":', "123"])
async def test_a_body_that_is_no_object_is_ignored(live: Live, body: str) -> None:
    talk = await live.connect()
    talk.send(f"CreateJob\r\nname: b\r\nContent-Length: {len(body)}\r\n\r\n{body}")
    assert (await talk.reply()).json == {"jobID": 1}


async def test_chunks_are_put_together(live: Live) -> None:
    talk = await live.connect()
    text = b'{"name":"chunky","data":{"a":1}}'
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(text[n : n + 7]), text[n : n + 7]) for n in range(0, len(text), 7)
    )
    head = b"CreateJob\r\nTransfer-Encoding: chunked\r\n\r\n"
    await talk.drip(head + chunks + b"0\r\n\r\n" + request("GetJob", name="chunky"))
    assert (await talk.reply()).json == {"jobID": 1}
    assert (await talk.reply()).json["data"] == {"a": 1}


async def test_form_fields_over_http(live: Live) -> None:
    talk = await live.connect()
    form = "name=form+1&data=%7B%22a%22%3A2.50%7D&jobPriority=1000"
    talk.send(
        "POST /CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(form)}\r\n\r\n{form}"
    )
    assert (await talk.reply()).json == {"jobID": 1}
    reply = await live.http("GetJob", {"name": "form 1"})
    assert '"data":{"a":2.50}' in reply.body
    assert reply.json["priority"] == 1000


# --- which protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        "CreateJob / HTTP/1.1\r\nname: x\r\n\r\n",
        " GET / HTTP/1.1\r\n\r\n",
        "get / HTTP/1.1\r\n\r\n",
        "Post /CreateJob HTTP/1.1\r\n\r\n",
        "GETJOB\r\nname: x\r\n\r\n",
        "GET\r\n\r\n",
        "GET\t/ HTTP/1.1\r\n\r\n",
        "POSTS /CreateJob HTTP/1.1\r\n\r\n",
        "CONNECT x HTTP/1.1\r\n\r\n",
        "CONNECT / HTTP/1.1\r\n\r\n",
        "Ping\nX: GET / HTTP/1.1\n\n",
        "\x00GET / HTTP/1.1\r\n\r\n",
    ],
)
@pytest.mark.parametrize("dripping", [False, True])
async def test_raw_connections(live: Live, first: str, dripping: bool) -> None:
    talk = await live.connect()
    await talk.drip(first.encode()) if dripping else talk.send(first)
    reply = await talk.reply()
    assert not reply.status.startswith("HTTP/")
    if " HTTP/" in first.partition("\r")[0] and reply.code == 430:  # what follows may be its body
        assert await talk.ended() == b""
    else:
        assert (await talk.ask("Ping")).status == "200 OK"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("dripping", [False, True])
async def test_http_connections(live: Live, method: str, dripping: bool) -> None:
    talk = await live.connect()
    first = f"{method} /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
    await talk.drip(first) if dripping else talk.send(first)
    head = await talk.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 " if method in ("GET", "HEAD") else b"HTTP/1.1 4")


@pytest.mark.parametrize("blank", ["\r\n", "\n", "\r\n\r\n\n"])
async def test_blank_lines_before_the_first_request(live: Live, blank: str) -> None:
    raw, http = await live.connect(), await live.connect()
    raw.send(f"{blank}Ping\r\n\r\n")
    assert (await raw.reply()).status == "200 OK"
    http.send(blank.encode() + post("Ping"))
    assert (await http.reply()).status == "HTTP/1.1 200 OK"


async def test_the_protocol_is_decided_once(live: Live) -> None:
    raw, http = await live.connect(), await live.connect()
    assert (await raw.ask("Ping")).code == 200
    raw.send("POST /CreateJob HTTP/1.1\r\nname: x\r\n\r\n")
    assert (await raw.reply()).status == "430 Unrecognized command"
    http.send(post("Ping"))
    assert (await http.reply()).code == 200
    http.send("CreateJob\r\nname: x\r\n\r\n")
    assert (await http.reply()).status.startswith("HTTP/1.")
    assert (await live.ask("GetJob", name="x")).code == 404


async def test_a_request_line_inside_a_body_is_not_read(live: Live) -> None:
    talk = await live.connect()
    inside = request("CreateJob", name="smuggled") + b"POST /CreateJob HTTP/1.1\r\n\r\n"
    talk.send(b"Ping\r\nContent-Length: %d\r\n\r\n%b" % (len(inside), inside) + request("Ping"))
    assert [(await talk.reply()).code, (await talk.reply()).code] == [200, 200]
    assert await talk.silent()
    assert (await live.ask("GetJob", name="smuggled")).code == 404


async def test_both_addresses_of_the_machine(live: Live) -> None:
    hosts = {host for host, _ in live.server._listener.addresses}
    assert "127.0.0.1" in hosts
    for host in hosts:
        talk = await live.connect(host)
        assert (await talk.ask("Ping")).code == 200


async def test_many_connections_at_once(live: Live) -> None:
    async def one(n: int) -> int:
        talk = await live.connect()
        if n % 2:
            return int((await talk.ask("CreateJob", name=f"m{n}")).json["jobID"])
        talk.send(post("CreateJob", {"name": f"m{n}"}))
        return int((await talk.reply()).json["jobID"])

    found = await asyncio.gather(*(one(n) for n in range(100)))
    assert sorted(found) == list(range(1, 101))
    await live.connections(100)


# --- misspelled parameters -------------------------------------------------------------------------------


def slips_of(name: str) -> dict[str, str]:
    """Return ways to misspell a name."""
    return {
        "swapped": name[:-2] + name[-1] + name[-2],
        "left out": name[:1] + name[2:],
        "added": name + "s",
        "replaced": name[:-1] + "~",
        "snake case": re.sub("([A-Z]+)", r"_\1", name).lower(),
    }


@pytest.mark.parametrize("kind", COMMANDS.values(), ids=lambda kind: kind.__name__)
def test_a_misspelled_parameter_is_named_in_a_warning(kind: type[Command[Any]]) -> None:
    for lower, name in kind.wire_names.items():
        for given in slips_of(name).values():
            if given.lower() not in kind.wire_names:
                assert "did you mean" in kind.spelling_warning([given.lower()]), (name, given)
        assert kind.spelling_warning([lower]) == ""


async def test_a_warning_comes_each_time_and_with_refusals(live: Live) -> None:
    """Requests that are sent again are cached, but for those with a warning."""
    async with await live.connect() as talk:
        for _ in range(3):
            reply = await talk.ask("CreateJob", name="a", retires=3, data="{}")
            assert reply.code == 200
            assert reply.headers["warning"] == "retires: unknown and ignored, did you mean retries?"
        reply = await talk.ask("QueryJob", jobbID=7)
        assert (reply.code, "did you mean jobID?" in reply.headers["warning"]) == (402, True)
        assert "warning" not in (await talk.ask("CreateJob", name="a", requestID="x", lastIP="y")).headers


def test_a_warning_costs_little_however_many_headers_there_are() -> None:
    """Only so many unknown headers are compared."""
    headers = [f"retires{number}" for number in range(TYPOS_COMPARED_MAX)] + ["retires"]
    assert COMMANDS["CreateJob"].spelling_warning(headers) == ""
    assert COMMANDS["CreateJob"].spelling_warning(headers[1:]) != ""


METHODS = [
    "FOO",
    "foo",
    "CONNECT",
    "M-SEARCH",
    "CreateJob",
    "Ping",
    "!#$%&'*+-.^_`|~0",
    "get",
    "Post",
    "QUERY",
]
TARGETS = ["/", "*", "a:1", "http://evil.example/x?y=1", "/CreateJob?name=a", "/" + "x" * 2_000]
VERSIONS = ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2", "HTTP/2.0", "HTTP/3", "http/1.1", "Http/1.1"]


def parsed(head: str) -> Request:
    """Return a request without a body, as the raw protocol reads it."""
    parser = RawParser(Settings())
    parser.feed(head.encode())
    request = parser.next_request()
    assert request is not None, head
    return request


def test_each_line_of_http_is_told_from_a_command() -> None:
    for method, target, version in product(METHODS, TARGETS, VERSIONS):
        for before, blank, end in (
            ("", " ", "\r\n"),
            ("\r\n", " ", " \r\n"),
            ("", "\t", "\n"),
            ("", "  ", "\n"),
        ):
            line = f"{before}{method}{blank}{target}{blank}{version}{end}"
            assert parsed(f"{line}X: y\n\n").like_http, line
    for line in ("CreateJob", "CreateJob HTTP", "CreateJob /", "Query: SELECT 1 AS HTTP;", "Ping HTTP/1.1x"):
        assert not parsed(f"{line}\nname: HTTP/1.1\n\n").like_http, line


@pytest.mark.parametrize(
    "first", ["FOO / HTTP/1.1", "PROPFIND /x HTTP/1.0", "connect a:1 http/1.1", "Foo HTTP/2"]
)
@pytest.mark.parametrize("host", ["", "Host: evil.example\r\n"])
async def test_a_body_behind_a_line_of_http_is_read_as_no_command(live: Live, first: str, host: str) -> None:
    """A browser sends any method, and any body, to whom its page's name leads to."""
    for head, jobs in ((f"{first}\r\n{host}X: y\r\n\r\n", 0), ("FOO /\r\nX: y\r\n\r\n", 1)):
        async with await live.connect() as talk:
            talk.send(f"{head}CreateJob\r\nname: a\r\n\r\n".encode())
            assert (await talk.reply()).code == 430
            if jobs:
                assert (await talk.reply()).code == 200, "a command that nobody knows ends nothing"
            else:
                assert await talk.ended() == b""
        assert len((await live.ask("ListJobs")).json["jobs"]) == jobs
