"""The two protocols over a socket to a server in the same thread, so that its work is measured.

A client's input may be incomplete: a server may wait for more. It may not stay silent
after the end of the input, or reply with a server error.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol.connection import HTTP_METHODS
from bedrockjobs.server import Server

INPUTS_MAX = 3_000
"""Inputs that one database sees: what they create must not make the later ones slow."""

SILENCE_S = 5.0
"""Time in which a server must have ended a raw connection whose input has ended."""

ANSWER_S = 0.03
"""Time in which the first bytes of an answer over HTTP come; without them more input is awaited."""

BYTES_PER_S = 5e6
"""Pace at which a long input goes through the socket, far below what there is."""

PIECES = 8
"""Parts in which an input is sent, so that it does not come whole."""

RAW_WORDS = [
    *(b"\r\n", b"\r\n\r\n", b": ", b"\\", b"\\u0041", b"\\ud800", b"Content-Length: @", b"{}", b"["),
    *(b"CreateJob", b"CreateJobs", b"GetJob", b"QueryJob", b"name: a", b"jobs: [", b'data: {"a":1}'),
    *(b"Transfer-Encoding: chunked", b"1\r\na\r\n", b"0\r\n\r\n", b"Connection: close", b"timeout: 1"),
]
HTTP_WORDS = [
    *(*RAW_WORDS, b"%", b"%41", b"&", b"=", b"+", b"HTTP/1.1", b"GET /ListJobs?", b"POST /CreateJob "),
    *(b"Content-Type: application/x-www-form-urlencoded\r\n", b"Host: localhost\r\n", b"If-Match: *\r\n"),
    *(b"Expect: 100-continue\r\n", b"Accept-Encoding: gzip\r\n", b"Prefer: wait=1\r\n"),
]

STRANGER_WORDS = [
    *(*HTTP_WORDS, b"Authorization: Bearer bj_", b"Authorization: ", b"Authenticate\r\n", b"token: bj_"),
    *(b"Cookie: bedrockjobs_session=", b"; ", b"POST /ui/login ", b"GET /ui/", b"token=", b"&to=/ui/"),
    *(b"X-Forwarded-For: 192.0.2.7\r\n", b"POST /ping/bjp_1_", b"bjr_1_1_", b"ListJobs", b"Origin: http://"),
]

KEPT_FROM_STRANGERS = b"unseen-by-strangers"
"""The name of the one job of a server that wants tokens: no answer may have it, and no input does."""

_SESSION = re.compile(rb'(?i)set-cookie: bedrockjobs_session=(?!"")')

_FAULT = re.compile(rb"(?:^|\n)(?:HTTP/1\.1 5(?!0[03]|55)\d\d|500 )")


class _Site:
    """A server in this thread, with an event loop for its client."""

    def __init__(self, *, closed: bool) -> None:
        """Allow every client; or none without a token, if it is ``closed``."""
        self._closed = closed
        self._folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-fuzz-"))
        self._runner = asyncio.Runner()
        self._server: Server | None = None
        self._inputs = 0

    def send(self, data: bytes, *, raw: bool) -> None:
        """Send an input over a new connection, and check the reply."""
        if self._server is None or self._inputs >= INPUTS_MAX:
            self._restart()
        self._inputs += 1
        answer = self._runner.run(self._exchange(data, raw))
        if _FAULT.search(answer):
            raise AssertionError(f"the server is at fault: {answer[:300]!r}")
        if self._closed and (KEPT_FROM_STRANGERS in answer or _SESSION.search(answer)):
            raise AssertionError(f"a stranger was let in: {answer[:300]!r}")

    def close(self) -> None:
        """Stop the server and remove its database."""
        if self._server is not None:
            self._runner.run(self._server.stop())
        self._runner.close()
        logging.disable(logging.NOTSET)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _restart(self) -> None:
        if self._server is not None:
            self._runner.run(self._server.stop())
        logging.disable(logging.CRITICAL)  # refusals by the thousand are no news
        for file in self._folder.glob("*"):
            file.unlink()
        self._server = self._runner.run(self._started())
        self._inputs = 0
        if self._closed:
            job = b"CreateJob\r\nname: %b\r\n\r\n" % KEPT_FROM_STRANGERS
            root = b"CreateToken\r\nname: root\r\nroles: admin\r\n\r\n"
            made = self._runner.run(self._exchange(job + root, raw=True))
            assert made.count(b"200 OK") == 2, made

    async def _started(self) -> Server:
        database = str(self._folder / "jobs.db")
        # Each input may say where it comes from, so that not all of them are too many of one address.
        proxies = "127.0.0.1" if self._closed else ""
        settings = Settings(
            port=0, database=database, durability="relaxed", wal_bytes=0, trusted_proxies=proxies
        )
        server = Server(settings)
        await server.start()
        return server

    async def _exchange(self, data: bytes, raw: bool) -> bytes:
        assert self._server is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port, limit=1 << 26)
        answer = b""
        try:
            step = len(data) // PIECES + 1
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await asyncio.sleep(0)
            if raw:
                writer.write_eof()
                async with asyncio.timeout(SILENCE_S):
                    return await reader.read()
            async with asyncio.timeout(ANSWER_S + len(data) / BYTES_PER_S):
                answer = await reader.read(1 << 16)
        except TimeoutError:
            if raw:
                raise AssertionError("the connection stays open after the end of its input") from None
        except OSError:  # it was closed while there was still something to be sent
            return answer
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        return answer


_sites: dict[bool, _Site] = {}


def _site(*, closed: bool = False) -> _Site:
    if closed not in _sites:
        _sites[closed] = _Site(closed=closed)
    return _sites[closed]


def close() -> None:
    """Stop the started servers, which would keep the process alive."""
    while _sites:
        _sites.popitem()[1].close()


def _with_length(data: bytes) -> bytes:
    """Replace an ``@`` by the length of the body after the first head."""
    head, end, body = data.partition(b"\r\n\r\n")
    return head.replace(b"@", b"%d" % len(body)) + end + body


def read_raw(data: bytes) -> None:
    """Send a raw request, unless the first line is HTTP."""
    data = _with_length(data)
    _site().send(data, raw=_is_raw(data))


def _is_raw(data: bytes) -> bool:
    return data.lstrip(b"\r\n").partition(b" ")[0] not in HTTP_METHODS


def read_http(data: bytes) -> None:
    """Send an HTTP request."""
    _site().send(_with_length(data), raw=False)


def read_stranger(data: bytes) -> None:
    """Send either protocol to a server that requires tokens, without a token."""
    data = _with_length(data)
    _site(closed=True).send(data, raw=_is_raw(data))
