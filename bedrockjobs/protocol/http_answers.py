"""HTTP replies: JSON, problems (RFC 9457), compression, links to the next page, and API documents."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.base.errors import CommandError, TooManyWrong, Unauthenticated
from bedrockjobs.commands import COMMANDS, Command, complete
from bedrockjobs.protocol.openapi import DocsPage, describe, strict
from bedrockjobs.service import VERSION


def is_browser(request: web.Request) -> bool:
    """Return whether a client asks for HTML."""
    return "text/html" in request.headers.get("Accept", "").lower()


# Compression with gzip, for clients that accept it. Compressed requests are not supported.


GZIP_BYTES_MIN = 1_024
"""Minimum bytes of a reply that is compressed; a smaller reply fits into one packet anyway."""

ASIDE_BYTES = 64 * 1024
"""Minimum bytes of a reply that is compressed in a thread, so that it does not block the event loop."""

_TAKEN = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0{0,3})?\s*(?:,|$))[0-9.]{1,5}\s*)?(?:,|$)", re.I
)
_TEXTS = ("text/", "application/json", "application/problem+json", "application/javascript", "image/svg+xml")


def takes_gzip(accept_encoding: str) -> bool:
    """Return whether ``Accept-Encoding`` permits gzip."""
    return bool(_TAKEN.search(accept_encoding[:1_000]))


def compress(request: web.Request, response: web.StreamResponse) -> None:
    """Enable compression of a reply if it is worth it and the client accepts it.

    aiohttp compresses, but its own check of ``Accept-Encoding`` ignores ``gzip;q=0``.
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


HTTP_STATUS = {
    400: 400,
    401: 400,
    402: 400,
    403: 403,
    404: 404,
    405: 409,
    412: 412,
    413: 413,
    429: 429,
    430: 404,
    500: 500,
    502: 400,
    503: 503,
    555: 504,
}
"""The HTTP status of each Bedrock code."""

JSON = "application/json"
PROBLEM = "application/problem+json"

RETRY_AFTER_S = 1
"""Value of ``Retry-After``, in seconds."""

_COME_AGAIN = (429, 503)


CHALLENGE = 'Bearer realm="bedrockjobs"'
"""``WWW-Authenticate`` of a 401."""


def status_of(error: CommandError) -> int:
    """Return the HTTP status of an error."""
    return 401 if isinstance(error, Unauthenticated) else HTTP_STATUS[error.code]


def text_response(body: str | bytes, media: str, status: int = 200) -> web.Response:
    """Return a reply for aiohttp to send; a text that is sent often is given as bytes."""
    headers = {"Content-Type": media, "Server": "bedrockjobs"}
    data = body if isinstance(body, bytes) else encoded(body)
    return web.Response(body=data, status=status, headers=headers, zlib_executor_size=ASIDE_BYTES)


def problem(error: CommandError, status: int | None = None) -> web.Response:
    """Return an error as a problem document for aiohttp to send."""
    status = status or status_of(error)
    refused = text_response(problem_text(error, status), PROBLEM, status)
    if status in _COME_AGAIN:
        refused.headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == 401:
        refused.headers["WWW-Authenticate"] = CHALLENGE
    if isinstance(error, TooManyWrong):
        refused.force_close()
    return refused


def answer_bytes(body: str, *, closes: bool) -> bytes:
    """Return the bytes of a whole reply, the same as ``text_response`` produces."""
    data = body.encode("utf-8", "replace") or b"{}"
    return b"%b%d\r\n\r\n%b" % (_head(rfc822_formatted_time(), 200, JSON, closes), len(data), data)


def problem_bytes(error: CommandError, *, closes: bool) -> bytes:
    """Return the bytes of a whole error reply, the same as ``problem`` produces."""
    status = status_of(error)
    data = encoded(problem_text(error, status))
    return b"%b%d\r\n\r\n%b" % (_head(rfc822_formatted_time(), status, PROBLEM, closes), len(data), data)


def problem_text(error: CommandError, status: int) -> str:
    """Return an error as the JSON of a problem document."""
    body = {
        "type": "about:blank",
        "title": error.reason,
        "status": status,
        "detail": error.detail or error.reason,
        "code": error.code,
        "reason": error.reason,
    }
    return jsontext.dump(body)


def encoded(body: str) -> bytes:
    """Encode a text; it may quote a header that is not valid UTF-8."""
    return body.encode(errors="replace")


@lru_cache(maxsize=64)
def _head(date: str, status: int, media: str, closes: bool) -> bytes:
    """Return the head of a reply up to ``Content-Length:``, without the value."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {media}",
        "Server: bedrockjobs",
    ]
    if status in _COME_AGAIN:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    if status == 401:
        lines.append(f"WWW-Authenticate: {CHALLENGE}")
    if closes:
        lines.append("Connection: close")
    lines += [f"Date: {date}", "Content-Length: "]
    return "\r\n".join(lines).encode()


# Pagination: a ``Link`` header (RFC 8288) to the next page.
#
# A reply has the header if its page is full, by rows or by bytes. The link is a GET with the same parameters
# and the cursor after the last row.


_NOT_REPEATED = frozenset({"connection", "timeout"})


def next_page(command: Command[Any], body: str) -> str | None:
    """Return the URL of the next page, or None for the last page and for commands without pages."""
    paging = command.paging
    if paging is None:
        return None
    rows = jsontext.elements(jsontext.members(body)[paging.rows])
    limit: int = getattr(command, "limit")  # noqa: B009 - each of them has one
    if not rows or (len(rows) < limit and len(body) < ANSWER_BYTES_MAX):
        return None
    values = jsontext.parse(command.wire())
    parameters = {name: value for name, value in values.items() if name not in _NOT_REPEATED}
    last = jsontext.parse(jsontext.members(rows[-1])[paging.key])
    return f"/{type(command).__name__}?{urlencode({**parameters, paging.cursor: last})}"


# API documents, generated at the first request.


class APIDocuments(NamedTuple):
    """The API documents of one server."""

    strict: bytes
    """``/openapi.json``: the strict form, for client generators."""
    lax: bytes
    """``/openapi.json?lax=1``: everything that the server accepts."""
    page: DocsPage
    """The page ``/docs``."""


class Documents:
    """Generates the API documents once, in a thread, since that takes half a second."""

    def __init__(self, root_path: str) -> None:
        """Generate documents with ``root_path`` in front of each path."""
        self._root_path = root_path
        self._writing: asyncio.Future[APIDocuments] | None = None
        complete()  # before a thread starts, since it is not thread-safe

    async def get(self) -> APIDocuments:
        """Return the documents."""
        if self._writing is None:
            work = asyncio.to_thread(_generate, self._root_path, tuple(COMMANDS.items()))
            self._writing = asyncio.ensure_future(work)
        return await asyncio.shield(self._writing)


@lru_cache(maxsize=4)
def _generate(root_path: str, _: tuple[tuple[str, type[Command[Any]]], ...]) -> APIDocuments:
    """Generate the documents, once per process and set of commands."""
    description = describe(VERSION, root_path)
    page = DocsPage(description, root_path)
    return APIDocuments(
        encoded(jsontext.dump(strict(description))), encoded(jsontext.dump(description)), page
    )
