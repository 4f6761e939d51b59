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


PEM_BYTES_MAX = 4_194_304
"""What is looked at of a file for what it holds: all certificates of a system take a fifth."""

_BEGIN = {
    "CERTIFICATE": re.compile(rb"^-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----", re.MULTILINE),
    "PRIVATE KEY": re.compile(rb"^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----", re.MULTILINE),
}
"""How each kind begins; a key may have its algorithm there, or that it is encrypted."""

_ENCRYPTED = b"Proc-Type: 4,ENCRYPTED"
"""What an encrypted key of the older form has on its second line."""

_DER = b"\x30"
"""How each of them begins in the form that is not PEM."""


class BadCertificate(ValueError):
    """A file with a certificate or a key that cannot be used; names the option, the file and the reason."""


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
    _load_own(context, cert, key, "tls_")
    if client_ca:
        _load_signers(context, client_ca, "tls_client_ca")
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def chosen_context(cert: str, key: str, client_ca: str) -> ssl.SSLContext | None:
    """Return what a server needs that may have TLS; None without a certificate. Raises BadCertificate."""
    if cert:
        return server_context(cert, key, client_ca)
    if key or client_ca:
        raise BadCertificate("tls_cert: expected the server's certificate beside tls_key and tls_client_ca")
    return None


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
        raise BadCertificate(f"key: {key}: a key needs its certificate")
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


def _load_own(context: ssl.SSLContext, cert: str, key: str, options: str = "") -> None:
    for option, path, kind in (("cert", cert, "CERTIFICATE"), ("key", key or cert, "PRIVATE KEY")):
        _check(f"{options}{option}", path, kind)
    try:
        context.load_cert_chain(cert, key or None, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            words = f"expected the key of the certificate {cert}; it is that of another one"
            raise BadCertificate(f"{options}key: {key or cert}: {words}") from None
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
    """Refuse a file that cannot be read, or has nothing of a kind in PEM, or a key that is encrypted.

    OpenSSL would say no more than ``PEM lib``.
    """
    try:
        with Path(path).open("rb") as file:
            found = file.read(PEM_BYTES_MAX)
    except OSError as error:
        raise BadCertificate(f"{option}: {path}: cannot be read: {error.strerror}") from None
    begin = next(iter(_BEGIN[kind].findall(found)), None)
    if begin is None:
        form = "it is in DER, the binary form" if found[:1] == _DER else "there is none in it"
        what = "a certificate" if kind == "CERTIFICATE" else "a key"
        raise BadCertificate(
            f"{option}: {path}: expected {what} in PEM, which begins with -----BEGIN {kind}-----; {form}"
        )
    if kind == "PRIVATE KEY" and (b"ENCRYPTED" in begin or _ENCRYPTED in found):
        raise BadCertificate(f"{option}: {path}: expected a key without a passphrase; this one is encrypted")


def _unread(error: ssl.SSLError) -> str:
    """Return why what stands in a file could not be used."""
    if error.reason in (None, "PEM_LIB", "ASN1_LIB") or "PEM lib" in str(error):
        return "what stands there is damaged"
    return why(error)


def _no_passphrase() -> str:
    """Stand for the passphrase that OpenSSL would ask for on the terminal."""
    return ""
