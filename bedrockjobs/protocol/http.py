"""HTTP routes: commands as ``POST /<Command>`` with JSON or a form, pings, probes and documents.

Errors are ``application/problem+json`` (RFC 9457) with Bedrock's code and reason.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import (
    BadArguments,
    BadRequest,
    CommandError,
    Forbidden,
    NotFound,
    ServerFault,
    TimedOut,
    TooLarge,
    Unauthenticated,
    UnknownCommand,
)
from bedrockjobs.base.principal import READING_TOKEN
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS, Authenticate, Command, PingSchedule
from bedrockjobs.commands.control import PING_OUTPUT_CHARS_MAX
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.render import entity_tag
from bedrockjobs.engine.submission import Outcome
from bedrockjobs.protocol import cronken, sse
from bedrockjobs.protocol.authentication import (
    CALLER,
    LOGIN_PATH,
    PINGS_BELOW,
    PROBES,
    SESSION_COOKIE,
    HTTPAuthentication,
    Origins,
    Proxies,
    caller_of,
)
from bedrockjobs.protocol.connections import MemoryBudget, full
from bedrockjobs.protocol.http_answers import (
    Documents,
    compress,
    is_browser,
    next_page,
    problem,
    text_response,
)
from bedrockjobs.protocol.http_connection import (
    AiohttpProtocol,
    HandedOver,
    HTTPConnection,
    PlainHTTP,
    read_body,
    text_of,
)
from bedrockjobs.protocol.openapi import POLICY
from bedrockjobs.service import HOLD_UNKNOWN, VERSION, Service

# Pings: ``POST /ping/<secret>`` reports a run of a schedule that another machine executes.
#
# ``/start`` reports the start, nothing or ``/0`` success, ``/fail`` or another exit status a failure. The
# body, of any media type, is the output.


def command_of(job_id: int, what: str, body: bytes, host: str) -> PingSchedule:
    """Return the command for a ping; raises NotFound for an unknown path."""
    fields: dict[str, object] = {"job_id": job_id, "output": output_of(body), "host": host[:255]}
    if what in ("", "start", "fail"):
        fields["event"] = what or "success"
    elif what.isascii() and what.isdecimal() and len(what) <= 3 and int(what) <= 255:
        fields["exit_code"] = int(what)
        fields["event"] = "fail" if int(what) else "success"
    else:
        raise NotFound("No such ping", "expected nothing, /start, /fail or an exit status behind the secret")
    return PingSchedule.model_validate(fields)


def output_of(body: bytes) -> str:
    """Return the end of a body as text; invalid UTF-8 and NUL are replaced."""
    text = body[-4 * PING_OUTPUT_CHARS_MAX :].decode(errors="replace").replace("\0", "\ufffd")
    return text[-PING_OUTPUT_CHARS_MAX:]


_BORROWED = web.RequestKey("borrowed", int)
"""Bytes of the memory budget that a request has reserved."""

_CONDITIONS = {
    header: " and ".join(
        command_class.__name__ for command_class in COMMANDS.values() if header in command_class.headers
    )
    for header in ("If-Match", "Idempotency-Key")
}
"""Conditional headers and the commands that support them; any other command refuses them."""

HANDLING_COMMANDS = "/status/handlingCommands"
"""Bedrock's health check for load balancers."""

_PREFER_WAIT = re.compile(r"(?:^|[,;\s])wait=([0-9]{1,6})(?:$|[,;\s])", re.IGNORECASE)
_VERB = re.compile(r"/[^/]+")
TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""A W3C trace context (``traceparent``)."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LateRoutes(web.DynamicResource):
    """All paths of a server; the routes of a path are made when aiohttp gets the first request for it.

    Making all routes takes as long as the rest of a server's start, and most servers are asked for few paths.
    """

    def __init__(self, defined: Callable[[], Iterable[web.RouteDef]]) -> None:
        """At the first request, call ``defined`` for the definitions of all routes."""
        super().__init__("/{path:.*}")
        self._defined = defined
        self._made: dict[str, web.UrlDispatcher] = {}

    @cached_property
    def _definitions(self) -> dict[str, list[web.RouteDef]]:
        """Return the definitions by path; all paths with parameters share the key ``_WITH_PARAMETERS``."""
        found: dict[str, list[web.RouteDef]] = {}
        for route in self._defined():
            found.setdefault(_WITH_PARAMETERS if "{" in route.path else route.path, []).append(route)
        return found

    def _made_for(self, path: str) -> web.UrlDispatcher:
        return self._made[path] if path in self._made else self.make(path)

    def make(self, path: str) -> web.UrlDispatcher:
        """Make the routes of a path."""
        self._made[path] = made = web.UrlDispatcher()
        made.add_routes(self._definitions[path])
        return made

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        """Return the route of a request, or the methods that its path allows."""
        allowed: set[str] = set()
        for path in (request.rel_url.path_safe, _WITH_PARAMETERS):
            if path in self._definitions:
                found = await self._made_for(path).resolve(request)
                error = found.http_exception
                if error is None:
                    return found, set()
                if isinstance(error, web.HTTPMethodNotAllowed):
                    allowed |= error.allowed_methods
        return None, allowed

    def __iter__(self) -> Iterator[web.ResourceRoute]:
        """Iterate over all routes."""
        for path in self._definitions:
            yield from (
                route for route in self._made_for(path).routes() if isinstance(route, web.ResourceRoute)
            )

    def __len__(self) -> int:
        """Return how many routes there are."""
        return sum(1 for _ in self)


_WITH_PARAMETERS = ""
"""The key of all paths with parameters; no path of a request is empty."""


class HTTPFront:
    """The HTTP application of one server."""

    def __init__(
        self,
        service: Service,
        settings: Settings,
        *,
        local_only: bool,
        root_path: str = "",
        more: Sequence[web.RouteDef] = (),
        memory: MemoryBudget | None = None,
    ) -> None:
        """Serve ``service`` and the routes ``more``; bodies count against the budget ``memory``.

        With ``local_only`` the ``Host`` must name this machine, see ``Origins``. ``root_path`` is the path
        under which a proxy serves this server, such as ``/queue``, or empty. Links begin with it; the path of
        a request may omit it.
        """
        self._service = service
        self._settings = settings
        self._origins = Origins(
            local_only=local_only, names=settings.public_hosts, open_to_all=settings.insecure
        )
        proxies = Proxies(settings.trusted_proxies, settings.proxy_user_header)
        self._gate = HTTPAuthentication(service.access, proxies, settings)
        self._root_path = root_path
        self._more = more
        self._documents = Documents(root_path)
        self._memory = memory or MemoryBudget(settings.memory_bytes)
        self.plain = PlainHTTP(self._origins, self._gate, settings, root_path)
        """Parser of plain requests, which bypass aiohttp."""

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(client_max_size=self._settings.body_bytes_max, middlewares=[self._guard()])
        app.on_response_prepare.append(_keep_to_session)
        app.router.register_resource(LateRoutes(self._routes))
        return app

    def _routes(self) -> Iterator[web.RouteDef]:
        routes = [*self._own_routes(), *self._more]
        yield from routes
        if self._root_path:
            for one in routes:
                yield web.route(one.method, self._root_path + one.path, one.handler, **one.kwargs)

    def _own_routes(self) -> Iterator[web.RouteDef]:
        if all(one.path != "/" for one in self._more):
            yield web.get("/", self._about)
        yield web.get("/livez", self._livez)
        yield web.get("/readyz", self._readyz)
        yield web.get(HANDLING_COMMANDS, self._handling_commands)
        yield web.get("/openapi.json", self._openapi)
        yield web.get("/docs", self._docs_page)
        for one in sse.routes(self._service.views, self._service.access):
            yield web.get(one.path, self._checked_site(one.handler), **one.kwargs)
        yield web.post("/cronken/events", self._cronken)
        yield web.post(f"{PINGS_BELOW}{{secret}}", self._ping)
        yield web.post(f"{PINGS_BELOW}{{secret}}/{{what}}", self._ping)
        for command_class in COMMANDS.values():
            yield web.post(f"/{command_class.__name__}", partial(self._command, command_class))
            if command_class.reads:
                show = self._checked_site(partial(self._command, command_class))
                yield web.get(f"/{command_class.__name__}", show, allow_head=False)

    def _checked_site(self, handler: Handler) -> Handler:
        async def checked(request: web.Request) -> web.StreamResponse:
            self._origins.check_site(request)
            return await handler(request)

        return checked

    def _guard(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = _connection_of(request)
            if connection is not None:
                connection.handler_started()
            response: web.StreamResponse
            try:
                response = await guarded(request, handler)
                compress(request, response)
            except web.HTTPException as error:
                response = error
            finally:
                self._memory.give_back(_taken_back(request), _token_of(request))
                if connection is not None:
                    connection.discard_handed_over()
            await _send(request, response)
            if connection is not None:
                connection.written(keep_alive=bool(response.keep_alive))
            if isinstance(response, web.HTTPException):
                raise response
            return response

        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                path = self._below_root(request.path)
                if path not in PROBES:  # load balancers send arbitrary Host headers
                    self._origins.check(request)
                self._gate.check(request, path)
                caller, connection = request.get(CALLER), _connection_of(request)
                READING_TOKEN.set(_token_of(request))
                if caller is not None and connection is not None:
                    connection.belongs(caller)
                if path not in PROBES and self._gate.needs_name(request, path):
                    try:
                        self._origins.check_name(request)
                    except Forbidden as error:
                        login = self._to_login(request) if self._gate.is_anonymous(request) else None
                        return login or problem(error)
                self._gate.note_anonymous(request)
                return await handler(request)
            except Unauthenticated as error:
                unknown = isinstance(request.match_info.http_exception, web.HTTPNotFound)
                page = self._to_page(request) if unknown else None
                return page or self._to_login(request) or problem(error)
            except CommandError as error:
                return problem(error)
            except web.HTTPRequestEntityTooLarge:
                return problem(self._too_large())
            except web.RequestPayloadError:
                return problem(BadRequest("Malformed body", "body: expected Content-Length bytes, or chunks"))
            except web.HTTPMethodNotAllowed as error:
                answer = problem(
                    BadRequest("Method not allowed", f"expected {error.headers['Allow']}"), status=405
                )
                answer.headers["Allow"] = error.headers["Allow"]
                return answer
            except web.HTTPNotFound:
                if request.method == "POST" and _VERB.fullmatch(self._below_root(request.path)):
                    return problem(UnknownCommand(detail=f"expected one of {', '.join(COMMANDS)}"))
                return self._to_page(request) or problem(
                    NotFound("No such page", "expected POST /<Command>, or GET /openapi.json")
                )
            except (ConnectionError, asyncio.CancelledError, web.HTTPException):
                raise
            except Exception:
                request.app.logger.exception("an HTTP request failed")
                return problem(ServerFault())

        return guard

    def _to_login(self, request: web.Request) -> web.Response | None:
        """Return a redirect to the login if a browser asks for a page, otherwise None."""
        path = self._below_root(request.path)
        if not (path.startswith("/ui/") and request.method == "GET" and is_browser(request)):
            return None
        wanted = urlencode({"to": request.rel_url.raw_path_qs.removeprefix(self._root_path)})
        location = f"{self._root_path}{LOGIN_PATH}?{wanted}"
        return web.Response(status=303, headers={"Location": location, "Cache-Control": "no-store"})

    def _to_page(self, request: web.Request) -> web.Response | None:
        """Return a redirect to the page of the same name if a browser asks outside of the pages.

        If there is no such page, the pages say so, with a link to the overview. Otherwise return None.
        """
        path = self._below_root(request.path)
        if path.startswith("/ui/") or request.method != "GET" or not is_browser(request):
            return None
        below = request.rel_url.raw_path_qs.removeprefix(self._root_path)
        headers = {"Location": f"{self._root_path}/ui{below}", "Vary": "Accept", "Cache-Control": "no-store"}
        return web.Response(status=302, headers=headers)

    async def _command(self, command_class: type[Command[Any]], request: web.Request) -> web.StreamResponse:
        handed = _handed_over(request)
        command = await self._parse(request, command_class) if handed is None else handed.command
        access, caller = self._service.access, request.get(CALLER)
        if isinstance(command, Authenticate):
            known = access.by_bearer(command.token, self._gate.address(request), http=True)
            return text_response(access.identity(known).body, "application/json")
        if caller is None and (command_class.signed or (access.asks and not command_class.open)):
            caller = self._gate.visitor(request)
        if command.connection is not None and command.connection.lower() == "forget":
            self._service.submit(
                command, partial(self._forgotten, _taken_back(request), _token_of(request)), caller
            )
            return text_response("{}", "application/json", 202)
        answer = None if handed is None else handed.answer
        if answer is None:
            if command.waiting and (connection := _connection_of(request)) is not None:
                connection.waits()
            answer = await self._service.call(command, caller)
        large = len(answer.body) > CONNECTION_BYTES_FREE
        if large:
            try:
                self._borrow(request, 2 * len(answer.body))  # the text and its encoded bytes
            except CommandError:
                self._service.undelivered(answer)
                raise
        response = text_response(answer.body or "{}", answer.media)
        if not answer.taken:
            if command_class.tagged:
                response.headers["ETag"] = entity_tag(answer.body)
            elif (link := next_page(command, answer.body)) is not None:
                response.headers["Link"] = f'<{self._root_path}{link}>; rel="next"'
            if not large:
                return response
        answer.body = ""  # free the text, since a slow client may keep the response for long
        return await self._hand_out(request, response, answer)

    def _forgotten(self, borrowed: int, token: str, _: Outcome) -> bool:
        self._memory.give_back(borrowed, token)
        return False

    async def _hand_out(
        self, request: web.Request, response: web.Response, answer: Answer
    ) -> web.StreamResponse:
        """Write a reply that is large or carries jobs.

        If the client is gone and cannot have received the whole reply, the jobs are requeued.
        """
        connection = _connection_of(request)
        flushes = 0 if connection is None else connection.flushes
        try:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError
            compress(request, response)
            await _send(request, response)
            unpaused = connection is not None and connection.flushes == flushes
            if unpaused and (request.transport is None or request.transport.is_closing()):
                raise ConnectionResetError  # the write failed, which the transport does not raise
        except (ConnectionError, asyncio.CancelledError):
            if connection is None or connection.flushes == flushes:  # otherwise it was sent completely
                self._service.undelivered(answer)
            raise
        return response

    async def _cronken(self, request: web.Request) -> web.Response:
        text = await self._text(request)
        caller = caller_of(request, self._service.access)
        events = cronken.CronkenEvents(
            partial(self._service.call, caller=caller), request.query.get("weekday_0", "sunday")
        )
        return text_response(await events.do(text), "application/json")

    async def _ping(self, request: web.Request) -> web.Response:
        job_id = self._service.presence.job_of_ping(request.match_info["secret"])
        if job_id is None:
            raise NotFound("No such schedule", "expected POST /ping/<secret>, as GetPingSecret returns it")
        body = await self._bytes(request)
        command = command_of(job_id, request.match_info.get("what", ""), body, self._gate.address(request))
        return text_response((await self._service.call(command)).body, "application/json")

    async def _parse(self, request: web.Request, command_class: type[Command[Any]]) -> Command[Any]:
        defaults: dict[str, Any] = {}
        wait = _PREFER_WAIT.search(request.headers.get("Prefer", ""))
        if wait is not None:
            defaults = {"connection": "wait", "timeout": int(wait[1]) * 1000}
        if request.method == "GET":
            return command_class.read_form(dict(request.query), defaults)
        for name, only in _CONDITIONS.items():
            if name in request.headers and name not in command_class.headers and not command_class.reads:
                raise BadArguments(f"Unexpected {name}", f"{name}: expected with {only} only")
        text = await self._text(request)
        for header, parameter in command_class.headers.items():
            value = request.headers.get(header)
            if header == "Traceparent" and not TRACE.fullmatch(value or ""):
                continue  # the standard says to ignore an invalid one
            if value is not None:
                defaults[parameter] = value
        form = request.content_type == "application/x-www-form-urlencoded"
        # Longer bodies are validated in a thread: one with 10,000 schedules would block the loop for 0.2 s.
        if len(text) > 64 * 1024:
            command = await asyncio.to_thread(read_body, command_class, text, defaults, form=form)
        else:
            command = read_body(command_class, text, defaults, form=form)
        key = defaults.get("idempotencyKey")
        if key is not None and getattr(command, "idempotency_key", key) != key:
            raise BadArguments(
                "Malformed Idempotency-Key", "Idempotency-Key: expected the same as idempotencyKey, or none"
            )
        return command

    def _below_root(self, path: str) -> str:
        return path.removeprefix(self._root_path) if self._root_path else path

    async def _text(self, request: web.Request) -> str:
        return text_of(await self._bytes(request))

    async def _bytes(self, request: web.Request) -> bytes:
        if request.content_length is not None and request.content_length > self._settings.body_bytes_max:
            raise self._too_large()
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BadRequest("Malformed body", "Content-Encoding: expected a body that is not compressed")
        try:
            async with asyncio.timeout(self._settings.body_s):
                return await self._body(request)
        except TimeoutError:
            raise TimedOut(detail=f"the body took longer than {self._settings.body_s:g} s") from None

    async def _body(self, request: web.Request) -> bytes:
        """Read a body, reserving its memory first."""
        body = bytearray()
        if request.content_length is not None:
            self._borrow(request, request.content_length)
            # Not ``request.read``: it joins small pieces, which fragments memory.
            async for piece in request.content.iter_any():
                body += piece
            return bytes(body)
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > self._settings.body_bytes_max:
                raise self._too_large()
            while len(body) > request.get(_BORROWED, 0):
                # Step in which memory is reserved for a body of unknown length.
                self._borrow(request, 1024 * 1024)
        return bytes(body)

    def _borrow(self, request: web.Request, size: int) -> None:
        """Reserve memory until the request is answered; raises Unavailable if it exceeds the budget."""
        if size <= CONNECTION_BYTES_FREE:
            return
        if not self._memory.borrow(size, _token_of(request)):
            raise full()
        request[_BORROWED] = request.get(_BORROWED, 0) + size

    def _too_large(self) -> TooLarge:
        limit = self._settings.body_bytes_max
        return TooLarge("Request too large", f"body: expected at most {limit} bytes")

    async def _about(self, _: web.Request) -> web.Response:
        lines = (
            f"bedrockjobs {VERSION}",
            "POST /<Command> with a JSON object; /docs and /openapi.json describe the commands.",
        )
        return web.Response(text="\n".join(lines) + "\n")

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        trouble = self._service.problem
        hold = self._service.hold
        well = "ok" if hold in ("", HOLD_UNKNOWN) else f"ok, but {hold}"
        return web.Response(text=f"{trouble or well}\n", status=503 if trouble else 200)

    async def _handling_commands(self, _: web.Request) -> web.Response:
        if self._service.draining:
            return web.Response(status=503, reason="STANDINGDOWN")
        return web.Response(reason="LEADING")

    async def _openapi(self, request: web.Request) -> web.Response:
        written = await self._documents.get()
        lax = request.query.get("lax", "0") not in ("", "0")
        return text_response(written.lax if lax else written.strict, "application/json")

    async def _docs_page(self, request: web.Request) -> web.Response:
        page = (await self._documents.get()).page
        response = text_response(page.html(request.host), "text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


async def _keep_to_session(request: web.Request, response: web.StreamResponse) -> None:
    """Forbid caching and content sniffing for replies within a session."""
    if SESSION_COOKIE in request.headers.get("Cookie", ""):
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")


def _handed_over(request: web.Request) -> HandedOver | None:
    """Return the parsed command of a request that began as a plain request, otherwise None."""
    connection = _connection_of(request)
    return None if connection is None else connection.take_handed_over()


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """Write a reply and free its body, which aiohttp would keep until the next request."""
    connection = _connection_of(request)
    body = response.body if isinstance(response, web.Response) else None
    if connection is not None and isinstance(body, bytes):
        connection.writes(len(body))
    del body
    await response.prepare(request)
    await response.write_eof()
    if isinstance(response, web.Response):
        response.body = None


def _connection_of(request: web.Request) -> HTTPConnection | None:
    return request.protocol.connection if isinstance(request.protocol, AiohttpProtocol) else None


def _token_of(request: web.Request) -> str:
    """Return the name of the token of a request; empty without one."""
    caller = request.get(CALLER)
    return "" if caller is None else caller.name


def _taken_back(request: web.Request) -> int:
    """Return the memory a request has reserved, and mark it as released."""
    borrowed: int = request.get(_BORROWED, 0)
    if borrowed:
        request[_BORROWED] = 0
    return borrowed
