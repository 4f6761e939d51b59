"""Where in a text something stands."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The line where something begins, and those of its keys; lines count from 1."""

    line: int
    keys: dict[str, int]
