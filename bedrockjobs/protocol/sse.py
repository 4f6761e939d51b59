"""Server-sent events: ``GET /events`` and ``GET /runs/{runID}/output``.

A stream is a sequence of waiting reads, each starting where the previous one ended, so a client that
reconnects with ``Last-Event-ID`` misses nothing. A client that does not ask for a stream gets one page as
JSON.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from bedrockjobs.base.config import STREAM_BYTES_MAX
from bedrockjobs.base.errors import BadArguments, CommandError
from bedrockjobs.base.principal import Principal, TokenShares
from bedrockjobs.commands import Command, Events, ReadOutput
from bedrockjobs.engine.access import Access
from bedrockjobs.engine.authorization import admit
from bedrockjobs.protocol.authentication import caller_of, cut
from bedrockjobs.protocol.http_connection import AiohttpProtocol
from bedrockjobs.views import Views, render

STREAMS_MAX = 1_000
"""Maximum number of concurrent streams: each keeps a connection, and reads the database at every event."""

KEEP_ALIVE_S = 15
"""Seconds between comments on an idle stream, which keep proxies from dropping it."""

STREAM_ROWS_MAX = 100
"""Maximum number of rows per write, fewer if the rows are long; the next read waits until they are sent."""

_NUMBER = re.compile(r"[0-9]{1,18}")
_STREAM = "text/event-stream"
_SERVER = {"Server": "bedrockjobs"}
_C = TypeVar("_C", Events, ReadOutput)


def routes(
    views: Views, access: Access, *, streams_max: int = STREAMS_MAX, keep_alive_s: float = KEEP_ALIVE_S
) -> list[web.RouteDef]:
    """Return the routes; their handlers raise CommandError only before a stream starts."""
    streams = _Streams(views, access, streams_max, keep_alive_s)
    return [
        web.get("/events", streams.events, allow_head=False),
        web.get("/runs/{runID}/output", streams.output, allow_head=False),
    ]


class _Streams:
    """The streams of one server."""

    def __init__(self, views: Views, access: Access, streams_max: int, keep_alive_s: float) -> None:
        self._views = views
        self._access = access
        self._streams_max = streams_max
        self._wait = {"connection": "wait", "timeout": round(keep_alive_s * 1000)}
        self._streams = TokenShares("Too many streams")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Answer ``GET /events``: each event with its kind and ID."""
        command = _parse(Events, request, {})
        caller = caller_of(request, self._access)
        command, views = admit(caller, command), self._views.seen_by(caller)
        if _asks_for_stream(request):
            return await self._stream(request, self._new_events(views, command), caller)
        return await _page(views, command)

    async def output(self, request: web.Request) -> web.StreamResponse:
        """Answer ``GET /runs/{runID}/output``: each line with its number, and ``end`` after the run."""
        command = _parse(ReadOutput, request, {"runID": request.match_info["runID"]})
        caller = caller_of(request, self._access)
        command, views = admit(caller, command), self._views.seen_by(caller)
        if _asks_for_stream(request):
            return await self._stream(request, self._new_lines(views, command), caller)
        return await _page(views, command)

    async def _new_events(self, views: Views, command: Events) -> AsyncGenerator[bytes]:
        page = await views.events(_next_command(command, {"connection": None}), bytes_max=STREAM_BYTES_MAX)
        while True:
            data = _joined([_block(row[0], row[2], render.event(row)) for row in page.events], page.reached)
            following = _next_command(command, {**self._wait, "after": page.reached})
            del page  # free it while a slow client reads
            yield data
            del data
            page = await views.events(following, again=True, bytes_max=STREAM_BYTES_MAX)

    async def _new_lines(self, views: Views, command: ReadOutput) -> AsyncGenerator[bytes]:
        page = await views.output(_next_command(command, {"connection": None}), bytes_max=STREAM_BYTES_MAX)
        reached = command.after
        while True:
            reached = page.lines[-1][0] if page.lines else reached
            data = _joined([_block(row[0], "line", render.line(row)) for row in page.lines], reached)
            end = page.status if page.ended else None
            del page  # free it while a slow client reads
            yield data
            del data
            if end is not None:
                yield f'event: end\ndata: {{"status":"{end}"}}\n\n'.encode()
                return
            following = _next_command(command, {**self._wait, "after": reached})
            page = await views.output(following, again=True, bytes_max=STREAM_BYTES_MAX)

    async def _stream(
        self, request: web.Request, blocks: AsyncGenerator[bytes], caller: Principal
    ) -> web.StreamResponse:
        """Write blocks until they end or fail, the client disconnects, the server drains or access ends.

        An error after the start ends the stream; a client that reconnects gets the error as its reply.
        """
        self._streams.begin(caller.name, self._streams_max)
        begun: web.StreamResponse | None = None
        end = partial(cut, request)
        caller.grant.ends.add(end)
        try:
            async with aclosing(blocks):
                async for data in blocks:
                    if begun is None:
                        begun = await _open_stream(request)
                    await _write(request, begun, data)
                    del data
                    if self._views.ended or not self._access.is_still_allowed(caller):
                        break
        except CommandError:
            if begun is None:
                raise
        finally:
            self._streams.remove(caller.name)
            caller.grant.ends.discard(end)
        assert begun is not None
        return begun


async def _page(views: Views, command: Command[Any]) -> web.Response:
    answer = await views.answer(command)
    return web.Response(text=answer.body, content_type=answer.media, headers=_SERVER)


async def _open_stream(request: web.Request) -> web.StreamResponse:
    headers = {"Content-Type": _STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no", **_SERVER}
    response = web.StreamResponse(headers=headers)
    if isinstance(request.protocol, AiohttpProtocol):
        request.protocol.connection.waits()
    await response.prepare(request)
    await _write(request, response, b"retry: 2000\n\n")
    return response


async def _write(request: web.Request, response: web.StreamResponse, data: bytes) -> None:
    """Write data and wait until it is sent; meanwhile it counts as memory of the connection."""
    if isinstance(request.protocol, AiohttpProtocol):
        request.protocol.connection.writes(len(data))
    await response.write(data)
    await request.writer.drain()


def _asks_for_stream(request: web.Request) -> bool:
    return _STREAM in request.headers.get("Accept", "").lower()


def _parse(command_class: type[_C], request: web.Request, defaults: dict[str, str]) -> _C:
    """Return the command in the query string; ``Last-Event-ID`` takes precedence over ``after``."""
    query = {name: value for name, value in request.query.items() if name not in defaults}
    last = request.headers.get("Last-Event-ID", "")
    if last and not _NUMBER.fullmatch(last):
        raise BadArguments("Malformed Last-Event-ID", "Last-Event-ID: expected digits, as in an id")
    command = command_class.read_form(query, defaults)
    return command.model_copy(update={"after": int(last)}) if last else command


def _next_command(command: _C, changes: dict[str, Any]) -> _C:
    """Return the command for the next read of a stream."""
    return command.model_copy(update={"limit": min(command.limit, STREAM_ROWS_MAX), **changes})


def _block(number: int, kind: str, data: str) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n"


def _joined(blocks: list[str], reached: int) -> bytes:
    """Return the blocks as bytes, or a comment with the position if there are no blocks."""
    return ("".join(blocks) or f": {reached}\nid: {reached}\n\n").encode()
