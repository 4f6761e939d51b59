"""Who may ask over HTTP: a page of another site must not reach a server through somebody's browser.

A page that a foreign name leads to this machine (DNS rebinding) is told by its ``Host``, a page of another
site by its ``Origin``, and a link or an image in it by ``Sec-Fetch-Site``. It knows nothing of commands.
"""

from __future__ import annotations

import ipaddress
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
