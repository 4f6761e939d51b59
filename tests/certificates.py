"""Certificates made for one test: of a server on this machine, of its clients, and of strangers."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import trustme


class Authority:
    """A certificate authority with all its files in one folder."""

    def __init__(self, folder: Path) -> None:
        """Create a new authority, which nothing trusts yet."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._ca = trustme.CA()
        self.ca = self._write("ca.pem", self._ca.cert_pem)
        """The path of its own certificate."""

    def sign(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Return the paths of a certificate for hosts, or of a client with this name, and of its key."""
        made = self._ca.issue_cert(*(hosts or (name,)), common_name=name)
        chain = b"".join(each.bytes() for each in made.cert_chain_pems)
        cert = self.folder / f"{name}.pem"
        cert.write_bytes(chain)
        return cert, self._write(f"{name}.key", made.private_key_pem)

    def serving(self, name: str = "server") -> dict[str, str]:
        """Return the settings of a server on this machine, with a certificate of its own."""
        cert, key = self.sign(name, "localhost", "127.0.0.1", "::1")
        return {"tls_cert": str(cert), "tls_key": str(key)}

    def trusting(self, **more: Any) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts this authority; ``more`` are its attributes."""
        context = ssl.create_default_context(cafile=str(self.ca))
        for name, value in more.items():
            setattr(context, name, value)
        return context

    def _write(self, name: str, blob: trustme.Blob) -> Path:
        path = self.folder / name
        blob.write_to_path(str(path))
        return path
