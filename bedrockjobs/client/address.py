"""Parses server addresses, without resolving or connecting."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from bedrockjobs.base.config import DEFAULT_PORT
from bedrockjobs.base.errors import InvalidArgument
from bedrockjobs.base.run_variables import environment
from bedrockjobs.tls import BadCertificate, client_context

SERVER_VARIABLE = "BEDROCKJOBS_SERVER"
"""The environment variable with the default server."""

RUN_SERVER_VARIABLE = "BEDROCK_SERVER"
"""The environment variable by which a worker tells a job's command the address of the job's server."""

EXPECTED = "expected host, host:port, [::1]:port, http://host:port, https://host:port or unix:/path"

SCHEMES = {"http": False, "bedrock": False, "https": True, "bedrocks": True}
"""The schemes of an address, each with whether it means TLS. All of them speak the Bedrock protocol."""

UNIX_PATH_BYTES_MAX = 107
"""Maximum bytes of a unix socket's path: Linux allows 108 bytes, the last of which is a NUL."""

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

    None means the value of ``BEDROCKJOBS_SERVER``. If that is not set, it means ``BEDROCK_SERVER``, which a
    worker sets for its commands, or else the default address. Raises InvalidArgument, which names each
    invalid part and the expected form.
    """
    if server is None:
        server = server_of_environment() or f"127.0.0.1:{DEFAULT_PORT}"
    texts = [server] if isinstance(server, str) else list(server)
    addresses: dict[AnyAddress, None] = {}
    bad: dict[str, None] = {}
    for part in (part for text in texts for part in text.split(",")):
        try:
            addresses[_address(part)] = None
        except ValueError as error:
            bad[str(error)] = None
    if not addresses and not bad:
        raise InvalidArgument(f"server: {EXPECTED}, got nothing")
    if bad:
        raise InvalidArgument(f"server: {'; '.join(bad)}")
    return tuple(addresses)


def server_of_environment() -> str:
    """Return the addresses that the environment names; empty if it names none."""
    return os.environ.get(SERVER_VARIABLE) or os.environ.get(RUN_SERVER_VARIABLE) or ""


def _address(text: str) -> AnyAddress:
    text = text.strip()
    if text.lower().startswith("unix:/"):
        return _unix_address(text)
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    tls = SCHEMES.get((match["scheme"] or "http").lower())
    if tls is None:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    port = int(match["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65_535:
        raise InvalidArgument(f"expected a port from 1 to 65535, got {text!r}")
    return Address(match["bracketed"] or match["host"] or match["bare"], port, tls)


def _unix_address(text: str) -> UnixAddress:
    path = "/" + text.partition(":")[2].lstrip("/")  # other programs write unix:///path
    if path.endswith("/") or "\0" in path:
        raise InvalidArgument(f"{EXPECTED}, got {text!r}")
    if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
        raise InvalidArgument(f"expected a path of at most {UNIX_PATH_BYTES_MAX} bytes, got {text!r}")
    return UnixAddress(path)


# The credentials of a client: a token, and TLS files.


TOKEN_VARIABLE = "BEDROCKJOBS_TOKEN"  # noqa: S105  its name
"""The environment variable with a token."""

TOKEN_FILE_VARIABLE = "BEDROCKJOBS_TOKEN_FILE"  # noqa: S105
"""The environment variable with the path of a token file."""

RUN_TOKEN_VARIABLE = "BEDROCK_TOKEN"  # noqa: S105
"""The environment variable by which a worker gives the run token to the run's command."""

CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "BEDROCKJOBS_CA", "BEDROCKJOBS_CERT", "BEDROCKJOBS_KEY"
"""The environment variables with the paths of TLS files: CA certificates, the client's certificate and its
key."""

TOKEN_FILE_BYTES_MAX = 4_096
"""Maximum bytes of a token file; a token has 52 characters."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")


class Credentials:
    """The token and TLS files with which a client identifies itself and verifies servers.

    Error messages never contain a token or a key.
    """

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Use these values. For None the environment's value is used; an empty text means no value.

        A token takes precedence over a token file, and arguments over the environment. Raises InvalidArgument
        for a bad token or token file.
        """
        self._file = ""
        self._token = ""
        if token is None and token_file is None:
            token, token_file = _of_environment(environment())
        if token:
            self._token = _checked(token.strip(), "token")
        elif token_file:
            self._file = str(token_file)
            self._token = _read(self._file)
        self._ca, self._cert, self._key = (
            os.environ.get(variable, "") if given is None else str(given)
            for given, variable in ((ca, CA_VARIABLE), (cert, CERT_VARIABLE), (key, KEY_VARIABLE))
        )

    @property
    def has_token(self) -> bool:
        """Return whether there is a token."""
        return bool(self._token)

    @property
    def has_certificate(self) -> bool:
        """Return whether there is a client certificate."""
        return bool(self._cert)

    @property
    def header(self) -> bytes:
        """Return the header line with the token, as bytes with its line end; empty if there is no token."""
        return f"Authorization: Bearer {self._token}\r\n".encode() if self._token else b""

    def renew(self) -> None:
        """Reload all files; raises InvalidArgument for a bad file, in which case nothing changes."""
        context = self._read_context()
        if self._file:
            self._token = _read(self._file)
        self.context = context

    def renewed(self) -> bool:
        """Reload the token file, if there is one; return whether the token changed.

        If the file cannot be read, the token stays.
        """
        if not self._file:
            return False
        before = self._token
        try:
            self._token = _read(self._file)
        except ValueError:
            return False
        return self._token != before

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context of connections, made at first use from the files. Raises InvalidArgument."""
        return self._read_context()

    def _read_context(self) -> ssl.SSLContext:
        try:
            return client_context(self._ca, self._cert, self._key)
        except BadCertificate as error:
            raise InvalidArgument(str(error)) from None


def _of_environment(variables: Mapping[str, str]) -> tuple[str, str]:
    """Return the token and the path of the token file from the environment; at most one is not empty.

    The token of the run that this process belongs to is used only if neither is set.
    """
    token, file = variables.get(TOKEN_VARIABLE, ""), variables.get(TOKEN_FILE_VARIABLE, "")
    return ("", file) if file and not token else (token or variables.get(RUN_TOKEN_VARIABLE, ""), "")


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(TOKEN_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidArgument(f"token file {path}: cannot be read: {error.strerror}") from None
    if len(content) > TOKEN_FILE_BYTES_MAX:
        raise InvalidArgument(f"token file {path}: expected at most {TOKEN_FILE_BYTES_MAX} bytes")
    return _checked(content.decode("latin-1").strip(), f"token file {path}")


def _checked(token: str, where: str) -> str:
    """Return ``token`` if it is well-formed; raises InvalidArgument, which does not show the token."""
    if _TOKEN.fullmatch(token) is None:
        raise InvalidArgument(f"{where}: expected one token like bj_… and nothing else")
    return token
