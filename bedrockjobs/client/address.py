"""How the address of a server is spelled. Nothing here resolves or connects."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.base.errors import InvalidArgument

SERVER_VARIABLE = "BEDROCKJOBS_SERVER"
"""The environment variable that names the server where the caller does not."""

RUN_SERVER_VARIABLE = "BEDROCK_SERVER"
"""The environment variable in which a worker tells its command which server its job came from."""

EXPECTED = "expected host, host:port, [::1]:port, http://host:port, https://host:port or unix:/path"

SCHEMES = {"http": False, "bedrock": False, "https": True, "bedrocks": True}
"""What may stand before an address, and whether it means TLS; the protocol is the same."""

UNIX_PATH_BYTES_MAX = 107
"""Length of a unix socket's path: Linux has 108 bytes for it, the last of which is a NUL."""

_ADDRESS = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://)?"
    r"(?:\[(?P<bracketed>[0-9a-f:.%a-z]+)\]|(?P<host>[^\s/:\[\]@]+)|(?P<bare>[0-9a-f]*:[0-9a-f.]*:[0-9a-f:.]*))"
    r"(?::(?P<port>[0-9]{1,5}))?/?",
    re.IGNORECASE,
)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int
    tls: bool = False
    """Whether connections begin with TLS, and the server shows a certificate for ``host``."""

    def __str__(self) -> str:
        """Return the address as it is typed: ``localhost:8888``, ``[::1]:8888``, ``https://host:8888``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https://' if self.tls else ''}{host}:{self.port}"


class UnixAddress(NamedTuple):
    """Where a server listens on this machine: the absolute path of a unix socket."""

    path: str

    def __str__(self) -> str:
        """Return the address as it is typed: ``unix:/run/jobs.sock``."""
        return f"unix:{self.path}"


AnyAddress = Address | UnixAddress


def addresses_of(server: str | Sequence[str] | None = None) -> tuple[AnyAddress, ...]:
    """Return the addresses that a text (one, or a comma list) or a sequence of texts names.

    None stands for the variable ``BEDROCKJOBS_SERVER``, else for ``BEDROCK_SERVER``, which a worker's command
    has, else for the default address. The order is kept, and what is named twice counts once. Raises
    InvalidArgument, which names each part that is no address and what was expected.
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
    path = "/" + text.partition(":")[2].lstrip("/")  # unix:///path is spelled so elsewhere
    if path.endswith("/") or "\0" in path:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise InvalidArgument(f"expected a path of at most {UNIX_PATH_BYTES_MAX} bytes, got {text!r}")
    return UnixAddress(path)
