"""What a proxy in front says of who asks, and from where: believed where its own address is trusted.

It knows headers and addresses, no tokens and no commands.
"""

from __future__ import annotations

import ipaddress
from typing import Protocol

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
