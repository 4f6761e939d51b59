"""Authentication: tokens, sessions of the pages and invalid tokens, as one server knows them.

This cache of the tables ``tokens`` and ``logins`` never queries the database: each commit that changes one of
the tables updates the cache, also if another server or break-glass access made the change. It is used on the
event loop only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from functools import partial
from hmac import compare_digest
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, timestamp_ms
from bedrockjobs.base.errors import TooManyWrong, Unauthenticated, Unavailable
from bedrockjobs.base.principal import (
    ANONYMOUS,
    RUN_PREFIX,
    Permission,
    Principal,
    RunOfToken,
    digest_of,
    is_whole,
    net_of,
    new_secret,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.events import TokensChanged
from bedrockjobs.engine.handlers import access as acts
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.unit import Outcome
from bedrockjobs.job.rows import LoginRow, TokenRow

WRONG_A_SECOND_MAX = 10
"""Maximum number of wrong tokens per address and second. Any more are refused with 429, and the connection is
closed."""

ADDRESSES_MAX = 10_000
"""Maximum number of addresses for which wrong tokens are counted; when it is reached, all counts start again
from zero."""

USED_NOTED_EVERY_S = 60.0
"""Minimum number of seconds between two writes that record the use of a token."""

ADDRESSES_PER_GRANT_MAX = 1_000
"""Maximum number of addresses cached per token, so that a use from a known address is written only once in
USED_NOTED_EVERY_S; when it is reached, the cache of the token is cleared."""

NEVER_USED = Permission("", "", digest="0" * 64)
"""A permission that no token has. Unknown tokens are compared with it, so that their check takes as long as
for a valid token."""

PROXIED_MAX = 1_000
"""Maximum number of users of a trusted proxy whose permissions are cached; when it is reached, the cache is
cleared."""

LOCAL = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1", "unix", ""})
"""Addresses of clients on this machine, in their most frequent forms, which ``is_local`` need not parse."""

UNIX = "unix"
"""The address of clients on the unix socket."""

Write = Callable[[Callable[[Context], object], Callable[[Outcome], bool]], object]


class Access:
    """Authenticates clients of one server and caches their permissions."""

    def __init__(self, clock: Clock, settings: Settings, *, reachable: bool) -> None:
        """Apply the settings; ``reachable`` is true if other machines can connect to the server."""
        self._clock = clock
        self.write: Write = lambda act, done: None
        """Calls its first argument in a transaction, and its second argument after the commit."""
        self._closed = reachable and not settings.insecure
        self._behind_proxy = settings.behind_proxy
        self._fronted = bool(settings.behind_proxy or settings.trusted_proxies or settings.public_hosts)
        self._by_digest: dict[str, Permission] = {}
        self._by_name: dict[str, Permission] = {}
        self._names: frozenset[str] = frozenset()
        """The names of all tokens, including revoked and expired ones."""
        self._logins: dict[str, Permission] = {}
        self._login_places: dict[str, str] = {}
        """The network from which each session of the pages was started, by digest; without the sessions that
        other servers started."""
        self._unix = Permission("", settings.unix_role) if settings.unix_role else None
        self._proxy_role, self._proxies_name = settings.proxy_role, bool(settings.proxy_user_header)
        self._proxied: dict[str, Permission] = {}
        self._wrong: dict[str, tuple[float, int]] = {}
        self._wrong_unreported, self._reported_at = 0, float("-inf")
        self._known = False
        self.everything = Permission("", "admin")
        """The permission of all clients while no token has ever been created."""
        self.asks = self._closed
        """Whether requests have to be authenticated; checked on every request."""
        self.on = False
        """Whether a token was ever created, so that each client needs one, or is ``anonymous``."""
        self.anonymous: Permission | None = None
        """The permission of clients without a token since the first token exists; None if they have none. It
        may have expired."""
        self.run_of_token: Callable[[str], RunOfToken | None] = lambda _: None
        """Returns the run to which a run token belongs, or None if it is invalid."""
        self._taken_without = Permission("", "work")  # for a job that was taken without a token
        self.unread: tuple[str, str] | None = None
        """Reason and detail with which every request is refused while tokens cannot be read; None
        otherwise."""
        self.on_first: Callable[[], object] = lambda: None
        """Called when the first token is created, to end the waits of clients without one."""

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {TokensChanged: lambda event: self._replace_tokens(event.tokens, event.logins)}

    def set_initial(self, tokens: tuple[TokenRow, ...], logins: tuple[LoginRow, ...]) -> None:
        """Set the initial tokens and sessions, unless a commit has already published newer ones."""
        if not self._known:
            self._replace_tokens(tokens, logins)

    def _replace_tokens(self, tokens: tuple[TokenRow, ...], logins: tuple[LoginRow, ...]) -> None:
        now = timestamp_ms(self._clock.now())
        before, first = self._by_digest | self._logins, bool(tokens) and not self.on
        former, self.anonymous = self.anonymous, None
        self._names = frozenset(row.name for row in tokens)
        self._known, self.on = True, bool(tokens)
        self.asks = self.on or self._closed
        self._by_digest = {}
        for row in tokens:
            if not acts.counts(row, now):
                continue
            if row.name == ANONYMOUS:
                self.anonymous = _grant(row, former)
            else:
                self._by_digest[row.digest] = _grant(row, before.get(row.digest))
        if former is not None and former is not self.anonymous:
            former.end()
        self._by_name = by_name = {grant.name: grant for grant in self._by_digest.values()}
        self._logins = {
            login.digest: _grant_of_login(login, by_name[login.token], before.get(login.digest))
            for login in logins
            if login.token in by_name
        }
        kept = {id(grant) for grant in (*self._by_digest.values(), *self._logins.values())}
        for grant in before.values():
            if id(grant) not in kept:
                grant.end()
        if first:
            self.everything.end()
            self.on_first()

    # --- authentication ----------------------------------------------------------------------------------

    def visitor(self, address: str, *, http: bool = False) -> Principal:
        """Return the principal of a client without credentials; raise Unauthenticated.

        An ``http`` request may have come through a proxy on this machine, which its address does not show.
        """
        if self.unread is not None:
            raise Unavailable(*self.unread)
        direct = not (http and self._fronted)
        admitted = not self._closed or self._is_here(address, direct=direct)
        if not self.on:
            if not admitted:
                raise Unauthenticated(
                    detail="no token exists yet: create one on the server's machine with"
                    " bedrockjobs token create NAME --role admin"
                )
            return Principal(self.everything, address, direct=direct)
        if address == UNIX and self._unix is not None and self._is_here(address, direct=direct):
            return Principal(self._unix, address, direct=direct)
        if admitted and self.anonymous is not None and self._counts(self.anonymous):
            return Principal(self.anonymous, address, direct=direct)
        raise Unauthenticated(detail="expected a token: Authorization: Bearer bj_...")

    def _is_here(self, address: str, *, direct: bool) -> bool:
        """Return whether the client is on this machine, as far as its address and the settings show."""
        return is_local(address) and (direct or not self._behind_proxy)

    def by_header(self, value: str, address: str, *, http: bool = False) -> Principal:
        """Return the principal of an ``Authorization`` header; raise Unauthenticated or TooManyWrong."""
        if not self.on or not value:
            return self.visitor(address, http=http)
        scheme, _, token = value.strip().partition(" ")
        if scheme.lower() != "bearer":
            token = "" if token else scheme  # raw clients may send the token alone
        return self.by_token(token.strip(), address)

    def by_bearer(self, token: str, address: str, *, http: bool = False) -> Principal:
        """Return the principal of a token; while no token is needed, the principal of any client."""
        return self.by_token(token, address) if self.on else self.visitor(address, http=http)

    def by_token(self, token: str, address: str) -> Principal:
        """Return the principal of a token; raise Unauthenticated or TooManyWrong.

        A wrong token takes as long to check as a valid one.
        """
        if token.startswith(RUN_PREFIX):
            return self._by_run_token(token, address)
        digest = digest_of(token)
        grant = self._by_digest.get(digest, NEVER_USED)
        if not (compare_digest(grant.digest, digest) and self._counts(grant)):
            raise self._refusal(address, whole=is_whole(token))
        self._note_used(grant, address)
        return Principal(grant, address)

    def _by_run_token(self, token: str, address: str) -> Principal:
        """Return the principal of a run token, with no more permissions than its worker's token."""
        run = self.run_of_token(token)
        if run is None:
            grant = None
        elif run.by == ANONYMOUS:
            grant = self.anonymous
        else:
            grant = self._by_name.get(run.by) if run.by else self._taken_without
        if grant is None or not self._counts(grant):
            raise self._refusal(address, whole=True)
        return Principal(grant, address, run)

    def by_proxy(self, user: str, address: str) -> Principal:
        """Return the principal of a user who has logged in at a trusted proxy; raise Unauthenticated."""
        if user == ANONYMOUS:
            raise Unauthenticated(detail=f"no user can have the name {ANONYMOUS}")
        if len(self._proxied) >= PROXIED_MAX:
            self._proxied.clear()
        if user not in self._proxied:
            self._proxied[user] = Permission(user, self._proxy_role)
        return Principal(self._proxied[user], address)

    def by_certificate(self, name: str, address: str) -> Principal:
        """Return the principal for the name of a verified client certificate; raise Unauthenticated."""
        grant = self._by_name.get(name)
        if grant is None or not self._counts(grant):
            raise Unauthenticated(detail=f"there is no token {name[:100]}, the name in the certificate")
        self._note_used(grant, address)
        return Principal(grant, address)

    def by_login(self, session: str, address: str) -> Principal:
        """Return the principal of a session of the pages; raise Unauthenticated."""
        digest = digest_of(session)
        grant = self._logins.get(digest, NEVER_USED)
        if not (compare_digest(grant.digest, digest) and self._counts(grant)):
            raise Unauthenticated(detail="the session has ended: log in again")
        self._note_used(grant, address)
        return Principal(grant, address)

    def goes_on(self, caller: Principal) -> bool:
        """Return True, and record the use, if the principal has a token that is still valid.

        For a run token or a client without a token, it returns False.
        """
        if not caller.grant.digest or caller.run is not None or not self._counts(caller.grant):
            return False
        self._note_used(caller.grant, caller.address)
        return True

    def is_still_allowed(self, caller: Principal) -> bool:
        """Return True if the principal is still allowed to use the server."""
        grant = caller.grant
        if grant is self.everything:
            return not self.on and (not self._closed or self._is_here(caller.address, direct=caller.direct))
        return grant is self._unix or self._counts(grant)

    @property
    def needs_token(self) -> bool:
        """Return whether each TCP client without a token is refused, except on open paths."""
        return self.on and (self.anonymous is None or not self._counts(self.anonymous))

    def is_anonymous(self, caller: Principal) -> bool:
        """Return whether a principal is a client without a token that the first token did not exclude."""
        return caller.grant is self.anonymous and caller.run is None

    def note_anonymous(self, caller: Principal) -> None:
        """Record the use by a client without a token, so that an admin sees who still has none."""
        if self.is_anonymous(caller):
            self._note_used(caller.grant, caller.address)

    def has_token(self, name: str) -> bool:
        """Return whether there is or was a token of this name."""
        return name in self._names

    def _counts(self, grant: Permission) -> bool:
        if grant.expires and grant.valid and grant.expires <= timestamp_ms(self._clock.now()):
            grant.end()
        return grant.valid

    @staticmethod
    def identity(caller: Principal) -> Answer:
        """Return the reply to Authenticate."""
        grant = caller.grant
        return Answer(
            jsontext.dump(
                {
                    "name": grant.name,
                    "roles": grant.role.split(","),
                    "names": [] if grant.scope is None else list(grant.scope.patterns),
                    "noData": grant.no_data,
                    "expires": grant.expires,
                }
            )
        )

    # --- sessions of the pages ---------------------------------------------------------------------------

    def log_in(self, caller: Principal, done: Callable[[Outcome], bool]) -> str:
        """Create and return a session of the pages; it is valid once ``done`` is called."""
        session = new_secret()
        digest, place = digest_of(session), net_of(caller.address)
        gone = self._needless_login(caller.name, place)
        self._login_places[digest] = place
        self.write(partial(acts.log_in, token=caller.name, digest=digest, gone=gone), done)
        return session

    def _needless_login(self, token: str, place: str) -> str:
        """Return the session to end if a token has too many: the oldest from the busiest network.

        Repeated logins from one network (``place``) therefore end only sessions from that network.
        """
        if len(self._login_places) >= ADDRESSES_MAX:
            kept = self._login_places.keys() & self._logins.keys()
            self._login_places = {digest: self._login_places[digest] for digest in kept}
        found: dict[str, list[str]] = {place: []}
        for digest, grant in self._logins.items():
            if grant.name == token:
                used = next(map(net_of, grant.addresses), "")
                found.setdefault(self._login_places.get(digest, used), []).append(digest)
        most = max(found.values(), key=lambda some: len(some) + (some is found[place]))
        return most[0] if most else ""

    def log_out(self, session: str, done: Callable[[Outcome], bool]) -> None:
        """End a session of the pages."""
        self.write(partial(acts.log_out, digest=digest_of(session)), done)

    # --- records of use and of wrong tokens --------------------------------------------------------------

    def _note_used(self, grant: Permission, address: str) -> None:
        now = self._clock.monotonic()
        if now - grant.noted >= USED_NOTED_EVERY_S or address not in grant.addresses:
            net = net_of(address)
            # Clients without a token may be strangers with any number of addresses.
            full = grant is self.anonymous and len(grant.addresses) >= acts.TOKEN_ADDRESSES_MAX
            if now - grant.noted < USED_NOTED_EVERY_S and (full or net in grant.addresses):
                return
            grant.noted = now
            if len(grant.addresses) >= ADDRESSES_PER_GRANT_MAX:
                grant.addresses.clear()
            grant.addresses.add(net)
            minute = f"{timestamp_ms(self._clock.now())[:16]}:00"
            note = partial(acts.note_used, name=grant.name, minute=minute, address=net)
            self.write(note, _no_client)

    def _refusal(self, address: str, *, whole: bool) -> Unauthenticated | TooManyWrong:
        """Count a wrong token; return the error for its sender."""
        now, place = self._clock.monotonic(), net_of(address)
        if len(self._wrong) >= ADDRESSES_MAX:
            self._wrong.clear()
        since, count = self._wrong.get(place, (now, 0))
        since, count = (now, 1) if now - since >= 1 else (since, count + 1)
        self._wrong[place] = since, count
        self._wrong_unreported += 1
        # Minimum interval between two events about wrong tokens, so that a sender cannot fill the table of
        # events.
        if now - self._reported_at >= 60.0:
            self._reported_at, unreported, self._wrong_unreported = now, self._wrong_unreported, 0
            self.write(partial(acts.note_wrong, count=unreported, address=address), _no_client)
        if count > WRONG_A_SECOND_MAX:
            return TooManyWrong(detail=f"expected at most {WRONG_A_SECOND_MAX} a second")
        why = (
            "it does not exist, or is no longer valid"
            if whole
            else "it is incomplete: were all characters copied?"
        )
        return Unauthenticated(detail=f"token: {why}")


def _grant(row: TokenRow, before: Permission | None) -> Permission:
    """Return the permission of a token row: the object ``before`` itself if nothing has changed."""
    names: list[str] = jsontext.parse(row.names)
    found = Permission(
        row.name, row.role, names, no_data=bool(row.no_data), expires=row.expires, digest=row.digest
    )
    return _as_before(found, before)


def _grant_of_login(login: LoginRow, token: Permission, before: Permission | None) -> Permission:
    """Return the permission of a session: the permission of its token, with an expiry of its own."""
    names = () if token.scope is None else token.scope.patterns
    expires = min(login.expires, token.expires or login.expires)
    found = Permission(
        token.name, token.role, names, no_data=token.no_data, expires=expires, digest=login.digest
    )
    return _as_before(found, before)


def _as_before(grant: Permission, before: Permission | None) -> Permission:
    """Return the former permission, with the new expiry, if nothing else has changed: its waits go on."""
    if before is None or not before.valid or _meaning(before) != _meaning(grant):
        return grant
    before.expires = grant.expires
    return before


def _meaning(grant: Permission) -> tuple[object, ...]:
    patterns = () if grant.scope is None else grant.scope.patterns
    return grant.name, grant.role, patterns, grant.no_data


def is_local(address: str) -> bool:
    """Return True if the address is a loopback address."""
    if address in LOCAL:
        return True
    try:
        parsed = ipaddress.ip_address(address)
        return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback
    except ValueError:
        return False


def _no_client(_: Outcome) -> bool:
    return True
