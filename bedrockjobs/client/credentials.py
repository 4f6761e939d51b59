"""Who a client says it is, and whom it believes: a token, and the files of TLS."""

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
"""The environment variable with the path of a file that has a token in it."""

RUN_TOKEN_VARIABLE = "BEDROCK_TOKEN"  # noqa: S105
"""The environment variable in which a worker gives its command the token of this run alone."""

CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE = "BEDROCKJOBS_CA", "BEDROCKJOBS_CERT", "BEDROCKJOBS_KEY"
"""The environment variables with the paths of TLS files."""

TOKEN_FILE_BYTES_MAX = 4_096
"""Size of a file with a token, which has 52 characters: more is another file."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,200}")


class Credentials:
    """What one client shows to servers, and how it verifies them. Nothing is shown of it in any text."""

    def __init__(
        self,
        *,
        token: str | None = None,
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
    ) -> None:
        """Use these; what is None comes from the environment, where it is set, and an empty text is none.

        A token goes before a file with one, and what is given before the environment. Raises
        InvalidArgument for a token or a file of one that is none.
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
        """Tell whether there is a token."""
        return bool(self._token)

    @property
    def has_certificate(self) -> bool:
        """Tell whether there is a certificate to be shown."""
        return bool(self._cert)

    @property
    def header(self) -> bytes:
        """Return the header line of a request that carries the token; nothing without one."""
        return f"Authorization: Bearer {self._token}\r\n".encode() if self._token else b""

    def renew(self) -> None:
        """Read all files again; raises InvalidArgument for one that is bad, and then keeps all as it was."""
        context = self._read_context()
        if self._file:
            self._token = _read(self._file)
        self.context = context

    def renewed(self) -> bool:
        """Read the token's file again, if there is one; tell whether it has another token now.

        A file that cannot be read just now counts as unchanged.
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
        """Return what a handshake with a server needs; its files are read once. Raises InvalidArgument."""
        return self._read_context()

    def _read_context(self) -> ssl.SSLContext:
        try:
            return client_context(self._ca, self._cert, self._key)
        except BadCertificate as error:
            raise InvalidArgument(str(error)) from None


def _of_environment(variables: Mapping[str, str]) -> tuple[str, str]:
    """Return a token and a file with one; where nothing else is set, the token of the run."""
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
    """Return a token; raises InvalidArgument for what is none, without showing it."""
    if _TOKEN.fullmatch(token) is None:
        raise InvalidArgument(f"{where}: expected one token like bj_… and nothing else")
    return token
