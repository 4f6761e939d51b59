"""The HTTP interface as OpenAPI 3.1 and as the page ``/docs``, derived from the command classes."""

from __future__ import annotations

import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from functools import cache, lru_cache
from hashlib import sha256
from html import escape
from typing import Any
from urllib.parse import urlencode

from pydantic.json_schema import models_json_schema

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DEFAULT_PORT, KEY_CHARS_MAX, WHOLE_MAX
from bedrockjobs.base.json_schemas import NAMED, Schema, ref
from bedrockjobs.commands import COMMANDS, Command, Query
from bedrockjobs.protocol import cronken

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
    405: "This path does not accept this method; `Allow` lists those it accepts (code 400).",
    409: "The job or the run is not in a state that allows this (code 405).",
    412: "The job no longer matches `If-Match` or ifMatch (code 412).",
    413: "The request is larger than the server accepts (code 413).",
    429: "A limit is reached; `Retry-After` says when to try again (code 429).",
    500: "The server failed; nothing was done (code 500).",
    503: "The server is full or stopping; nothing was done. `Retry-After` says when to return (code 503).",
    504: "It exceeded its time limit; nothing was done (code 555).",
}
"""HTTP statuses of errors, with their meanings and Bedrock's codes."""

_RETRIED = frozenset({429, 503})

_ABOUT = """A durable job queue with schedules. Every command is a POST with a JSON object; the same \
parameters may be sent as a form. Read-only commands also accept GET. A null counts as left out. A \
refusal is a problem+json object, and then nothing was done."""


def describe(version: str, root_path: str = "") -> Schema:
    """Return the OpenAPI description of the whole HTTP interface, for a server below ``root_path``."""
    return _described(version, root_path, tuple(COMMANDS.items()))


@lru_cache(maxsize=4)
def _described(version: str, root_path: str, commands: tuple[tuple[str, type[Command[Any]]], ...]) -> Schema:
    """Return what ``describe`` returns; cached, since it takes 0.2 s and a process may start many servers."""
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
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {
            **{f"/{verb}": _operations(verb, command_class) for verb, command_class in commands},
            **_other_paths(),
        },
        "components": {"schemas": _schemas(), "responses": {f"Problem{n}": r for n, r in responses.items()}},
    }


# --- schemas ---------------------------------------------------------------------------------------------


@cache
def _schemas() -> Schema:
    """Return the schemas of all requests and replies, from pydantic."""
    replies = dict.fromkeys(command_class.reply for command_class in COMMANDS.values())
    _, definitions = models_json_schema(
        [
            *((command_class, "validation") for command_class in COMMANDS.values()),
            *((command_class, "serialization") for command_class in replies),
        ],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    schemas: Schema = {}
    for name, schema in definitions["$defs"].items():
        schemas[name] = _shared(schema, schemas)
    rows = schemas["QueryReply"]
    schemas["QueryReply"] = {
        "description": rows["description"],
        "anyOf": [{"type": "array", "items": {"type": "array"}}, _bare(rows)],
    }
    return {"Problem": _PROBLEM, **schemas}


def _shared(value: Any, shared: Schema) -> Any:
    """Return part of a schema with named types moved into ``shared`` and replaced by references."""
    if isinstance(value, list):
        return [_shared(part, shared) for part in value]
    if not isinstance(value, dict):
        return value
    parts = {key: _shared(part, shared) for key, part in value.items() if key not in ("examples", "default")}
    own = {key: value[key] for key in ("examples", "default") if key in value}
    name = parts.pop(NAMED, None)
    if not isinstance(name, str):
        return {**parts, **own}
    notes = {key: parts.pop(key) for key in ("description",) if key in parts}
    notes |= {key: own.pop(key) for key in ("default",) if key in own}
    shared[name] = {**parts, **own}
    return {**ref(name), **notes}


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}


# --- operations ------------------------------------------------------------------------------------------

_TAGS = {
    "jobs": "Create, take, end and show jobs.",
    "workflows": "Jobs of which some start after others have ended.",
    "schedules": "Jobs that repeat by CRON, and actions on them.",
    "runs": "Runs of jobs, their output, and the workers.",
    "server": "The server itself.",
    "access": "Tokens, and changes by operators.",
    "messages": "Notification rules and their messages.",
}


def _operations(verb: str, command_class: type[Command[Any]]) -> Schema:
    post = _operation(verb, command_class)
    if not command_class.reads:
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


def _operation(verb: str, command_class: type[Command[Any]]) -> Schema:
    headers = [_HEADERS[name] for name in command_class.headers if name in _HEADERS]
    headers += [_PREFER] if command_class.waits else []
    return {
        **({"parameters": headers} if headers else {}),
        "operationId": verb,
        "tags": [command_class.group],
        "summary": command_class.sentence(),
        "requestBody": {
            "required": not _schemas()[verb].keys().isdisjoint({"required", "anyOf"}),
            "content": {"application/json": {"schema": ref(verb)}},
        },
        "responses": {
            "200": _done(command_class),
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
    "description": "Alternative to idempotencyKey; if both are given, they must be the same.",
    "schema": {"type": "string", "pattern": f"^[!-~]{{1,{KEY_CHARS_MAX}}}$"},
}
_PREFER: Schema = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=60`: the same as `connection: wait` with a timeout of 60 seconds.",
    "schema": {"type": "string"},
}
_IF_MATCH: Schema = {
    "name": "If-Match",
    "in": "header",
    "description": "Alternative to ifMatch, which takes precedence: entity tags from a reply to QueryJob.",
    "schema": {"type": "string", "minLength": 1},
}
_HEADERS = {header["name"]: header for header in (_IDEMPOTENCY_KEY, _IF_MATCH)}
_NEXT = 'The next page, `<...>; rel="next"`, to be requested with GET; absent on the last page.'
_ETAG = "Changes only if the reply changes."


def _done(command_class: type[Command[Any]]) -> Schema:
    content: Schema = {"application/json": {"schema": ref(command_class.reply.__name__)}}
    if command_class is Query:
        content["text/plain"] = {"schema": {"type": "string"}}
    response: Schema = {"description": "Done, and on disk.", "content": content}
    if command_class.paging is not None:
        response["headers"] = {"Link": {"description": _NEXT, "schema": {"type": "string"}}}
    if command_class.tagged:
        response["headers"] = {"ETag": {"description": _ETAG, "required": True, "schema": {"type": "string"}}}
    return response


def _refusals(*statuses: int) -> Schema:
    return {
        str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses or PROBLEMS
    }


def _refusal(status: int) -> Schema:
    response: Schema = {
        "description": PROBLEMS[status],
        "content": {"application/problem+json": {"schema": ref("Problem")}},
    }
    if status in _RETRIED:
        response["headers"] = {
            "Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer"}}
        }
    if status == 405:
        response["headers"] = {"Allow": {"required": True, "schema": {"type": "string"}}}
    return response


# --- paths other than commands -----------------------------------------------------------------------------

_ANY: Schema = {"type": "object"}
_TEXT: Schema = {"text/plain": {"schema": {"type": "string"}}}
_STREAM: Schema = {"text/event-stream": {"schema": {"type": "string"}}}
_COMES_BACK = "An interrupted stream continues after the number in `Last-Event-ID`, which wins over `after`."


_LAX: Schema = {
    "name": "lax",
    "in": "query",
    "description": "1: all that the server accepts, such as numbers as texts, and rules across parameters.",
    "schema": {"type": "string", "enum": ["0", "1"]},
}


def _other_paths() -> Schema:
    return {
        "/events": {"get": _followed("events", "Events", "EventsReply", "Events")},
        "/runs/{runID}/output": {"get": _followed("output", "ReadOutput", "OutputReply", "Lines of a run")},
        "/cronken/events": {"post": cronken.operation(_refusals())},
        "/openapi.json": {
            "get": {**_page("openapi", "This description.", "application/json", _ANY), "parameters": [_LAX]}
        },
        "/docs": {"get": _page("docs", "This description for people.", "text/html")},
        "/livez": {
            "get": _probe(
                "livez",
                "Answer 200 as long as the process runs.",
                {"200": {"description": "Always.", "content": _TEXT}},
            )
        },
        "/readyz": {
            "get": _probe(
                "readyz",
                "Answer 200 while commands are taken.",
                {
                    "200": {"description": "Ready.", "content": _TEXT},
                    "503": {"description": "Stopping.", "content": _TEXT},
                },
            )
        },
        "/status/handlingCommands": {
            "get": _probe(
                "handlingCommands",
                "Answer a load balancer as Bedrock does.",
                {
                    "200": {"description": "LEADING: commands are taken."},
                    "503": {"description": "STANDINGDOWN: the server stops."},
                },
            )
        },
    }


def _probe(name: str, summary: str, answers: Schema) -> Schema:
    """Return the operation of a health check, which ignores ``Host``."""
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
    """Return the operation that returns one page as JSON or a stream of server-sent events."""
    return {
        "operationId": operation,
        "tags": ["runs"],
        "summary": f"{what}: one page, or with `Accept: text/event-stream` a stream of new ones.",
        "description": _COMES_BACK,
        "parameters": query_of(verb, inside="runID"),
        "responses": {
            "200": {
                "description": "A page, or a continuous stream.",
                "content": {"application/json": {"schema": ref(reply)}, **_STREAM},
            },
            **_refusals(),
        },
    }


def query_of(verb: str, inside: str = "") -> list[Schema]:
    """Return a command's OpenAPI parameters: ``inside`` in the path, the others in the query."""
    request = _schemas()[verb]
    parameters = []
    for name, schema in request["properties"].items():
        place = "path" if name == inside else "query"
        bare = _in_address(_bare(schema))
        required = name in request.get("required", ())
        parameter = {"name": name, "in": place, "required": required, "schema": bare}
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append(parameter)
    return parameters


def _in_address(schema: Schema) -> Schema:
    """Return the schema of a value in a URL: never null, and integers have at most 18 digits."""
    if "anyOf" in schema:
        return {"anyOf": [_in_address(option) for option in schema["anyOf"] if option.get("type") != "null"]}
    if schema.get("type") == "integer" and "enum" not in schema:
        return {"minimum": -WHOLE_MAX, "maximum": WHOLE_MAX, **schema}
    return schema


# The strict form of the description: one canonical type per value, for client generators.
#
# The server is lenient: it accepts ``"7"`` for ``7`` and ``null`` for a parameter that is left out, and rules
# such as "cmd or argv, not both" join several parameters. A description of all that is exact, but generators
# skip what they cannot map to a type. The strict form describes what a client should send: one type for each
# value, without rules across parameters.


_ACROSS = ("allOf", "anyOf", "oneOf", "not")
"""Keywords that express rules across several properties."""

_TRUE_OR_FALSE = "^(?:[Tt]"
_BOUNDS = ("minLength", "maxLength", "pattern", "format")


def strict(description: Schema) -> Schema:
    """Return the strict form of a description of the HTTP interface."""
    schemas = description["components"]["schemas"]
    requests = _requests(description)
    strict_schemas = {name: _strict(schema, request=name in requests) for name, schema in schemas.items()}
    return {
        **description,
        "paths": {path: _paths(operations) for path, operations in description["paths"].items()},
        "components": {**description["components"], "schemas": strict_schemas},
    }


def _requests(description: Schema) -> set[str]:
    """Return the names of all schemas used in requests."""
    schemas = description["components"]["schemas"]
    names = set()
    left = [
        operation["requestBody"]["content"]["application/json"]["schema"]
        for path in description["paths"].values()
        for operation in path.values()
        if "requestBody" in operation and "application/json" in operation["requestBody"]["content"]
    ]
    while left:
        part = left.pop()
        if isinstance(part, list):
            left += part
        elif isinstance(part, dict):
            name = str(part.get("$ref", "")).rpartition("/")[2]
            if name in schemas and name not in names:
                names.add(name)
                left.append(schemas[name])
            left += part.values()
    return names


def _paths(value: Any) -> Any:
    """Return the paths, or a part of them, with every parameter and body in strict form."""
    if isinstance(value, list):
        return [_paths(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "in" in value and "schema" in value:
        return {**value, "schema": _strict(value["schema"], request=True)}
    if "requestBody" in value:
        bodies = value["requestBody"]["content"]
        content = {
            media: {**body, "schema": _strict(body["schema"], request=True)} for media, body in bodies.items()
        }
        value = {**value, "requestBody": {**value["requestBody"], "content": content}}
    return {key: part if key == "requestBody" else _paths(part) for key, part in value.items()}


def _strict(schema: Any, *, request: bool) -> Any:
    if isinstance(schema, list):
        return [_strict(part, request=request) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        return _object(schema, request)
    result = {key: part for key, part in schema.items() if key not in ("anyOf", "default" if request else "")}
    if "anyOf" in schema:
        result |= _one_of([_strict(option, request=request) for option in schema["anyOf"]], request)
    if "items" in result:
        result["items"] = _strict(result["items"], request=request)
    elif result.get("type") == "array":
        result["items"] = {}
    if result.get("type") == "object":
        result["additionalProperties"] = _strict(result.get("additionalProperties", True), request=request)
    return result


def _object(schema: Schema, request: bool) -> Schema:
    """Return an object schema without rules that involve several properties.

    The schema of a request allows no other properties. The schema of a reply allows them, since later
    versions may add properties.
    """
    result = {key: part for key, part in schema.items() if key not in _ACROSS}
    result["properties"] = {
        name: _strict(part, request=request)
        for name, part in schema["properties"].items()
        if not (request and part.get("type") == "null")  # the server refuses this property
    }
    if request:
        result["additionalProperties"] = False
    return result


def _one_of(options: list[Schema], request: bool) -> Schema:
    """Merge alternatives into one type if possible, otherwise return the alternatives that remain."""
    nothing = [option for option in options if option.get("type") == "null"]
    remaining = [option for option in options if option not in nothing and _says_something(option)]
    kinds = {option.get("type") for option in remaining}
    if "boolean" in kinds:
        remaining = [option for option in remaining if not _spells_a_boolean(option)]
    elif ("integer" in kinds and not any(map(_has_units, remaining))) or "array" in kinds:
        remaining = [option for option in remaining if option.get("type") != "string"]
    texts = [option for option in remaining if option.get("type") == "string"]
    if len(texts) > 1:
        remaining = [option for option in remaining if option not in texts]
        remaining.append({key: part for key, part in texts[0].items() if key not in _BOUNDS})
    if nothing and not request:
        remaining += nothing
    return remaining[0] if len(remaining) == 1 else {"anyOf": remaining}


def _says_something(option: Schema) -> bool:
    """Return whether an alternative is more than a way to leave the value out, such as an empty text."""
    typed = not option.keys().isdisjoint({"type", "$ref", "anyOf"})
    return typed and option.get("maxLength") != 0 and option.get("maxItems") != 0


def _spells_a_boolean(option: Schema) -> bool:
    """Return whether an alternative is another spelling of a boolean, such as ``1`` or ``"true"``."""
    texts = "true" in option.get("enum", ()) or str(option.get("pattern", "")).startswith(_TRUE_OR_FALSE)
    return option.get("type") == "integer" or texts


def _has_units(option: Schema) -> bool:
    """Return whether an alternative is a text that may have a unit, such as ``90s``.

    A text of digits only adds nothing to an integer.
    """
    return option.get("type") == "string" and "s?" in option.get("pattern", "")


# ``GET /docs``: the API reference for people.
#
# It is rendered on the server from the description in ``/openapi.json``, with its style and script inline: it
# loads nothing else and is readable without the script. The script lets readers try a command, which is sent
# like any other request with the rights of their session.


_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::(?P<port>[0-9]{1,5}))?")
_CODE = re.compile(r"`([^`]+)`")
_WHERE = "{where}"
_SHARED = {
    "Timestamp": "date",
    "Duration": "duration",
    "Repeat": "repeat",
    "Cron": "schedule",
    "RetryAfter": "modifiers",
    "Name": "name",
    "NamePattern": "name pattern",
    "NamePatterns": "list of name patterns",
}

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#55606f;--paper:#fff;--line:#d5dae1;
--fill:#f3f5f8;--link:#0b57b0}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adba;--paper:#14181e;--line:#343c47;
--fill:#1d232b;--link:#8ab8f5}}
*{box-sizing:border-box}body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--ink);
background:var(--paper)}
a{color:var(--link)}code,pre{font:14px/1.45 ui-monospace,monospace}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;flex:1;min-width:0;padding:.5rem}
header,main{padding:1rem 2rem;max-width:64rem}nav{padding:1rem 2rem;border-block:1px solid var(--line);
position:sticky;top:0;background:var(--paper)}nav label{font-weight:600}
input{font:inherit;color:inherit;background:var(--fill);border:1px solid var(--soft);border-radius:.3rem;
padding:.3rem .6rem;width:min(24rem,100%)}ul.index{columns:12rem;padding:0;list-style:none}
section{padding:.5rem 0;border-bottom:1px solid var(--line);scroll-margin-top:6rem}h3 small{color:var(--soft);
font-weight:400}table{border-collapse:collapse;width:100%;font-size:.95rem}th,td{text-align:left;
vertical-align:top;padding:.3rem .8rem .3rem 0;border-top:1px solid var(--line);overflow-wrap:anywhere}
td:first-child{white-space:nowrap}td:nth-child(2){color:var(--soft);min-width:9rem}
textarea{display:block;width:100%;
font:14px/1.45 ui-monospace,monospace;color:inherit;
background:var(--fill);border:1px solid var(--soft);border-radius:.3rem;padding:.5rem}
.try pre{max-height:24rem;overflow-y:auto;background:var(--fill)}
.line{display:flex;align-items:start;background:var(--fill);border:1px solid var(--line);
border-radius:.3rem;margin:.4rem 0}
button{font:inherit;font-size:.85rem;color:inherit;background:var(--paper);border:1px solid var(--soft);
border-radius:.3rem;margin:.35rem;padding:.1rem .6rem;cursor:pointer}summary{cursor:pointer}
:focus-visible{outline:3px solid var(--link);outline-offset:1px}[hidden]{display:none!important}
"""

_SCRIPT = """
const box=document.getElementById("search"),parts=[...document.querySelectorAll("[data-words]")],
none=document.getElementById("none");
function search(){const words=box.value.toLowerCase().split(/\\s+/).filter(Boolean);let shown=0;
for(const part of parts){const fits=words.every(word=>part.dataset.words.includes(word));part.hidden=!fits;
if(fits&&part.tagName==="SECTION")shown++}none.hidden=shown>0}
box.addEventListener("input",search);search();
document.addEventListener("keydown",event=>{if(event.key==="/"&&document.activeElement!==box){event.preventDefault();
box.focus()}else if(event.key==="Escape"&&document.activeElement===box){box.value="";search()}});
for(const line of document.querySelectorAll(".line")){const button=document.createElement("button");
button.type="button";button.textContent="Copy";button.addEventListener("click",async()=>{
const text=line.querySelector("pre").textContent;try{await navigator.clipboard.writeText(text);
button.textContent="Copied"}catch{getSelection().selectAllChildren(line.querySelector("pre"));
button.textContent="Selected"}setTimeout(()=>button.textContent="Copy",1500)});line.append(button)}
const make=(tag,more)=>Object.assign(document.createElement(tag),more);
function trial(place){const {path,role,changes}=place.dataset;const form=make("form",{className:"try"});
const label=make("label",{textContent:`Parameters, a JSON object (needs the role ${role})`});
const field=make("textarea",{rows:5,spellcheck:false,value:place.dataset.example});label.append(field);
const send=make("button",{type:"submit",textContent:changes?"Send, which changes something":"Send"});
const answer=make("pre",{hidden:true,tabIndex:0});answer.setAttribute("role","status");
form.append(label,send,answer);place.append(form);
form.addEventListener("submit",async event=>{event.preventDefault();send.disabled=true;answer.hidden=false;
answer.textContent="…";try{const got=await fetch(path,{method:"POST",
headers:{"Content-Type":"application/json",Accept:"application/json"},body:field.value||"{}"});
const text=await got.text();
const cut=text.length>CUT?text.slice(0,CUT)+"\\n… "+(text.length-CUT)+" more characters":text;
answer.textContent=`${got.status} ${got.statusText}\\n${cut}`}
catch(error){answer.textContent=`The server was not reached: ${error.message}`}send.disabled=false})}
const CUT=20000;for(const place of document.querySelectorAll("details.trial")){place.hidden=false;
place.addEventListener("toggle",()=>{if(place.open&&!place.querySelector("form"))trial(place)})}
"""


def _source(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = (
    f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The content security policy of the page: only its own style and script, and requests to this server."""


class DocsPage:
    """The API page of one server; only the server's address in it depends on the request."""

    def __init__(self, description: dict[str, Any], root_path: str = "") -> None:
        """Render the page of an OpenAPI description, for a server below ``root_path``."""
        self._root_path = root_path
        self._schemas = description["components"]["schemas"]
        self._gettable = {
            methods["get"]["operationId"]
            for methods in description["paths"].values()
            if methods.keys() >= {"get", "post"}
        }
        self._page = "".join(self._parts(description))

    def html(self, host: str) -> str:
        """Return the page for a reader who reached the server as ``host``, a name with an optional port."""
        match = _HOST.fullmatch(host)
        name, port = (match["name"], match["port"]) if match else ("localhost", str(DEFAULT_PORT))
        address = f"http://{name}{f':{port}' if port else ''}{self._root_path}"
        page = self._page.replace("{address}", escape(address))
        return page.replace(_WHERE, escape(f"{name.strip('[]')} {port or DEFAULT_PORT}"))

    def _parts(self, description: dict[str, Any]) -> Iterator[str]:
        info = description["info"]
        operations = [
            (path, method, operation)
            for path, methods in description["paths"].items()
            for method, operation in methods.items()
            if not operation["operationId"].startswith("get")
        ]
        yield (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>Commands of {escape(info['title'])}</title><style>{_STYLE}</style></head><body>"
            f"<header><h1>{escape(info['title'])} {escape(info['version'])}</h1>"
            f"<p>{_prose(info['description'])}</p>"
            f'<p><a href="{escape(self._root_path)}/ui/">Back to the pages</a>.'
            f' For programs: <a href="{escape(self._root_path)}/openapi.json">openapi.json</a>.'
            ' What may go wrong: <a href="#refusals">refusals</a>.</p></header>'
            '<nav aria-label="Commands"><label for="search">Search</label> '
            '<input id="search" type="search" autocomplete="off" placeholder="name, parameter or word">'
            "</nav><main>"
        )
        for tag in description["tags"]:
            chosen = [one for one in operations if tag["name"] in one[2]["tags"]]
            yield f"<h2>{escape(tag['name'].capitalize())}</h2><p>{_prose(tag['description'])}</p>"
            yield '<ul class="index">'
            for path, method, operation in chosen:
                words = self._words(path, operation)
                name = operation["operationId"]
                yield f'<li data-words="{words}"><a href="#{name}">{escape(_title(path, method))}</a></li>'
            yield "</ul>"
            for path, method, operation in chosen:
                yield from self._section(path, method, operation)
        yield '<p id="none" role="status" hidden>No command has all of these words.</p>'
        yield from _refusal_rows(description["components"]["responses"])
        yield f"</main><script>{_SCRIPT}</script></body></html>"

    def _words(self, path: str, operation: dict[str, Any]) -> str:
        taken = " ".join(name for name, _, _ in self._parameters(operation))
        return escape(f"{path} {operation['summary']} {taken} {' '.join(operation['tags'])}".lower())

    def _section(self, path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
        name = operation["operationId"]
        yield f'<section id="{name}" data-words="{self._words(path, operation)}">'
        yield f"<h3><code>{escape(_title(path, method))}</code></h3><p>{_prose(operation['summary'])}</p>"
        if "Link" in operation["responses"]["200"].get("headers", {}):
            yield "<p>A full page has a header <code>Link</code>: the address of the next one, for GET.</p>"
        for line in _lines(path, method, name, gettable=f"get{name}" in self._gettable):
            yield f'<div class="line"><pre>{escape(line)}</pre></div>'
        rows = [
            f"<tr><td><code>{escape(parameter)}</code></td><td>{escape(self._kind(schema))}"
            f"{', required' if required else ''}</td><td>{_prose(schema.get('description', ''))}</td></tr>"
            for parameter, schema, required in self._parameters(operation)
        ]
        if rows:
            yield "<details><summary>Parameters</summary><table><tr><th>Name<th>Value<th>Meaning</tr>"
            yield f"{''.join(rows)}</table></details>"
        yield from self._answer(operation)
        if path == f"/{name}" and name in COMMANDS:
            yield self._trial(name)
        yield "</section>"

    def _trial(self, name: str) -> str:
        """Return the form for trying a command, which the script makes visible."""
        command_class = COMMANDS[name]
        changes = "" if command_class.reads else ' data-changes="1"'
        example = escape(jsontext.dump(command_class.example.request))
        return (
            f'<details class="trial" data-path="{escape(self._root_path)}/{name}"'
            f' data-role="{command_class.role}"{changes} data-example="{example}" hidden>'
            "<summary>Try it</summary></details>"
        )

    def _parameters(self, operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
        for one in operation.get("parameters", ()):
            notes = {"description": one.get("description", "")}
            yield one["name"], {**one["schema"], **notes}, one.get("required", False)
        body = (
            operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        )
        schema = self._resolved(body)
        for name, part in schema.get("properties", {}).items():
            yield name, part, name in schema.get("required", ())

    def _answer(self, operation: dict[str, Any]) -> Iterator[str]:
        content = operation["responses"]["200"].get("content", {})
        schema = self._resolved(content.get("application/json", {}).get("schema", {}))
        rows = [
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(self._kind(part))}</td>"
            f"<td>{_prose(part.get('description', ''))}</td></tr>"
            for name, part in schema.get("properties", {}).items()
        ]
        if rows:
            yield "<details><summary>Answer</summary><table><tr><th>Name<th>Value<th>Meaning</tr>"
            yield f"{''.join(rows)}</table></details>"

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("$ref", "").rpartition("/")[2]
        return self._schemas[name] if name else schema

    def _kind(self, schema: dict[str, Any]) -> str:
        """Return a short name for a type; if there are alternatives, the name of the first one."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return _SHARED.get(name, f"object {name}")
        if "anyOf" in schema:
            return self._kind(schema["anyOf"][0])
        if "enum" in schema:
            return "one of " + ", ".join(str(value) or '""' for value in schema["enum"])
        kind = schema.get("type", "anything")
        if kind == "array":
            return f"list of: {self._kind(schema.get('items', {}))}"
        if kind == "integer":
            return "whole number" + _limits(schema.get("minimum"), schema.get("maximum"), "")
        if kind == "string":
            return "text" + _limits(schema.get("minLength"), schema.get("maxLength"), " characters")
        return str(kind)


def _limits(low: int | None, high: int | None, unit: str) -> str:
    if high is None or high > 10**12:
        return f" from {low}{unit}" if low else ""
    return f", {low} to {high}{unit}" if low is not None else f" up to {high}{unit}"


def _title(path: str, method: str) -> str:
    return path[1:] if method == "post" and path.count("/") == 1 else f"{method.upper()} {path}"


def _prose(text: str) -> str:
    """Return escaped text with `code` as HTML code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _lines(path: str, method: str, name: str, *, gettable: bool) -> Iterator[str]:
    """Yield example command lines for a request."""
    if method == "get":
        follow = "-N -H 'Accept: text/event-stream' " if name in ("events", "output") else ""
        yield f"curl {follow}{{address}}{path.replace('{runID}', '1')}"
        return
    if name == "cronken":
        yield f"curl {{address}}{path} -d {shlex.quote(jsontext.dump({'action': 'pause', 'args': 'backup'}))}"
        return
    example = COMMANDS[name].example.request
    yield f"curl {{address}}{path} -d {shlex.quote(jsontext.dump(example))}"
    if gettable:
        query = f"?{urlencode(example)}" if example else ""
        yield f"curl {shlex.quote('{address}' + path + query) if query else '{address}' + path}"
    heads = "".join(
        f"{key}: {value if isinstance(value, str) else jsontext.dump(value)}\\n"
        for key, value in example.items()
    )
    typed = shlex.quote(f"{name}\\n{heads}\\n".replace("%", "%%"))
    yield f"printf {typed} | nc -N {_WHERE}"


def _refusal_rows(responses: dict[str, Any]) -> Iterator[str]:
    yield '<h2 id="refusals">Refusals</h2><p>Each is an <code>application/problem+json</code> object with '
    yield "title, status, detail, and Bedrock's code and reason.</p><table><tr><th>Status<th>Meaning</tr>"
    for name, response in responses.items():
        status = name.removeprefix("Problem")
        yield f"<tr><td>{status}</td><td>{_prose(response['description'])}</td></tr>"
    yield "</table>"
