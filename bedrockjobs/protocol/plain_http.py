"""Plain HTTP requests: what their heads mean, and the bytes of their answers. It does no I/O.

Most requests are a ``POST /<Command>`` with a small JSON object and headers without special meaning, and most
answers are small. Such requests need no route, middleware, task or response object: the connection reads them
here and answers them itself. It hands every other request to aiohttp (``http``). Both ways read commands and
encode answers with the same functions.

The grammar for heads is narrower than HTTP's. A head that does not match it is left to aiohttp together with
everything that follows on the connection, so the two parsers can never disagree about where a request ends.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any, NamedTuple

from yarl import URL

from bedrockjobs.base.config import (
    CONNECTION_BYTES_FREE,
    FORM_FIELDS_MAX,
    HEAD_REMEMBERED_BYTES_MAX,
    HEADS_REMEMBERED_MAX,
)
from bedrockjobs.base.errors import BadArguments, CommandError
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, Authenticate, Command
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol.compression import GZIP_BYTES_MIN, takes_gzip
from bedrockjobs.protocol.gate import Gate
from bedrockjobs.protocol.host_check import Origins
from bedrockjobs.protocol.http_answers import JSON, answer_bytes, problem_bytes

_START = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.1")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_DIGITS = re.compile(rb"[0-9]{1,15}")

_MEANINGLESS = frozenset({b"accept", b"accept-language", b"user-agent"})
"""Headers that never change what a command does or how it is answered."""

_SINGLE = frozenset({b"host", b"content-length", b"content-type", b"authorization", b"connection"})
"""Headers that a plain request has at most once."""

_UNFRAMED = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
"""Headers after which only aiohttp knows where the request ends."""

_JSON_TYPES = frozenset(
    {b"", JSON.encode(), b"application/json; charset=utf-8", b"application/json;charset=utf-8"}
)
_FORM_TYPE = b"application/x-www-form-urlencoded"


class Head(NamedTuple):
    """What the head of a request means."""

    kind: type[Command[Any]] | None
    """The command of a plain request; None if aiohttp has to answer it."""
    body_bytes: int
    """Size of the body."""
    authorization: bytes
    known_host: bool
    """Whether everybody may ask under its ``Host``; under any other only clients with a token may."""
    closes: bool
    """Whether the connection ends after the answer."""
    gzip: bool
    """Whether the client accepts a compressed answer."""
    form: bool
    """Whether the body is called a form."""


class PlainHTTP:
    """Parses heads, and remembers those that clients send again and again."""

    def __init__(self, origins: Origins, gate: Gate, settings: Settings, root_path: str = "") -> None:
        """Accept requests that ``origins`` and ``gate`` let in; paths may begin with ``root_path``."""
        self._origins = origins
        self.gate = gate
        self._headers_max = settings.headers_max
        self._cache: OrderedDict[bytes, Head] = OrderedDict()
        self._kinds = {
            f"{root}/{kind.__name__}".encode(): kind
            for kind in COMMANDS.values()
            if not kind.tagged and kind.paging is None and kind is not Authenticate
            for root in ("", root_path)
        }

    def head(self, data: bytes) -> Head | None:
        """Return what a head without its final blank line means.

        None if it does not match the narrow grammar: then aiohttp gets the rest of the connection.
        """
        known = self._cache.get(data)
        if known is None:
            known = self._parse(data)
            if known is not None and len(data) <= HEAD_REMEMBERED_BYTES_MAX:
                if len(self._cache) >= HEADS_REMEMBERED_MAX:
                    self._cache.popitem(last=False)
                self._cache[data] = known
        return known

    def _parse(self, data: bytes) -> Head | None:
        first, *lines = data.split(b"\r\n")
        start = _START.fullmatch(first)
        if start is None or len(lines) > self._headers_max:
            return None
        plain = start[1] == b"POST"
        headers: dict[bytes, bytes] = {}
        for line in lines:
            header = _HEADER.fullmatch(line)
            if header is None:
                return None
            name, value = header[1].lower(), header[2].strip(b" \t")
            if name in _UNFRAMED or (name in _SINGLE and name in headers):
                return None
            plain &= name in _SINGLE or name in _MEANINGLESS or name == b"accept-encoding"
            headers[name] = headers[name] + b"," + value if name in headers else value
        length = headers.get(b"content-length", b"0")
        connection = headers.get(b"connection", b"").lower()
        if not _DIGITS.fullmatch(length) or connection not in (b"", b"keep-alive", b"close"):
            return None
        content_type = headers.get(b"content-type", b"").lower()
        form = content_type == _FORM_TYPE
        plain &= (form or content_type in _JSON_TYPES) and int(length) <= CONNECTION_BYTES_FREE
        host = headers.get(b"host")
        plain &= host is not None
        return Head(
            self._kinds.get(start[2]) if plain else None,
            int(length),
            headers.get(b"authorization", b""),
            host is not None and self._origins.is_known(host.decode("latin-1")),
            connection == b"close",
            takes_gzip(headers.get(b"accept-encoding", b"").decode("latin-1")),
            form,
        )

    def is_plain(self, head: Head) -> bool:
        """Tell whether a request with this head needs nothing of aiohttp."""
        if head.kind is None or head.known_host:
            return head.kind is not None
        return self.gate.needs_token and not self._origins.local_only

    @staticmethod
    def read(head: Head, body: bytes) -> Command[Any]:
        """Return the command of a plain request; raises CommandError."""
        assert head.kind is not None
        return read_body(head.kind, text_of(body), form=head.form)

    @staticmethod
    def answer(outcome: Outcome, *, closes: bool, gzip: bool) -> bytes | None:
        """Return a whole answer, after which the connection ``closes``; None if aiohttp has to write it."""
        if isinstance(outcome, CommandError):
            return problem_bytes(outcome, closes=closes)
        size = len(outcome.body)
        if outcome.media != JSON or size > (GZIP_BYTES_MIN if gzip else CONNECTION_BYTES_FREE):
            return None
        return answer_bytes(outcome.body or "{}", closes=closes)


def read_body(
    kind: type[Command[Any]], text: str, defaults: dict[str, Any] | None = None, *, form: bool
) -> Command[Any]:
    """Return the command in a body that is JSON or a form; raises CommandError."""
    if form and not text.lstrip().startswith(("{", "[")):  # curl -d calls JSON a form
        if text.count("&") >= FORM_FIELDS_MAX:
            raise BadArguments("Malformed body", f"body: expected at most {FORM_FIELDS_MAX} fields")
        if "%%" in text:
            raise BadArguments("Malformed body", "body: expected two hexadecimal digits after each %")
        return kind.read_form(dict(URL.build(query_string=text, encoded=True).query), defaults or {})
    return kind.read_json(text, defaults)


def text_of(body: bytes) -> str:
    """Return a body as text; raises BadArguments."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadArguments("Malformed body", "body: expected UTF-8") from None


class HandedOver(NamedTuple):
    """A request that was read, and maybe done, before it turned out not to be plain; aiohttp answers it."""

    command: Command[Any]
    answer: Answer | None = None
    """The answer, if the command is done already."""
