"""Web pages under ``/ui/``, rendered by the server and refreshed through one event stream.

A page is a module with ``PAGES``, and a template. Pages only read; actions are sent as commands over HTTP,
as by any other client. Nothing is loaded from other hosts.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from aiohttp import web

from bedrockjobs.base.errors import NotFound, TooMany
from bedrockjobs.base.principal import Principal, TokenShares
from bedrockjobs.base.settings import Settings
from bedrockjobs.pages import forms, job, jobs, login, overview, runs, schedules, tables, workflows
from bedrockjobs.pages.site import HEADERS, Site
from bedrockjobs.protocol.authentication import caller_of, cut
from bedrockjobs.protocol.http_answers import is_browser
from bedrockjobs.service import VERSION, Service

_MODULES = (overview, tables, forms, jobs, job, workflows, schedules, runs)


def routes(service: Service, settings: Settings) -> list[web.RouteDef]:
    """Return the routes of the pages, the static files and the event stream."""
    site = Site(service, settings)
    pages = [site.get(path, page) for module in _MODULES for path, page in module.PAGES]
    return [
        *pages,
        web.get("/", _about),
        web.get("/ui", _to_pages),
        web.get("/ui/static/{name:.+}", site.static),
        web.get("/ui/live", _PageStreams(site).stream, allow_head=False),
        *login.routes(site),
        *forms.routes(site),
        site.get("/ui/{unknown:.+}", _unknown),
    ]


async def _unknown(_: Site, request: web.Request) -> web.StreamResponse:
    """Answer 404: with an error page for browsers, without one for other clients."""
    if not is_browser(request):
        raise web.HTTPNotFound
    # The error page shows up to 200 characters of an unknown path.
    raise NotFound("No such page", f"There is no page {request.path[:200]}")


async def _to_pages(_: web.Request) -> web.Response:
    """Redirect ``/ui`` to the first page, by a relative URL that works behind a proxy with a path prefix."""
    return web.Response(status=302, headers={"Location": "ui/", "Vary": "Accept"})


async def _about(request: web.Request) -> web.Response:
    """Answer ``GET /``: redirect browsers to the pages, describe the service to other clients."""
    if is_browser(request):
        return await _to_pages(request)
    lines = (
        f"bedrockjobs {VERSION}",
        "POST /<Command> with a JSON object; /docs and /openapi.json describe the commands.",
    )
    headers = {"Vary": "Accept", "Server": "bedrockjobs"}
    return web.Response(text="\n".join(lines) + "\n", headers=headers)


# The live refresh: ``GET /ui/live`` signals that something changed, without details.
#
# Pages then reload their sections. The table ``events`` cannot be the signal, since it lacks most new and
# finished jobs.


STREAMS_MAX = 1_000
"""Maximum streams at a time, each of which is a connection; pages without a stream are not refreshed."""

POLL_S = 1.0
"""Seconds between checks for changes: people read no faster."""


class _PageStreams:
    """The streams of one server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.service.access
        self._streams = TokenShares("Too many streams")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Stream until the client disconnects, its session ends, or the server drains."""
        caller = caller_of(request, self._access)
        try:
            self._streams.begin(caller.name, STREAMS_MAX)
        except TooMany as error:
            return web.Response(status=429, text=f"{error.reason}\n", headers=HEADERS)
        end = partial(cut, request)
        caller.grant.ends.add(end)
        try:
            headers = {**HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
            response = web.StreamResponse(headers={**headers, "X-Accel-Buffering": "no"})
            await response.prepare(request)
            await response.write(b"retry: 2000\n\n")  # milliseconds until a page reconnects after its end
            with suppress(ConnectionError):
                await self._send_changes(response, caller)
            return response
        finally:
            self._streams.remove(caller.name)
            caller.grant.ends.discard(end)

    async def _send_changes(self, response: web.StreamResponse, caller: Principal) -> None:
        of_names = caller.scope is not None
        seen, quiet_s = 0 if of_names else self._done(), 0.0
        # Pages are refreshed at least every 15 s, since with time alone jobs become due and workers silent;
        # pages of tokens with a scope exactly every 5 s, so that they do not tell when other jobs change.
        at_least_s = 5.0 if of_names else 15.0
        while self._access.is_still_allowed(caller) and not self._site.service.draining:
            await asyncio.sleep(POLL_S)
            quiet_s += POLL_S
            done = 0 if of_names else self._done()
            if done != seen or quiet_s >= at_least_s:
                seen, quiet_s = done, 0.0
                await response.write(f"event: changed\ndata: {done}\n\n".encode())

    def _done(self) -> int:
        """Return the number of write commands, without those that the pages sent while they were rendered."""
        done: int = self._site.service.status()["commands"]
        return done - self._site.asked.commands
