"""A cached request, whole or except for one value, means the same as when it is parsed again."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bedrockjobs.base.config import REQUEST_CACHED_BYTES_MAX, REQUESTS_CACHED_MAX
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import Command, CreateJob, FinishJob, GetJob
from bedrockjobs.protocol.pipeline import Pipeline
from bedrockjobs.protocol.raw import Request, RequestCache
from tests.effort import examples

LINES = [
    b"name: a",
    b"Name:b ",
    b"name:",
    b"name: \xc3\xa9\\u00e9",
    b"name: \xff",
    b"name: a\x01",
    b"name: \xc2\x85x",
    b"data: {}",
    b'data: {"a":1}',
    b'DATA:{"a": 2}\r',
    b"data: [1]",
    b"data:",
    b'data: {"a":"\\\\n"}',
    b"data: {",
    b"jobID: 1",
    b"jobid: 22",
    b"jobID: -1",
    b"jobID: 1.5",
    b"jobID: x",
    b"jobID:\t7 ",
    b" continued",
    b"\tagain: 1",
    b"connection: wait",
    b"connection: close",
    b"timeout: 5",
    b"unknown: 1",
    b"uniqueKey: k",
    b"uniqueKey: \xc3\xa9 1",
    b"uniqueKey:",
    b"uniquekey: K",
    b"uniqueFor: 60",
    b"no colon",
    b": empty",
    b"jobID : 3",
    b"unique: true",
    b"repeat: DAILY",
    b"retryAfter: +1 HOUR",
    b"jobPriority: 500",
    b"jobPriority: 3",
    b"firstRun: 2026-11-21 03:29:56",
    b"firstRun: +5 MINUTES",
    b'jobs: [{"jobID":1}]',
    b"numResults: 3",
    b"query: SELECT 1",
    b"note: a:b:c",
]
VERBS = [
    b"CreateJob",
    b"createjob x",
    b"FinishJob",
    b"FailJob",
    b"UpdateJob",
    b"GetJob",
    b"GetJobs",
    b"Ping",
    b"CreateJobs",
    b"Query: SELECT 1",
    b"Heartbeat",
    b"RetryJob",
    b"Nonsense",
]
heads = st.builds(
    lambda verb, lines: b"\n".join([verb, *lines]),
    st.sampled_from(VERBS),
    st.lists(st.sampled_from(LINES), max_size=3),
)


def meaning(head: bytes, requests: RequestCache) -> object:
    """Return the command of a request, or its refusal."""
    pipeline = Pipeline(Settings(), requests)
    pipeline.feed(head + b"\n\n")
    exchange = pipeline.begin()
    assert exchange is not None
    if exchange.command is None:
        return exchange.data
    return exchange.command, exchange.command.model_fields_set, exchange.waits, exchange.closes


def command_of(head: bytes, requests: RequestCache) -> Command[object]:
    """Return the command of a request that is not refused."""
    found = meaning(head, requests)
    assert isinstance(found, tuple)
    command: Command[object] = found[0]
    return command


@settings(max_examples=examples(40, night=3_000))
@given(st.lists(heads, min_size=2, max_size=8))
def test_nothing_is_remembered_wrongly(asked: list[bytes]) -> None:
    requests = RequestCache()
    for head in asked:
        assert meaning(head, requests) == meaning(head, RequestCache()), head


@settings(max_examples=examples(48, night=3_000))
@given(heads, st.sampled_from(LINES), st.sampled_from(LINES))
@example(b"Ping", b"connection: wait", b"connection: close")
def test_neither_are_requests_that_differ_in_their_last_line(
    head: bytes, first: bytes, second: bytes
) -> None:
    requests = RequestCache()
    meaning(b"%b\n%b" % (head, first), requests)
    again = b"%b\n%b" % (head, second)
    assert meaning(again, requests) == meaning(again, RequestCache())


@settings(max_examples=examples(48, night=3_000))
@given(
    st.sampled_from([b"CreateJob", b"FinishJob\r", b"FinishJob"]),
    st.lists(st.sampled_from(LINES), max_size=2),
    st.tuples(st.sampled_from(LINES), st.sampled_from(LINES)),
    st.lists(st.sampled_from(LINES), min_size=1, max_size=2),
)
@example(b"FinishJob", [], (b"jobID: 1", b"jobID: 5"), [b"jobID : 3"])
@example(b"FinishJob", [], (b"jobID: 1", b"jobID:"), [b"thenGet: 5"])
def test_nor_those_that_differ_in_a_line_between(
    verb: bytes, before: list[bytes], between: tuple[bytes, bytes], after: list[bytes]
) -> None:
    requests = RequestCache()
    for line in (*between, *between):
        head = b"\n".join([verb, *before, line, *after])
        assert meaning(head, requests) == meaning(head, RequestCache()), head


OF_PAIR = [line for line in LINES if line.lower().startswith((b"data", b"uniquekey"))]


@settings(max_examples=examples(48, night=3_000))
@given(
    st.lists(st.sampled_from(LINES), max_size=1),
    st.lists(st.tuples(st.sampled_from(OF_PAIR), st.sampled_from(OF_PAIR)), min_size=2, max_size=4),
    st.lists(st.sampled_from(LINES), max_size=1),
    st.lists(st.sampled_from(LINES), max_size=1),
)
@example([], [(b"data: {}", b"uniqueKey: k"), (b'data: {"a":1}', b"uniqueKey: \xc3\xa9 1")], [], [])
@example([], [(b"uniqueKey: k", b"data: {}"), (b"uniqueKey:", b"data: {")], [], [b" continued"])
def test_nor_those_that_differ_in_data_and_unique_key(
    before: list[bytes], pairs: list[tuple[bytes, bytes]], between: list[bytes], after: list[bytes]
) -> None:
    requests = RequestCache()
    for first, second in (*pairs, *pairs):
        head = b"\n".join([b"CreateJob", b"name: a", *before, first, *between, second, *after])
        assert meaning(head, requests) == meaning(head, RequestCache()), head


def test_what_differs_in_data_and_unique_key_is_found_by_the_rest() -> None:
    requests = RequestCache()
    for end in (b"", b"\r\nuniqueFor: 60\r\nConnection: wait\r"):
        command_of(b'CreateJob\r\nname: x\r\ndata: {"a":1}\r\nuniqueKey: k1' + end, requests)
        found = requests.find(b'CreateJob\r\nname: x\r\ndata: {"a":22}\r\nuniqueKey: k22' + end)
        assert found is not None
        wanted = command_of(b'CreateJob\r\nname: x\r\ndata: {"a":22}\r\nuniqueKey: k22' + end, RequestCache())
        assert asked(found) == wanted
        assert requests.find(b'CreateJob\r\nname: y\r\ndata: {"a":22}\r\nuniqueKey: k22' + end) is None
        assert requests.find(b"CreateJob\r\nname: x\r\ndata: {\r\nuniqueKey: k22" + end) is None
    long = b'CreateJob\r\nname: x\r\ndata: {"a":"%b"}\r\nuniqueKey: k' % (b"x" * REQUEST_CACHED_BYTES_MAX)
    found = requests.find(long)
    assert found is not None
    assert not found.ordinary
    assert asked(found) == command_of(long, RequestCache())


def test_requests_that_end_with_other_lines_are_found_by_the_rest() -> None:
    """Bedrock's PHP client ends each request with additional lines."""
    requests = RequestCache()
    end = b"\r\nConnection: wait\r\nrequestID: 7\r\nContent-Length: 0\r"
    command_of(b'CreateJob\r\nname: x\r\ndata: {"a":1}' + end, requests)
    found = requests.find(b'CreateJob\r\nname: x\r\ndata: {"a":22}' + end)
    assert found is not None
    assert asked(found) == CreateJob(name="x", data='{"a":22}', connection="wait")
    command_of(b"FinishJob\r\njobID: 1" + end, requests)
    found = requests.find(b"FinishJob\r\njobID: 12" + end)
    assert found is not None
    assert asked(found) == FinishJob(job_id=12, connection="wait")
    assert requests.find(b"FinishJob\r\njobID: x" + end) is None
    assert requests.find(b"FinishJob\r\njobID: 12\r\nthenGet: a" + end) is None


def test_what_is_the_same_is_read_once() -> None:
    requests = RequestCache()
    assert command_of(b"GetJob\nname: x", requests) is command_of(b"GetJob\nname: x", requests)
    assert command_of(b"GetJob\nname: y", requests) == GetJob(name="y")


def asked(found: Request) -> Command[Any]:
    """Return the command of a cached request."""
    assert found.prepared is not None
    return found.prepared.with_value(found.value)


def test_what_differs_in_its_last_value_is_found_by_the_rest() -> None:
    requests = RequestCache()
    assert requests.find(b'CreateJob\nname: x\ndata: {"a":1}') is None
    command_of(b'CreateJob\nname: x\ndata: {"a":1}', requests)
    found = requests.find(b'CreateJob\nname: x\ndata: {"a":2}')
    assert found is not None
    assert asked(found) == CreateJob(name="x", data='{"a":2}')
    assert requests.find(b"CreateJob\nname: x\ndata: {") is None
    command_of(b"FinishJob\r\njobID: 1\r", requests)
    found = requests.find(b"FinishJob\r\njobID: 2\r")
    assert found is not None
    assert asked(found) == FinishJob(job_id=2)


def test_a_body_is_no_part_of_what_is_remembered() -> None:
    requests = RequestCache()
    pipeline = Pipeline(Settings(), requests)
    pipeline.feed(b'CreateJob\nname: x\nContent-Length: 17\n\n{"data":{"a":1}}\n')
    assert pipeline.begin() is not None
    assert requests.find(b"CreateJob\nname: x\nContent-Length: 17") is None
    assert requests.find(b"CreateJob\nname: x\nContent-Length: 18") is None


def test_few_and_short_requests_are_remembered() -> None:
    requests = RequestCache()
    for verb in (b"GetJob", b"CreateJob"):
        asked = [b"%b\nname: x%d\ndata: {}" % (verb, number) for number in range(REQUESTS_CACHED_MAX + 1)]
        command_of(asked[0], requests)
        assert requests.find(asked[0]) is not None
        for head in asked[1:]:
            command_of(head, requests)
        assert requests.find(asked[0]) is None
        assert requests.find(asked[1]) is not None
    beginning = b"GetJob\nname: "
    long = beginning + b",".join([b"x" * 200] * 6)
    long = long[: REQUEST_CACHED_BYTES_MAX + 1]
    assert requests.find(long) is None
    assert len(long) == REQUEST_CACHED_BYTES_MAX + 1
    command_of(long, requests)
    assert requests.find(long) is None
    command_of(long[:-1], requests)
    assert requests.find(long[:-1]) is not None
