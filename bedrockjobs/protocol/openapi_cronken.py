"""The description of ``POST /cronken/events``, whose requests are Cronken's and not ours."""

from __future__ import annotations

from bedrockjobs.base.config import DURATION_S_MAX
from bedrockjobs.base.shapes import Schema, digits, ref


def operation(refusals: Schema) -> Schema:
    """Return the operation, with the refusals that all have."""
    return {
        "operationId": "cronken",
        "tags": ["schedules"],
        "summary": "Do an event of Cronken's control channel, as it is.",
        "parameters": [
            {
                "name": "weekday_0",
                "in": "query",
                "description": "Which day a 0 is in a cronstring; sunday if left out.",
                "schema": {"type": "string", "enum": ["sunday", "monday"]},
            }
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _CRONKEN_EVENT}}},
        "responses": {
            "200": {
                "description": "Done.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            **refusals,
        },
    }


def _event(actions: list[str], args: Schema | None) -> Schema:
    found: Schema = {
        "type": "object",
        "properties": {"action": {"type": "string", "enum": actions}},
        "required": ["action"],
    }
    if args is not None:
        found["properties"]["args"] = args
        found["required"] = ["action", "args"]
    return found


_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_CRONKEN_FIELDS = {"second": 59, "minute": 59, "hour": 23, "day": 28, "month": 12, "day_of_week": 6}
_CRONKEN_CRON: Schema = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "cronstring": {
                    "type": "string",
                    "pattern": r"^(?:@never|@daily|@hourly|(?:\*|[1-5]?[0-9]) (?:\*|1?[0-9]) \* \* \*)$",
                }
            },
            "required": ["cronstring"],
        },
        {
            "type": "object",
            "properties": {
                name: {"type": ["string", "null"], "pattern": f"^(?:\\*|{digits(1, high)})$"}
                for name, high in _CRONKEN_FIELDS.items()
            },
            "minProperties": 1,
        },
    ]
}
_CRONKEN_JOB: Schema = {
    "type": "object",
    "properties": {
        "cron_args": _CRONKEN_CRON,
        "job_args": {
            "type": "object",
            "properties": {
                "cmd": {"type": "string", "minLength": 1, "maxLength": 65_536},
                "lock": {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^[ -~]*$"}]},
                "ttl": {"type": "integer", "minimum": 0, "maximum": DURATION_S_MAX},
            },
            "required": ["cmd", "lock", "ttl"],
            "additionalProperties": False,
        },
        "job_state": {
            "anyOf": [
                {"type": "object", "properties": {"paused": {}}, "additionalProperties": False},
                {"enum": [None, False, "", 0]},
                {"type": "array", "maxItems": 0},
            ]
        },
    },
    "required": ["cron_args", "job_args"],
    "additionalProperties": False,
}
_CRONKEN_EVENT: Schema = {
    "anyOf": [
        _event(["pause", "resume", "trigger", "remove"], ref("Name")),
        _event(["terminate_run", "kill_run"], {"type": "integer", "minimum": 0}),
        _event(["validate", "drain_nodes"], _TEXTS),
        _event(["reload"], None),
        _event(
            ["add"],
            {
                "type": "object",
                "properties": {"job_name": ref("Name"), "job_def": _CRONKEN_JOB},
                "required": ["job_name", "job_def"],
                "additionalProperties": False,
            },
        ),
    ]
}
