"""Who sends a request: authentication by token, session cookie, proxy header or certificate; origin checks.

This module decides which paths need authentication. Each command class says which role its command needs, and
the engine and the views apply the scope.
"""

from __future__ import annotations

import asyncio
import ipaddress
from hmac import compare_digest
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from bedrockjobs.base.config import CONNECTION_BYTES_FREE
from bedrockjobs.base.errors import Forbidden, Unauthenticated
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands import COMMANDS
from bedrockjobs.engine.access import UNIX, Access
from bedrockjobs.engine.authorization import WORDS
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


# Checks of HTTP requests without credentials.
#
# DNS rebinding is detected by the ``Host``, requests sent by pages of other sites by ``Origin``, and links or
# images in such pages by ``Sec-Fetch-Site``.


_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_PRIVATE_ENDS = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
"""Private top-level names, which cannot be registered, so that no attacker can point them here."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class Origins:
    """The host names of a server, and the origin checks based on them."""

    def __init__(self, *, local_only: bool, names: str, open_to_all: bool = False) -> None:
        """Set the accepted host names.

        ``names`` is a comma-separated list of further host names, such as the name under which a proxy serves
        the pages; pages of these hosts may send changes. With ``local_only`` the ``Host`` must be this
        machine or one of ``names``. With ``open_to_all``, a server that is not ``local_only`` accepts other
        machines without a token, under any private name.
        """
        self.local_only = local_only
        """Whether all requests must name this machine, even requests with a token."""
        self._open_to_all = open_to_all and not local_only
        self._names = frozenset(name.strip().lower() for name in names.split(",") if name.strip())

    def check(self, request: web.Request) -> None:
        """Raise Forbidden if a page of another site may have sent the request."""
        if self.local_only:
            self.check_name(request)
        origin = request.headers.get("Origin")
        if not origin or request.method in _SAFE_METHODS or origin.partition("://")[2] == request.host:
            return
        if _hostname(origin) not in self._names:
            raise Forbidden("Foreign origin", f"Origin: expected {request.host}, not {origin[:100]}")

    def check_name(self, request: web.Request) -> None:
        """Raise Forbidden if the ``Host`` is not a name of this server."""
        host_header = request.headers.get("Host", "")
        if not self.is_known(host_header) and not _over_unix(request):  # browsers cannot open unix sockets
            known = " or ".join(sorted(self._names)) or "localhost; see --public-hosts"
            host = _hostname(f"//{host_header}") or ""
            raise Forbidden("Foreign host", f"Host: expected {known}, not {host[:100]}")

    def is_known(self, host: str) -> bool:
        """Return whether a ``Host`` is accepted from clients without a token."""
        name = _hostname(f"//{host}")
        if name is None or name in _LOCAL_NAMES or name in self._names:
            return True
        return self._open_to_all and _is_address_or_private(name)

    def check_site(self, request: web.Request) -> None:
        """Raise Forbidden if a browser sends the request because of a page of another site."""
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise Forbidden("Foreign site", "Sec-Fetch-Site: expected same-origin or none, not cross-site")


def over_tls(request: web.Request) -> bool:
    """Return whether the request came over TLS terminated by this server."""
    return request.transport is not None and request.transport.get_extra_info("sslcontext") is not None


def _over_unix(request: web.Request) -> bool:
    transport = request.transport
    return transport is not None and not isinstance(transport.get_extra_info("sockname"), tuple)


def _is_address_or_private(name: str) -> bool:
    """Return whether a host is an address or private name, which an attacker cannot point here."""
    if "/" in name:  # not a host name
        return False
    if "." not in name or name.endswith(_PRIVATE_ENDS):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return url  # unparsable, so it matches no known name


# Trusted proxies: their headers for the client address and the logged-in user.


USER_CHARS_MAX = 100
"""Maximum characters of a user name from a proxy, the same as for a token: both appear as ``by``."""

FORWARDED = "X-Forwarded-For"
"""Header with the chain of client addresses; each proxy appends the address of its peer."""

UNKNOWN_CLIENT = "unknown via {}"
"""Client address if a trusted proxy gives no usable address; it never equals an address of this machine."""

HOPS_MAX = 20
"""Maximum number of addresses checked in ``X-Forwarded-For``, from its end; real chains are shorter."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Headers(Protocol):
    """The headers of a request, in which a name may occur several times."""

    def getall(self, name: str, default: list[str]) -> list[str]:
        """Return all values of a header; names are case-insensitive."""


class Proxies:
    """The trusted proxies of a server."""

    def __init__(self, trusted: str, user_header: str, *, behind: bool = False) -> None:
        """Trust a comma-separated list of addresses and networks; raises ValueError.

        ``user_header`` is the header with the logged-in user, or empty. If ``behind``, at least one proxy
        must be trusted.
        """
        names = [name.strip() for name in trusted.split(",") if name.strip()]
        self._unix = UNIX in names
        try:
            self._networks: tuple[Network, ...] = tuple(
                ipaddress.ip_network(name) for name in names if name != UNIX
            )
        except ValueError as error:
            raise ValueError(f"trusted_proxies: expected addresses, networks or unix: {error}") from None
        if behind and not names:
            raise ValueError(
                "behind_proxy: expected the proxy's address in trusted_proxies, such as 127.0.0.1 or unix;"
                " otherwise all its clients would count as the proxy itself"
            )
        if user_header and not names:
            raise ValueError(
                "proxy_user_header: expected the proxy's address in trusted_proxies; otherwise anybody could"
                " send the header"
            )
        self._user_header = user_header

    @property
    def names_users(self) -> bool:
        """Return whether the proxies send the logged-in user."""
        return bool(self._user_header)

    @property
    def any(self) -> bool:
        """Return whether any proxy is trusted."""
        return self._unix or bool(self._networks)

    def trusts(self, address: str) -> bool:
        """Return whether an address is a trusted proxy."""
        if address == UNIX:
            return self._unix
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(mapped in network for network in self._networks)

    def user(self, headers: Headers, address: str) -> str:
        """Return the user from a trusted proxy's header, or empty.

        A repeated header or an invalid value counts as missing: the client itself might have sent the first
        of several headers.
        """
        if not self._user_header or not self.trusts(address):
            return ""
        values = headers.getall(self._user_header, [])
        name = values[0].strip() if len(values) == 1 else ""
        return name if len(name) <= USER_CHARS_MAX and name.isprintable() else ""

    def address(self, headers: Headers | None, address: str) -> str:
        """Return the client address: the last address in the chain that is not a trusted proxy.

        If the peer is not a trusted proxy, its own address is returned. If the trusted proxies give no valid
        address, or a local one, or if ``headers`` is None, ``UNKNOWN_CLIENT`` is returned.
        """
        if not self.any or not self.trusts(address):
            return address
        proxy, found = address, ""
        values = "" if headers is None else ",".join(headers.getall(FORWARDED, []))
        for hop in reversed(values.rsplit(",", HOPS_MAX)[-HOPS_MAX:]):
            found = _address_in(hop.strip())
            if not found or not self.trusts(found):
                break
        return found if found and not _is_own(found) else UNKNOWN_CLIENT.format(proxy)


def _address_in(hop: str) -> str:
    """Return the address in one entry of ``X-Forwarded-For`` without its port, or empty."""
    if hop.startswith("["):
        hop, _, port = hop[1:].partition("]")
        port = port.removeprefix(":")
    elif hop.count(":") == 1:
        hop, _, port = hop.partition(":")
    else:
        port = ""
    try:
        parsed = ipaddress.ip_address(hop)
    except ValueError:
        return ""
    return "" if port and not (port.isascii() and port.isdigit()) else str(parsed)


def _is_own(address: str) -> bool:
    """Return whether an address is loopback or unspecified, so it could mean any machine."""
    parsed = ipaddress.ip_address(address)
    bare = getattr(parsed, "ipv4_mapped", None) or parsed
    return bare.is_loopback or bare.is_unspecified
