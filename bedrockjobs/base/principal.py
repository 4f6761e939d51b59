"""Principals: tokens as text, run tokens and ping secrets, and what a token permits.

A token is ``bj_``, 32 random bytes as base64url, and a checksum of both, so that secret scanners find it and
an incomplete copy can be distinguished from a wrong token. A token cannot be guessed, so its plain SHA-256
may be stored and no slow hash is needed.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

from bedrockjobs.base.config import TOKEN_SHARE
from bedrockjobs.base.errors import TooMany
from bedrockjobs.base.glob import common_of_all, glob, lies_within

PREFIX = "bj_"

TOKEN_CHARS_MAX = 200
"""Maximum length of a presented token that is examined. Tokens of this server have 52 characters; run tokens
have two numbers of 19 digits, an HMAC of 43 characters, and a name of at most 100."""

_SHAPE = re.compile(r"bj_([A-Za-z0-9_-]{43})([A-Za-z0-9_-]{6})")


def new_token() -> str:
    """Return a new random token."""
    body = PREFIX + new_secret()
    return body + _checksum(body)


def new_secret() -> str:
    """Return 32 random bytes as base64url, without padding."""
    # Random bytes of a token, and of a session of the pages: 256 bits cannot be guessed.
    return _text(secrets.token_bytes(32))


def digest_of(text: str) -> str:
    """Return what the server stores of a token or session: its SHA-256 in hexadecimal."""
    return sha256(text[:TOKEN_CHARS_MAX].encode(errors="replace")).hexdigest()


def is_whole(text: str) -> bool:
    """Return whether a text has the form of a token and a correct checksum."""
    match = _SHAPE.fullmatch(text)
    return match is not None and _checksum(text[:-6]) == match[2]


def _checksum(body: str) -> str:
    return _text(crc32(body.encode()).to_bytes(4, "big"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


# Run tokens: a worker passes one to its command, which can then report progress and create children.
#
# A run token consists of the runID, the jobID, the name of the token that took the job, and an HMAC over them
# with the database's key. It is not stored: the key verifies it, and the caller must also check that the run
# is still open.


RUN_PREFIX = "bjr_"
"""Prefix of run tokens, unlike ``bj_`` of other tokens."""

ANONYMOUS = "(anonymous)"
"""The name under which clients without a token act if they may; no token can have it."""

_RUN_SHAPE = re.compile(
    r"bjr_([1-9][0-9]{0,18})_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})"
    rf"([A-Za-z0-9._@/:-]{{0,100}}|{re.escape(ANONYMOUS)})",
    re.ASCII,
)


class RunOfToken(NamedTuple):
    """The contents of a run token."""

    run_id: int
    job_id: int
    by: str = ""
    """The name of the token with which the job was taken, whose permissions also limit the run token; empty
    if the job was taken without a token."""


def new_key() -> str:
    """Return a new random key, as text for the database."""
    return secrets.token_hex(32)  # as many bytes as the HMAC has


def run_token_of(key: str, run: RunOfToken) -> str:
    """Return the token of a run."""
    return f"{RUN_PREFIX}{run.run_id}_{run.job_id}_{_run_signature(key, run)}{run.by}"


def run_of_token(key: str, token: str) -> RunOfToken | None:
    """Return the run of a token; None if the token is invalid or belongs to another database.

    Verification takes constant time. This function does not check whether the run is still open.
    """
    match = _RUN_SHAPE.fullmatch(token) if len(token) <= TOKEN_CHARS_MAX else None
    if match is None or not key:
        return None
    run = RunOfToken(int(match[1]), int(match[2]), match[4])
    return run if hmac.compare_digest(match[3], _run_signature(key, run)) else None


def _run_signature(key: str, run: RunOfToken) -> str:
    signed = f"run {run.run_id} of job {run.job_id} by {run.by}".encode()
    return _text(hmac.digest(key.encode(), signed, sha256))


# Ping secrets: a schedule that expects pings has a secret, which allows ending its ticks and nothing else.
#
# A ping secret consists of the jobID and an HMAC over it with the database's key. It is not stored, and stays
# the same for the lifetime of the schedule.


_PING_SHAPE = re.compile(r"bjp_([1-9][0-9]{0,18})_([A-Za-z0-9_-]{43})", re.ASCII)


def ping_secret_of(key: str, job_id: int) -> str:
    """Return the ping secret of a schedule."""
    return f"bjp_{job_id}_{_ping_signature(key, job_id)}"


def job_of_ping(key: str, secret: str) -> int | None:
    """Return the jobID of a ping secret; None if it is invalid or belongs to another database.

    Verification takes constant time. This function does not check whether the schedule still exists.
    """
    match = _PING_SHAPE.fullmatch(secret)
    if match is None or not key:
        return None
    job_id = int(match[1])
    return job_id if hmac.compare_digest(match[2], _ping_signature(key, job_id)) else None


def _ping_signature(key: str, job_id: int) -> str:
    return _text(hmac.digest(key.encode(), f"ping of job {job_id}".encode(), sha256))


# Permissions: a ``Permission`` is one row of the table ``tokens``; a ``Principal`` is a client that uses it
# from an address.


ROLES = ("read", "produce", "work", "operate", "admin")
"""The roles of tokens, in the order of their display."""

_HELD = {"operate": ROLES[:4], "admin": ROLES}
"""For each role that includes other roles: all roles that it includes, itself among them."""

COMPARED_MAX = 100
"""Maximum number of cached intersections of requested names with a token's scope: workers repeat their
requests."""

COMPARED_CHARS_MAX = 1_000
"""Maximum length of a request or a name that is cached, so that clients cannot fill the memory."""

NAMES_SEEN_MAX = 1_000
"""Maximum number of names for which a token's scope is cached: workers and producers repeat names."""

NOBODYS_NAME = "~" * 256
"""A pattern that no name matches, since it is longer than any name."""


def roles_held(role: str) -> frozenset[str]:
    """Return all roles that a comma list of roles includes."""
    return frozenset(held for one in role.split(",") for held in _HELD.get(one, (one,)))


class Scope:
    """The names that a token may see: those that match one of its patterns."""

    __slots__ = ("_included", "_narrow", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        """Include the names that match one of ``patterns``."""
        self.patterns = tuple(patterns)
        self._narrow: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._included: dict[str, bool] = {}

    def covers(self, name: str) -> bool:
        """Return whether a name is in the scope."""
        known = self._included.get(name)
        if known is None:
            known = any(glob(name, pattern) for pattern in self.patterns)
            if len(self._included) >= NAMES_SEEN_MAX:
                self._included.clear()
            if len(name) <= COMPARED_CHARS_MAX:
                self._included[name] = known
        return known

    def includes_pattern(self, pattern: str) -> bool:
        """Return whether all names that match a pattern are in the scope; False if unknown."""
        return lies_within(pattern, self.patterns)

    def narrow(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return the patterns of ``wanted`` narrowed to the scope; raises TooManyPatterns."""
        patterns = tuple(wanted)
        narrowed = self._narrow.get(patterns)
        if narrowed is None:
            narrowed = common_of_all(patterns, self.patterns)
            if len(self._narrow) >= COMPARED_MAX:
                self._narrow.clear()
            if sum(map(len, (*patterns, *narrowed))) <= COMPARED_CHARS_MAX:
                self._narrow[patterns] = narrowed
        return narrowed

    def __str__(self) -> str:
        return ", ".join(self.patterns)


def net_of(address: str) -> str:
    """Return the key for limits per address: the address, or for IPv6 the /64 network of one customer."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed), 64), strict=False))


class Permission:
    """What one token permits while it is ``valid``."""

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
        """Permit the roles of a comma list for the patterns ``names``, or for all names if there are none."""
        self.name, self.role, self.digest = name, role, digest
        self.roles = roles_held(role)
        patterns = tuple(names)
        self.scope = Scope(patterns) if patterns else None
        """The names that the token may see; None for all names."""
        self.no_data = no_data
        """Whether job data, results and output are hidden from users of the token."""
        self.expires = expires
        """The timestamp at which the token expires; empty: never."""
        self.valid = True
        """Whether the token is valid; once it is not, it never becomes valid again."""
        self.noted = float("-inf")
        """Monotonic time at which the use of the token was last recorded."""
        self.addresses: set[str] = set()
        """Addresses that used the token since the server started, up to a limit."""
        self.ends: set[Callable[[], object]] = set()
        """Callbacks to call when the token becomes invalid."""

    @property
    def is_unrestricted(self) -> bool:
        """Return whether the token sees all names, with their data."""
        return self.scope is None and not self.no_data

    def end(self) -> None:
        """Make the token invalid, and end the waits and streams of its users."""
        self.valid = False
        ends, self.ends = self.ends, set()
        for call in ends:
            call()


class Principal(NamedTuple):
    """The sender of a command: a permission used from an address."""

    grant: Permission
    address: str
    """The client's host, or ``unix``; empty if unknown."""
    run: RunOfToken | None = None
    """The run to which a run token is limited; None for any other client. For a run token, ``grant`` is the
    permission of the token with which the job was taken."""
    direct: bool = True
    """Whether the client connects directly. False for every HTTP client if the settings name a proxy."""

    @property
    def name(self) -> str:
        """Return the name of the token; empty without one."""
        return self.grant.name

    @property
    def sees_all(self) -> bool:
        """Return whether the principal may read everything."""
        return self.run is None and self.grant.is_unrestricted and "read" in self.grant.roles

    @property
    def scope(self) -> Scope | None:
        """Return the names that the principal may see; None for all names."""
        return self.grant.scope


# Shares: how much of a limit that all tokens share one token may use. Before the first token there are no
# shares; after it, all clients that may do without a token have one share together.


READING_TOKEN: ContextVar[str] = ContextVar("READING_TOKEN", default="")
"""The name of the token for which this task reads; empty without one."""


def token_share(limit: int) -> int:
    """Return how much of a limit one token may use."""
    return max(limit // TOKEN_SHARE, 1)


class TokenShares:
    """Counts how much of one limit each token uses."""

    def __init__(self, reason: str) -> None:
        """Start without uses; ``reason`` is the reason in the errors that refuse further uses."""
        self._reason = reason
        self._used: Counter[str] = Counter()
        self.total = 0
        """How much of the limit all clients use together."""

    def used(self, token: str) -> int:
        """Return how much a token uses."""
        return self._used[token]

    def clear(self) -> None:
        """Forget all uses."""
        self._used.clear()
        self.total = 0

    def check(self, token: str, limit: int, more: int = 1) -> None:
        """Raise TooMany if ``more`` additional uses would put a token above its share of a limit."""
        share = token_share(limit)
        if token and self._used[token] + more > share:
            raise TooMany(self._reason, f"token {token}: expected at most {share} at once")

    def begin(self, token: str, limit: int) -> None:
        """Count one more use; raise TooMany if all clients have used up the limit, or a token its share."""
        if self.total >= limit:
            raise TooMany(self._reason, f"expected at most {limit} at once")
        self.check(token, limit)
        self.add(token)

    def add(self, token: str, count: int = 1) -> None:
        """Count uses of a token."""
        self.total += count
        self._used[token] += count

    def remove(self, token: str) -> None:
        """Count the end of a use."""
        self.total -= 1
        self._used[token] -= 1
        if self._used[token] <= 0:
            del self._used[token]
