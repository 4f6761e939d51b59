"""The HTTP interface described as OpenAPI 3.1, from the command classes alone."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from pydantic.json_schema import models_json_schema

from bedrockjobs.base.config import KEY_CHARS_MAX, WHOLE_MAX
from bedrockjobs.base.shapes import NAMED, Schema, ref
from bedrockjobs.commands import COMMANDS, Command, Query
from bedrockjobs.protocol import openapi_cronken

_PROBLEM: Schema = {
    "type": "object",
    "description": "A refusal (RFC 9457), with Bedrock's code and reason.",
    "properties": {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string", "description": "The reason."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What was expected, in a sentence."},
        "code": {"type": "integer", "description": "Bedrock's code."},
        "reason": {"type": "string", "description": "Bedrock's words, as in its status line."},
    },
    "required": ["type", "title", "status", "detail", "code", "reason"],
}

PROBLEMS = {
    400: "The request is malformed: it names the attribute and what was expected (codes 400, 401, 402, 502).",
    403: "The request comes from a page of another site, or names another host (code 403).",
    404: "There is no such job, run or schedule, or no job to take (codes 404, 430).",
    405: "This path does not take this method; `Allow` lists those it takes (code 400).",
    409: "The job or the run is not in a state that allows this (code 405).",
    412: "The job is no longer as `If-Match` or ifMatch has it (code 412).",
    413: "The request is larger than the server takes (code 413).",
    429: "A limit of numbers is reached; `Retry-After` says when to come again (code 429).",
    500: "The server failed; nothing was done (code 500).",
    503: "The server is full or stopping; nothing was done. `Retry-After` says when to return (code 503).",
    504: "It took longer than it may; nothing was done (code 555).",
}
"""The statuses of a refusal, with what each means and Bedrock's codes."""

_RETRIED = frozenset({429, 503})

_ABOUT = """A durable job queue with schedules. Every command is a POST with a JSON object; the same \
parameters may be sent as a form. Commands that only look are answered to GET too. What is null counts as \
left out. A refusal is a problem+json object, and then nothing was done."""


def describe(version: str, root_path: str = "") -> Schema:
    """Return the description of all that the server answers, below ``root_path``."""
    return _described(version, root_path, tuple(COMMANDS.items()))


@lru_cache(maxsize=4)
def _described(version: str, root_path: str, commands: tuple[tuple[str, type[Command[Any]]], ...]) -> Schema:
    """Do it once for the same commands: it takes 0.2 s, and a process may start many servers."""
    responses = {str(status): _refusal(status) for status in PROBLEMS}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bedrockjobs",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": {
            **{f"/{verb}": _operations(verb, kind) for verb, kind in commands},
            **_other_paths(),
        },
        "components": {"schemas": _schemas(), "responses": {f"Problem{n}": r for n, r in responses.items()}},
    }


# --- schemas ---------------------------------------------------------------------------------------------


@cache
def _schemas() -> Schema:
    """Return the schemas of all requests and answers, as pydantic has them."""
    replies = dict.fromkeys(kind.reply for kind in COMMANDS.values())
    _, definitions = models_json_schema(
        [
            *((kind, "validation") for kind in COMMANDS.values()),
            *((kind, "serialization") for kind in replies),
        ],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    found: Schema = {}
    for name, schema in definitions["$defs"].items():
        found[name] = _shared(schema, found)
    rows = found["QueryReply"]
    found["QueryReply"] = {
        "description": rows["description"],
        "anyOf": [{"type": "array", "items": {"type": "array"}}, _bare(rows)],
    }
    return {"Problem": _PROBLEM, **found}


def _shared(value: Any, found: Schema) -> Any:
    """Return a part of a schema; what has a name in it is put into ``found`` and referred to."""
    if isinstance(value, list):
        return [_shared(part, found) for part in value]
    if not isinstance(value, dict):
        return value
    parts = {key: _shared(part, found) for key, part in value.items() if key not in ("examples", "default")}
    kept = {key: value[key] for key in ("examples", "default") if key in value}
    name = parts.pop(NAMED, None)
    if not isinstance(name, str):
        return {**parts, **kept}
    notes = {key: parts.pop(key) for key in ("description",) if key in parts}
    notes |= {key: kept.pop(key) for key in ("default",) if key in kept}
    found[name] = {**parts, **kept}
    return {**ref(name), **notes}


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}


# --- operations ------------------------------------------------------------------------------------------

_TAGS = {
    "jobs": "Make, take, end and look at jobs.",
    "schedules": "Jobs that repeat by CRON, and what people do with them.",
    "runs": "Runs of jobs, their output, and the workers.",
    "server": "The server itself.",
    "access": "Who may do what, and what operators changed.",
    "messages": "Who is told of what happens.",
}


def _operations(verb: str, kind: type[Command[Any]]) -> Schema:
    post = _operation(verb, kind)
    if not kind.reads:
        return {"post": post}
    shared = {key: post[key] for key in ("tags", "summary", "responses")}
    return {
        "get": {
            "operationId": f"get{verb}",
            **shared,
            "parameters": query_of(verb) + post.get("parameters", []),
        },
        "post": post,
    }


def _operation(verb: str, kind: type[Command[Any]]) -> Schema:
    headers = [_HEADERS[name] for name in kind.headers if name in _HEADERS]
    headers += [_PREFER] if kind.waits else []
    return {
        **({"parameters": headers} if headers else {}),
        "operationId": verb,
        "tags": [kind.group],
        "summary": kind.sentence(),
        "requestBody": {
            "required": not _schemas()[verb].keys().isdisjoint({"required", "anyOf"}),
            "content": {"application/json": {"schema": ref(verb)}},
        },
        "responses": {
            "200": _done(kind),
            "202": {
                "description": "Accepted with `connection: forget`; not yet done.",
                "content": {"application/json": {"schema": {"type": "object", "maxProperties": 0}}},
            },
            **_refusals(),
        },
    }


_IDEMPOTENCY_KEY: Schema = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Another place for idempotencyKey; where both are given, they must be the same.",
    "schema": {"type": "string", "pattern": f"^[!-~]{{1,{KEY_CHARS_MAX}}}$"},
}
_PREFER: Schema = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=60`: the same as `connection: wait` with a timeout of so many seconds.",
    "schema": {"type": "string"},
}
_IF_MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "Another place for ifMatch, which wins: entity tags of QueryJob's answer.",
    "schema": {"type": "string", "minLength": 1},
}
_HEADERS = {header["name"]: header for header in (_IDEMPOTENCY_KEY, _IF_MATCH)}
_NEXT = 'The next page, `<...>; rel="next"`, to be asked for with GET; none where this is the last.'
_ETAG = "The same as long as the answer is."


def _done(kind: type[Command[Any]]) -> Schema:
    content: Schema = {"application/json": {"schema": ref(kind.reply.__name__)}}
    if kind is Query:
        content["text/plain"] = {"schema": {"type": "string"}}
    found: Schema = {"description": "Done, and on disk.", "content": content}
    if kind.paging is not None:
        found["headers"] = {"Link": {"description": _NEXT, "schema": {"type": "string"}}}
    if kind.tagged:
        found["headers"] = {"ETag": {"description": _ETAG, "required": True, "schema": {"type": "string"}}}
    return found


def _refusals(*statuses: int) -> Schema:
    return {
        str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses or PROBLEMS
    }


def _refusal(status: int) -> Schema:
    found: Schema = {
        "description": PROBLEMS[status],
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }
    if status in _RETRIED:
        found["headers"] = {
            "Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer"}}
        }
    if status == 405:
        found["headers"] = {"Allow": {"required": True, "schema": {"type": "string"}}}
    return found


# --- what is no command ----------------------------------------------------------------------------------

_ANY: Schema = {"type": "object"}
_TEXT: Schema = {"text/plain": {"schema": {"type": "string"}}}
_STREAM: Schema = {"text/event-stream": {"schema": {"type": "string"}}}
_COMES_BACK = (
    "A stream that was cut goes on behind the number in `Last-Event-ID`, which counts before `after`."
)


_LAX: Schema = {
    "name": "lax",
    "in": "query",
    "description": "1: everything that the server takes, also texts for numbers and rules across parameters.",
    "schema": {"type": "string", "enum": ["0", "1"]},
}


def _other_paths() -> Schema:
    return {
        "/events": {"get": _followed("events", "Events", "EventsReply", "Events")},
        "/runs/{runID}/output": {"get": _followed("output", "ReadOutput", "OutputReply", "Lines of a run")},
        "/cronken/events": {"post": openapi_cronken.operation(_refusals())},
        "/openapi.json": {"get": {
                **_page("openapi", "This description.", "application/json", _ANY),
                "parameters": [_LAX],
            }},
        "/docs": {"get": _page("docs", "This description for people.", "text/html")},
        "/livez": {
            "get": _probe(
                "livez", "Answer as long as the process runs.",
                {"200": {"description": "Always.", "content": _TEXT}},
            )
        },
        "/readyz": {
            "get": _probe(
                "readyz", "Answer 200 while commands are taken.",
                {
                    "200": {"description": "Ready.", "content": _TEXT},
                    "503": {"description": "Stopping.", "content": _TEXT},
                },
            )
        },
        "/status/handlingCommands": {
            "get": _probe(
                "handlingCommands", "Answer a load balancer as Bedrock does.",
                {
                    "200": {"description": "LEADING: commands are taken."},
                    "503": {"description": "STANDINGDOWN: the server stops."},
                },
            )
        },
    }  # fmt: skip


def _probe(name: str, summary: str, answers: Schema) -> Schema:
    """Return the operation of a page that is answered whatever the Host says."""
    return {
        "operationId": name,
        "tags": ["server"],
        "summary": summary,
        "responses": {**answers, **_refusals(405)},
    }


def _page(name: str, summary: str, media: str = "text/plain", schema: Schema | None = None) -> Schema:
    content = {media: {"schema": schema or {"type": "string"}}}
    return {
        "operationId": name,
        "tags": ["server"],
        "summary": summary,
        "responses": {"200": {"description": "Always.", "content": content}, **_refusals(403, 405)},
    }


def _followed(operation: str, verb: str, reply: str, what: str) -> Schema:
    """Return the operation that answers one page as JSON, or follows as a stream of server-sent events."""
    return {
        "operationId": operation,
        "tags": ["runs"],
        "summary": f"{what}: one page, or with `Accept: text/event-stream` all that comes.",
        "description": _COMES_BACK,
        "parameters": query_of(verb, inside="runID"),
        "responses": {
            "200": {
                "description": "A page, or a stream that goes on.",
                "content": {"application/json": {"schema": ref(reply)}, **_STREAM},
            },
            **_refusals(),
        },
    }


def query_of(verb: str, inside: str = "") -> list[Schema]:
    """Return a command's parameters as they stand in an address; ``inside`` is a part of its path."""
    given = _schemas()[verb]
    found = []
    for name, schema in given["properties"].items():
        place = "path" if name == inside else "query"
        bare = _in_address(_bare(schema))
        required = name in given.get("required", ())
        parameter = {"name": name, "in": place, "required": required, "schema": bare}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found


def _in_address(schema: Schema) -> Schema:
    """Return the schema of a value that is text: nothing is null, and a whole number has 18 digits."""
    if "anyOf" in schema:
        return {"anyOf": [_in_address(option) for option in schema["anyOf"] if option.get("type") != "null"]}
    if schema.get("type") == "integer" and "enum" not in schema:
        return {"minimum": -WHOLE_MAX, "maximum": WHOLE_MAX, **schema}
    return schema
