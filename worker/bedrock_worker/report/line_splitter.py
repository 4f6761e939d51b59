"""Cuts what a command prints into lines of bounded length, otherwise as it was printed. No I/O."""

from __future__ import annotations

LINE_BYTES_MAX = 4_096
"""Bytes of one line of output that are kept; the rest of the line is dropped.

Of a longer line that is written over and over, as progress bars are (``\\r``), the last state is kept.
"""

CUT = " [cut]"
"""Marks a line of which a part was dropped."""


class LineSplitter:
    """The lines of one stream, in whatever pieces it comes."""

    def __init__(self) -> None:
        """Begin with an empty line."""
        self._part = bytearray()
        self._cut = False
        self._long = False
        """Whether it is longer than what is kept, so that of its states only the last counts."""
        self._returned = False
        """Whether what comes next is written over what there is."""

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
