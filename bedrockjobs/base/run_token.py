"""The token of one run: what a worker gives its command, so that it can tell how far it is and make children.

It is the runID, the jobID, the name of the token that the job was taken with, and an HMAC over them by a key
that the database keeps. Nobody stores it: whoever has the key can tell a right one from a wrong one, and asks
beside that whether the run is still open. It knows no tables.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

KEY_BYTES = 32
"""Random bytes of a database's key: as many as the HMAC has."""

PREFIX = "bjr_"
"""What such a token begins with: others begin with ``bj_``."""

RUN_TOKEN_CHARS_MAX = 200
"""Length of such a token: two numbers of 19 digits, an HMAC of 43 characters, and a name of at most 100."""

_SHAPE = re.compile(
    r"bjr_([1-9][0-9]{0,18})_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})([A-Za-z0-9._@/:-]{0,100})", re.ASCII
)


class RunOfToken(NamedTuple):
    """What a token is for."""

    run_id: int
    job_id: int
    by: str = ""
    """The name of the token that the job was taken with, which bounds what this one may do; empty: none."""


def new_key() -> str:
    """Return a key that nobody has, as text for the database."""
    return secrets.token_hex(KEY_BYTES)


def run_token_of(key: str, run: RunOfToken) -> str:
    """Return the token of a run."""
    return f"{PREFIX}{run.run_id}_{run.job_id}_{_signature(key, run)}{run.by}"


def run_of_token(key: str, token: str) -> RunOfToken | None:
    """Return what a token is for; None for one that is none, or of another database.

    A wrong one takes as long as a right one. Whether the run is still open is not known here.
    """
    found = _SHAPE.fullmatch(token) if len(token) <= RUN_TOKEN_CHARS_MAX else None
    if found is None or not key:
        return None
    run = RunOfToken(int(found[1]), int(found[2]), found[4])
    return run if hmac.compare_digest(found[3], _signature(key, run)) else None


def _signature(key: str, run: RunOfToken) -> str:
    signed = f"run {run.run_id} of job {run.job_id} by {run.by}".encode()
    return urlsafe_b64encode(hmac.digest(key.encode(), signed, sha256)).decode().rstrip("=")
