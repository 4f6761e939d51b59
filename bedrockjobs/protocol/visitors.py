"""Checks of HTTP requests without credentials: origin checks against browsers, and trusted proxies.

DNS rebinding is detected by the ``Host``, requests sent by pages of other sites by ``Origin``, and links or
images in such pages by ``Sec-Fetch-Site``.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.engine.access import UNIX

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
