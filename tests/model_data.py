"""Names and data as the reference model sees them: GLOB, merge patch, the marks the queue writes into data.

Works on parsed values where the server works on text; it must not import the server's ``jsontext``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def glob(pattern: str, name: str) -> bool:
    """Return whether a name matches a pattern as SQLite's GLOB does: ``*``, ``?``, ``[a-c]``, ``[^a-c]``."""
    if not pattern:
        return not name
    first, rest = pattern[0], pattern[1:]
    if first == "*":
        rest = rest.lstrip("*")
        return any(glob(rest, name[at:]) for at in range(len(name) + 1))
    if not name:
        return False
    if first == "[":
        end = _class_end(pattern)
        return end > 0 and _in_class(pattern[1:end], name[0]) and glob(pattern[end + 1 :], name[1:])
    return first in ("?", name[0]) and glob(rest, name[1:])


def _class_end(pattern: str) -> int:
    """Return where the bracket closes; a ``]`` directly after the opening is an ordinary character."""
    return pattern.find("]", 3 if pattern.startswith("[^") else 2)


def _in_class(inside: str, char: str) -> bool:
    inverted = inside.startswith("^")
    inside = inside.removeprefix("^")
    found, at, before = False, 0, ""
    if inside.startswith("]"):
        # A leading bracket is a member but begins no range.
        found, at = char == "]", 1
    while at < len(inside):
        if inside[at] == "-" and before and at + 1 < len(inside):
            found |= before <= char <= inside[at + 1]
            at, before = at + 2, ""
        else:
            found |= char == inside[at]
            at, before = at + 1, inside[at]
    return found != inverted


def matcher(name: str | None, names: list[str] | None) -> Callable[[str], bool] | None:
    """Return a function that matches names: by one GLOB, a comma list of exact names, or several GLOBs."""
    if names:
        patterns = list(names)
        return lambda own: any(glob(pattern, own) for pattern in patterns)
    exact = [part for part in (piece.strip() for piece in (name or "").split(",")) if part]
    if not exact:
        return None
    if len(exact) == 1:
        return lambda own: glob(exact[0], own)
    return lambda own: own in exact


def dump(value: Any) -> str:
    """Return a value as compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON merge patch applied (RFC 7396)."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def marked(data: str) -> bool:
    """Return whether data says that the job is mocked."""
    mark = json.loads(data).get("mockRequest")
    return mark is not None and mark is not False


def with_mark(data: str) -> str:
    """Return data with the mark of a mocked job."""
    return data if marked(data) else dump(json.loads(data) | {"mockRequest": True})


def keeping_mark(data: str, mocked: bool) -> str:
    """Return new data that keeps the job's mark, whatever the new data says."""
    return with_mark(data) if mocked else without(data, "mockRequest")


def without(data: str, member: str) -> str:
    """Return data without a member; if it has no such member, its text is unchanged."""
    value = json.loads(data)
    if member not in value:
        return data
    del value[member]
    return dump(value)


def lost_runs(data: str) -> int:
    """Return how many deliveries were counted."""
    count = json.loads(data).get("retryAfterCount")
    return count if isinstance(count, int) and not isinstance(count, bool) else 0


def untaken(data: str, before: str) -> str:
    """Return data without the changes that a take made to it."""
    now, then = json.loads(data), json.loads(before)
    for member in ("retryAfterCount", "originalNextRun"):
        if member in now and member in then:
            now[member] = then[member]
        elif member in now:
            del now[member]
    return dump(now)
