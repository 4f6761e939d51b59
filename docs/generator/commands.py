"""``reference/commands.md``: every command, from its class."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bedrockjobs.base.config import JOB_ID_MAX, PRIORITIES
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import ALL, Command, Reply
from bedrockjobs.commands.base import Parameters
from bedrockjobs.commands.options import OPTIONS
from docs.generator import NOTE
from docs.generator.markdown import code, table

_INTRO = """\
# Commands

Names and values of parameters are the same everywhere: as header lines of the
[Bedrock protocol](protocol.md), as members of the JSON object of `POST /<Command>`, as `key=value` of
`bedrockjobs call`, and, in snake_case, as arguments of the Python classes in `bedrockjobs`
(`CreateJob(name=…, job_priority=…)`). `/docs` of every server lets you try them.

Every command also has `connection` and `timeout`: see [Waiting](protocol.md#waiting). What several commands
share comes once: their [parameters](#shared-parameters) and their [refusals](#shared-refusals). Refusals
that any command can return (`402 Missing …`, `402 Malformed …`, limits, a full or failing server) are
listed with the [errors](errors.md).

Each command says where it is executed:

* **write**: in a transaction; answered after its commit.
* **read**: on a read-only connection.
* **memory**: from the registry of live workers, without a database.
* **at once**: without a database.

If the reply is lost, the clients send a **repeatable** command again.

An *ID* is an integer from 0 to 2^63-1, a *time* like `2026-11-21 03:29:56`, a *duration* like `90s`, a
*priority* one of 0, 250, 500, 750, 850 and 1000; `1..255` is the length of a string in characters, or of an
array. The [protocol](protocol.md#values) has all spellings."""

_PARAMETERS = """\
## Shared parameters

They mean the same in every command that names them."""

_REFUSALS = """\
## Shared refusals"""

_SHARED = ("connection", "timeout")

_DONE_BY = {"writer": "write", "reader": "read", "presence": "memory", "at once": "at once"}

Row = tuple[str, str, str, str]


def page() -> str:
    """Return the page."""
    rows = {kind: parameters(kind) for kind in ALL}
    counts = Counter(row for found in rows.values() for row in found)
    often = {row[0]: row for row, count in reversed(counts.most_common()) if count > 1}
    shared = [row for row in counts if row in often.values()]
    users: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for kind in ALL:
        for refusal in _refusals(kind):
            users[refusal].append(kind.__name__)
    common = {refusal: names for refusal, names in users.items() if len(names) > 1}
    return (
        "\n\n".join(
            [
                NOTE,
                _INTRO,
                *_index(),
                *(_section(kind, rows[kind], shared, common) for kind in ALL),
                _PARAMETERS,
                table(("parameter", "type", "default", "meaning"), shared),
                _REFUSALS,
                table(
                    ("refusal", "when", "commands"),
                    ((*refusal, ", ".join(names)) for refusal, names in sorted(common.items())),
                ),
            ]
        )
        + "\n"
    )


def _index() -> Iterator[str]:
    """Yield a line of links for each group of commands."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for kind in ALL:
        groups[kind.group].append(f"[{kind.__name__}](#{kind.__name__.lower()})")
    yield "\n".join(f"* **{group}**: {', '.join(links)}" for group, links in groups.items())


def _refusals(kind: type[Command[Any]]) -> list[tuple[str, str]]:
    return [(code(f"{number} {reason}"), when) for number, reason, when in kind.all_refusals()]


def _section(
    kind: type[Command[Any]],
    rows: Sequence[Row],
    shared: Sequence[Row],
    common: Mapping[tuple[str, str], Sequence[str]],
) -> str:
    repeatable = ", repeatable" if kind.repeatable else ""
    parts = [f"## {kind.__name__}", f"{kind.sentence()} *{_DONE_BY[kind.where].capitalize()}{repeatable}.*"]
    own = [row for row in rows if row not in shared]
    if own:
        parts.append(table(("parameter", "type", "default", "meaning"), own))
    if others := [row[0] for row in rows if row in shared]:
        parts.append(f"**{'Also' if own else 'Parameters'}:** {', '.join(others)}.")
    parts.append(f"**Reply:** {_reply(kind.reply)}")
    if refusals := [refusal for refusal in _refusals(kind) if refusal not in common]:
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
        return "duration"
    if "anyOf" in schema:
        return " or ".join(
            type_words(one, definitions) for one in schema["anyOf"] if one.get("type") != "null"
        )
    if "enum" in schema and {*schema["enum"]} == {*PRIORITIES}:
        return "priority"
    if "enum" in schema:
        return " · ".join(code(str(one)) for one in schema["enum"])
    if "$ref" in schema:
        return "object"
    kind = schema.get("type", "any")
    if kind == "null":
        return "nothing"
    if kind == "array":
        inner = type_words(schema["items"], definitions)
        limit = f", {schema.get('minItems', 0)}..{schema['maxItems']}" if "maxItems" in schema else ""
        plural = inner if inner.endswith("`") else f"{inner.partition(',')[0]}s"
        return f"array of {plural}{limit}"
    if kind == "string" and "examples" in schema:
        return "time"
    if kind == "string" and "maxLength" in schema:
        return f"string, {schema.get('minLength', 0)}..{schema['maxLength']}"
    if kind == "integer" and (schema.get("minimum"), schema.get("maximum")) == (0, JOB_ID_MAX):
        return "ID"
    if kind == "integer" and ("minimum" in schema or "maximum" in schema):
        return f"integer{_range(schema)}"
    return str(kind)


def _range(schema: dict[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return f", up to {high}"
    if high is None:
        return f", from {low}"
    return f", {low}..{'2^63-1' if high == JOB_ID_MAX else high}"


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
    types = {name: type_words(properties[wire_name(name)], schema.get("$defs", {})) for name in fields}
    listed = _by_type({name: type_ for name, type_ in types.items() if name in required})
    also = _by_type({name: type_ for name, type_ in types.items() if name not in required})
    parts = ". Optional: ".join(group for group in (listed, also) if group)
    return f"{_doc(kind)} {'Optional: ' if not listed else ''}{parts}."


def _by_type(types: Mapping[str, str]) -> str:
    """Return members of a reply, each type once with its members."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, type_ in types.items():
        found[type_].append(code(wire_name(name)))
    return "; ".join(f"{type_}: {', '.join(names)}" for type_, names in found.items())


def _doc(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _answer(kind: type[Command[Any]]) -> str:
    return code(_json(kind.example.reply)) if kind.reply.model_fields else "no body"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
