"""Query parameters that several lists have in common."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.wire import Timestamp, stamped

TEXT_CHARS_MAX = 200
"""Maximum length of a search text."""

_STAMP: TypeAdapter[str | datetime] = TypeAdapter(Timestamp)


def time_in(given: Mapping[str, str], key: str) -> str | None:
    """Return a query parameter as a timestamp; it is UTC unless it has an offset. Raises BadArguments."""
    if key not in given:
        return None
    try:
        return stamped(_STAMP.validate_python(given[key]))
    except ValidationError:
        raise BadArguments(f"Malformed {key}", f"{key}: expected a date like 2026-11-21T03:29:56Z") from None


def text_in(given: Mapping[str, str]) -> str | None:
    """Return the search text; raises BadArguments if it is too long."""
    text = given.get("text")
    if text is not None and len(text) > TEXT_CHARS_MAX:
        raise BadArguments("Malformed text", f"text: expected at most {TEXT_CHARS_MAX} characters")
    return text


def iso(timestamp: str | None) -> str | None:
    """Return a timestamp as a query parameter."""
    return timestamp and f"{timestamp.replace(' ', 'T')}Z"
