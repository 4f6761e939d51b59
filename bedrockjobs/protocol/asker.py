"""Who asks on one raw connection: by a header of a request, by Authenticate before, or by a certificate.

It remembers what was shown last, as most clients show the same again. What counts is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from hmac import compare_digest

from bedrockjobs.base.caller import Caller
from bedrockjobs.engine.access import UNIX, Access
from bedrockjobs.protocol.gate import certificate_of


class Asker:
    """Whoever has one connection."""

    __slots__ = ("_access", "_address", "_by_header", "_header", "_who")

    def __init__(self, access: Access, address: str) -> None:
        """Ask ``access`` about who comes from ``address``, which is empty for the unix socket."""
        self._access, self._address = access, address or UNIX
        self._who: Caller | None = None
        """Who asks, once that was said for all that follows."""
        self._header = b""
        self._by_header: Caller | None = None

    def caller(self, authorization: str, transport: asyncio.BaseTransport | None) -> Caller:
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

    def authenticate(self, token: str) -> Caller:
        """Remember who asks from now on; raises as ``caller`` does."""
        self._who = self._access.by_bearer(token, self._address)
        return self._who
