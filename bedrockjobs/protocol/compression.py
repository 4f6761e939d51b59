"""Answers made smaller by gzip, for clients that take it. Requests are never compressed."""

from __future__ import annotations

import asyncio
import gzip
import re

from aiohttp import web

GZIP_BYTES_MIN = 1_024
"""Size of an answer from which it is compressed: a smaller one fits into one packet anyway."""

ASIDE_BYTES = 64 * 1024
"""Size from which it is compressed in a thread, so that nobody else waits for it."""

LEVEL = 5
"""Effort: JSON becomes a tenth of its size, at about 10 ms for a megabyte."""

_TAKEN = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0{0,3})?\s*(?:,|$))[0-9.]{1,5}\s*)?(?:,|$)", re.I
)
_TEXTS = ("text/", "application/json", "application/problem+json", "application/javascript", "image/svg+xml")


def takes_gzip(accept_encoding: str) -> bool:
    """Tell whether a client takes gzip, by its ``Accept-Encoding``."""
    return bool(_TAKEN.search(accept_encoding[:1_000]))


async def compress(request: web.Request, response: web.StreamResponse) -> None:
    """Compress an answer that is not sent yet, where that is worth it and the client takes it."""
    if not isinstance(response, web.Response) or response.prepared or "Content-Encoding" in response.headers:
        return
    body = response.body
    if not isinstance(body, bytes) or len(body) <= GZIP_BYTES_MIN:
        return
    if not response.content_type.startswith(_TEXTS):
        return
    response.headers.add("Vary", "Accept-Encoding")
    if not takes_gzip(request.headers.get("Accept-Encoding", "")):
        return
    if len(body) > ASIDE_BYTES:
        response.body = await asyncio.to_thread(_gzipped, body)
    else:
        response.body = _gzipped(body)
    response.headers["Content-Encoding"] = "gzip"


def _gzipped(body: bytes) -> bytes:
    return gzip.compress(body, LEVEL, mtime=0)
