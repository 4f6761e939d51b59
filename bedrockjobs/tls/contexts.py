"""Certificates from files to what a handshake needs. Python's defaults hold, and TLS 1.2 is the oldest."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ALPN = ("http/1.1",)
"""What a server says it speaks where it is asked, as by browsers, which could do more."""


_PLACE = re.compile(r"^\[[^]]*\] | \(_ssl\.c:[0-9]+\)$")
"""What stands around the words of an error without a reason."""


class BadCertificate(ValueError):
    """A file with a certificate or a key that cannot be used; names the file and the reason."""


def server_context(cert: str, key: str, client_ca: str) -> ssl.SSLContext:
    """Return what a server needs: its certificate chain, its key, and who signs those of clients.

    All are paths of PEM files. ``key`` may be empty where ``cert`` holds the key as well. With ``client_ca``
    a client may show a certificate, which must then be good; one that shows none is let in all the same, and
    needs a token. Raises BadCertificate.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which a client could ask for again and again
    context.set_alpn_protocols(ALPN)
    _load_own(context, cert, key)
    if client_ca:
        _load_signers(context, client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """Return what a client needs; a server's certificate is always verified, and its name too.

    ``ca`` is a PEM file of those who may have signed it, in place of those that the system trusts; ``cert``
    and ``key`` are what the client shows. Each may be empty. Raises BadCertificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca:
        _load_signers(context, ca)
    else:
        context.load_default_certs()
    if cert:
        _load_own(context, cert, key)
    elif key:
        raise BadCertificate(f"{key}: a key needs its certificate")
    return context


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return whom a verified certificate, as ``getpeercert`` gives it, names; empty where nobody.

    That is its common name; where it has none, its first DNS name.
    """
    if not certificate:
        return ""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return next((str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"), "")


def why(error: ssl.SSLError) -> str:
    """Return what OpenSSL says of a failure, in words alone."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason.replace("_", " ").lower() if error.reason else _PLACE.sub("", str(error))


def _load_own(context: ssl.SSLContext, cert: str, key: str) -> None:
    for path in filter(None, (cert, key)):
        _check_readable(path)
    try:
        context.load_cert_chain(cert, key or None, password=_no_passphrase)
    except ssl.SSLError as error:
        where = f"{cert} and {key}" if key else cert
        raise BadCertificate(
            f"{where}: expected a certificate and its key without a passphrase, in PEM: {why(error)}"
        ) from None
    except OSError as error:
        raise BadCertificate(f"{cert}: {error.strerror}") from None


def _load_signers(context: ssl.SSLContext, path: str) -> None:
    _check_readable(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise BadCertificate(f"{path}: expected certificates in PEM: {why(error)}") from None


def _check_readable(path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise BadCertificate(f"{path}: cannot be read: {error.strerror}") from None


def _no_passphrase() -> str:
    """Stand for the passphrase that OpenSSL would ask for on the terminal."""
    return ""
