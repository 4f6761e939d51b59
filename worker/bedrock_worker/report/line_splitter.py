"""Cuts what a command prints into lines of bounded length, otherwise as it was printed. No I/O."""

from __future__ import annotations

LINE_BYTES_MAX = 4_096
"""Bytes of one line of output that are kept; the rest of the line is dropped."""

CUT = " [cut]"
"""Marks a line of which a part was dropped."""


class LineSplitter:
    """The lines of one stream, in whatever pieces it comes."""

    def __init__(self) -> None:
        """Begin with an empty line."""
        self._part = bytearray()
        self._cut = False

    def feed(self, data: bytes) -> list[str]:
        """Take what came and return the lines that are whole now."""
        found: list[str] = []
        *ends, rest = data.split(b"\n")
        for piece in ends:
            self._add(piece)
            found.append(self._take())
        self._add(rest)
        return found

    def end(self) -> list[str]:
        """Return the last line, if it had no end."""
        return [self._take()] if self._part else []

    def _add(self, piece: bytes) -> None:
        room = LINE_BYTES_MAX - len(self._part)
        self._part += piece[:room]
        self._cut = self._cut or len(piece) > room

    def _take(self) -> str:
        text = self._part.decode("utf-8", "replace").removesuffix("\r") + (CUT if self._cut else "")
        self._part.clear()
        self._cut = False
        return text
