"""Pieces of Markdown that the generated pages share. Nothing here knows the product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is escaped."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    """Return a text as it may stand in a table's cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text as code, empty for an empty text."""
    return f"`{text}`" if text else ""


def size(number: int) -> str:
    """Return a number of bytes as people read it: ``16 MiB``."""
    for unit, factor in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if number >= factor and number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} bytes"
