"""Output of runs in chunks of lines: encoding, compaction and decoding.

The content of a chunk is a JSON array. A string in it is a line; an array gives the timestamp and stream of
the lines that follow it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import json

PLAIN, ZLIB = "", "zlib"
"""Codecs of the content."""

OUTPUT_CHUNK_BYTES = 128 * 1024
"""Target bytes of a compacted chunk: larger chunks hardly compress better, and a read unpacks a whole one."""


OUTPUT_PACKED_BYTES_MIN = 2_048
"""Minimum bytes of a finished run's output to compact it; less output would hardly get smaller."""


class PrintedLine(NamedTuple):
    """One line of output."""

    at: str
    stream: str
    """``out`` or ``err``."""
    text: str


class Chunk(NamedTuple):
    """Consecutive lines of one run, with the columns of ``schema.sql``."""

    run_id: int
    first_seq: int
    last_seq: int
    at: str
    """Timestamp of the first line."""
    codec: str
    start: int
    """Bytes printed before this chunk."""
    size: int
    """Bytes of the texts, plus one per line."""
    content: bytes

    @property
    def end(self) -> int:
        """Return the bytes printed up to the end of this chunk."""
        return self.start + self.size


def chunk_of(run_id: int, first_seq: int, start: int, lines: Sequence[PrintedLine]) -> Chunk:
    """Encode one or more lines as an uncompressed chunk."""
    # Each line counts one byte more than its text, so that empty lines count towards the limit.
    size = sum(len(line.text.encode(errors="replace")) + 1 for line in lines)
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
    """Decode a chunk; raises ValueError if it is invalid."""
    at = stream = ""
    found = []
    for item in json.decode(unpacked(codec, content), type=list[str | list[str]]):
        if isinstance(item, str):
            found.append(PrintedLine(at, stream, item))
        else:
            at, stream = item
    return found


def unpacked(codec: str, content: bytes) -> bytes:
    """Return the JSON content of a chunk, decompressed; raises ValueError for an unknown codec or damage."""
    if codec == PLAIN:
        return content
    if codec != ZLIB:
        raise ValueError(f"codec: expected one of ours, got {codec!r}")
    try:
        return zlib.decompress(content)
    except zlib.error as error:
        raise ValueError(str(error)) from None


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Compact consecutive chunks into one chunk.

    Compacting a hundred kilobytes takes some milliseconds, mostly without the GIL.
    """
    first, last = chunks[0], chunks[-1]
    parts = (unpacked(chunk.codec, chunk.content)[1:-1] for chunk in chunks)
    # The best level, since no client waits. bz2 saves another third, but needs much memory to unpack.
    content = zlib.compress(b"[" + b",".join(parts) + b"]", level=9)
    return first._replace(last_seq=last.last_seq, codec=ZLIB, size=last.end - first.start, content=content)


def neighbours(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the leading chunks that follow each other without a gap."""
    found = list(chunks[:1])
    for chunk in chunks[1:]:
        if chunk.first_seq != found[-1].last_seq + 1:
            break
        found.append(chunk)
    return found
