"""Every limit of config.py: input just within it is accepted, input just beyond it is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

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
from tests.conftest import Live
from tests.protocol.talk import Reply

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
    kept = (await live.ask("QueryJob", jobID=1)).json["error"]
    cut = "\n  [...] "
    behind = (ERROR_CHARS_MAX - len(cut)) // 2
    assert kept == "é" * (ERROR_CHARS_MAX - len(cut) - behind) + cut + "é" * behind


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
    if (
        not live.server.settings.on_postgresql
    ):  # where a take that passed over a due job looks again by itself
        assert (await live.ask("GetJob", name="*")).code == 404
    assert (await live.ask("GetJob", name="*")).json["name"] == "sound"
    count = "SELECT count(*) FROM jobs WHERE state = 'FAILED';"
    assert (await live.ask("Query", query=count)).json == [[CRASHED_PER_TAKE_MAX + 1]]


async def test_the_port_of_bedrock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEDROCKJOBS_PORT", raising=False)
    assert Settings().port == DEFAULT_PORT == 8888
