"""JSON schemas of requests as the server takes them: pydantic's, with the spellings it takes besides.

Pydantic describes a value behind its validator. A request may spell it in other ways too: ``"5"`` for 5,
``"true"``, a comma list, null for what is left out. What fits a schema is taken, as far as a schema can tell.
"""

from __future__ import annotations

from typing import Any

from bedrockjobs.base.config import (
    ARGV_MAX,
    DELAY_S_MAX,
    JOBS_PER_CREATE_MAX,
    JOBS_PER_GET_MAX,
    NAME_CHARS_MAX,
    OUTPUT_LINES_PER_APPEND_MAX,
    PATTERN_CHARS_MAX,
    PRIORITIES,
    REPEAT_CHARS_MAX,
    RUNS_PER_HEARTBEAT_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from bedrockjobs.base.wire import JOB_ID_MAX, WHOLE_MAX
from bedrockjobs.commands import AdvanceClock, GetJob, GetJobs, JobSpec, Parameters, TriggerJob, UpdateJob
from bedrockjobs.commands.runs import StopRun
from bedrockjobs.protocol.grammar import Schema, digits, ref, text_of

_NOTES = ("title", "description", "default", "examples")


# --- values ----------------------------------------------------------------------------------------------

_BOOLEAN: Schema = {
    "anyOf": [
        {"type": "boolean"},
        text_of("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|0|1"),
        {"type": "integer", "enum": [0, 1]},
    ]
}
_ONLY_TRUE: Schema = {
    "anyOf": [
        {"type": "boolean"},
        {"type": "string", "enum": ["true", "false", "0", "1"]},
        {"type": "integer", "enum": [0, 1]},
    ]
}
_OBJECT: Schema = {"anyOf": [{"type": "object"}, {"type": "array", "maxItems": 0}]}
_LINE: Schema = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"line": {"type": "string"}, "stream": {"type": "string", "enum": ["out", "err"]}},
            "required": ["line"],
        },
    ]
}


def whole(low: int | None = None, high: int | None = None) -> Schema:
    """Return the schema of a whole number, as JSON or as text of at most 18 digits."""
    number = {
        "type": "integer",
        "minimum": -WHOLE_MAX if low is None else low,
        "maximum": WHOLE_MAX if high is None else high,
    }
    low = None if low is None or low <= -WHOLE_MAX else low
    high = None if high is None or high >= WHOLE_MAX else high
    if low is None and high is None:
        text = "-?[0-9]{1,18}"
    elif high is None:
        text = {-1: "-0{0,16}[01]|[0-9]{1,18}", 0: "-0{1,17}|[0-9]{1,18}"}.get(
            low or 0, "0{0,9}[1-9][0-9]{0,8}"
        )
    elif low is None:
        text = f"-[0-9]{{1,18}}|0{{0,9}}(?:{digits(0, high)})"
    else:
        text = f"0{{0,9}}(?:{digits(low, high)})" + ("" if low else "|-0{1,17}")
    return {"anyOf": [number, text_of(text)]}


_LAX: Schema = {"anyOf": [{"type": "integer"}, {"type": "boolean"}, text_of("[0-9]{1,9}")]}
"""What a plain list of numbers takes."""

_JOB_ID: Schema = {
    "anyOf": [{"type": "integer", "minimum": 0, "maximum": JOB_ID_MAX}, text_of("0|[1-9][0-9]{0,17}")]
}

_BY_NAME: dict[str, Schema] = {
    "repeat": ref("Repeat"),
    "retryAfter": ref("RetryAfter"),
    "unique": _ONLY_TRUE,
    "names": ref("NamePatterns"),
    "thenGet": ref("NamePattern"),
    "jobIDs": {
        "anyOf": [
            {"type": "array", "items": _JOB_ID, "minItems": 1, "maxItems": JOBS_PER_CREATE_MAX},
            _JOB_ID,
        ]
    },
    "runIDs": {"anyOf": [{"type": "array", "items": _JOB_ID, "maxItems": RUNS_PER_HEARTBEAT_MAX}, _JOB_ID]},
    "lines": {
        "anyOf": [
            {"type": "array", "items": _LINE, "maxItems": OUTPUT_LINES_PER_APPEND_MAX},
            text_of(r"[^\[\s][^\n]*"),
        ]
    },
    "priority": {},
    "delay": whole(0, DELAY_S_MAX),
    "numResults": whole(None, JOBS_PER_GET_MAX),
    "argv": {
        "type": "array",
        "minItems": 1,
        "maxItems": ARGV_MAX,
        "items": text_of(r"[^\u0000]+"),
    },
    "url": {"anyOf": [text_of("https?://[!-~]+", maxLength=2_048), ref("Fetch")]},
    "lock": {"anyOf": [{"type": "boolean"}, text_of("[ -~]*", maxLength=NAME_CHARS_MAX)]},
    "tags": {
        "anyOf": [
            {
                "type": "array",
                "maxItems": TAGS_MAX,
                "items": {"type": "string", "maxLength": TAG_CHARS_MAX},
            },
            text_of(r"(?:\s{0,9}[^,\s\[][^,]{0,90}|\s{0,99})(?:,[^,]{0,99}){0,19}"),
        ]
    },
    "accepts": {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "enum": ["cmd", "argv", "url"]}, "maxItems": 100},
            text_of("|(?:cmd|argv|url)(?:,(?:cmd|argv|url)){0,9}"),
        ]
    },
}
"""Values by the name of their parameter, where pydantic cannot know what is taken."""

_BY_PLACE: dict[tuple[str, str], Schema] = {
    ("ValidateSchedule", "repeat"): {"type": "string", "minLength": 1, "maxLength": REPEAT_CHARS_MAX},
    ("GetJob", "numResults"): {"type": "null"},
    ("Fetch", "timeout"): ref("Duration"),
}


_NAMED = frozenset(
    {"JobSpec", "CreateJob", "TriggerJob", "TerminateRun", "KillRun", "RetryJob", "RequeueJobs"}
)
_TAKING = frozenset({"GetJob", "GetJobs"})


def _value(owner: str, name: str, given: Schema) -> Schema:
    """Return the schema of a parameter: what pydantic says, and the other spellings that are taken."""
    notes = {key: given[key] for key in _NOTES if key in given and key != "title"}
    notes.pop("default", None) if notes.get("default", 0) is None else None
    schema = _BY_PLACE.get((owner, name), _BY_NAME.get(name))
    schema = _spellings(_bare(given)) if schema is None else schema
    if name == "name":
        schema = ref("Name") if owner in _NAMED else ref("NamePattern") if owner in _TAKING else schema
    elif "2026-11-21 03:29:56" in str(given.get("anyOf", "")):
        schema = ref("Timestamp")
    if schema == {"type": "string"} and "GLOB" in notes.get("description", ""):
        schema = {"type": "string", "maxLength": PATTERN_CHARS_MAX}
    return {**schema, **notes}


def _bare(given: Schema) -> Schema:
    """Return a schema without its notes and without null."""
    schema = {key: value for key, value in given.items() if key not in _NOTES}
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        return _bare({**schema, **options[0]} | {"anyOf": options[0].get("anyOf", [])})
    if options:
        return {**schema, "anyOf": options}
    schema.pop("anyOf", None)
    return schema


def _spellings(schema: Schema) -> Schema:
    kind = schema.get("type")
    if kind == "integer" and "enum" in schema:
        return {"anyOf": [schema, {"type": "string", "enum": [str(value) for value in schema["enum"]]}]}
    if kind == "integer":
        low, high = (
            schema.get(key, schema.get(also)) for key, also in (("ge", "minimum"), ("le", "maximum"))
        )
        return _JOB_ID if high == JOB_ID_MAX else whole(low, high)
    if kind == "boolean":
        return _BOOLEAN
    if kind == "object":
        return _OBJECT
    if schema.get("items") == {"type": "integer"}:
        return {**schema, "items": _LAX}
    if "anyOf" in schema:  # a duration is the only value left that has several spellings
        return ref("Duration")
    return schema


def parameters(kind: type[Parameters], *, strict: bool) -> Schema:
    """Return the schema of a set of parameters; with ``strict`` others than its own are refused."""
    given = kind.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
    given.pop("$defs", None)
    required = set(given.get("required", ()))
    properties = {}
    for name, schema in given["properties"].items():
        value = _value(kind.__name__, name, schema)
        properties[name] = value if name in required else _or_null(value)
    found = {"type": "object", "properties": properties, **_rules(kind)}
    if required:
        found["required"] = sorted(required)
    if strict:
        found["additionalProperties"] = False
    if kind.__doc__:
        found["description"] = kind.__doc__.strip().splitlines()[0]
    return found


def _or_null(schema: Schema) -> Schema:
    """Return a schema that takes null too, which counts as left out."""
    notes = {key: value for key, value in schema.items() if key in _NOTES}
    bare = {key: value for key, value in schema.items() if key not in _NOTES}
    if not bare or bare.get("type") == "null":
        return schema
    options = bare["anyOf"] if set(bare) == {"anyOf"} else [bare]
    return {"anyOf": [*options, {"type": "null"}], **notes}


_GIVEN: Schema = {"type": ["string", "integer", "boolean", "array", "object"]}


def _not_together(*names: str) -> Schema:
    return {"not": {"required": list(names), "properties": dict.fromkeys(names, _GIVEN)}}


def _one_of(*names: str) -> Schema:
    return {"anyOf": [{"required": [name], "properties": {name: _GIVEN}} for name in names]}


def _left_out(*names: str, empty: tuple[Any, ...] = ()) -> Schema:
    return {"properties": {name: {"enum": [None, *empty]} for name in names}}


_OWN_COMMAND: Schema = {
    "anyOf": [_left_out("cmd", "argv"), _left_out("cmd", "url"), _left_out("argv", "url")],
}
_HOSTS: Schema = {
    "anyOf": [
        _left_out("hosts", empty=("",)),
        {
            "properties": {
                "repeat": ref("Cron"),
                "lock": {"enum": [None, "", False]},
            },
            "required": ["repeat"],
        },
    ]
}
_LOCK: Schema = {"anyOf": [_left_out("lock", empty=("", False)), _left_out("retryAfter", empty=("",))]}
_REPEATS: Schema = {
    "anyOf": [
        _left_out("repeat", empty=("",)),
        {"properties": {"retryAfter": {"enum": [None, ""]}, "parentJobID": {"enum": [None, 0]}}},
    ]
}
_PRIORITY: Schema = {
    "anyOf": [
        _left_out("priority", empty=(*sorted(PRIORITIES), *map(str, sorted(PRIORITIES)))),
        {"required": ["jobPriority"], "properties": {"jobPriority": _GIVEN}},
    ]
}


def _rules(kind: type[Parameters]) -> Schema:
    """Return what a schema can say of parameters that need or exclude each other."""
    if issubclass(kind, (GetJob, GetJobs)):
        return _one_of("name", "names")
    if issubclass(kind, StopRun):
        return _one_of("runID", "jobID", "name")
    if issubclass(kind, TriggerJob):
        return _one_of("jobID", "name")
    if issubclass(kind, AdvanceClock):
        return _not_together("seconds", "to")
    if issubclass(kind, JobSpec):
        return {"allOf": [_OWN_COMMAND, _HOSTS, _LOCK, _REPEATS, _PRIORITY]}
    if issubclass(kind, UpdateJob):
        return {"allOf": [_OWN_COMMAND]}
    return {}
