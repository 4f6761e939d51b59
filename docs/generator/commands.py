"""``reference/commands.md``: every command, from its class."""

from __future__ import annotations

import json
from typing import Any

from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import ALL, Command, Reply
from bedrockjobs.commands.base import Parameters
from bedrockjobs.commands.options import OPTIONS
from docs.generator import NOTE
from docs.generator.markdown import Tables, code, table

_INTRO = """\
# Commands

Names and values of parameters are the same everywhere: as header lines of the
[Bedrock protocol](protocol.md), as members of the JSON object of `POST /<Command>`, as `key=value` of
`bedrockjobs call`, and, in snake_case, as arguments of the Python classes in `bedrockjobs`
(`CreateJob(name=…, job_priority=…)`).

Every command also has `connection` and `timeout`: see [Waiting](protocol.md#waiting). Refusals that any
command can return (`402 Missing …`, `402 Malformed …`, limits, a full or failing server) are listed with
the [errors](errors.md); each command lists its own.

Where a command is executed:

* **write**: in a transaction; answered after its commit.
* **read**: on a read-only connection.
* **memory**: from the registry of live workers, without a database.
* **at once**: without a database.

If the reply is lost, the clients send a **repeatable** command again."""

_SHARED = ("connection", "timeout")

_DONE_BY = {"writer": "write", "reader": "read", "presence": "memory", "at once": "at once"}


def page() -> str:
    """Return the page."""
    index = table(
        ("command", "what it does", "executed", "repeatable"),
        (
            (
                f"[{kind.__name__}](#{kind.__name__.lower()})",
                kind.sentence(),
                _DONE_BY[kind.where],
                "yes" if kind.repeatable else "no",
            )
            for kind in ALL
        ),
    )
    tables = Tables(("parameter", "type", "default", "meaning"))
    return "\n\n".join([NOTE, _INTRO, index, *(_section(kind, tables) for kind in ALL)]) + "\n"


def _section(kind: type[Command[Any]], tables: Tables) -> str:
    parts = [f"## {kind.__name__}", kind.sentence()]
    rows = parameters(kind)
    parts.append(tables.text(kind.__name__, rows) if rows else "No parameters.")
    parts.append(f"**Reply:** {_reply(kind.reply)}")
    refusals = [(code(f"{number} {reason}"), when) for number, reason, when in kind.all_refusals()]
    if refusals:
        parts.append(table(("refusal", "when"), refusals))
    parts.append(f"**Example:** {code(_json(kind.example.request))} returns {_answer(kind)}.")
    return "\n\n".join(parts)


def parameters(kind: type[Parameters]) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and meaning of a command's own parameters."""
    schema = kind.model_json_schema(by_alias=True, mode="serialization")  # what it is, not how it is spelled
    rows = []
    for name, field in kind.model_fields.items():
        if name in _SHARED:
            continue
        alias = wire_name(name)
        words = type_words(schema["properties"][alias], schema.get("$defs", {}))
        rows.append((code(alias), words, _default(field), field.description or ""))
    options = {code(name) for name in OPTIONS}
    return sorted(rows, key=lambda row: (row[2] != "required", row[0] in options))


def type_words(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Return a JSON schema in a few words."""
    if "anyOf" in schema and "examples" in schema:
        return f"duration, `{schema['examples'][0]}`"
    if "anyOf" in schema:
        return " or ".join(
            type_words(one, definitions) for one in schema["anyOf"] if one.get("type") != "null"
        )
    if "enum" in schema:
        return " · ".join(code(str(one)) for one in schema["enum"])
    if "$ref" in schema:
        return "object"
    kind = schema.get("type", "any")
    if kind == "null":
        return "nothing"
    if kind == "array":
        inner = type_words(schema["items"], definitions)
        limit = f", {schema.get('minItems', 0)} to {schema['maxItems']}" if "maxItems" in schema else ""
        plural = inner if inner.endswith("`") else f"{inner.partition(',')[0]}s"
        return f"array of {plural}{limit}"
    if kind == "string" and "examples" in schema:
        return f"time, `{schema['examples'][0]}`"
    if kind == "string" and "maxLength" in schema:
        return f"string, {schema.get('minLength', 0)} to {schema['maxLength']} characters"
    if kind == "integer" and ("minimum" in schema or "maximum" in schema):
        return f"integer{_range(schema)}"
    return str(kind)


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high == 2**63 - 1:
        return f", {low} to 2^63-1"
    if low is None:
        return f", up to {high}"
    return f", {low} to {high}" if high is not None else f", from {low}"


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.default
    if default in (None, ""):
        return ""
    return code(default if isinstance(default, str) else json.dumps(default))


def _reply(kind: type[Reply]) -> str:
    fields = kind.model_fields
    if not fields:
        return "no body (`{}` over HTTP)."
    schema = kind.model_json_schema(by_alias=True, mode="serialization")
    properties = schema.get("properties") or schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
    required = [name for name, field in fields.items() if field.is_required()]
    listed = [_reply_part(name, properties, schema.get("$defs", {})) for name in fields if name in required]
    also = [_reply_part(name, properties, schema.get("$defs", {})) for name in fields if name not in required]
    parts = "; optionally ".join(", ".join(group) for group in (listed, also) if group)
    return f"{_doc(kind)} {parts}."


def _reply_part(name: str, properties: dict[str, Any], definitions: dict[str, Any]) -> str:
    alias = wire_name(name)
    return f"{code(alias)} ({type_words(properties[alias], definitions)})"


def _doc(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _answer(kind: type[Command[Any]]) -> str:
    return code(_json(kind.example.reply)) if kind.reply.model_fields else "no body"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
