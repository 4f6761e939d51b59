"""The largest and the worst requests within the limits block the event loop only briefly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bedrockjobs.base.config import (
    CHUNKS_MAX,
    CRASHED_PER_TAKE_MAX,
    DATA_CHARS_PER_COMMAND_MAX,
    ESCAPES_MAX,
    FORM_FIELDS_MAX,
    GLOB_CHARS_MAX,
    GLOB_STARS_MAX,
    JOBS_PER_CREATE_MAX,
    JSON_CONTAINERS_MAX,
    JSON_HUGE_NUMBERS_MAX,
    JSON_VALUES_MAX,
    NAMES_KEPT_MAX,
    OTHER_ESCAPES_MAX,
    PATTERNS_MAX,
    PATTERNS_PER_KEY_MAX,
    SCHEDULES_PER_SYNC_MAX,
    SLICE,
)
from bedrockjobs.base.settings import Settings
from tests.effort import PROFILE, examples
from tests.pace import slowness
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.spent import LOOP_S_MAX, Spender, watched
from tests.protocol.talk import Talk, post, request

pytestmark = [pytest.mark.asyncio(loop_factories=["uvloop"]), pytest.mark.timeout(240)]

MB = 1_000_000
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spender]:
    """Return a server of its own process."""
    with watched(tmp_path_factory.mktemp("spent") / "jobs.db") as spender:
        yield spender


def header(verb: str, name: str, value: str) -> bytes:
    """Return a raw request with one line."""
    return f"{verb}\r\n{name}: {value}\r\n\r\n".encode()


def body(verb: str, text: str, media: str = "application/json") -> bytes:
    """Return an HTTP request with a body as it is."""
    head = f"POST /{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media}\r\nContent-Length: {len(text)}"
    return f"{head}\r\n\r\n{text}".encode()


def array(item: str, count: int) -> str:
    """Return a JSON array."""
    return f"[{','.join([item] * count)}]"


def data(text: str) -> str:
    """Return the parameters of a CreateJob with data."""
    return f'{{"name":"a","data":{{"a":{text}}}}}'


KEYS = ",".join(f'"k{number}":1' for number in range(1_000))


def many_keys() -> str:
    """Return a JSON object of a million attributes."""
    return "{" + ",".join(f'"k{number}":1' for number in range(1_200_000)) + "}"


JOBS = JOBS_PER_CREATE_MAX

WALKS = 4
"""Maximum number of times that the same steps are done, each time on a new server."""

WORST: dict[str, Callable[[], bytes]] = {
    "a form of percent signs": lambda: body("CreateJob", "name=" + "%" * (15 * MB), FORM),
    "a form of escapes": lambda: body("CreateJob", "name=" + "%25" * (5 * MB), FORM),
    "a form of 1.5 million fields": lambda: body("CreateJob", "a=&" * 1_500_000, FORM),
    "a line of backslashes": lambda: header("CreateJob", "name", "\\" * (15 * MB)),
    "a line of escaped quotes": lambda: header("CreateJob", "data", '\\"' * ESCAPES_MAX),
    "a line of escaped backslashes": lambda: header("CreateJob", "data", "\\" * ESCAPES_MAX),
    "a line of escaped characters": lambda: header("CreateJob", "data", "\\u00e9" * OTHER_ESCAPES_MAX),
    "a line of escaped ends": lambda: header("CreateJob", "data", "\\n" * OTHER_ESCAPES_MAX),
    "a line of needless backslashes": lambda: header("CreateJob", "data", "\\a" * OTHER_ESCAPES_MAX),
    "a line of too many escapes": lambda: header("CreateJob", "data", "\\a" * (4 * MB)),
    "chunks of one byte": lambda: (
        b"CreateJob\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 2_500_000
    ),
    "blank lines": lambda: b"\r\n" * (7 * MB) + b"QueryJob\r\njobID: 0\r\n\r\n",
    "a million unknown attributes": lambda: body("CreateJob", many_keys()),
    "a million unknown attributes in a raw body": lambda: (
        b"CreateJob\r\nContent-Length: %d\r\n\r\n%b" % (len(many_keys()), many_keys().encode())
    ),
    "data of many numbers": lambda: body("CreateJob", data(array("1", 1_900_000))),
    "data of many texts": lambda: body("CreateJob", data(array('"a"', 900_000))),
    "data of many objects": lambda: body("CreateJob", data(array("{}", JSON_CONTAINERS_MAX - 2))),
    "data of too many objects": lambda: body("CreateJob", data(array("{}", 1_300_000))),
    "data of deep arrays": lambda: body("CreateJob", data(array("[" * 60 + "]" * 60, 7_000))),
    "data of huge numbers": lambda: body("CreateJob", data(array("1e307", JSON_HUGE_NUMBERS_MAX))),
    "data of too many huge numbers": lambda: body("CreateJob", data(array("1e307", 600_000))),
    "data of long numbers": lambda: body("CreateJob", data(array("9" * 300, 13_000))),
    "data of one number": lambda: body("CreateJob", data("9" * (4 * MB))),
    "data of brackets in a text": lambda: body("CreateJob", data('"' + "[{" * (2 * MB) + '"')),
    "brackets": lambda: body("CreateJob", "[" * (16 * MB)),
    "a list of texts": lambda: body("CreateJob", '{"name":"a","tags":' + array('"a"', 3 * MB) + "}"),
    "a list of numbers": lambda: body("RequeueJobs", '{"jobIDs":' + array("1", 7 * MB) + "}"),
    "a list of ids in a line": lambda: header("RequeueJobs", "jobIDs", ",".join(["1"] * (7 * MB))),
    "a list of names in a line": lambda: header("GetJob", "names", array('"a"', 3 * MB)),
    "a list of commas": lambda: header("CreateJob", "tags", "," * (15 * MB)),
    "too many jobs": lambda: body("CreateJobs", '{"jobs":' + array("{}", 5 * MB) + "}"),
    "too many jobs in a line": lambda: header("CreateJobs", "jobs", array('{"name":"a"}', 1 * MB)),
    "fat jobs": lambda: body(
        "CreateJobs", '{"jobs":' + array(f'{{"name":"a","data":{{{KEYS}}}}}', JOBS) + "}"
    ),
    "fat jobs in a line": lambda: header(
        "CreateJobs", "jobs", array(f'{{"name":"a","data":{{{KEYS}}}}}', JOBS)
    ),
    "many small jobs": lambda: body("CreateJobs", '{"jobs":' + array('{"name":"a"}', JOBS) + "}"),
    "many schedules": lambda: body(
        "CreateJobs",
        '{"jobs":' + array('{"name":"a","repeat":"CRON TZ=Europe/Berlin 0 0 29 2 1"}', JOBS) + "}",
    ),
    "many ends": lambda: body(
        "FinishJobs", '{"jobs":' + array(f'{{"jobID":1,"data":{{{KEYS}}}}}', JOBS) + "}"
    ),
}
"""Requests by what is bad about them; those that are refused must be refused soon too. They are made
when they are sent, as together they are large."""

AT_NIGHT = {
    "a line of backslashes",
    "a line of escaped backslashes",
    "a line of escaped characters",
    "a line of needless backslashes",
    "a million unknown attributes in a raw body",
    "data of many texts",
    "data of deep arrays",
    "data of too many huge numbers",
    "data of brackets in a text",
    "a list of numbers",
    "a list of names in a line",
    "too many jobs in a line",
    "fat jobs in a line",
    "many small jobs",
}
"""They pass the same checks as others of them, and come at night."""


@pytest.mark.parametrize("kind", [kind for kind in WORST if PROFILE == "random" or kind not in AT_NIGHT])
async def test_no_request_keeps_the_loop(server: Spender, kind: str) -> None:
    reply, spent_s = await server.least(server.longest, WORST[kind]())
    print(f"{kind}: {spent_s * 1000:.0f} ms in one piece, {reply.status}")
    assert spent_s < LOOP_S_MAX
    assert reply.code != 500


async def test_long_work_is_done_in_slices(tmp_path: Path) -> None:
    most = Settings().patterns_waiting_max
    names = [f"s/{number}" for number in range(SCHEDULES_PER_SYNC_MAX)]
    assert len(names) > 10 * SLICE
    with watched(tmp_path / "jobs.db") as server:
        async with AsyncExitStack() as stack:
            for number in range(5):
                waiter = await stack.enter_async_context(await Talk.open(server.port))
                waiter.send(request("GetJob", names=patterns(number, most // 5), connection="wait"))
            least_s = LOOP_S_MAX
            for repeat in ("@daily", "@weekly", "@monthly"):
                schedules = [{"name": name, "repeat": f"CRON {repeat}"} for name in names]
                least_s = min(least_s, await sync(server, schedules))
                if least_s < LOOP_S_MAX:  # what a neighbour on the core adds does not count
                    break
            assert least_s < LOOP_S_MAX
            assert await sync(server, []) < LOOP_S_MAX


async def sync(server: Spender, schedules: list[dict[str, str]]) -> float:
    """Make these the schedules of a source; return the longest time that blocked the event loop."""
    reply, longest_s = await server.longest(
        post("SyncSchedules", {"source": "s", "schedules": schedules, "prune": True})
    )
    print(f"{len(schedules)} schedules: {longest_s * 1000:.0f} ms in one piece")
    assert reply.code == 200
    return longest_s


ENGINES = ["sqlite", "postgresql"] if PROFILE == "random" else ["sqlite"]
"""By day ``tests/postgresql/test_dispatcher_units.py`` searches in the same slices there, among few names."""


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_new_pattern_or_a_pause_among_very_many_names_keeps_nobody_waiting(
    engine: str, tmp_path: Path
) -> None:
    steps = [
        ("GetJob", "*x", 404),
        ("GetJob", "?*9*9*9*9*x", 404),
        ("GetJob", "n*", 200),
        ("GetJob", "*/999", 200),
        ("PauseJobs", "n*", 200),
        ("GetJob", "*", 404),
        ("GetJob", "n*", 404),
        ("GetJob", "*/999", 404),
        ("ResumeJobs", "n*", 200),
        ("GetJob", "*", 200),
        ("GetJob", "*/999", 200),
        ("Overview", "", 200),
        ("GET", "/metrics", 200),
        ("GET", "/ui/", 200),
    ]
    settings = {"durability": "relaxed"}
    if engine == "postgresql":
        settings = {"database": CLUSTER.url, "database_schema": SCHEMA}

    async def walk(file: Path) -> AsyncIterator[tuple[str, float, float]]:
        if engine == "postgresql":
            CLUSTER.empty(SCHEMA)
        with watched(file, **settings) as server:
            for number in range(examples(20, night=200)):
                await server.ask(new_jobs(f"n{number}/"))
            for verb, name, code in steps:
                asked = page(name) if verb == "GET" else request(verb, **({"name": name} if name else {}))
                reply, longest_s, others = await beside(server, asked)
                assert reply.code == code, reply
                searched = (verb, name) in {("GetJob", "*x"), ("GetJob", "?*9*9*9*9*x")}
                yield f"{verb} {name}", longest_s, others if searched else inf

    await within_pieces(walk, tmp_path)


PIECE_S_MAX = 0.05
"""Processor time that a step of a walk may take in one piece."""

BESIDE_MIN = 5
"""Minimum number of other requests that are answered while all names are searched."""


async def within_pieces(
    walk: Callable[[Path], AsyncIterator[tuple[str, float, float]]], folder: Path
) -> None:
    """Repeat a walk on new servers until no step of it keeps the loop or other requests too long.

    Other programs on the same core slow down a step in some walks only. A walk yields for each step its name,
    its longest piece in seconds, and the number of other requests that were answered meanwhile.
    """
    for number in range(WALKS):
        found = [step async for step in walk(folder / f"{number}.db")]
        for name, longest_s, _ in found:
            print(f"{name}: {longest_s * 1000:.0f} ms in one piece")
        over = [step for step in found if step[1] >= PIECE_S_MAX or step[2] < BESIDE_MIN]
        if not over:
            return
    assert not over


def page(path: str) -> bytes:
    """Return a request for a page."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def test_a_take_that_fails_jobs_of_the_crash_list_on_its_way_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    with watched(tmp_path / "jobs.db", durability="relaxed") as server:
        await server.ask(request("CrashBedrockJob", names="crash*"))
        jobs = [{"name": f"crash/{number}"} for number in range(JOBS)]
        for _ in range(CRASHED_PER_TAKE_MAX // JOBS + 1):
            await server.ask(post("CreateJobs", {"jobs": jobs}))
        reply, longest_s, _ = await beside(server, request("GetJob", name="*"))
        print(f"{CRASHED_PER_TAKE_MAX} failed jobs: {longest_s * 1000:.0f} ms in one piece")
        assert reply.code == 404
        assert longest_s < 0.05


OTHERS: list[tuple[str, dict[str, object]]] = [
    ("CreateJob", {"name": "-", "firstRun": "2099-01-01"}),
    ("QueryJob", {"jobID": 1}),
    ("Heartbeat", {"worker": "w", "runIDs": "[]"}),
]
"""What others ask meanwhile, in turn."""


async def beside(server: Spender, data: bytes) -> tuple[Any, float, int]:
    """Send a request; return its answer, the longest piece of work, and how many others came first."""
    await server.settled()
    async with await Talk.open(server.port) as talk, await Talk.open(server.port) as others:
        count = 0
        server.turns.restart()
        talk.send(data)
        reply = asyncio.ensure_future(talk.reply(60))
        while not reply.done():
            count += 1
            verb, asked = OTHERS[count % len(OTHERS)]
            assert (await others.ask(verb, **asked)).code == 200
        return await reply, server.turns.longest_s() / slowness(), count


async def test_each_limit_is_named_where_it_is_passed(server: Spender) -> None:
    async def refused(request: bytes) -> Any:
        reply, _ = await server.ask(request)
        return reply.headers.get("error") or json.loads(reply.body)["detail"]

    assert f"at most {FORM_FIELDS_MAX} fields" in await refused(WORST["a form of 1.5 million fields"]())
    assert f"at most {ESCAPES_MAX} backslashes" in await refused(WORST["a line of backslashes"]())
    assert f"at most {OTHER_ESCAPES_MAX} backslashes" in await refused(WORST["a line of too many escapes"]())
    assert "after each %" in await refused(WORST["a form of percent signs"]())
    assert f"at most {CHUNKS_MAX} chunks" in await refused(WORST["chunks of one byte"]())
    assert f"more than {JSON_CONTAINERS_MAX} objects" in await refused(WORST["data of too many objects"]())
    assert f"more than {JSON_HUGE_NUMBERS_MAX} numbers" in await refused(
        WORST["data of too many huge numbers"]()
    )
    assert f"more than {JSON_VALUES_MAX} values" in await refused(WORST["a list of texts"]())


def new_jobs(beginning: str) -> bytes:
    """Return a CreateJobs of jobs with as many names."""
    return post("CreateJobs", {"jobs": [{"name": f"{beginning}{number}"} for number in range(JOBS)]})


def patterns(number: int, count: int = PATTERNS_MAX) -> list[str]:
    """Return patterns that begin with a star, each with another one a number."""
    return [f"*a*a{number}*a{each}?z*" for each in range(count)]


async def test_patterns_that_were_asked_for_once_cost_little(server: Spender) -> None:
    for number in range(NAMES_KEPT_MAX // 2):
        reply, spent_s = await server.ask(request("GetJob", names=patterns(number)))
        assert reply.code == 404
    assert spent_s < LOOP_S_MAX
    for beginning in ("a" * 200, "a" * 199, "a" * 198):  # other names that cost the same, if it took long
        reply, spent_s = await server.longest(new_jobs(beginning))
        print(f"new names after many patterns: {spent_s * 1000:.0f} ms")
        assert reply.code == 200
        if spent_s < LOOP_S_MAX:
            break
    assert spent_s < LOOP_S_MAX


async def test_a_take_of_many_patterns_from_many_names_costs_little(server: Spender) -> None:
    await server.ask(new_jobs("b/"))
    reply, spent_s = await server.ask(request("GetJob", names=patterns(1_000)))
    print(f"a take by {PATTERNS_MAX} patterns: {spent_s * 1000:.0f} ms")
    assert reply.code == 404
    assert spent_s < LOOP_S_MAX
    beginning = "?*a" * GLOB_STARS_MAX
    long = [f"{number:03}{beginning}".ljust(GLOB_CHARS_MAX, "?") for number in range(PATTERNS_MAX)]
    reply, spent_s = await server.ask(request("GetJob", names=long))
    print(f"a take by {PATTERNS_MAX} long patterns: {spent_s * 1000:.0f} ms")
    assert reply.code == 404
    assert spent_s < LOOP_S_MAX


async def test_patterns_that_are_waited_for_cost_little(tmp_path: Path) -> None:
    most = Settings().patterns_waiting_max + PATTERNS_PER_KEY_MAX
    with watched(tmp_path / "jobs.db") as server:
        async with AsyncExitStack() as stack:
            waiters = [await stack.enter_async_context(await Talk.open(server.port)) for _ in range(8)]
            for number, talk in enumerate(waiters[:2]):
                names = [alike(each) for each in range(number, most, 2)]
                talk.send(request("GetJob", names=names, connection="wait"))
            for number, talk in enumerate(waiters[2:5]):
                talk.send(request("GetJob", names=patterns(number), connection="wait"))
            await server.settled()
            reply = await waiters[5].ask("GetJob", name=alike(most), connection="wait")
            assert reply.status == "503 Too many patterns are waited for"
            for talk, names in zip(waiters[6:], ([alike(0)], ["c*", "d*"]), strict=True):
                talk.send(request("GetJob", names=names, connection="wait"))  # the same ones, and simple ones
            reply, spent_s = await server.longest(new_jobs("a" * 200))
            print(f"new names beside {most} patterns: {spent_s * 1000:.0f} ms")
            assert spent_s < LOOP_S_MAX
            await server.ask(request("CreateJob", name="d1"))
            assert (await waiters[7].reply()).json["name"] == "d1"


def alike(number: int) -> str:
    """Return a pattern without any fixed part, each with another number."""
    return f"?*{'?' * (number + 1)}*[^{chr(200 + number)}]*z*"


async def test_a_list_of_jobs_of_much_data_is_not_read_whole(server: Spender) -> None:
    fat = data('"' + "x" * (4 * MB) + '"')
    made = [(await server.ask(body("CreateJob", fat)))[0].json["jobID"] for _ in range(3)]
    asked = made * (JOBS // 3)
    finish = post("FinishJobs", {"jobs": [{"jobID": each} for each in asked]})  # none of them runs
    reply, spent_s = await server.least(server.ask, finish)
    codes = [result["code"] for result in reply.json["results"]]
    assert codes[0] == 405
    assert codes[-1] == 503
    assert spent_s < LOOP_S_MAX
    number = DATA_CHARS_PER_COMMAND_MAX // (4 * MB)
    fats = [(await server.ask(body("CreateJob", fat)))[0].json["jobID"] for _ in range(number + 2)]
    reply, _ = await server.ask(post("RequeueJobs", {"jobIDs": fats}))
    assert (reply.code, reply.json["reason"]) == (503, "Too much data at once")
    reply, _ = await server.ask(post("RequeueJobs", {"jobIDs": fats[:number]}))
    assert reply.code == 200


@pytest.mark.parametrize(
    "inner", ['"' + "x" * (4 * MB) + '"', array("1", 2 * MB - 500)], ids=["text", "numbers"]
)
async def test_a_merge_of_deep_data_is_refused_soon(server: Spender, inner: str) -> None:
    deep = '{"a":' * 60 + inner + "}" * 60
    wanted = body("CreateJob", f'{{"name":"deep{len(inner)}","unique":true,"data":{deep}}}')
    reply, _ = await server.ask(wanted)
    assert reply.code == 200
    reply, spent_s = await server.least(server.ask, wanted)
    print(f"a merge of deep data: {spent_s * 1000:.0f} ms")
    assert reply.json["detail"].startswith("data: objects are merged in objects of more than")
    assert spent_s < LOOP_S_MAX


@pytest.mark.parametrize(("overwrite", "code"), [("true", 400), ("false", 503)])
async def test_one_job_of_much_data_is_not_read_again_and_again(
    server: Spender, overwrite: str, code: int
) -> None:
    fat = f'{{"name":"fat","unique":true,"data":{{"a":"{"x" * (4 * MB)}"}}}}'
    assert (await server.ask(body("CreateJob", fat)))[0].code == 200
    again = array(f'{{"name":"fat","unique":true,"overwrite":{overwrite}}}', JOBS)
    reply, spent_s = await server.least(server.ask, body("CreateJobs", f'{{"jobs":{again}}}'))
    print(f"one job of much data, {JOBS} times: {spent_s * 1000:.0f} ms")
    assert reply.code == code
    assert spent_s < LOOP_S_MAX


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (body("CreateJob", "&".join(["name=a", *["tags="] * (FORM_FIELDS_MAX - 1)]), FORM), 200),
        (
            b"CreateJob\r\nname: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\n \r\n" * (CHUNKS_MAX - 1)
            + b"0\r\n\r\n",
            200,
        ),
        (header("Ping", "x", '\\"' * ESCAPES_MAX), 200),
        (header("Ping", "x", "\\n" * OTHER_ESCAPES_MAX), 200),
        (post("CreateJob", data(array("{}", JSON_CONTAINERS_MAX - 2))), 200),
        (post("CreateJob", data(array("1e307", JSON_HUGE_NUMBERS_MAX))), 200),
    ],
)
async def test_as_much_as_is_allowed_is_taken(server: Spender, request_: bytes, code: int) -> None:
    reply, _ = await server.ask(request_)
    assert reply.code == code, reply
