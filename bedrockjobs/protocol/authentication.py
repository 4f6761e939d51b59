"""Who asks on one raw connection: by a header of a request, by Authenticate before, or by a certificate.

It remembers what was shown last, as most clients show the same again. What counts is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hmac import compare_digest
from typing import Protocol

from aiohttp import web

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import Forbidden, Unauthenticated
from bedrockjobs.base.principal import Principal
from bedrockjobs.commands import COMMANDS
from bedrockjobs.engine.access import UNIX, Access
from bedrockjobs.engine.authorization import WORDS
from bedrockjobs.protocol.visitors import Proxies, over_tls
from bedrockjobs.tls.stream import CERTIFICATE_NAME

# Who asks over HTTP: by a token in ``Authorization``, or by a session of the pages in a cookie.
#
# It decides which paths need what. What a command needs, its class says, and what is seen of names the
# service and the views decide.


CALLER = web.RequestKey("caller", Principal)
"""Where a request keeps who sends it."""

ADDRESS = web.RequestKey("address", str)
"""Where a request of nobody that is known keeps where it comes from, before the proxies that are trusted."""

SESSION_COOKIE = "bedrockjobs_session"
"""The cookie of the pages: its value is a secret, of which the SHA-256 is kept."""

_PREFIXES = ("__Host-", "__Secure-")
"""What its name begins with over TLS, at the root of a host and below: browsers then take it over TLS alone,
the first one from this very host."""


def session_cookie(request: web.Request, settings: CookieSettings) -> str:
    """Return the name of the cookie on the way that a request came."""
    if not is_secure(request, settings):
        return SESSION_COOKIE
    return _PREFIXES[bool(settings.root_path)] + SESSION_COOKIE


def is_secure(request: web.Request, settings: CookieSettings) -> bool:
    """Tell whether the browser that sends a request sees TLS."""
    return settings.behind_proxy or over_tls(request)


class CookieSettings(Protocol):
    """What decides on the name of the cookie."""

    @property
    def behind_proxy(self) -> bool:
        """Tell whether a proxy does TLS."""
        ...

    @property
    def root_path(self) -> str:
        """Return below which path the server is."""
        ...


LOGIN_PATH = "/ui/login"
"""The page that turns a token into a session."""

PROBES = frozenset({"/livez", "/readyz", "/status/handlingCommands"})
"""What load balancers ask, whoever they are."""

_OPEN = (
    PROBES
    | {"/", LOGIN_PATH, "/ui/logout"}
    | {f"/{kind.__name__}" for kind in COMMANDS.values() if kind.open}
)
PINGS_BELOW = "/ping/"
"""Where pings from outside come to, which show the secret of their schedule in the path."""

_OPEN_BELOW = ("/ui/static/", PINGS_BELOW)
_NARROWED = frozenset({"/events", "/cronken/events", "/docs", "/openapi.json"})
"""Paths beside the commands whose answers are narrowed, or that say nothing of any job."""

_PAGES = "/ui/"
"""Where the pages are: they read as whoever looks may, and so say nothing of what is not seen."""

_OF_NAMES = frozenset({"/metrics", "/healthz"})
"""Other paths that say nothing of names that are not seen."""

_COMMANDS = frozenset(f"/{kind.__name__}" for kind in COMMANDS.values())


class HTTPAuthentication:
    """Lets in whom ``access`` knows."""

    def __init__(self, access: Access, proxies: Proxies, settings: CookieSettings) -> None:
        """Ask ``access``, and believe ``proxies``."""
        self._access, self._proxies, self._settings = access, proxies, settings

    def check(self, request: web.Request, path: str) -> None:
        """Note who sends a request for a path, below the root of the server.

        Raises Unauthenticated, Forbidden and TooManyWrong.
        """
        access = self._access
        if not access.asks:
            return
        is_open = path in _OPEN or path.startswith(_OPEN_BELOW)
        try:
            request[CALLER] = caller = self.caller(request)
        except Unauthenticated:
            if not is_open or (path in _COMMANDS and _is_large(request)):
                raise
            request[ADDRESS] = self.address(request)
            return
        if is_open or path in _COMMANDS or path in _NARROWED or _is_output(path):
            return
        if caller.run is not None:
            raise Forbidden(detail=WORDS)
        if "read" not in caller.grant.roles:
            raise Forbidden(detail=f"{path} needs the role read; {caller.name} is for {caller.grant.role}")
        if not (caller.grant.whole or path.startswith(_PAGES) or path in _OF_NAMES):
            raise Forbidden(detail=f"{path} is not for tokens that do not see everything")

    def needs_name(self, request: web.Request, path: str) -> bool:
        """Tell whether a request must ask for a name of the server, since its sender shows nothing.

        A browser sends such requests for the page of any site whose name leads here.
        """
        if path.startswith(PINGS_BELOW):  # which show a secret
            return False
        caller = request.get(CALLER)
        if caller is None:  # nobody needs a token yet, or nobody who is known asks for what is open
            return not self._access.asks
        return not caller.grant.digest

    @property
    def needs_token(self) -> bool:
        """Tell whether everybody needs a token."""
        return self._access.on

    def visitor(self, request: web.Request) -> Principal:
        """Return what somebody is who shows nothing; raises Unauthenticated."""
        return self._access.visitor(self.address(request), http=True)

    def caller(self, request: web.Request) -> Principal:
        """Return who sends a request; raises Unauthenticated and TooManyWrong."""
        given, address = request.headers.get("Authorization", ""), self.address(request)
        session = request.cookies.get(session_cookie(request, self._settings), "")
        if session and self._access.on and not _is_token(given):
            return self._access.by_login(session, address)
        user = self._proxies.user(request.headers, address_of(request.transport))
        return self._of(given, address, request.transport, user)

    def address(self, request: web.Request) -> str:
        """Return where a request comes from: what is before the proxies that are trusted."""
        return self._proxies.address(request.headers, address_of(request.transport))

    def _of(
        self, given: str, address: str, transport: asyncio.BaseTransport | None, user: str = ""
    ) -> Principal:
        """Return who it is, by a header, a certificate, or by being the ``user`` of a proxy."""
        with_token = self._access.on and _is_token(given)
        if self._proxies.names_users and not with_token and self._proxies.trusts(address_of(transport)):
            if not user:
                raise Unauthenticated(detail="the proxy says of nobody that they have logged in")
            return self._access.by_proxy(user, address)
        if self._access.on and not given and (name := certificate_of(transport)):
            return self._access.by_certificate(name, address)
        return self._access.by_header(given, address, http=True)

    def of_plain(self, authorization: bytes, transport: asyncio.BaseTransport | None) -> Principal:
        """Return who sends a plain request with an ``Authorization``; raises as ``check`` does."""
        address = self._proxies.address(None, address_of(transport))
        return self._of(authorization.decode("latin-1"), address, transport)

    def goes_on(self, caller: Principal) -> bool:
        """Tell whether a token that was shown on this connection before counts still."""
        return self._access.goes_on(caller)


def authorization_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the value of ``Authorization`` among headers as they came; empty where it is not there."""
    for name, value in headers:
        if len(name) == 13 and name.lower() == b"authorization":
            return value
    return b""


def caller_of(request: web.Request, access: Access) -> Principal:
    """Return who sends a request that was checked."""
    known: Principal | None = request.get(CALLER)
    if known is not None:
        return known
    return Principal(access.everything, request.get(ADDRESS) or address_of(request.transport))


def cut(request: web.Request) -> None:
    """End a stream at once: whoever follows it may not any more."""
    if request.transport is not None:
        request.transport.abort()


def address_of(transport: asyncio.BaseTransport | None) -> str:
    """Return where a connection comes from: a host, or ``unix``."""
    peer = None if transport is None else transport.get_extra_info("peername")
    return peer[0] if isinstance(peer, tuple) else UNIX


def certificate_of(transport: asyncio.BaseTransport | None) -> str:
    """Return the name in the certificate that a peer has shown; empty where it showed none."""
    return (transport.get_extra_info(CERTIFICATE_NAME) or "") if transport is not None else ""


def _is_token(given: str) -> bool:
    """Tell whether ``Authorization`` has a token: a proxy with passwords of its own may pass these on."""
    return given[:7].lower() == "bearer "


def _is_large(request: web.Request) -> bool:
    """Tell whether it costs more to read a body than to send it: of nobody who is known it is not read."""
    size = request.content_length
    return request.body_exists and (size is None or size > CONNECTION_BYTES_FREE)


def _is_output(path: str) -> bool:
    return path.startswith("/runs/") and path.endswith("/output")


class ConnectionIdentity:
    """Whoever has one connection."""

    __slots__ = ("_access", "_address", "_by_header", "_header", "_who")

    def __init__(self, access: Access, address: str) -> None:
        """Ask ``access`` about who comes from ``address``, which is empty for the unix socket."""
        self._access, self._address = access, address or UNIX
        self._who: Principal | None = None
        """Who asks, once that was said for all that follows."""
        self._header = b""
        self._by_header: Principal | None = None

    def caller(self, authorization: str, transport: asyncio.BaseTransport | None) -> Principal:
        """Return who sends a request with such a header; raises Unauthenticated and TooManyWrong."""
        access = self._access
        if authorization:
            header, caller = authorization.encode(errors="surrogatepass"), self._by_header
            if caller is None or not compare_digest(header, self._header) or not access.goes_on(caller):
                caller = access.by_header(authorization, self._address)
                self._header, self._by_header = header, caller
            return caller
        if self._who is not None and access.still(self._who):
            return self._who
        if access.on and (name := certificate_of(transport)):
            self._who = access.by_certificate(name, self._address)
            return self._who
        return access.visitor(self._address)

    def authenticate(self, token: str) -> Principal:
        """Remember who asks from now on; raises as ``caller`` does."""
        self._who = self._access.by_bearer(token, self._address)
        return self._who
