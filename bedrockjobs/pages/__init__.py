"""Web pages under ``/ui/``, rendered by the server and refreshed through one event stream.

A page is a module with ``PAGES``, and a template. Pages only read; actions are sent as commands over HTTP,
as by any other client. Nothing is loaded from other hosts.
"""

from __future__ import annotations

from aiohttp import web

from bedrockjobs.base.errors import NotFound
from bedrockjobs.base.settings import Settings
from bedrockjobs.pages import (
    administration,
    forms,
    job,
    jobs,
    live,
    login,
    overview,
    runs,
    schedules,
    tables,
    upcoming,
    workflows,
)
from bedrockjobs.pages.site import Site
from bedrockjobs.protocol.http_answers import is_browser
from bedrockjobs.service import VERSION, Service

_MODULES = (overview, tables, administration, forms, jobs, job, workflows, schedules, runs, upcoming)


def routes(service: Service, settings: Settings) -> list[web.RouteDef]:
    """Return the routes of the pages, the static files and the event stream."""
    site = Site(service, settings)
    pages = [site.get(path, page) for module in _MODULES for path, page in module.PAGES]
    return [
        *pages,
        web.get("/", _about),
        web.get("/ui", _to_pages),
        web.get("/ui/static/{name:.+}", site.static),
        *live.routes(site),
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
