"""What a run printed, in chunks of lines: how they are written, joined and read. No SQL here.

A chunk's content is a JSON array. A string is a line; an array of a moment and a stream says when the lines
behind it came, and where they were printed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import json

PLAIN, ZLIB = "", "zlib"
"""How a content is packed."""

OUTPUT_CHUNK_BYTES = 128 * 1024
"""Output that is packed together: more hardly packs better, and a look at one line unpacks all of it."""

LEVEL = 9
"""How hard zlib tries: nobody waits for it. bz2 leaves two thirds of it, and takes much memory to unpack."""

OUTPUT_PACKED_BYTES_MIN = 2_048
"""Output of a run that has ended from which on the rest is packed: less would not get much smaller."""

LINE_END_BYTES = 1
"""What a line counts beside its text: a run that prints empty lines reaches its limit too."""


class PrintedLine(NamedTuple):
    """One line of a run."""

    at: str
    stream: str
    """``out`` or ``err``."""
    text: str


class Chunk(NamedTuple):
    """Neighbouring lines of one run, field by field as in ``schema.sql``."""

    run_id: int
    first_seq: int
    last_seq: int
    at: str
    """When the first of them came."""
    codec: str
    start: int
    """Bytes that the run had printed before them."""
    size: int
    """Bytes of them: their texts, and one for each line."""
    content: bytes

    @property
    def end(self) -> int:
        """Return the bytes that the run had printed with them."""
        return self.start + self.size


def chunk_of(run_id: int, first_seq: int, start: int, lines: Sequence[PrintedLine]) -> Chunk:
    """Return some lines as a chunk that is not packed; there is at least one."""
    size = sum(len(line.text.encode(errors="replace")) + LINE_END_BYTES for line in lines)
    last_seq = first_seq + len(lines) - 1
    content = json.encode(list(_items(lines)))
    return Chunk(run_id, first_seq, last_seq, lines[0].at, PLAIN, start, size, content)


def _items(lines: Iterable[PrintedLine]) -> Iterator[list[str] | str]:
    said: tuple[str, str] | None = None
    for at, stream, text in lines:
        if (at, stream) != said:
            said = at, stream
            yield [at, stream]
        yield text


def lines_of(codec: str, content: bytes) -> list[PrintedLine]:
    """Return the lines of a chunk; raises ValueError for what is none."""
    at = stream = ""
    found = []
    for item in json.decode(unpacked(codec, content), type=list[str | list[str]]):
        if isinstance(item, str):
            found.append(PrintedLine(at, stream, item))
        else:
            at, stream = item
    return found


def unpacked(codec: str, content: bytes) -> bytes:
    """Return a content as JSON; raises ValueError for a codec that is none of ours, or for damage."""
    if codec == PLAIN:
        return content
    if codec != ZLIB:
        raise ValueError(f"codec: expected one of ours, got {codec!r}")
    try:
        return zlib.decompress(content)
    except zlib.error as error:
        raise ValueError(str(error)) from None


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return neighbours, in their order, as one packed chunk.

    It takes some milliseconds for a hundred kilobytes, most of them without the interpreter.
    """
    first, last = chunks[0], chunks[-1]
    parts = (unpacked(chunk.codec, chunk.content)[1:-1] for chunk in chunks)
    content = zlib.compress(b"[" + b",".join(parts) + b"]", LEVEL)
    return first._replace(last_seq=last.last_seq, codec=ZLIB, size=last.end - first.start, content=content)


def neighbours(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the first of some chunks, and those behind it between which no line is missing."""
    found = list(chunks[:1])
    for chunk in chunks[1:]:
        if chunk.first_seq != found[-1].last_seq + 1:
            break
        found.append(chunk)
    return found
