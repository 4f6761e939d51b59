"""Tokens as text: made, recognised and hashed.

A token is ``bj_``, 32 random bytes as base64url, and a checksum of both, so that programs that look for
secrets find it and one that was copied in part is told from a wrong one. It is a secret of full strength:
a plain SHA-256 of it is kept, and no slow hash is needed.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from zlib import crc32

PREFIX = "bj_"
SECRET_BYTES = 32
"""Random bytes of a token, and of a session of the pages: nobody guesses 256 bits."""

TOKEN_CHARS_MAX = 200
"""Length up to which what somebody sends as a token is looked at; ours have 52 characters."""

_SHAPE = re.compile(r"bj_([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})")


def new_token() -> str:
    """Return a token that nobody has."""
    body = PREFIX + new_secret()
    return body + _checksum(body)


def new_secret() -> str:
    """Return 32 random bytes as base64url, without padding."""
    return _text(secrets.token_bytes(SECRET_BYTES))


def digest_of(text: str) -> str:
    """Return what is kept of a token or of a session: its SHA-256 in hexadecimal."""
    return sha256(text[:TOKEN_CHARS_MAX].encode(errors="replace")).hexdigest()


def is_whole(text: str) -> bool:
    """Tell whether a text looks like a token and its checksum fits."""
    found = _SHAPE.fullmatch(text)
    return found is not None and _checksum(text[:-6]) == found[2]


def _checksum(body: str) -> str:
    return _text(crc32(body.encode()).to_bytes(4, "big"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
