"""Messages with file handles between worker, guard and process; large texts use shared memory.

Both ends are sockets that preserve message boundaries (``SOCK_SEQPACKET``).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

INLINE_BYTES_MAX = 32_768
"""Max size sent through the socket itself; the kernel's buffers hold several times as much."""

LARGE = b"large "
"""Prefix of a message whose text is in the first handle."""


def send(way: socket.socket, word: bytes, text: bytes = b"", handles: Sequence[int] = ()) -> None:
    """Send a word without blanks, a text and handles; raises OSError."""
    if len(text) <= INLINE_BYTES_MAX:
        socket.send_fds(way, [word, b" ", text], list(handles))
        return
    large = os.memfd_create("bedrock-text", os.MFD_CLOEXEC)
    try:
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(large, rest) :]
        socket.send_fds(way, [LARGE + word], [large, *handles])
    finally:
        os.close(large)


def receive(way: socket.socket, handles_max: int) -> tuple[bytes, bytes, list[int]]:
    """Wait for a word, its text and its handles; the word is empty if the peer is gone."""
    try:
        found, handles, _, _ = socket.recv_fds(way, INLINE_BYTES_MAX + 64, handles_max + 1)
    except ConnectionResetError:
        return b"", b"", []
    for handle in handles:
        os.set_inheritable(handle, False)
    if not found.startswith(LARGE):
        word, _, text = found.partition(b" ")
        return word, text, handles
    with os.fdopen(handles[0], "rb") as file:
        file.seek(0)
        return found.removeprefix(LARGE), file.read(), handles[1:]
