"""Numbers for advisory locks: what units of one schema wait for beside rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

Kind = Literal["control", "events", "key", "limits", "lock", "name", "schema", "watch"]
"""``control``: pauses, drains, the crash list. ``events``: their numbers. ``key``: of CreateJob.
``limits``: takes of names of which so many may run at once. ``lock``: a job's. ``name``: of jobs that are to
be unique. ``schema``: the tables themselves. ``watch``: what time asks for."""


SALT = "lockSalt"
"""The key of ``meta`` with the secret that numbers are made with."""


class AdvisoryKeys:
    """The numbers of one schema; another in the same database has others."""

    def __init__(self, schema: str, salt: str = "") -> None:
        """Count for ``schema``; ``salt`` is the secret of its tables.

        Any role that may connect can take an advisory lock, and would stop all servers with one whose
        number it knows.
        """
        self._salt = f"{schema}/{salt}".encode() if salt else schema.encode()

    def of(self, kind: Kind, text: str = "") -> int:
        """Return the number of one thing; two things may share one, and then wait for each other."""
        digest = blake2b(b"\0".join((self._salt, kind.encode(), text.encode())), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)
