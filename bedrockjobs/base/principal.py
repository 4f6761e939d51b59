"""Tokens as text: made, recognised and hashed.

A token is ``bj_``, 32 random bytes as base64url, and a checksum of both, so that programs that look for
secrets find it and one that was copied in part is told from a wrong one. It is a secret of full strength:
a plain SHA-256 of it is kept, and no slow hash is needed.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from bedrockjobs.base.glob import common_of_all, glob, lies_within

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


# The token of one run: what a worker gives its command, so that it can tell how far it is and make
# children.
#
# It is the runID, the jobID, the name of the token that the job was taken with, and an HMAC over them by a
# key that the database keeps. Nobody stores it: whoever has the key can tell a right one from a wrong one,
# and asks beside that whether the run is still open. It knows no tables.


KEY_BYTES = 32
"""Random bytes of a database's key: as many as the HMAC has."""

RUN_PREFIX = "bjr_"
"""What such a token begins with: others begin with ``bj_``."""

RUN_TOKEN_CHARS_MAX = 200
"""Length of such a token: two numbers of 19 digits, an HMAC of 43 characters, and a name of at most 100."""

_RUN_SHAPE = re.compile(
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
    return f"{RUN_PREFIX}{run.run_id}_{run.job_id}_{_run_signature(key, run)}{run.by}"


def run_of_token(key: str, token: str) -> RunOfToken | None:
    """Return what a token is for; None for one that is none, or of another database.

    A wrong one takes as long as a right one. Whether the run is still open is not known here.
    """
    found = _RUN_SHAPE.fullmatch(token) if len(token) <= RUN_TOKEN_CHARS_MAX else None
    if found is None or not key:
        return None
    run = RunOfToken(int(found[1]), int(found[2]), found[4])
    return run if hmac.compare_digest(found[3], _run_signature(key, run)) else None


def _run_signature(key: str, run: RunOfToken) -> str:
    signed = f"run {run.run_id} of job {run.job_id} by {run.by}".encode()
    return urlsafe_b64encode(hmac.digest(key.encode(), signed, sha256)).decode().rstrip("=")


# The secret of a schedule that expects pings: whoever has it can end its ticks, and do nothing else.
#
# It is the jobID and an HMAC over it by a key that the database keeps. Nobody stores it, and it is the same
# for as long as the schedule is there. It knows no tables.


_PING_SHAPE = re.compile(r"bjp_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})", re.ASCII)


def ping_secret_of(key: str, job_id: int) -> str:
    """Return the secret of a schedule."""
    return f"bjp_{job_id}_{_ping_signature(key, job_id)}"


def job_of_ping(key: str, secret: str) -> int | None:
    """Return the jobID that a secret is for; None for one that is wrong, or of another database.

    A wrong one takes as long as a right one. Whether the schedule is still there is not known here.
    """
    found = _PING_SHAPE.fullmatch(secret)
    if found is None or not key:
        return None
    job_id = int(found[1])
    return job_id if hmac.compare_digest(found[2], _ping_signature(key, job_id)) else None


def _ping_signature(key: str, job_id: int) -> str:
    signed = hmac.digest(key.encode(), f"ping of job {job_id}".encode(), sha256)
    return urlsafe_b64encode(signed).decode().rstrip("=")


# Who asks: what a token lets its bearer do, and to which names.
#
# A ``Grant`` is what one row of the table ``tokens`` means; a ``Caller`` is somebody with it at an address.
# It knows neither tables nor protocols.


ROLES = ("read", "produce", "work", "operate", "admin")
"""What a token may be for, in the order in which roles are told."""

_HELD = {"operate": ROLES[:4], "admin": ROLES}
"""The roles that a role holds beside itself."""

COMPARED_MAX = 100
"""Requests for names for which a token remembers what it sees of them: workers ask for the same again."""

COMPARED_CHARS_MAX = 1_000
"""Length of such a request, or of a name; for longer ones it is found anew: nobody is to fill the memory."""

NAMES_SEEN_MAX = 1_000
"""Names of which a token remembers whether it sees them: workers and producers name the same again."""

NOBODYS_NAME = "~" * 256
"""A pattern that no name matches: it is longer than any."""


def roles_held(role: str) -> frozenset[str]:
    """Return all that a comma list of roles allows."""
    return frozenset(held for one in role.split(",") for held in _HELD.get(one, (one,)))


class Scope:
    """The names that a token may see: those that match one of some patterns."""

    __slots__ = ("_seen", "_within", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        """See the names that match one of ``patterns``."""
        self.patterns = tuple(patterns)
        self._within: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._seen: dict[str, bool] = {}

    def sees(self, name: str) -> bool:
        """Tell whether a name is one of them."""
        known = self._seen.get(name)
        if known is None:
            known = any(glob(name, pattern) for pattern in self.patterns)
            if len(self._seen) >= NAMES_SEEN_MAX:
                self._seen.clear()
            if len(name) <= COMPARED_CHARS_MAX:
                self._seen[name] = known
        return known

    def holds(self, pattern: str) -> bool:
        """Tell whether all names that match a pattern are among them, as far as one can tell."""
        return lies_within(pattern, self.patterns)

    def within(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return patterns for those among them that match one of some patterns; raises TooManyPatterns."""
        given = tuple(wanted)
        found = self._within.get(given)
        if found is None:
            found = common_of_all(given, self.patterns)
            if len(self._within) >= COMPARED_MAX:
                self._within.clear()
            if sum(map(len, (*given, *found))) <= COMPARED_CHARS_MAX:
                self._within[given] = found
        return found

    def __str__(self) -> str:
        return ", ".join(self.patterns)


def net_of(address: str) -> str:
    """Return what is counted together: an address, of IPv6 the net (/64) that one customer has."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.IPv6Network((int(found), 64), strict=False))


class Permission:
    """What one token allows, as long as it is ``valid``."""

    __slots__ = (
        "addresses",
        "digest",
        "ends",
        "expires",
        "name",
        "no_data",
        "noted",
        "role",
        "roles",
        "scope",
        "valid",
    )

    def __init__(
        self,
        name: str,
        role: str,
        names: Iterable[str] = (),
        *,
        no_data: bool = False,
        expires: str = "",
        digest: str = "",
    ) -> None:
        """Allow a comma list of roles for ``names``, all of them where there are none."""
        self.name, self.role, self.digest = name, role, digest
        self.roles = roles_held(role)
        patterns = tuple(names)
        self.scope = Scope(patterns) if patterns else None
        """Which names it sees; None: all."""
        self.no_data = no_data
        """Whether it must not see what jobs were given, nor what they gave back and printed."""
        self.expires = expires
        """When it ends, as a timestamp; empty: never."""
        self.valid = True
        """Whether it still counts; one that does not never does again."""
        self.noted = float("-inf")
        """When it was noted last that it is used, in monotonic seconds."""
        self.addresses: set[str] = set()
        """Where it was used from since the server began, as far as it is remembered."""
        self.ends: set[Callable[[], object]] = set()
        """What is called when it counts no more."""

    @property
    def whole(self) -> bool:
        """Tell whether it sees everything of every name."""
        return self.scope is None and not self.no_data

    def end(self) -> None:
        """Count no more: end whatever its bearers wait for."""
        self.valid = False
        ends, self.ends = self.ends, set()
        for call in ends:
            call()


class Principal(NamedTuple):
    """Somebody who asks."""

    grant: Permission
    address: str
    """Where from: a host, or ``unix``; empty where nobody knows."""
    run: RunOfToken | None = None
    """The only run that it is for, where it is the token of one; the grant is that of who took the job."""
    direct: bool = True
    """Whether nobody can stand between: False over HTTP if the settings speak of a proxy."""

    @property
    def name(self) -> str:
        """Return the name of the token; empty without one."""
        return self.grant.name

    @property
    def sees_all(self) -> bool:
        """Tell whether the caller may look at everything."""
        return self.run is None and self.grant.whole and "read" in self.grant.roles

    @property
    def scope(self) -> Scope | None:
        """Return which names are seen; None: all."""
        return self.grant.scope
