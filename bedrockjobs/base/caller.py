"""Who asks: what a token lets its bearer do, and to which names.

A ``Grant`` is what one row of the table ``tokens`` means; a ``Caller`` is somebody with it at an address. It
knows neither tables nor protocols.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import NamedTuple

from bedrockjobs.base.glob import glob
from bedrockjobs.base.overlap import common_of_all, lies_within
from bedrockjobs.base.run_token import RunOfToken

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


class Grant:
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
        """When it ends, as a stamp; empty: never."""
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


class Caller(NamedTuple):
    """Somebody who asks."""

    grant: Grant
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
