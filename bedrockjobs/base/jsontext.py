"""JSON objects handled as text, so that a job's data keeps the spelling it came in.

``2.50``, ``12345678901234567890`` and the order of keys survive every change made here. Only the members
that change are written anew.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any

from pydantic_core import from_json

from bedrockjobs.base.config import JSON_DEPTH_MAX

quoted: Callable[[str], str] = encode_basestring
"""Return a string as JSON text, with non-ASCII characters as they are."""

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_HUGE_NUMBER = re.compile(r"[eE]\+?\d{3}|\d{300}")


ENVELOPE_LEVELS = 3
"""Levels that a request may have around the data of a job: the body, its ``jobs``, and one of them."""


def parse(text: str, *, levels: int = JSON_DEPTH_MAX) -> Any:
    """Return the value of a JSON text.

    Raises ValueError where it is not JSON (also NaN, lone surrogates, raw control characters), nests deeper
    than ``levels`` or holds a number that a double cannot.
    """
    try:
        value = from_json(text, allow_inf_nan=False)
    except TypeError:  # what it says of a text that is no UTF-8
        raise ValueError("half of a surrogate pair") from None
    if text.count("{") + text.count("[") > levels and _depth(value) > levels:
        raise ValueError(f"nested deeper than {levels} levels")
    if _HUGE_NUMBER.search(text) and not _finite(value):
        raise ValueError("a number is beyond the range of a double")
    return value


def check_object(text: str, *, levels: int = JSON_DEPTH_MAX) -> None:
    """Raise ValueError unless ``text`` is one JSON object within the limits of ``parse``."""
    if not isinstance(parse(text, levels=levels), dict):
        raise ValueError("not a JSON object")  # noqa: TRY004


def members(text: str) -> dict[str, str]:
    """Split the text of a valid JSON object: each key with the text of its value, in order; the last wins."""
    found: dict[str, str] = {}
    at = _BLANK.match(text, _BLANK.match(text, 0).end() + 1).end()  # type: ignore[union-attr]
    while text[at] != "}":
        key, at = scanstring(text, at + 1, True)
        at = _BLANK.match(text, _BLANK.match(text, at).end() + 1).end()  # type: ignore[union-attr]
        _, end = _DECODER.raw_decode(text, at)
        found.pop(key, None)
        found[key] = text[at:end]
        at = _BLANK.match(text, end).end()  # type: ignore[union-attr]
        if text[at] == ",":
            at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]
    return found


def elements(text: str) -> list[str]:
    """Split the text of a valid JSON array into the texts of its elements."""
    found: list[str] = []
    at = _BLANK.match(text, _BLANK.match(text, 0).end() + 1).end()  # type: ignore[union-attr]
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        found.append(text[at:end])
        at = _BLANK.match(text, end).end()  # type: ignore[union-attr]
        if text[at] == ",":
            at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]
    return found


def join(parts: dict[str, str]) -> str:
    """Return the object that has these members, each value given as JSON text."""
    return "{" + ",".join(f"{quoted(key)}:{value}" for key, value in parts.items()) + "}"


def dump(value: Any) -> str:
    """Return a value as compact JSON text, with non-ASCII characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def with_members(text: str, changes: dict[str, str | None]) -> str:
    """Return the object with members set to a JSON text, or removed where the change is None."""
    parts = members(text)
    for key, value in changes.items():
        if value is None:
            parts.pop(key, None)
        else:
            parts[key] = value
    return join(parts)


def merge_patch(target: str, patch: str) -> str:
    """Return ``target`` with the JSON merge patch ``patch`` applied (RFC 7396); both are objects."""
    parts = members(target)
    for key, value in members(patch).items():
        if value == "null":
            parts.pop(key, None)
        elif value.startswith("{"):
            below = parts.get(key, "{}")
            parts[key] = merge_patch(below if below.startswith("{") else "{}", value)
        else:
            parts[key] = value
    return join(parts)


def _depth(value: Any) -> int:
    """Return how many levels of objects and arrays a value has."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            else:
                continue
        if not any(isinstance(item, (dict, list)) for item in level):
            break
        depth += 1
        level = below
    return depth


def _finite(value: Any) -> bool:
    """Tell whether every number in a value fits a double."""
    if isinstance(value, dict):
        return all(_finite(item) for item in value.values())
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return True
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
