"""Answers made smaller by gzip, for clients that take it. Requests are never compressed."""

from __future__ import annotations

import re

from aiohttp import web

GZIP_BYTES_MIN = 1_024
"""Size of an answer from which it is compressed: a smaller one fits into one packet anyway."""

ASIDE_BYTES = 64 * 1024
"""Size from which it is compressed in a thread, so that nobody else waits for it."""

_TAKEN = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0{0,3})?\s*(?:,|$))[0-9.]{1,5}\s*)?(?:,|$)", re.I
)
_TEXTS = ("text/", "application/json", "application/problem+json", "application/javascript", "image/svg+xml")


def takes_gzip(accept_encoding: str) -> bool:
    """Tell whether a client takes gzip, by its ``Accept-Encoding``."""
    return bool(_TAKEN.search(accept_encoding[:1_000]))


def compress(request: web.Request, response: web.StreamResponse) -> None:
    """Let an answer that is not sent yet be compressed, where that is worth it and the client takes it.

    aiohttp does it; only which client takes it is found here, for it passes over ``gzip;q=0``.
    """
    if not isinstance(response, web.Response) or response.prepared:
        return
    body = response.body
    if not isinstance(body, bytes) or len(body) <= GZIP_BYTES_MIN:
        return
    if response.content_type.startswith(_TEXTS):
        response.headers.add("Vary", "Accept-Encoding")
        if takes_gzip(request.headers.get("Accept-Encoding", "")):
            response.enable_compression(web.ContentCoding.gzip)
