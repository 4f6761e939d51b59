"""Pieces of Markdown that the generated pages share. Nothing here knows the product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NAMED_FROM = 8
"""Equal rows of two sections from which on the second only names them."""


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is escaped."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


class Tables:
    """Writes a table for each section of a page. Many rows that an earlier section has are only named."""

    def __init__(self, headers: Sequence[str]) -> None:
        """Begin a page whose tables have these headers."""
        self._headers = headers
        self._written: dict[str, list[Sequence[str]]] = {}

    def text(self, section: str, rows: Sequence[Sequence[str]]) -> str:
        """Return a section's table, and a line for rows that stand in another section."""
        other = max(self._written, key=lambda name: len(self._again(name, rows)), default="")
        again = self._again(other, rows)
        if len(again) < NAMED_FROM:
            again = []
        own = self._written[section] = [row for row in rows if row not in again]
        parts = [table(self._headers, own)] if own else []
        if again:
            link = f"[{other}](#{other.lower().replace(' ', '-')})"
            parts.append(f"As in {link}: {', '.join(row[0] for row in again)}.")
        return "\n\n".join(parts)

    def _again(self, section: str, rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
        written = self._written.get(section, [])
        return [row for row in rows if row in written]


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
