"""What is wrong with a schedule, in words that name the field, the value and what was expected.

It knows no grammar; the readers of the two dialects fill it in.
"""

from __future__ import annotations

AROUND = " \t\r\n"
"""What may stand before and behind a schedule without being part of it: also the end of a line of a file."""

VALUE_SHOWN_MAX = 100
"""Characters of a bad value that a message repeats; more would bury the sentence."""


class BadSchedule(ValueError):
    """A schedule cannot be read, or can never fire."""

    def __init__(self, field: str, value: str, expected: str, range: str = "") -> None:
        """Refuse ``value`` of ``field``; ``range`` is like ``0-59``, empty where a field has none."""
        self.field = field
        self.value = value
        self.expected = expected
        self.range = range
        shown = value if len(value) <= VALUE_SHOWN_MAX else value[:VALUE_SHOWN_MAX] + "…"
        within = f" (range {range})" if range and range not in expected else ""
        super().__init__(f"{field} {shown!r}: expected {expected}{within}")

    def __reduce__(self) -> tuple[type[BadSchedule], tuple[str, str, str, str]]:
        """Pickle by the four arguments; the default would pass the message alone."""
        return type(self), (self.field, self.value, self.expected, self.range)
