"""Who may ask over HTTP: a page of another site must not reach a server through somebody's browser.

A page that a foreign name leads to this machine (DNS rebinding) is told by its ``Host``, a page of another
site by its ``Origin``, and a link or an image in it by ``Sec-Fetch-Site``. It knows nothing of commands.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from bedrockjobs.base.errors import Forbidden

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_PRIVATE_ENDS = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
"""Ends of names that nobody can register, so that no foreign name leads here by them."""

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class Origins:
    """The names under which one server is asked."""

    def __init__(self, *, local_only: bool, names: str, open_to_all: bool = False) -> None:
        """With ``local_only`` requests must name this machine, or one of ``names``, a comma list of hosts.

        ``names`` are also the hosts of a proxy, whose pages may send what changes something. With
        ``open_to_all`` a server that is not ``local_only`` is asked by other machines without a token, so
        those may call it by any name that no stranger can register.
        """
        self._local_only = local_only
        self._open_to_all = open_to_all and not local_only
        self._names = frozenset(name.strip().lower() for name in names.split(",") if name.strip())

    def check(self, request: web.Request) -> None:
        """Raise Forbidden for a request that a page of another site may have sent."""
        if self._local_only:
            self.check_name(request)
        origin = request.headers.get("Origin")
        if not origin or request.method in _SAFE_METHODS or origin.partition("://")[2] == request.host:
            return
        if _hostname(origin) not in self._names:
            raise Forbidden("Foreign origin", f"Origin: expected {request.host}, not {origin[:100]}")

    def check_name(self, request: web.Request) -> None:
        """Raise Forbidden for a request that asks for a name of somebody else's."""
        given = request.headers.get("Host", "")
        if not self.is_known(given) and not _over_unix(request):  # which no browser opens
            known = " or ".join(sorted(self._names)) or "localhost; see --public-hosts"
            host = _hostname(f"//{given}") or ""
            raise Forbidden("Foreign host", f"Host: expected {known}, not {host[:100]}")

    @property
    def local_only(self) -> bool:
        """Tell whether all requests must name this machine, also those with a token."""
        return self._local_only

    def is_known(self, host: str) -> bool:
        """Tell whether somebody without a token may ask for the server under a ``Host``."""
        name = _hostname(f"//{host}")
        if name is None or name in _LOCAL_NAMES or name in self._names:
            return True
        return self._open_to_all and _is_nobodys(name)

    def check_site(self, request: web.Request) -> None:
        """Raise Forbidden for a command that a browser asks for because a page of another site says so."""
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            raise Forbidden("Foreign site", "Sec-Fetch-Site: expected same-origin or none, not cross-site")


def over_tls(request: web.Request) -> bool:
    """Tell whether a request came over TLS that ends here."""
    return request.transport is not None and request.transport.get_extra_info("sslcontext") is not None


def _over_unix(request: web.Request) -> bool:
    transport = request.transport
    return transport is not None and not isinstance(transport.get_extra_info("sockname"), tuple)


def _is_nobodys(name: str) -> bool:
    """Tell whether a name is one that no stranger can let lead here: an address, or a private name."""
    if "/" in name:  # none at all
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
        return url  # no name of this machine


# What a proxy in front says of who asks, and from where: believed where its own address is trusted.
#
# It knows headers and addresses, no tokens and no commands.


UNIX = "unix"
"""How whoever comes by the unix socket is named."""

USER_CHARS_MAX = 100
"""Length of a name from a proxy: a token's name is not longer, and both stand where ``by`` does."""

FORWARDED = "X-Forwarded-For"
"""Where a proxy says for whom it asks: each one adds who came to it at the end."""

NOT_SAID = "unknown via {}"
"""What stands for the address of a request if the proxy that it comes through does not say readably where it
came from: nobody's, and no address of this machine."""

HOPS_MAX = 20
"""Addresses in that header that are looked at, from its end: no request comes through as many proxies."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Headers(Protocol):
    """The headers of a request: a name may stand in several lines."""

    def getall(self, name: str, default: list[str]) -> list[str]:
        """Return the values of a header, in any spelling of its name."""
        ...


class Proxies:
    """The proxies in front of a server."""

    def __init__(self, trusted: str, user_header: str, *, behind: bool = False) -> None:
        """Trust a comma list of addresses and networks; raises ValueError.

        ``user_header`` is where they say who has logged in; empty: nowhere. ``behind`` says that there is
        a proxy.
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
                "behind_proxy: expected the proxy's address in trusted_proxies beside it, such as 127.0.0.1"
                " or unix; otherwise all who come through it would count as the proxy itself"
            )
        if user_header and not names:
            raise ValueError(
                "proxy_user_header: expected the proxy's address in trusted_proxies beside it; anybody could"
                " send the header"
            )
        self._user_header = user_header

    @property
    def names_users(self) -> bool:
        """Tell whether they say who has logged in."""
        return bool(self._user_header)

    @property
    def any(self) -> bool:
        """Tell whether there may be one."""
        return self._unix or bool(self._networks)

    def trusts(self, address: str) -> bool:
        """Tell whether an address is that of a proxy."""
        if address == UNIX:
            return self._unix
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None) or found
        return any(mapped in network for network in self._networks)

    def user(self, headers: Headers, address: str) -> str:
        """Return who has logged in at the proxy that a request comes from; empty where nobody, or no proxy.

        A header that comes twice, or whose value is no name, counts as none: the first might be the client's.
        """
        if not self._user_header or not self.trusts(address):
            return ""
        given = headers.getall(self._user_header, [])
        name = given[0].strip() if len(given) == 1 else ""
        return name if len(name) <= USER_CHARS_MAX and name.isprintable() else ""

    def address(self, headers: Headers | None, address: str) -> str:
        """Return for whom a request is made: the last address that is no proxy's, else its own.

        If a proxy does not say so readably, or names its own machine, the request comes from elsewhere, and
        where that is remains unknown. Without ``headers`` it says nothing.
        """
        if not self.any or not self.trusts(address):
            return address
        proxy, found = address, ""
        given = "" if headers is None else ",".join(headers.getall(FORWARDED, []))
        for hop in reversed(given.rsplit(",", HOPS_MAX)[-HOPS_MAX:]):
            found = _address_in(hop.strip())
            if not found or not self.trusts(found):
                break
        return found if found and not _is_own(found) else NOT_SAID.format(proxy)


def _address_in(hop: str) -> str:
    """Return the address in one place of ``X-Forwarded-For``, without its port; empty if there is none."""
    if hop.startswith("["):
        hop, _, port = hop[1:].partition("]")
        port = port.removeprefix(":")
    elif hop.count(":") == 1:
        hop, _, port = hop.partition(":")
    else:
        port = ""
    try:
        found = ipaddress.ip_address(hop)
    except ValueError:
        return ""
    return "" if port and not (port.isascii() and port.isdigit()) else str(found)


def _is_own(address: str) -> bool:
    """Tell whether an address is one by which a machine names itself: nobody else can tell which machine."""
    found = ipaddress.ip_address(address)
    bare = getattr(found, "ipv4_mapped", None) or found
    return bare.is_loopback or bare.is_unspecified
