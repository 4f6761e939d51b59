"""What addresses of lists have in common: times, and which jobs or runs are asked for.

Pure but for the refusal of what cannot be read; it knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from bedrockjobs.base.errors import BadArguments
from bedrockjobs.base.wire import Timestamp, stamped

TEXT_CHARS_MAX = 200
"""Characters of a text that is sought in data or output."""

_STAMP: TypeAdapter[str | datetime] = TypeAdapter(Timestamp)


def time_in(given: Mapping[str, str], key: str) -> str | None:
    """Return the stamp of a time in an address, which is UTC unless it says otherwise.

    Raises BadArguments.
    """
    if key not in given:
        return None
    try:
        return stamped(_STAMP.validate_python(given[key]))
    except ValidationError:
        raise BadArguments(f"Malformed {key}", f"{key}: expected a date like 2026-11-21T03:29:56Z") from None


def text_in(given: Mapping[str, str]) -> str | None:
    """Return the text that is sought; raises BadArguments where it is too long."""
    text = given.get("text")
    if text is not None and len(text) > TEXT_CHARS_MAX:
        raise BadArguments("Malformed text", f"text: expected at most {TEXT_CHARS_MAX} characters")
    return text


def iso(stamp: str | None) -> str | None:
    """Return a stamp as an address has it."""
    return stamp and f"{stamp.replace(' ', 'T')}Z"
