"""The credentials of a client: a token, and TLS files."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from bedrockjobs.base.errors import InvalidArgument
from bedrockjobs.tls.contexts import BadCertificate, client_context

TOKEN_VARIABLE = "BEDROCKJOBS_TOKEN"  # noqa: S105  its name
"""The environment variable with a token."""

TOKEN_FILE_VARIABLE = "BEDROCKJOBS_TOKEN_FILE"  # noqa: S105
"""The environment variable with the path of a token file."""

RUN_TOKEN_VARIABLE = "BEDROCK_TOKEN"  # noqa: S105
"""The environment variable in which a worker passes the token of a run to its command."""

CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "BEDROCKJOBS_CA", "BEDROCKJOBS_CERT", "BEDROCKJOBS_KEY"
"""The environment variables with the paths of TLS files."""

TOKEN_FILE_BYTES_MAX = 4_096
"""Max size of a token file; a token has 52 characters."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")


class Credentials:
    """What a client presents to servers, and how it verifies them. Never shown in any text."""

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Use these; None means the environment variable if set, and an empty text means none.

        A token takes precedence over a token file, and arguments over the environment. Raises InvalidArgument
        for a bad token or token file.
        """
        self._file = ""
        self._token = ""
        if token is None and token_file is None:
            token, token_file = _of_environment(os.environ)
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
        """Return the header line with the token, empty if there is none."""
        return f"Authorization: Bearer {self._token}\r\n".encode() if self._token else b""

    def renew(self) -> None:
        """Reload all files; raises InvalidArgument for a bad file and then changes nothing."""
        context = self._read_context()
        if self._file:
            self._token = _read(self._file)
        self.context = context

    def renewed(self) -> bool:
        """Reload the token file, if there is one; return whether the token changed.

        An unreadable file counts as unchanged.
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
        """Return the context for TLS handshakes, loaded once. Raises InvalidArgument."""
        return self._read_context()

    def _read_context(self) -> ssl.SSLContext:
        try:
            return client_context(self._ca, self._cert, self._key)
        except BadCertificate as error:
            raise InvalidArgument(str(error)) from None


def _of_environment(variables: Mapping[str, str]) -> tuple[str, str]:
    """Return a token or a token file from the environment; the token of the run comes last."""
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
    """Return a valid token; raises InvalidArgument without showing it."""
    if _TOKEN.fullmatch(token) is None:
        raise InvalidArgument(f"{where}: expected one token like bj_… and nothing else")
    return token
