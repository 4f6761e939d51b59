"""The secret of a schedule that expects pings: whoever has it can end its ticks, and do nothing else.

It is the jobID and an HMAC over it by a key that the database keeps. Nobody stores it, and it is the same for
as long as the schedule is there. It knows no tables.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from hashlib import sha256

_SHAPE = re.compile(r"bjp_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})", re.ASCII)


def ping_secret_of(key: str, job_id: int) -> str:
    """Return the secret of a schedule."""
    return f"bjp_{job_id}_{_signature(key, job_id)}"


def job_of_ping(key: str, secret: str) -> int | None:
    """Return the jobID that a secret is for; None for one that is wrong, or of another database.

    A wrong one takes as long as a right one. Whether the schedule is still there is not known here.
    """
    found = _SHAPE.fullmatch(secret)
    if found is None or not key:
        return None
    job_id = int(found[1])
    return job_id if hmac.compare_digest(found[2], _signature(key, job_id)) else None


def _signature(key: str, job_id: int) -> str:
    signed = hmac.digest(key.encode(), f"ping of job {job_id}".encode(), sha256)
    return urlsafe_b64encode(signed).decode().rstrip("=")
