"""Which protocol a connection speaks: its first line tells. It does no I/O."""

from __future__ import annotations

HTTP_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE"})
"""First words that make a connection HTTP, in exactly this spelling."""

_LONGEST_METHOD = max(map(len, HTTP_METHODS))


class FirstLine:
    """The first bytes of a connection, kept until they tell its protocol."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        """Begin without bytes."""
        self._bytes = bytearray()

    def feed(self, data: bytes) -> bool | None:
        """Take more bytes; return whether the connection is HTTP, None while that cannot be told."""
        kept = self._bytes
        kept += data
        del kept[: len(kept) - len(kept.lstrip(b"\r\n"))]
        return _is_http(kept)

    @property
    def empty(self) -> bool:
        """Tell whether nothing is kept: there was nothing but blank lines."""
        return not self._bytes

    @property
    def data(self) -> bytes:
        """Return all bytes so far, without the blank lines before the first request."""
        return bytes(self._bytes)


def _is_http(data: bytearray) -> bool | None:
    line = bytes(data[: _LONGEST_METHOD + 1])
    word, space, _ = line.partition(b" ")
    if space:
        return word in HTTP_METHODS
    if b"\n" in line or b"\r" in line or len(line) > _LONGEST_METHOD:
        return False
    return None if any(method.startswith(line) for method in HTTP_METHODS) else False
