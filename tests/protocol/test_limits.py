"""Every limit of config.py: what is just within it works, what is just beyond it is refused by name."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import (
    ANSWER_BYTES_MAX,
    CRASH_PATTERNS_MAX,
    CRASHED_PER_TAKE_MAX,
    DATA_BYTES_MAX,
    DEFAULT_PORT,
    DELAY_S_MAX,
    ERROR_CHARS_MAX,
    GLOB_CHARS_MAX,
    GLOB_STARS_MAX,
    JOBS_PER_CREATE_MAX,
    JOBS_PER_GET_MAX,
    JSON_DEPTH_MAX,
    LOST_RUNS_MAX,
    NAME_CHARS_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    PRIORITIES,
    PRIORITY_DEFAULT,
    QUERY_CHARS_MAX,
    REPEAT_CHARS_MAX,
    REPEAT_MODIFIERS_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol.connections import Connections
from tests.conftest import Live, Serve
from tests.protocol.talk import Reply, post, request

pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])
"""What is refused does not depend on the event loop; one is enough."""


async def check(live: Live, verb: str, within: dict[str, Any], beyond: dict[str, Any], status: str) -> Reply:
    """Ask with both, on both protocols; return the raw refusal."""
    reply = await live.ask(verb, **{name: _header(value) for name, value in within.items()})
    assert reply.code == 200, reply
    assert (await live.http(verb, within)).code == 200
    refused = await live.ask(verb, **{name: _header(value) for name, value in beyond.items()})
    assert refused.status == status
    over_http = await live.http(verb, beyond)
    assert over_http.headers["content-type"] == "application/problem+json"
    assert f"{over_http.json['code']} {over_http.json['reason']}" == status
    assert over_http.json["detail"] == refused.headers["error"], "the same sentence on both"
    return refused


def _header(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- parts of the protocol -------------------------------------------------------------------------------


async def test_name(live: Live) -> None:
    reply = await check(
        live,
        "CreateJob",
        {"name": "ü" * NAME_CHARS_MAX},
        {"name": "ü" * (NAME_CHARS_MAX + 1)},
        "402 Malformed name",
    )
    assert reply.headers["error"] == "name: expected at most 255 characters"


async def test_pattern(live: Live) -> None:
    await live.ask("CreateJobs", jobs='[{"name":"a"},{"name":"a"}]')
    within = "a*" + "?" * (GLOB_CHARS_MAX - 2)
    await live.ask("CreateJobs", jobs=json.dumps([{"name": "a" * (GLOB_CHARS_MAX - 1)}] * 2))
    await check(live, "GetJob", {"name": within}, {"name": within + "?"}, "402 Malformed name")
    within = "a" + "*" * GLOB_STARS_MAX
    await check(live, "GetJob", {"name": within}, {"name": within + "*"}, "402 Malformed name")
    await live.ask("CreateJobs", jobs='[{"name":"a"},{"name":"a"}]')
    names = "a," + "b" * (PATTERN_CHARS_MAX - 2)
    await check(live, "GetJob", {"name": names}, {"name": names + "b"}, "402 Malformed name")


async def test_patterns(live: Live) -> None:
    await live.ask("CreateJobs", jobs=json.dumps([{"name": "p0"}] * 4))
    names = [f"p{n}" for n in range(PATTERNS_MAX + 1)]
    await check(live, "GetJob", {"names": names[:-1]}, {"names": names}, "402 Malformed names")
    await check(
        live, "GetJob", {"name": ",".join(names[:-1])}, {"name": ",".join(names)}, "402 Malformed name"
    )


async def test_repeat_length_and_modifiers(live: Live) -> None:
    within = "FINISHED" + ", +1 DAY" * REPEAT_MODIFIERS_MAX
    await check(
        live,
        "CreateJob",
        {"name": "r", "repeat": within},
        {"name": "r", "repeat": within + ", +1 DAY"},
        "402 Malformed repeat",
    )
    padded = within + " " * (REPEAT_CHARS_MAX - len(within)) + " "
    reply = await live.http("CreateJob", {"name": "r", "repeat": padded})
    assert (reply.json["reason"], reply.json["detail"]) == (
        "Malformed repeat",
        f"repeat: expected at most {REPEAT_CHARS_MAX} characters",
    )
    await check(
        live,
        "CreateJob",
        {"name": "r", "retryAfter": within.removeprefix("FINISHED, ")},
        {"name": "r", "retryAfter": "+1 DAY, " * REPEAT_MODIFIERS_MAX + "+1 DAY"},
        "402 Malformed retryAfter",
    )


async def test_data_size(live: Live) -> None:
    def data(size: int) -> str:
        return '{"x":"' + "é" * ((size - 8) // 2) + "y" * (size % 2) + '"}'

    assert len(data(DATA_BYTES_MAX).encode()) == DATA_BYTES_MAX
    status = "402 Data is not a valid JSON Object"
    assert (await live.ask("CreateJob", name="d", data=data(DATA_BYTES_MAX))).code == 200
    assert (await live.ask("CreateJob", name="d", data=data(DATA_BYTES_MAX + 1))).status == status
    reply = await live.http("CreateJob", f'{{"name":"d","data":{data(DATA_BYTES_MAX + 1)}}}')
    assert reply.json["reason"] == "Data is not a valid JSON Object"
    assert f"at most {DATA_BYTES_MAX} bytes" in reply.json["detail"]


async def test_merged_data_size(live: Live) -> None:
    half = '{"%s":"' + "y" * (DATA_BYTES_MAX // 2) + '"}'
    assert (await live.ask("CreateJob", name="u", unique="true", data=half % "a")).code == 200
    reply = await live.ask("CreateJob", name="u", unique="true", data=half % "b")
    assert reply.status == "402 Data is not a valid JSON Object"


async def test_json_depth(live: Live) -> None:
    def deep(levels: int) -> str:
        return '{"a":' * levels + "1" + "}" * levels

    assert (await live.ask("CreateJob", name="d", data=deep(JSON_DEPTH_MAX))).code == 200
    reply = await live.ask("CreateJob", name="d", data=deep(JSON_DEPTH_MAX + 1))
    assert reply.status == "402 Data is not a valid JSON Object"
    assert f"deeper than {JSON_DEPTH_MAX} levels" in reply.headers["error"]


async def test_jobs_of_one_command(live: Live) -> None:
    jobs = [{"name": "j"}] * (JOBS_PER_CREATE_MAX + 1)
    await check(live, "CreateJobs", {"jobs": jobs[:-1]}, {"jobs": jobs}, "402 Malformed jobs")
    ends = [{"jobID": n} for n in range(1, JOBS_PER_CREATE_MAX + 2)]
    await check(live, "FinishJobs", {"jobs": ends[:-1]}, {"jobs": ends}, "402 Malformed jobs")
    ids = list(range(1, JOBS_PER_CREATE_MAX + 2))
    await check(live, "RequeueJobs", {"jobIDs": ids[:-1]}, {"jobIDs": ids}, "402 Malformed jobIDs")


async def test_jobs_of_one_take(live: Live) -> None:
    for _ in range(3):
        await live.ask("CreateJobs", jobs=json.dumps([{"name": "j"}] * JOBS_PER_CREATE_MAX))
    reply = await live.ask("GetJobs", name="j", numResults=JOBS_PER_GET_MAX)
    assert len(reply.json["jobs"]) == JOBS_PER_GET_MAX
    await check(
        live,
        "GetJobs",
        {"name": "j", "numResults": 1},
        {"name": "j", "numResults": JOBS_PER_GET_MAX + 1},
        "402 Malformed numResults",
    )
    await check(
        live, "ListJobs", {"limit": JOBS_PER_GET_MAX}, {"limit": JOBS_PER_GET_MAX + 1}, "402 Malformed limit"
    )
    assert (await live.ask("ListJobs", limit=0)).status == "402 Malformed limit"


async def test_bytes_of_one_answer(live: Live) -> None:
    size = DATA_BYTES_MAX - 1000
    count = ANSWER_BYTES_MAX // size + 2
    for _ in range(count):
        await live.ask("CreateJob", name="big", data='{"x":"' + "y" * size + '"}')
    first = (await live.ask("ListJobs")).json["jobs"]
    assert len(first) == count - 1, "the answer that passes the limit is the last"
    rest = (await live.ask("ListJobs", after=first[-1]["jobID"])).json["jobs"]
    assert [job["jobID"] for job in first + rest] == list(range(1, count + 1))
    assert len((await live.ask("GetJobs", name="big", numResults=100)).json["jobs"]) == count - 1
    assert len((await live.ask("GetJobs", name="big", numResults=100)).json["jobs"]) == 1


async def test_delay(live: Live) -> None:
    await live.ask("CreateJobs", jobs='[{"name":"d"},{"name":"d"},{"name":"d"}]')
    await live.ask("GetJobs", name="d", numResults=3)
    for delay in (DELAY_S_MAX + 1, -1, "1e3", "1.5", "9" * 30):
        reply = await live.ask("RetryJob", jobID=1, delay=delay)
        assert reply.code == 402
        assert "delay" in reply.headers["error"]
    assert (await live.row(1))["state"] == "RUNNING"
    assert (await live.ask("RetryJob", jobID=1, delay=DELAY_S_MAX)).code == 200


async def test_priorities(live: Live) -> None:
    for priority in PRIORITIES:
        assert (await live.ask("CreateJob", name="p", jobPriority=priority)).code == 200
    await live.ask("CreateJob", name="p")
    await check(
        live,
        "CreateJob",
        {"name": "q", "jobPriority": PRIORITY_DEFAULT},
        {"name": "q", "jobPriority": 501},
        "402 Invalid priority value",
    )
    jobs = (await live.ask("GetJobs", name="p", numResults=10)).json["jobs"]
    assert [job["priority"] for job in jobs] == sorted([*PRIORITIES, PRIORITY_DEFAULT], reverse=True)


async def test_lost_runs(still: Live) -> None:
    await still.ask("CreateJob", name="l", retryAfter="+1 SECOND")
    for count in range(LOST_RUNS_MAX):
        job = (await still.ask("GetJob", name="l")).json
        assert job["data"].get("retryAfterCount", 0) == count
        still.advance(1)
    assert (await still.ask("GetJob", name="l")).code == 404
    assert (await still.row(1))["state"] == "FAILED"


async def test_error_text(live: Live) -> None:
    await live.ask("CreateJob", name="e")
    await live.ask("GetJob", name="e")
    assert (await live.ask("FailJob", jobID=1, error="é" * (ERROR_CHARS_MAX + 1))).code == 200
    assert (await live.ask("QueryJob", jobID=1)).json["error"] == "é" * ERROR_CHARS_MAX


async def test_worker(live: Live) -> None:
    await live.ask("CreateJobs", jobs='[{"name":"w"},{"name":"w"}]')
    await check(
        live,
        "GetJob",
        {"name": "w", "worker": "w" * WORKER_CHARS_MAX},
        {"name": "w", "worker": "w" * (WORKER_CHARS_MAX + 1)},
        "402 Malformed worker",
    )


async def test_sql_text(live: Live) -> None:
    within = "SELECT 1" + " " * (QUERY_CHARS_MAX - 9) + ";"
    await check(live, "Query", {"query": within}, {"query": within + ";"}, "402 Malformed query")


async def test_crash_patterns(live: Live) -> None:
    for start in range(0, CRASH_PATTERNS_MAX, PATTERNS_MAX):
        names = json.dumps([f"c{n}" for n in range(start, start + PATTERNS_MAX)])
        assert (await live.ask("CrashBedrockJob", names=names)).code == 200
    assert (await live.ask("CrashBedrockJob", names="c1")).code == 200, "it is there already"
    reply = await live.ask("CrashBedrockJob", names="more")
    assert reply.status == "429 Too many patterns"
    reply = await live.http("CrashBedrockJob", {"names": ["more"]})
    assert (reply.code, reply.headers["retry-after"]) == (429, "1")
    assert (await live.ask("ClearCrashedBedrockJobs", names="c1")).code == 200
    assert (await live.ask("CrashBedrockJob", names="more")).code == 200


async def test_jobs_that_one_take_fails_on_its_way(live: Live) -> None:
    await live.ask("CrashBedrockJob", names="crash*")
    await live.ask("CreateJobs", jobs=json.dumps([{"name": "crash"}] * CRASHED_PER_TAKE_MAX))
    await live.ask("CreateJobs", jobs='[{"name":"crash"},{"name":"sound"}]')
    assert (await live.ask("GetJob", name="*")).code == 404
    assert (await live.ask("GetJob", name="*")).json["name"] == "sound"
    count = "SELECT count(*) FROM jobs WHERE state = 'FAILED';"
    assert (await live.ask("Query", query=count)).json == [[CRASHED_PER_TAKE_MAX + 1]]


async def test_the_port_of_bedrock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEDROCKJOBS_PORT", raising=False)
    assert Settings().port == DEFAULT_PORT == 8888


# --- settings --------------------------------------------------------------------------------------------


async def test_connections(serve: Serve) -> None:
    live = await serve(connections_max=3)
    talks = [await live.connect() for _ in range(3)]
    for talk in talks:
        assert (await talk.ask("Ping")).code == 200
    for data in (request("Ping"), post("Ping")):
        refused = await live.connect()
        refused.send(data)
        reply = await refused.reply()
        assert (reply.status, reply.headers["connection"]) == ("503 Too many connections", "close")
        assert await refused.ended() == b""
    assert (await talks[0].ask("Ping")).code == 200
    await talks[1].close()
    await live.connections(2)
    assert (await live.ask("Ping")).code == 200
    talks[2].send(request("GetJob", name="w", Connection="wait", timeout=60_000))
    await live.waiting(1)
    assert (await talks[0].ask("CreateJob", name="w")).code == 200
    assert (await talks[2].reply()).code == 200


async def test_connections_per_address(live: Live) -> None:
    settings = Settings(connections_per_address_max=2)
    connections = Connections(live.server.service, SystemClock(), settings)
    made: list[Any] = [object() for _ in range(6)]
    assert [connections.admit(each, "192.0.2.1") for each in made[:3]] == [True, True, False]
    assert connections.admit(made[3], "192.0.2.2"), "another address has its own"
    assert all(connections.admit(object(), "127.0.0.1") for _ in range(5)), "this machine has no limit"  # type: ignore[arg-type]
    connections.dismiss(made[0], "192.0.2.1")
    assert connections.admit(made[4], "192.0.2.1")
    assert not connections.admit(made[5], "192.0.2.1")


async def test_pending_commands(serve: Serve) -> None:
    live = await serve(pending_max=5)
    talk = await live.connect()
    talk.send(b"".join(request("CreateJob", name="p") for _ in range(20)))
    replies = [await talk.reply() for _ in range(20)]
    refused = [reply for reply in replies if reply.code != 200]
    assert {reply.status for reply in refused} == {"503 Too many commands are waiting"}
    assert refused[0].headers["error"] == "try again in a moment"
    rows = (await live.ask("Query", query="SELECT count(*) FROM jobs;")).json
    assert rows == [[20 - len(refused)]], "nothing of a refused command was done"
    assert (await live.ask("CreateJob", name="p")).code == 200


async def test_waiting_commands_are_not_pending(serve: Serve) -> None:
    live = await serve(pending_max=2)
    for count in range(1, 6):
        talk = await live.connect()
        talk.send(request("GetJob", name="w", Connection="wait", timeout=60_000))
        await live.waiting(count)
    await live.until(lambda: live.server.dispatcher.pending == 0)
    assert (await live.ask("CreateJob", name="w")).code == 200


async def test_commands_of_one_commit(serve: Serve) -> None:
    live = await serve(batch_max=10, pipelined_max=1000)
    talk = await live.connect()
    before = live.server.dispatcher.commits
    talk.send(b"".join(request("CreateJob", name="b") for _ in range(500)))
    for _ in range(500):
        assert (await talk.reply()).code == 200
    commits = live.server.dispatcher.commits - before
    assert commits >= 50, "no commit has more than batch_max"
    assert commits < 250, "but commands share commits"


async def test_http_head(serve: Serve) -> None:
    live = await serve(head_bytes_max=2_000)
    assert (await live.http("Ping", None, X="y" * 1_900)).code == 200
    reply = await live.http("Ping", None, X="y" * 2_100)
    assert (reply.code, reply.json["code"]) == (400, 400)


async def test_body(serve: Serve) -> None:
    live = await serve(body_bytes_max=100_000)
    room = 100_000 - len('{"name":"b","data":{"x":""}}')
    body = '{"name":"b","data":{"x":"%s"}}'
    assert (await live.http("CreateJob", body % ("y" * room))).code == 200
    reply = await live.http("CreateJob", body % ("y" * (room + 1)))
    assert (reply.code, reply.json["code"]) == (413, 413)
    for data, code in ((body % ("y" * room), 200), (body % ("y" * (room + 1)), 413)):
        talk = await live.connect()
        talk.send(f"CreateJob\r\nContent-Length: {len(data)}\r\n\r\n{data}")
        assert (await talk.reply()).code == code
    for size, code in ((99_900, 200), (100_001, 413)):
        talk = await live.connect()
        talk.send(f"CreateJob\r\nname: h\r\nx: {'y' * (size - 22)}\r\n\r\n")
        assert (await talk.reply()).code == code


async def test_headers(serve: Serve) -> None:
    live = await serve(headers_max=10)
    for count, code in ((10, 200), (11, 400)):
        talk = await live.connect()
        talk.send("Ping\r\n" + "a: b\r\n" * count + "\r\n")
        assert (await talk.reply()).code == code
        talk = await live.connect()
        talk.send(
            "POST /Ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
            + "a: b\r\n" * (count - 2)
            + "\r\n"
        )
        assert (await talk.reply()).code == code


async def test_query_time_and_rows_and_bytes(serve: Serve) -> None:
    live = await serve(query_s=0.1, query_rows_max=10, query_bytes_max=1_024)
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT %d) SELECT x FROM c;"
    assert len((await live.ask("Query", query=many % 10)).json) == 10
    assert (await live.ask("Query", query=many % 11)).status == "502 Too many rows"
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c;"
    assert (await live.ask("Query", query=endless)).status == "555 Timeout"
    assert (await live.http("Query", {"query": endless})).code == 504
    large = "SELECT hex(zeroblob(%d)) AS x;"
    assert (await live.ask("Query", query=large % 500)).code == 200
    assert (await live.ask("Query", query=large % 600)).status == "502 Answer too large"
    assert (await live.ask("Query", query="SELECT zeroblob(1000000000);")).code == 502
    assert (await live.ask("Query", query="SELECT 1;")).json == [[1]]


async def test_queries_at_once(serve: Serve) -> None:
    live = await serve(query_s=0.3, query_waiting_max=2)
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c;"
    asked = [live.ask("Query", query=endless) for _ in range(4)]
    found = sorted(reply.status for reply in await asyncio.gather(*asked))
    assert found == ["429 Too many queries", "429 Too many queries", "555 Timeout", "555 Timeout"]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO jobs (created) VALUES ('x');",
        "DELETE FROM jobs;",
        "ATTACH '/tmp/x.db' AS x;",
        "PRAGMA journal_mode = DELETE;",
        "VACUUM INTO '/tmp/x.db';",
        "SELECT load_extension('x');",
        "SELECT 1; SELECT 2;",
        "CREATE TEMP TABLE t (a);",
        "BEGIN IMMEDIATE;",
        "DROP TABLE jobs;",
        ";",
    ],
)
async def test_queries_that_would_do_something(live: Live, sql: str) -> None:
    await live.ask("CreateJob", name="kept")
    assert (await live.ask("Query", query=sql)).code in (402, 502)
    assert (await live.http("Query", {"query": sql})).code in (400, 500)
    assert (await live.ask("GetJob", name="kept")).json["jobID"] == 1


async def test_drain_time(serve: Serve) -> None:
    """A client that reads nothing holds a stopping server up for drain_s, not longer."""
    live = await serve(drain_s=0.3)
    await live.ask("CreateJob", name="big", data='{"x":"' + "y" * 4_000_000 + '"}')
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", live.port))
    before = live.server.dispatcher.commands
    client.sendall(request("QueryJob", jobID=1))
    await live.until(lambda: live.server.dispatcher.commands > before)
    async with asyncio.timeout(5):
        await live.server.stop()
    client.close()


async def test_a_locked_database_is_busy_after_its_time(serve: Serve) -> None:
    live = await serve(busy_s=0.2)
    other = sqlite3.connect(live.server.settings.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    reply = await live.ask("CreateJob", name="b")
    assert reply.status == "503 Database busy"
    other.execute("ROLLBACK")
    other.close()
    assert (await live.ask("CreateJob", name="b")).json == {"jobID": 1}


async def test_the_log_is_grown_at_start(serve: Serve) -> None:
    live = await serve(wal_bytes=2 * 1024 * 1024)
    assert Path(live.server.settings.database + "-wal").stat().st_size >= 2 * 1024 * 1024
    assert (await live.ask("CreateJob", name="b")).json == {"jobID": 1}
