"""Authentication of HTTP requests and raw connections: by token, session cookie, proxy header or certificate.

This module decides which paths need authentication. Each command class says which role its command needs, and
the engine and the views apply the scope.
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest

from aiohttp import web

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import Forbidden, Unauthenticated
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS
from bedrockjobs.engine.access import UNIX, Access
from bedrockjobs.engine.authorization import WORDS
from bedrockjobs.protocol.visitors import Proxies, over_tls
from bedrockjobs.tls.stream import CERTIFICATE_NAME

# HTTP: a token in ``Authorization``, the session cookie of the pages, a trusted proxy, or a certificate.


CALLER = web.RequestKey("caller", Principal)
"""The principal of an authenticated request."""

ADDRESS = web.RequestKey("address", str)
"""The client address of an unauthenticated request, as reported by trusted proxies."""

SESSION_COOKIE = "bedrockjobs_session"
"""The session cookie of the pages. Its value is a secret of which the server stores only the SHA-256."""

_PREFIXES = ("__Host-", "__Secure-")
"""Prefixes of the cookie's name over TLS, without and with a root path. Browsers accept such cookies over TLS
only, and ``__Host-`` cookies only from this very host."""


def session_cookie(request: web.Request, settings: Settings) -> str:
    """Return the name of the session cookie for the scheme that the request used."""
    if not is_secure(request, settings):
        return SESSION_COOKIE
    return _PREFIXES[bool(settings.root_path)] + SESSION_COOKIE


def is_secure(request: web.Request, settings: Settings) -> bool:
    """Return whether the browser reached the server over TLS."""
    return settings.behind_proxy or over_tls(request)


LOGIN_PATH = "/ui/login"
"""The login page, which exchanges a token for a session."""

PROBES = frozenset({"/livez", "/readyz", "/status/handlingCommands"})
"""Health checks of load balancers, which need no authentication."""

_OPEN = (
    PROBES
    | {"/", LOGIN_PATH, "/ui/logout"}
    | {f"/{command_class.__name__}" for command_class in COMMANDS.values() if command_class.open}
)
PINGS_BELOW = "/ping/"
"""Path prefix of pings, which are authenticated by the schedule's secret in the path."""

_OPEN_BELOW = ("/ui/static/", PINGS_BELOW)
_FILTERED = frozenset({"/events", "/cronken/events", "/docs", "/openapi.json"})
"""Paths other than commands whose replies are filtered by scope or contain nothing about jobs."""

_PAGES = "/ui/"
"""Path prefix of the pages, which apply the reader's own scope."""

_OF_NAMES = frozenset({"/metrics", "/healthz"})
"""Paths other than commands whose replies reveal no names outside the scope."""

_COMMANDS = frozenset(f"/{command_class.__name__}" for command_class in COMMANDS.values())


class HTTPAuthentication:
    """Authenticates HTTP requests and decides which paths they may use."""

    def __init__(self, access: Access, proxies: Proxies, settings: Settings) -> None:
        """Look up principals in ``access``, and trust headers from ``proxies``."""
        self._access, self._proxies, self._settings = access, proxies, settings

    def check(self, request: web.Request, path: str) -> None:
        """Authenticate a request and store its principal; ``path`` is relative to the root path.

        Raises Unauthenticated, Forbidden and TooManyWrong.
        """
        access = self._access
        if not access.asks or (access.unread is not None and path in PROBES):
            return
        is_open = path in _OPEN or path.startswith(_OPEN_BELOW)
        caller: Principal | None = None
        try:
            caller = self.caller(request)
        except Unauthenticated:
            if not is_open or (path in _COMMANDS and _is_large(request)):
                raise
        if caller is None or (is_open and access.is_anonymous(caller)):  # no permission counts on open paths
            request[ADDRESS] = self.address(request)
            return
        request[CALLER] = caller
        if is_open or path in _COMMANDS or path in _FILTERED or _is_output(path):
            return
        if caller.run is not None:
            raise Forbidden(detail=WORDS)
        if "read" not in caller.grant.roles:
            if access.is_anonymous(caller) and path.startswith(_PAGES):
                raise Unauthenticated(detail="the pages need a token with the role read")
            raise Forbidden(detail=f"{path} needs the role read; {caller.name} has {caller.grant.role}")
        if not (caller.grant.is_unrestricted or path.startswith(_PAGES) or path in _OF_NAMES):
            raise Forbidden(detail=f"{path} needs a token that may see everything")

    def needs_name(self, request: web.Request, path: str) -> bool:
        """Return whether the ``Host`` of a request must be checked because it carries no credentials.

        A browser sends such requests for a page of any site whose name resolves to this server (DNS
        rebinding).
        """
        if path.startswith(PINGS_BELOW):  # authenticated by their secret
            return False
        caller = request.get(CALLER)
        if caller is None:  # no tokens exist yet, or an unauthenticated client uses an open path
            return not self._access.asks
        return not caller.grant.digest and caller.run is None

    def is_anonymous(self, request: web.Request) -> bool:
        """Return whether a request comes from a client without a token that may use the server."""
        caller = request.get(CALLER)
        return caller is not None and self._access.is_anonymous(caller)

    def note_anonymous(self, request: web.Request) -> None:
        """Record the use by a client without a token."""
        caller = request.get(CALLER)
        if caller is not None:
            self._access.note_anonymous(caller)

    @property
    def needs_token(self) -> bool:
        """Return whether every client needs a token."""
        return self._access.needs_token

    def visitor(self, request: web.Request) -> Principal:
        """Return the principal of a client without credentials; raises Unauthenticated."""
        return self._access.visitor(self.address(request), http=True)

    def caller(self, request: web.Request) -> Principal:
        """Return the principal of a request; raises Unauthenticated and TooManyWrong."""
        authorization, address = request.headers.get("Authorization", ""), self.address(request)
        session = request.cookies.get(session_cookie(request, self._settings), "")
        if session and self._access.on and not _is_token(authorization):
            return self._access.by_login(session, address)
        user = self._proxies.user(request.headers, address_of(request.transport))
        return self._principal(authorization, address, request.transport, user)

    def address(self, request: web.Request) -> str:
        """Return the client address of a request, as reported by trusted proxies."""
        return self._proxies.address(request.headers, address_of(request.transport))

    def _principal(
        self, authorization: str, address: str, transport: asyncio.BaseTransport | None, user: str = ""
    ) -> Principal:
        """Return the principal, from a trusted proxy's ``user``, a certificate, or ``authorization``."""
        with_token = self._access.on and _is_token(authorization)
        if self._proxies.names_users and not with_token and self._proxies.trusts(address_of(transport)):
            if not user:
                raise Unauthenticated(detail="the proxy named no user")
            return self._access.by_proxy(user, address)
        if self._access.anonymous is not None and not _is_token(authorization):
            authorization = ""  # a password that a proxy forwards
        if not authorization and (name := _certified(self._access, transport)):
            return self._access.by_certificate(name, address)
        return self._access.by_header(authorization, address, http=True)

    def of_plain(self, authorization: bytes, transport: asyncio.BaseTransport | None) -> Principal:
        """Return the principal of a plain request with an ``Authorization``; raises as ``check`` does."""
        address = self._proxies.address(None, address_of(transport))
        caller = self._principal(authorization.decode("latin-1"), address, transport)
        self._access.note_anonymous(caller)
        return caller

    def goes_on(self, caller: Principal) -> bool:
        """Return whether a principal authenticated earlier on this connection is still valid."""
        return self._access.goes_on(caller)


def caller_of(request: web.Request, access: Access) -> Principal:
    """Return the principal of a request that ``check`` accepted."""
    known: Principal | None = request.get(CALLER)
    if known is not None:
        return known
    return Principal(access.everything, request.get(ADDRESS) or address_of(request.transport))


def cut(request: web.Request) -> None:
    """Abort a stream whose reader has lost its permission."""
    if request.transport is not None:
        request.transport.abort()


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the peer address of a connection: a host, or ``unix``."""
    peer = None if transport is None else transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else UNIX


def certificate_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the name in the peer's certificate, or empty if it presented none."""
    return (transport.get_extra_info(CERTIFICATE_NAME) or "") if transport is not None else ""


def _certified(access: Access, transport: asyncio.BaseTransport | None) -> str:
    """Return the name in the peer's certificate if it decides who the client is, otherwise empty.

    If clients need no token, a certificate decides only if there is or was a token of its name.
    """
    name = certificate_of(transport) if access.on else ""
    return name if access.anonymous is None or access.has_token(name) else ""


def _is_token(authorization: str) -> bool:
    """Return whether ``Authorization`` holds a bearer token; proxies may forward passwords of their own."""
    return authorization[:7].lower() == "bearer "


def _is_large(request: web.Request) -> bool:
    """Return whether a body is too large to read from an unauthenticated client."""
    size = request.content_length
    return request.body_exists and (size is None or size > CONNECTION_BYTES_FREE)


def _is_output(path: str) -> bool:
    return path.startswith("/runs/") and path.endswith("/output")


class ConnectionIdentity:
    """Authentication of one raw connection: by header, by ``Authenticate``, or by certificate.

    It caches the last header and its principal, because most clients repeat the header.
    """

    __slots__ = ("_access", "_address", "_by_header", "_header", "_principal")

    def __init__(self, access: Access, address: str) -> None:
        """Look up principals in ``access``; ``address`` is empty for the unix socket."""
        self._access, self._address = access, address or UNIX
        self._principal: Principal | None = None
        """The principal set by ``Authenticate`` or by the certificate."""
        self._header = b""
        self._by_header: Principal | None = None

    def caller(self, authorization: str, transport: asyncio.BaseTransport | None) -> Principal:
        """Return the principal of a request; raises Unauthenticated and TooManyWrong."""
        access = self._access
        if authorization:
            header, caller = authorization.encode(errors="surrogatepass"), self._by_header
            if caller is None or not compare_digest(header, self._header) or not access.goes_on(caller):
                caller = access.by_header(authorization, self._address)
                self._header, self._by_header = header, caller
            return caller
        if self._principal is not None:
            if access.is_still_allowed(self._principal):
                return self._principal
            if self._principal.name:  # it does not go on as a client without a token
                raise Unauthenticated(detail="the token of this connection is no longer valid")
        if name := _certified(access, transport):
            self._principal = access.by_certificate(name, self._address)
            return self._principal
        caller = access.visitor(self._address)
        access.note_anonymous(caller)
        return caller

    def authenticate(self, token: str) -> Principal:
        """Authenticate the connection by a token for all later requests; raises as ``caller`` does."""
        self._principal = self._access.by_bearer(token, self._address)
        return self._principal
