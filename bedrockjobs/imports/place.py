"""Locations in a text."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The line of an item, and the lines of its keys; the first line is 1."""

    line: int
    keys: dict[str, int]
