"""Lengths of time as people type them: ``90s``, ``5m``, ``1h30m``, ``2d``, ``+90 SECONDS``, ``90``."""

from __future__ import annotations

import re

WORDS = "a duration like 90s, 5m, 1h30m or +90 SECONDS, or a number of seconds"

_SHORT = re.compile(
    r"(?=.*[0-9])(?:(?P<d>\d{1,9})d)?(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m)?(?:(?P<s>\d{1,9}(?:\.\d{1,6})?)s?)?",
    re.ASCII,
)
_LONG = re.compile(r"\+ ?(\d{1,9}) (second|minute|hour|day)s?", re.ASCII)
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


DAY_S = 86_400


def days_text(seconds: float) -> str:
    """Return seconds as a person types a long duration: ``30d`` where they are whole days, else ``1h30m``."""
    return f"{seconds // DAY_S:.0f}d" if seconds and seconds % DAY_S == 0 else duration_text(seconds)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a duration, or None where it is none."""
    text = " ".join(text.lower().split())
    if long := _LONG.fullmatch(text):
        return float(int(long[1]) * _SECONDS[long[2][0]])
    found = _SHORT.fullmatch(text)
    if found is None:
        return None
    return sum(float(number) * _SECONDS[unit] for unit, number in found.groupdict().items() if number)


def duration_text(seconds: float) -> str:
    """Return seconds as a duration is typed: ``1h30m``, ``2.5s``."""
    whole, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"
