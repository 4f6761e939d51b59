"""What is answered over HTTP: JSON texts, and refusals as ``application/problem+json`` (RFC 9457)."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError, TooManyWrong, Unauthenticated
from bedrockjobs.protocol.compression import ASIDE_BYTES

HTTP_STATUS = {
    400: 400, 401: 400, 402: 400, 403: 403, 404: 404, 405: 409, 412: 412, 413: 413, 429: 429, 430: 404,
    500: 500, 502: 400, 503: 503, 555: 504,
}  # fmt: skip
"""The HTTP status of each Bedrock code."""

JSON = "application/json"
PROBLEM = "application/problem+json"

RETRY_AFTER_S = 1
"""What a client is told that should come again."""

_COME_AGAIN = (429, 503)


UNAUTHENTICATED = 401
CHALLENGE = 'Bearer realm="bedrockjobs"'
"""What somebody is told of whom nobody knows who it is."""


def status_of(error: CommandError) -> int:
    """Return the HTTP status of a refusal."""
    return UNAUTHENTICATED if isinstance(error, Unauthenticated) else HTTP_STATUS[error.code]


def text_response(body: str, media: str, status: int = 200) -> web.Response:
    """Return an answer for aiohttp to send."""
    headers = {"Content-Type": media, "Server": "bedrockjobs"}
    return web.Response(body=encoded(body), status=status, headers=headers, zlib_executor_size=ASIDE_BYTES)


def problem(error: CommandError, status: int | None = None) -> web.Response:
    """Return a refusal for aiohttp to send."""
    status = status or status_of(error)
    refused = text_response(problem_text(error, status), PROBLEM, status)
    if status in _COME_AGAIN:
        refused.headers["Retry-After"] = str(RETRY_AFTER_S)
    if status == UNAUTHENTICATED:
        refused.headers["WWW-Authenticate"] = CHALLENGE
    if isinstance(error, TooManyWrong):
        refused.force_close()
    return refused


def answer_bytes(body: str, *, closes: bool) -> bytes:
    """Return a whole answer, as ``text_response`` would be sent."""
    return _whole(_head(200, JSON, closes), body)


def problem_bytes(error: CommandError, *, closes: bool) -> bytes:
    """Return a whole refusal, as ``problem`` would be sent."""
    status = status_of(error)
    return _whole(_head(status, PROBLEM, closes), problem_text(error, status))


def _whole(head: bytes, body: str) -> bytes:
    data = encoded(body)
    date = rfc822_formatted_time().encode()
    return b"%bDate: %b\r\nContent-Length: %d\r\n\r\n%b" % (head, date, len(data), data)


def problem_text(error: CommandError, status: int) -> str:
    """Return the JSON of a refusal."""
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
    """Return a text as bytes: it may quote a header that is not UTF-8."""
    return body.encode(errors="replace")


@cache
def _head(status: int, media: str, closes: bool) -> bytes:
    """Return what is the same in the heads of many answers."""
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {media}",
        "Server: bedrockjobs",
    ]
    if status in _COME_AGAIN:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    if status == UNAUTHENTICATED:
        lines.append(f"WWW-Authenticate: {CHALLENGE}")
    if closes:
        lines.append("Connection: close")
    return "".join(f"{line}\r\n" for line in lines).encode()
