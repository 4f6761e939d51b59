"""Who may ask over HTTP: a page of another site must not reach a server through somebody's browser.

A page that a foreign name leads to this machine (DNS rebinding) is told by its ``Host``, a page of another
site by its ``Origin``, and a link or an image in it by ``Sec-Fetch-Site``. It knows nothing of commands.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from bedrockjobs.base.errors import Forbidden

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

_SAFE_METHODS = frozenset({"GET", "HEAD"})


class Origins:
    """The names under which one server is asked."""

    def __init__(self, *, local_only: bool, names: str) -> None:
        """With ``local_only`` requests must name this machine, or one of ``names``, a comma list of hosts.

        ``names`` are also the hosts of a proxy, whose pages may send what changes something.
        """
        self._local_only = local_only
        self._names = frozenset(name.strip().lower() for name in names.split(",") if name.strip())

    def check(self, request: web.Request) -> None:
        """Raise Forbidden for a request that a page of another site may have sent."""
        given = request.headers.get("Host", "")
        if not self.is_known(given) and not _over_unix(request):  # which no browser opens
            known = " or ".join(sorted(self._names)) or "localhost; see --public-hosts"
            host = _hostname(f"//{given}") or ""
            raise Forbidden("Foreign host", f"Host: expected {known}, not {host[:100]}")
        origin = request.headers.get("Origin")
        if not origin or request.method in _SAFE_METHODS or origin.partition("://")[2] == request.host:
            return
        if _hostname(origin) not in self._names:
            raise Forbidden("Foreign origin", f"Origin: expected {request.host}, not {origin[:100]}")

    def is_known(self, host: str) -> bool:
        """Tell whether the server may be asked under a ``Host``."""
        if not self._local_only:
            return True
        name = _hostname(f"//{host}")
        return name is None or name in _LOCAL_NAMES | self._names

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


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return url  # no name of this machine
