"""The parts shared by all pages: headers, static files, links, and sending commands."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from bedrockjobs.base.clock import offset_seconds_of
from bedrockjobs.base.config import TEXT_CHARS_MAX
from bedrockjobs.base.errors import BadArguments, CommandError
from bedrockjobs.base.principal import ANONYMOUS, Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import Timestamp, stamped
from bedrockjobs.commands import COMMANDS, Command
from bedrockjobs.engine.authorization import may_ask
from bedrockjobs.pages.templates import templates
from bedrockjobs.protocol.authentication import caller_of
from bedrockjobs.protocol.http_answers import ASIDE_BYTES
from bedrockjobs.service import VERSION, Service

# Query parameters that several lists have in common.


_STAMP: TypeAdapter[str | datetime | timedelta] = TypeAdapter(Timestamp)


def time_in(query: Mapping[str, str], key: str, now: str) -> str | None:
    """Return a query parameter as a timestamp, or None if it is not given; raises BadArguments.

    A time without an offset is in UTC; one like ``-24h`` counts from ``now``.
    """
    if key not in query:
        return None
    try:
        return stamped(_STAMP.validate_python(query[key]), now)
    except ValidationError:
        raise BadArguments(
            f"Malformed {key}", f"{key}: expected a date like 2026-11-21T03:29:56Z or -24h"
        ) from None


_TOKEN = re.compile(r'(?:([a-z]+):)?("[^"]*"|\S+)')

PRESETS = ("15m", "1h", "24h", "7d")
"""Ranges of time before now that a list offers as filters."""


def preset_in(request: web.Request) -> str:
    """Return which of ``PRESETS`` is the filter of a list; empty if none is."""
    since = request.query.get("from", "").removeprefix("-")
    return since if since in PRESETS and not request.query.get("to") else ""


def follow_tokens(request: web.Request, keys: Mapping[str, str]) -> None:
    """If the search box contains filters as words, raise HTTPSeeOther to the page with these filters.

    A name like ``mail/* since:24h text:"no route"`` becomes a name and other query parameters. ``keys`` has
    the words that may come before a colon, each with its parameter; any other word is part of the name.
    """
    found: dict[str, str] = {}
    words: list[str] = []
    for match in _TOKEN.finditer(request.query.get("name", "")):
        if match[1] in keys:
            found[keys[match[1]]] = match[2].strip('"')
        else:
            words.append(match[0])
    if not found:
        return
    for key in ("from", "to"):
        if key in found and offset_seconds_of(found[key]) is not None:  # 24h, not a date
            found[key] = f"-{found[key].lstrip('-')}"
    kept = {key: value for key, value in request.query.items() if key not in ("name", "before", "runsBefore")}
    location = _query({**kept, "name": " ".join(words), **found}) or "?"
    raise web.HTTPSeeOther(location, headers=HEADERS)


def text_in(query: Mapping[str, str]) -> str | None:
    """Return the search text; raises BadArguments if it is too long."""
    text = query.get("text")
    if text is not None and len(text) > TEXT_CHARS_MAX:
        raise BadArguments("Malformed text", f"text: expected at most {TEXT_CHARS_MAX} characters")
    return text


FOLDER = Path(__file__).parent

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""Scripts, styles and requests are limited to this server; inline scripts are blocked."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Server": "bedrockjobs",
}
"""Headers of every response."""


def json_answer(value: Any) -> web.Response:
    """Return a response with a value as JSON; its texts may have lone surrogates, as a browser sends them."""
    headers = {**HEADERS, "Cache-Control": "no-store"}
    text = json.dumps(value, separators=(",", ":"))
    return web.Response(text=text, content_type="application/json", headers=headers)


GROUPS = (
    ("", (("ui/", "Overview", "o"),)),
    (
        "Work",
        (
            ("ui/queues", "Queues", "q"),
            ("ui/jobs", "Jobs", "j"),
            ("ui/runs", "Runs", "r"),
            ("ui/failures", "Failures", "f"),
            ("ui/workflows", "Workflows", "l"),
        ),
    ),
    ("Time", (("ui/schedules", "Schedules", "s"), ("ui/upcoming", "Upcoming", "u"))),
    (
        "System",
        (
            ("ui/workers", "Workers", "w"),
            ("ui/events", "Events", "e"),
            ("ui/limits", "Limits", "i"),
            ("ui/kept", "Retention", "t"),
            ("ui/notifications", "Notifications", "n"),
            ("ui/access", "Access", "a"),
        ),
    ),
)
"""The navigation: groups of pages. A page has a path, a title, and the key to press after ``g``."""

NAVIGATION = tuple(page for _, pages in GROUPS for page in pages)
"""All pages of the navigation."""

NEEDED = {
    "ui/workers": "ListWorkers",
    "ui/limits": "ListLimits",
    "ui/kept": "ListRetention",
    "ui/notifications": "ListRules",
    "ui/access": "ListTokens",
}
"""The command that a page needs; the page is not linked for callers that may not send it."""

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
_STATUS = {400: 400, 402: 400, 403: 403, 404: 404, 405: 409, 429: 429, 503: 503, 555: 504}

Page = Callable[["Site", web.Request], Awaitable[web.StreamResponse]]
"""A page handler; a CommandError becomes an error page."""

Pages = tuple[tuple[str, Page], ...]
"""The routes of a module: paths that begin with ``/ui/``, and their handlers."""


class OwnWrites:
    """Counts the write commands that rendering a page sends; these are no reason to refresh pages."""

    commands = 0


class Site:
    """What page handlers need, limited to what one caller may see."""

    def __init__(self, service: Service, settings: Settings) -> None:
        """Create a site that may see everything; ``seen_by`` returns limited ones."""
        self.service = service
        self.settings = settings
        self.asked = OwnWrites()
        self.caller = Principal(service.access.everything, "")
        """The caller whose request is answered."""
        self.views = service.views
        """The views, limited to what the caller may see."""
        self._files, self._marks = _static_files()
        self._templates = templates()
        self._templates.globals.update(version=VERSION)

    def seen_by(self, caller: Principal) -> Site:
        """Return this site limited to what a caller may see."""
        site = copy.copy(self)
        site.caller, site.views = caller, self.service.views.seen_by(caller)
        return site

    # --- reading -----------------------------------------------------------------------------------------

    async def read(self, command: Command[Any]) -> Any:
        """Send a read-only command and parse the reply; raises CommandError."""
        return json.loads(await self.ask_text(command))

    async def ask_text(self, command: Command[Any]) -> str:
        """Send a command and return the reply as JSON text."""
        answer = await self.service.call(command, self.caller)
        self.asked.commands += command.where == "writer"
        return answer.body

    @property
    def shows_data(self) -> bool:
        """Return whether the caller may see job data, results, output and errors."""
        return not self.caller.grant.no_data

    def may(self, command: str) -> bool:
        """Return whether the caller may send a command."""
        return may_ask(self.caller.grant, COMMANDS[command])

    def now(self) -> datetime:
        """Return the server's current time."""
        return self.service.now()

    # --- answering ---------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Compile the templates, unless that is done."""
        await self._templates.prepare()

    def get(self, path: str, page: Page) -> web.RouteDef:
        """Return the route of a page handler; ``path`` begins with ``/ui/``."""

        async def answer(request: web.Request) -> web.StreamResponse:
            await self._templates.prepare()
            site = self.seen_by(caller_of(request, self.service.access))
            try:
                return await page(site, request)
            except CommandError as error:
                status = _STATUS.get(error.code, 500)
                return await site.show(request, "error.html", status=status, title=error.reason, error=error)

        return web.get(path, answer)

    async def show(
        self, request: web.Request, template: str, *, title: str, status: int = 200, **context: Any
    ) -> web.Response:
        """Render a template with ``context`` and the values that all pages have, such as link and static."""
        depth = _depth(request)
        root = "/".join([".."] * depth)

        def link(path: str, **query: Any) -> str:
            return f"{root}/{quote(path)}{_query(query)}"

        def here(**query: Any) -> str:
            return _query({**request.query, **query}) or "?"

        def static(name: str) -> str:
            return f"{root}/ui/static/{name}?v={self._marks[name]}"

        scope = self.caller.scope
        values = {
            **context,
            "navigation": [
                (group, [page for page in pages if page[0] not in NEEDED or self.may(NEEDED[page[0]])])
                for group, pages in GROUPS
            ],
            "who": "" if self.caller.name == ANONYMOUS else self.caller.name,
            "may_log_in": self.caller.name == ANONYMOUS,
            "scope": None if scope is None else str(scope),
            "shows_data": self.shows_data,
            "may": self.may,
            "operates": "operate" in self.caller.grant.roles,
            "title": title,
            "root": root,
            "link": link,
            "here": here,
            "static": static,
            "path": "/".join(request.rel_url.raw_path.split("/")[-depth - 1 :]),
            "now": self.service.status()["now"],
        }
        text = await self._templates.page(template, values, lambda: self.service.begins)
        headers = {**HEADERS, "Cache-Control": "no-store"}
        return web.Response(
            text=text,
            status=status,
            content_type="text/html",
            headers=headers,
            zlib_executor_size=ASIDE_BYTES,
        )

    async def static(self, request: web.Request) -> web.Response:
        """Answer with a static file."""
        name = request.match_info["name"]
        body = self._files.get(name)
        if body is None:
            raise web.HTTPNotFound
        # Browsers may cache a static file for a year: its URL changes with its content.
        lasting = "public, max-age=31536000, immutable" if "v" in request.query else "no-cache"
        headers = {**HEADERS, "Cache-Control": lasting, "ETag": f'"{self._marks[name]}"'}
        return web.Response(
            body=body, content_type=_TYPES[Path(name).suffix], charset="utf-8", headers=headers
        )


@cache
def _static_files() -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the content of each static file by name, and a hash of each."""
    files = {
        path.relative_to(FOLDER / "static").as_posix(): path.read_bytes()
        for path in sorted((FOLDER / "static").rglob("*"))
        if path.suffix in _TYPES
    }
    return files, {name: hashlib.sha256(body).hexdigest()[:12] for name, body in files.items()}


def _depth(request: web.Request) -> int:
    """Return how deep a page is below the server's root, since links are relative to work behind proxies."""
    resource = request.match_info.route.resource
    assert resource is not None
    above = resource.canonical[: resource.canonical.rindex("/ui/")]
    return request.rel_url.raw_path.count("/") - above.count("/") - 1


def filters_of(request: web.Request, *names: str) -> dict[str, str]:
    """Return these query parameters of a page; empty texts for those that are not given."""
    return {name: request.query.get(name, "") for name in names}


def cursor(request: web.Request, name: str, what: str) -> int | None:
    """Return a query parameter as a number, or None without it; raises BadArguments, which says ``what``."""
    text = request.query.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise BadArguments(f"Malformed {name}", f"{name}: expected {what}")
    return int(text) if text else None


ROWS = 50
"""Maximum rows of a list on a page: more than fit on a screen."""


MATCHING_SLICE = 1_000
"""Maximum targets that an act on all that match a filter reads at once: the page acts on them, and then reads
the next ones."""

MATCHING_S = 1.0
"""Seconds after which the search for such targets answers with those that it has found."""


def slice_answer(found: list[tuple[int, str]], following: int | None) -> web.Response:
    """Answer with a slice of what matches: IDs, the first names, and where the next slice begins, or null."""
    ids, names = [number for number, _ in found], [name for _, name in found[:10]]  # as many as are shown
    return json_answer({"ids": ids, "names": names, "next": following})


def rows_asked(request: web.Request, most: int) -> int:
    """Return how many rows to show, at most ``most``: a list embedded in another page asks for fewer."""
    return min(cursor(request, "rows", "a number of rows") or most, most)


def _query(query: dict[str, Any]) -> str:
    parameters = [(key, value) for key, value in query.items() if value not in ("", None)]
    return f"?{urlencode(parameters)}" if parameters else ""
