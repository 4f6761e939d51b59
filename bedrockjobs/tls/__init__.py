"""TLS for the server and its clients: SSL contexts from certificate files. ``stream`` is the transport.

Contexts have Python's defaults and at least TLS 1.2. A client that blocks imports no ``asyncio``, so the
transport has a module of its own.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ALPN = ("http/1.1",)
"""ALPN protocols that the server accepts; without this list, browsers would use HTTP/2."""


_PLACE = re.compile(r"^\[[^]]*\] | \(_ssl\.c:[0-9]+\)$")
"""The parts of an OpenSSL message to leave out: the library before its text, and the source line after it."""


_BEGIN = {
    "CERTIFICATE": re.compile(rb"^-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----", re.MULTILINE),
    "PRIVATE KEY": re.compile(rb"^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", re.MULTILINE),
}
"""The first line of a PEM block of each kind. The line of a key may name the algorithm, or say that the key
is encrypted."""

_ENCRYPTED = b"Proc-Type: 4,ENCRYPTED"
"""Header of an encrypted key in the traditional format."""

_DER = b"\x30"
"""The first byte of a certificate or key in DER, the binary format."""


class BadCertificate(ValueError):
    """A certificate or key file is unusable; the message names the option, the file and the reason."""


def chosen_context(cert: str, key: str, client_ca: str) -> ssl.SSLContext | None:
    """Return the server's TLS context, or None if no certificate is set.

    The parameters are paths of PEM files. ``key`` may be empty if ``cert`` contains the key. With
    ``client_ca``, a client may present a certificate, which must be valid; a client without a certificate may
    connect but needs a token. Raises BadCertificate.
    """
    if not cert:
        if key or client_ca:
            raise BadCertificate(
                "tls_cert: expected the server's certificate together with tls_key and tls_client_ca"
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could request it repeatedly
    context.set_alpn_protocols(ALPN)
    _load_own(context, cert, key, "tls_")
    if client_ca:
        _load_signers(context, client_ca, "tls_client_ca")
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: str, cert: str, key: str) -> ssl.SSLContext:
    """Return a client's TLS context, which always verifies the server's certificate and host name.

    ``ca`` is a PEM file of certificate authorities that replaces the system's. ``cert`` and ``key`` are the
    client's own certificate and key. Each may be empty. Raises BadCertificate.
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
        raise BadCertificate(f"key: {key}: a key needs its certificate")
    return context


def certificate_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the name in a verified certificate, as ``getpeercert`` returns it; empty without a name.

    The name is the common name, or else the first DNS name.
    """
    if not certificate:
        return ""
    for part in certificate.get("subject", ()):
        for kind, value in part:
            if kind == "commonName":
                return str(value)
    return next((str(value) for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"), "")


def why(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason for an error in plain words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason.replace("_", " ").lower() if error.reason else _PLACE.sub("", str(error))


def _load_own(context: ssl.SSLContext, cert: str, key: str, options: str = "") -> None:
    for option, path, kind in (("cert", cert, "CERTIFICATE"), ("key", key or cert, "PRIVATE KEY")):
        _check(f"{options}{option}", path, kind)
    try:
        context.load_cert_chain(cert, key or None, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            expected = f"expected the key of the certificate {cert}; it is that of another one"
            raise BadCertificate(f"{options}key: {key or cert}: {expected}") from None
        where = f"{cert} and {key}" if key else cert
        raise BadCertificate(
            f"{options}cert: {where}: expected a certificate and its key in PEM; {_unread(error)}"
        ) from None
    except OSError as error:
        raise BadCertificate(f"{options}cert: {cert}: {error.strerror}") from None


def _load_signers(context: ssl.SSLContext, path: str, option: str = "ca") -> None:
    _check(option, path, "CERTIFICATE")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise BadCertificate(f"{option}: {path}: expected certificates in PEM; {_unread(error)}") from None


def _check(option: str, path: str, kind: str) -> None:
    """Raise BadCertificate if a file is unreadable, has no PEM block of this kind, or has an encrypted key.

    OpenSSL's own message would only be ``PEM lib``.
    """
    try:
        with Path(path).open("rb") as file:
            # Bytes of a PEM file that are checked; a system's whole CA bundle is a fifth of this
            pem = file.read(4_194_304)
    except OSError as error:
        raise BadCertificate(f"{option}: {path}: cannot be read: {error.strerror}") from None
    begin = next(iter(_BEGIN[kind].findall(pem)), None)
    if begin is None:
        form = "it is in DER, the binary form" if pem[:1] == _DER else "there is none in it"
        what = "a certificate" if kind == "CERTIFICATE" else "a key"
        raise BadCertificate(
            f"{option}: {path}: expected {what} in PEM, which begins with -----BEGIN {kind}-----; {form}"
        )
    if kind == "PRIVATE KEY" and (b"ENCRYPTED" in begin or _ENCRYPTED in pem):
        raise BadCertificate(f"{option}: {path}: expected a key without a passphrase; this one is encrypted")


def _unread(error: ssl.SSLError) -> str:
    """Return why OpenSSL could not use the contents of a file."""
    if error.reason in (None, "PEM_LIB", "ASN1_LIB") or "PEM lib" in str(error):
        return "the content is damaged"
    return why(error)


def _no_passphrase() -> str:
    """Return an empty passphrase, so that OpenSSL does not prompt for one."""
    return ""
