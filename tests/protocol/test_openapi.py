"""The OpenAPI description: complete, consistent, and in accordance with what the commands accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import JOBS_PER_CREATE_MAX, NAME_CHARS_MAX
from bedrockjobs.base.errors import ERRORS, CommandError
from bedrockjobs.commands import COMMANDS
from bedrockjobs.protocol.http_answers import HTTP_STATUS
from bedrockjobs.protocol.openapi import PROBLEMS, describe, strict
from tests.conftest import Live

DESCRIPTION = describe("1.2.3")
STRICT = strict(DESCRIPTION)
PARTS = DESCRIPTION["components"]["schemas"]


def _inside(value: Any) -> Iterator[Any]:
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _inside(item)


def test_every_command_is_described_with_its_request_its_answer_and_its_refusals() -> None:
    for verb, kind in COMMANDS.items():
        operation = DESCRIPTION["paths"][f"/{verb}"]["post"]
        assert operation["operationId"] == verb
        assert operation["summary"]
        request = operation["requestBody"]["content"]["application/json"]["schema"]
        assert request == {"$ref": f"#/components/schemas/{verb}"}
        assert set(PARTS[verb]["properties"]) == set(kind.wire_names.values())
        assert PARTS[verb]["additionalProperties"] is False
        answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer == {"$ref": f"#/components/schemas/{kind.reply.__name__}"}
        assert {str(status) for status in PROBLEMS} <= set(operation["responses"])


def test_every_refusal_has_a_status_that_is_described() -> None:
    assert {HTTP_STATUS[error.code] for error in ERRORS} <= set(PROBLEMS)
    for status in PROBLEMS:
        answer = DESCRIPTION["components"]["responses"][f"Problem{status}"]
        assert list(answer["content"]) == ["application/problem+json"]


def test_every_reference_leads_somewhere() -> None:
    found = {part["$ref"] for part in _inside(DESCRIPTION) if isinstance(part, dict) and "$ref" in part}
    assert len(found) > 50
    for reference in found:
        at: Any = DESCRIPTION
        for word in reference.removeprefix("#/").split("/"):
            at = at[word]


def test_every_pattern_can_be_compiled_and_is_anchored() -> None:
    patterns = {
        part["pattern"]
        for part in _inside(DESCRIPTION)
        if isinstance(part, dict) and isinstance(part.get("pattern"), str)
    }
    assert len(patterns) > 20
    for pattern in patterns:
        re.compile(pattern)
        assert pattern.startswith("^")


def test_operations_have_names_of_their_own() -> None:
    names = [
        operation["operationId"] for path in DESCRIPTION["paths"].values() for operation in path.values()
    ]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in DESCRIPTION["tags"]}
    for path in DESCRIPTION["paths"].values():
        assert all(set(operation["tags"]) <= tags for operation in path.values())


def test_what_is_no_command_is_described_too() -> None:
    for path in ("/events", "/runs/{runID}/output"):
        answer = DESCRIPTION["paths"][path]["get"]["responses"]["200"]["content"]
        assert set(answer) == {"application/json", "text/event-stream"}
    for path in ("/livez", "/readyz", "/status/handlingCommands", "/openapi.json"):
        assert "get" in DESCRIPTION["paths"][path]
    assert "post" in DESCRIPTION["paths"]["/cronken/events"]


def test_limits_are_told() -> None:
    assert PARTS["Name"]["maxLength"] == NAME_CHARS_MAX
    assert PARTS["CreateJobs"]["properties"]["jobs"]["maxItems"] == JOBS_PER_CREATE_MAX
    assert PARTS["Fetch"]["required"] == ["url"]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (0, 9), (1, 59), (7, 31), (0, 1_000), (95, 1_204), (-12, 7), (-1, 0)]
)
def test_a_pattern_of_numbers_has_them_all_and_no_others(low: int, high: int) -> None:
    pattern = re.compile(json_schemas.digits(low, high))
    for number in range(low - 120, high + 120):
        assert bool(pattern.fullmatch(str(number))) is (low <= number <= high), number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DAILY",
        "FINISHED, +1 HOUR",
        "SCHEDULED, +1 DAY, START OF DAY, WEEKDAY 1",
        "CRON TZ=Europe/Berlin 0 9 * * 1-5",
        "CRON TZ=Etc/GMT+1 */15 0-6,22,23 * JAN-MAR,12 MON-FRI",
        "CRON 30 0 12 LW * 5#2",
        "CRON 5m",
        "CRON @daily",
        "CRON 0 0 15W 6 * 2031",
    ],
)
async def test_repeats_that_fit_the_schema_are_taken(live: Live, text: str) -> None:
    options = (PARTS["Repeat"]["anyOf"][0], PARTS["Cron"])
    assert any(re.search(option["pattern"], text) for option in options)
    reply = await live.http("CreateJob", {"name": "a", "repeat": text})
    assert reply.code == 200, reply


@pytest.mark.parametrize("text", ["CRON", "CRON 61 * * * *", "CRON * * * *", "DAILY ", "FINISHED, 1 HOUR"])
def test_repeats_that_are_wrong_do_not_fit(text: str) -> None:
    options = (PARTS["Repeat"]["anyOf"][0], PARTS["Cron"])
    assert not any(re.search(option["pattern"], text) for option in options)


@pytest.mark.parametrize(
    ("name", "field", "verb"),
    [("Timestamp", "firstRun", "CreateJob"), ("Duration", "runTimeout", "CreateJob")],
)
async def test_examples_are_taken(live: Live, name: str, field: str, verb: str) -> None:
    examples = PARTS[name]["examples"]
    assert examples
    for example in examples:
        assert (await live.http(verb, {"name": "e", field: example})).code == 200


@pytest.mark.parametrize(
    ("query", "described"),
    [("", STRICT), ("?lax=0", STRICT), ("?lax=", STRICT), ("?lax=1", DESCRIPTION)],
    ids=["plain", "lax=0", "lax=", "lax=1"],
)
async def test_the_server_hands_it_out(live: Live, query: str, described: dict[str, Any]) -> None:
    """The strict one, which generators of clients can read, unless the other one is asked for."""
    async with await live.connect() as talk:
        talk.send(f"GET /openapi.json{query} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        reply = await talk.reply()
    assert reply.headers["content-type"] == "application/json"
    for key in ("paths", "components"):
        assert reply.json[key] == json.loads(json.dumps(described[key]))
    assert STRICT["components"] != DESCRIPTION["components"]


def test_a_refusal_without_words_is_described_as_it_is_sent() -> None:
    assert set(PARTS["Problem"]["required"]) == {"type", "title", "status", "detail", "code", "reason"}
    assert issubclass(ERRORS[0], CommandError)
