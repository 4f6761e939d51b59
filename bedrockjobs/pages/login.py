"""Log in with a token and log out.

A login sets a session cookie with a secret; the database stores the SHA-256 of the secret and the name of the
token. The session ends after 12 hours, when the token ends, or on logout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl, quote, unquote

from aiohttp import web

from bedrockjobs.base.errors import BadRequest, CommandError, Forbidden, TimedOut, Unauthenticated
from bedrockjobs.base.principal import TOKEN_CHARS_MAX
from bedrockjobs.engine.handlers.access import LOGIN_S
from bedrockjobs.engine.unit import Outcome
from bedrockjobs.pages.site import Site
from bedrockjobs.protocol.authentication import LOGIN_PATH, caller_of, is_secure, session_cookie
from bedrockjobs.protocol.http_answers import status_of

FORM_BYTES_MAX = 4_096
"""Maximum bytes of the form, which has a token and the path of the requested page."""

T = TypeVar("T")


def routes(site: Site) -> list[web.RouteDef]:
    """Return the routes of the login."""
    login = _Login(site)
    return [
        site.get(LOGIN_PATH, login.form),
        web.post(LOGIN_PATH, login.log_in),
        web.post("/ui/logout", login.log_out),
    ]


class _Login:
    """The login of one server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._access = site.service.access
        self._settings = site.settings

    async def form(self, site: Site, request: web.Request) -> web.StreamResponse:
        """Show the form; redirect to the overview if no tokens are needed."""
        if not self._access.on:
            return self._to("/ui/")
        return await site.show(
            request, "login.html", title="Log in", to=_target_page(request.query.get("to", "")), problem=""
        )

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        """Create a session for a token, and redirect to the requested page."""
        sent = await self._sent(request)
        token, to = sent.get("token", "").strip(), _target_page(sent.get("to", ""))
        if not self._access.on:
            return self._to(to)
        try:
            caller = self._access.by_token(
                token[: TOKEN_CHARS_MAX + 1], caller_of(request, self._access).address
            )
            if caller.run is not None or "read" not in caller.grant.roles:
                raise Forbidden(detail="the pages need a token with the role read")
        except CommandError as error:
            await self._site.prepare()
            problem = error.detail or error.reason
            return await self._site.show(
                request, "login.html", title="Log in", status=status_of(error), to=to, problem=problem
            )
        session = await _on_disk(partial(self._access.log_in, caller))
        response = self._to(to)
        response.set_cookie(
            session_cookie(request, self._settings),
            session,
            max_age=LOGIN_S,
            path=self._path,
            httponly=True,
            samesite="Strict",
            secure=is_secure(request, self._settings),
        )
        return response

    async def log_out(self, request: web.Request) -> web.StreamResponse:
        """End the session; for an invalid cookie, only clear it."""
        name = session_cookie(request, self._settings)
        session = request.cookies.get(name, "")
        with suppress(Unauthenticated):
            self._access.by_login(session, caller_of(request, self._access).address)
            await _on_disk(partial(self._access.log_out, session))
        response = self._to(LOGIN_PATH)
        response.del_cookie(name, path=self._path, secure=is_secure(request, self._settings))
        return response

    async def _sent(self, request: web.Request) -> dict[str, str]:
        """Read the form, which any client may send, with anything in it; raises BadRequest and TimedOut."""
        if request.content_length is None or request.content_length > FORM_BYTES_MAX:
            raise BadRequest("Malformed body", f"body: expected at most {FORM_BYTES_MAX} bytes")
        if request.content_type != "application/x-www-form-urlencoded":
            raise BadRequest("Malformed body", "body: expected what the form of the page sends")
        try:
            async with asyncio.timeout(self._settings.body_s):
                body = await request.read()
        except TimeoutError:
            raise TimedOut(detail=f"the body took longer than {self._settings.body_s:g} s") from None
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))

    @property
    def _path(self) -> str:
        return self._settings.root_path or "/"

    def _to(self, path: str) -> web.Response:
        headers = {"Location": self._settings.root_path + path, "Cache-Control": "no-store"}
        return web.Response(status=303, headers=headers)


async def _on_disk(write: Callable[[Callable[[Outcome], bool]], T]) -> T:
    """Wait until a write is durable; raises CommandError if it fails."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def tell(outcome: Outcome) -> bool:
        if not done.done():
            done.set_result(outcome)
        return True

    written = write(tell)
    outcome = await done
    if isinstance(outcome, CommandError):
        raise outcome
    return written


def _target_page(path: str) -> str:
    """Return the requested path if it is the path of a page under ``/ui/``, else the path of the overview."""
    known = path.startswith("/ui/") and len(path) <= 2_000 and path.isprintable() and "\\" not in path
    return quote(unquote(path), safe="/?=&:*,%") if known and not path.startswith(LOGIN_PATH) else "/ui/"
