"""The strict form of the description: one canonical type for each value, for tools that generate clients.

The server is lenient: it takes ``"7"`` for ``7`` and ``null`` for a parameter that is left out, and rules
such as "cmd or argv, not both" join several parameters. A description that says all of this is exact, but
code generators skip what they cannot turn into a type. The strict form says what a client should send: one
type for each value, without the rules that join several.
"""

from __future__ import annotations

from typing import Any

from bedrockjobs.base.shapes import Schema

_ACROSS = ("allOf", "anyOf", "oneOf", "not")
"""Rules of an object that join several of its properties."""

_TRUE_OR_FALSE = "^(?:[Tt]"
_BOUNDS = ("minLength", "maxLength", "pattern", "format")


def strict(description: Schema) -> Schema:
    """Return the strict form of a description of the HTTP interface."""
    schemas = description["components"]["schemas"]
    requests = _requests(description)
    found = {name: _strict(schema, request=name in requests) for name, schema in schemas.items()}
    return {
        **description,
        "paths": {path: _paths(operations) for path, operations in description["paths"].items()},
        "components": {**description["components"], "schemas": found},
    }


def _requests(description: Schema) -> set[str]:
    """Return the names of the schemas that requests consist of."""
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
    """Return a part of the paths, with the strict form of each parameter and body."""
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
    found = {key: part for key, part in schema.items() if key not in ("anyOf", "default" if request else "")}
    if "anyOf" in schema:
        found |= _one_of([_strict(option, request=request) for option in schema["anyOf"]], request)
    if "items" in found:
        found["items"] = _strict(found["items"], request=request)
    elif found.get("type") == "array":
        found["items"] = {}
    if found.get("type") == "object":
        found["additionalProperties"] = _strict(found.get("additionalProperties", True), request=request)
    return found


def _object(schema: Schema, request: bool) -> Schema:
    """Return an object without rules across its properties; only an answer may get more of them later."""
    found = {key: part for key, part in schema.items() if key not in _ACROSS}
    found["properties"] = {
        name: _strict(part, request=request)
        for name, part in schema["properties"].items()
        if not (request and part.get("type") == "null")  # refused if it is given
    }
    if request:
        found["additionalProperties"] = False
    return found


def _one_of(options: list[Schema], request: bool) -> Schema:
    """Return one type for a value, or the types that a client may choose from."""
    nothing = [option for option in options if option.get("type") == "null"]
    given = [option for option in options if option not in nothing and _says_something(option)]
    kinds = {option.get("type") for option in given}
    if "boolean" in kinds:
        given = [option for option in given if not _spells_a_boolean(option)]
    elif ("integer" in kinds and not any(map(_has_units, given))) or "array" in kinds:
        given = [option for option in given if option.get("type") != "string"]
    texts = [option for option in given if option.get("type") == "string"]
    if len(texts) > 1:
        given = [option for option in given if option not in texts]
        given.append({key: part for key, part in texts[0].items() if key not in _BOUNDS})
    if nothing and not request:
        given += nothing
    return given[0] if len(given) == 1 else {"anyOf": given}


def _says_something(option: Schema) -> bool:
    """Tell whether an option is more than another way to leave a value out, such as an empty text."""
    typed = not option.keys().isdisjoint({"type", "$ref", "anyOf"})
    return typed and option.get("maxLength") != 0 and option.get("maxItems") != 0


def _spells_a_boolean(option: Schema) -> bool:
    """Tell whether an option is ``1`` or ``"true"``, in place of ``true``."""
    texts = "true" in option.get("enum", ()) or str(option.get("pattern", "")).startswith(_TRUE_OR_FALSE)
    return option.get("type") == "integer" or texts


def _has_units(option: Schema) -> bool:
    """Tell whether a text says more than a number would: ``90s`` is a duration, ``7`` only a number."""
    return option.get("type") == "string" and "s?" in option.get("pattern", "")
