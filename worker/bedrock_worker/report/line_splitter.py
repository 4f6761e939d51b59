"""Splits a command's output into lines of bounded length. No I/O."""

from __future__ import annotations

LINE_BYTES_MAX = 4_096
"""Max bytes of a line; the rest is dropped.

Of a longer line that is overwritten with ``\\r``, such as a progress bar, the last state is kept.
"""

CUT = " [cut]"
"""Marks a truncated line."""


class LineSplitter:
    """Splits one stream, which arrives in pieces of any size."""

    def __init__(self) -> None:
        """Start with an empty line."""
        self._part = bytearray()
        self._cut = False
        self._long = False
        """True if the line exceeds the limit, so that only its last state is kept."""
        self._returned = False
        """True if the next bytes overwrite the line."""

    def feed(self, data: bytes) -> list[str]:
        """Add bytes and return the completed lines."""
        found: list[str] = []
        *ends, rest = data.split(b"\n")
        for piece in ends:
            self._add(piece)
            found.append(self._take())
        self._add(rest)
        return found

    def end(self) -> list[str]:
        """Return the last line, if it is not terminated."""
        return [self._take()] if self._part else []

    def _add(self, piece: bytes) -> None:
        if not self._long:
            self._part += piece
            if len(self._part) <= LINE_BYTES_MAX:
                return
            piece, self._long = bytes(self._part), True
            self._part.clear()
        text = piece.rstrip(b"\r")
        if text:
            state = text[text.rfind(b"\r") + 1 :]
            if self._returned or len(state) < len(text):
                self._part.clear()
                self._cut = False
            room = LINE_BYTES_MAX - len(self._part)
            self._part += state[:room]
            self._cut = self._cut or len(state) > room
            self._returned = False
        self._returned = self._returned or len(text) < len(piece)

    def _take(self) -> str:
        text = self._part.decode("utf-8", "replace").rstrip("\r") + (CUT if self._cut else "")
        self._part.clear()
        self._cut = self._long = self._returned = False
        return text
