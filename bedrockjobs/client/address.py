"""Parses server addresses, without resolving or connecting."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.base.errors import InvalidArgument

SERVER_VARIABLE = "BEDROCKJOBS_SERVER"
"""The environment variable with the default server."""

RUN_SERVER_VARIABLE = "BEDROCK_SERVER"
"""The environment variable in which a worker passes its job's server to the command."""

EXPECTED = "expected host, host:port, [::1]:port, http://host:port, https://host:port or unix:/path"

SCHEMES = {"http": False, "bedrock": False, "https": True, "bedrocks": True}
"""Schemes of an address, and whether they mean TLS; the protocol is the same."""

UNIX_PATH_BYTES_MAX = 107
"""Max length of a unix socket's path: Linux has 108 bytes, the last of which is a NUL."""

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?"
    r"(?:\[(?P<bracketed>[0-9a-f:.%a-z]+)\]|(?P<host>[^\s/:\[\]@]+)|(?P<bare>[0-9a-f]*:[0-9a-f.]*:[0-9a-f:.]*))"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE,
)


class Address(NamedTuple):
    """A TCP address of a server."""

    host: str
    port: int
    tls: bool = False
    """True if connections use TLS, with a certificate for ``host``."""

    def __str__(self) -> str:
        """Return the address as users write it: ``localhost:8888``, ``[::1]:8888``, ``https://host:8888``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.tls else ''}{host}:{self.port}"


class UnixAddress(NamedTuple):
    """The absolute path of a server's unix socket."""

    path: str

    def __str__(self) -> str:
        """Return the address as users write it: ``unix:/run/jobs.sock``."""
        return f"unix:{self.path}"


AnyAddress = Address | UnixAddress


def addresses_of(server: str | Sequence[str] | None = None) -> tuple[AnyAddress, ...]:
    """Return the addresses in a comma-separated text or a sequence of texts, without duplicates.

    None means ``BEDROCKJOBS_SERVER``, else ``BEDROCK_SERVER``, which a worker sets for its commands, else the
    default address. Raises InvalidArgument, which names each invalid part and the expected form.
    """
    if server is None:
        named = os.environ.get(SERVER_VARIABLE) or os.environ.get(RUN_SERVER_VARIABLE)
        server = named or f"127.0.0.1:{DEFAULT_PORT}"
    texts = [server] if isinstance(server, str) else list(server)
    found: dict[AnyAddress, None] = {}
    bad: dict[str, None] = {}
    for part in (part for text in texts for part in text.split(",")):
        try:
            found[_address(part)] = None
        except ValueError as error:
            bad[str(error)] = None
    if not found and not bad:
        raise InvalidArgument(f"server: {EXPECTED}, got nothing")
    if bad:
        raise InvalidArgument(f"server: {'; '.join(bad)}")
    return tuple(found)


def _address(text: str) -> AnyAddress:
    text = text.strip()
    if text.lower().startswith("unix:/"):
        return _unix_address(text)
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    tls = SCHEMES.get((found["scheme"] or "http").lower())
    if tls is None:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65_535:
        raise InvalidArgument(f"expected a port from 1 to 65535, got {text!r}")
    return Address(found["bracketed"] or found["host"] or found["bare"], port, tls)


def _unix_address(text: str) -> UnixAddress:
    path = "/" + text.partition(":")[2].lstrip("/")  # other programs write unix:///path
    if path.endswith("/") or "\0" in path:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise InvalidArgument(f"expected a path of at most {UNIX_PATH_BYTES_MAX} bytes, got {text!r}")
    return UnixAddress(path)
