"""The HTTP interface described as OpenAPI 3.1, from the command classes alone."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from bedrockjobs.commands import COMMANDS, Command

_PROBLEM = {
    "type": "object",
    "description": "A refusal (RFC 9457), with Bedrock's code and reason.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "integer"},
        "reason": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail", "code", "reason"],
}


def describe(version: str) -> dict[str, Any]:
    """Return the description of all commands."""
    models: list[tuple[type[Any], JsonSchemaMode]] = []
    for kind in COMMANDS.values():
        models += [(kind, "validation"), (kind.reply, "serialization")]
    refs, definitions = models_json_schema(models, by_alias=True, ref_template="#/components/schemas/{model}")
    schemas = definitions.get("$defs", {})
    for verb in COMMANDS:
        if verb in schemas:
            schemas[verb]["additionalProperties"] = False
    schemas["Problem"] = _PROBLEM
    paths = {f"/{verb}": {"post": _operation(verb, kind, refs)} for verb, kind in COMMANDS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "bedrockjobs",
            "version": version,
            "description": "A durable job queue. Every command is a POST with a JSON object.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(verb: str, kind: type[Command[Any]], refs: dict[Any, Any]) -> dict[str, Any]:
    problem = {
        "description": "Refused; nothing was done.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    sentence = (kind.__doc__ or "").strip().splitlines()[0]
    return {
        "operationId": verb,
        "summary": sentence,
        "requestBody": {
            "required": False,
            "content": {"application/json": {"schema": refs[kind, "validation"]}},
        },
        "responses": {
            "200": {
                "description": "Done, and on disk.",
                "content": {"application/json": {"schema": refs[kind.reply, "serialization"]}},
            },
            "202": {"description": "Accepted with `connection: forget`; not yet done."},
            "default": problem,
        },
    }
