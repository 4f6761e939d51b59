"""Plain requests over HTTP, straight from aiohttp's parser to their command and back.

Nearly all requests are a ``POST /<Command>`` with a small JSON object, whose headers say nothing special, and
nearly all answers are small. They need no route, no middleware, no task and no response object. Whatever else
comes goes the usual way, ``http``. Both read commands and word answers by the same functions. It does no I/O.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import StreamReader

from bedrockjobs.base.config import CONNECTION_BYTES_FREE, HOSTS_REMEMBERED_MAX
from bedrockjobs.base.errors import BadArguments, CommandError
from bedrockjobs.commands import COMMANDS, Authenticate, Command
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol.compression import GZIP_BYTES_MIN
from bedrockjobs.protocol.gate import Gate
from bedrockjobs.protocol.host_check import Origins
from bedrockjobs.protocol.http_answers import JSON, answer_bytes, problem_bytes

_MEANINGLESS = frozenset(
    {b"accept", b"accept-encoding", b"accept-language", b"authorization", b"connection", b"user-agent"}
)
"""Headers that change nothing here: who asks is found by ``Gate`` where that matters, what ``Connection``
means by the parser, and answers that are small enough to be plain are not compressed."""


class FastPath:
    """Knows which requests are plain."""

    def __init__(self, origins: Origins, gate: Gate, root_path: str = "") -> None:
        """Let in whom ``origins`` and the ``gate`` let in; paths may begin with ``root_path``."""
        self._origins = origins
        self.gate = gate
        self._hosts: set[bytes] = set()
        self._other_hosts: set[bytes] = set()
        """Names under which only those with a token may ask."""
        plain = [
            kind
            for kind in COMMANDS.values()
            if not kind.tagged and kind.paging is None and kind is not Authenticate
        ]
        self._kinds = {f"{root}/{kind.__name__}": kind for kind in plain for root in ("", root_path)}

    def kind_of(self, message: object, payload: StreamReader) -> type[Command[Any]] | None:
        """Return the kind of command that a plain request asks for; None where it is not plain."""
        if not isinstance(message, RawRequestMessage):  # what the parser found at fault
            return None
        kind = self._kinds.get(message.path)
        if (
            kind is None
            or message.method != "POST"
            or message.version != HttpVersion11
            or message.upgrade
            or not payload.is_eof()
        ):
            return None
        host = None
        for name, value in message.raw_headers:
            name = name.lower()
            if name == b"host" and host is None:
                host = value
            elif name == b"content-length":
                if len(value) > len(str(CONNECTION_BYTES_FREE)) or int(value) > CONNECTION_BYTES_FREE:
                    return None
            elif name == b"content-type":
                if value != b"application/json":
                    return None
            elif name not in _MEANINGLESS:
                return None
        return kind if host is not None and (host in self._hosts or self._lets_in(host)) else None

    def _lets_in(self, host: bytes) -> bool:
        origins = self._origins
        if host not in self._other_hosts:
            known = origins.is_known(host.decode("latin-1"))
            hosts = self._hosts if known else self._other_hosts
            if len(hosts) >= HOSTS_REMEMBERED_MAX:
                return False
            hosts.add(host)
            if known:
                return True
        return self.gate.needs_token and not origins.local_only

    @staticmethod
    def read(kind: type[Command[Any]], payload: StreamReader) -> Command[Any]:
        """Return the command of a plain request; raises CommandError."""
        return kind.read_json(text_of(payload.read_nowait()))

    @staticmethod
    def answer(outcome: Outcome, *, closes: bool) -> bytes | None:
        """Return a whole answer, behind which the connection ``closes``; None where it is not plain."""
        if isinstance(outcome, CommandError):
            return problem_bytes(outcome, closes=closes)
        if len(outcome.body) > GZIP_BYTES_MIN or outcome.media != JSON:
            return None
        return answer_bytes(outcome.body or "{}", closes=closes)


def text_of(body: bytes) -> str:
    """Return a body as text; raises BadArguments."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadArguments("Malformed body", "body: expected UTF-8") from None


class HandedOver(NamedTuple):
    """A request that turned out not to be plain when it was read or done: the usual way goes on with it."""

    command: Command[Any]
    answer: Answer | None = None
    """What is to be answered, where it is done already."""
