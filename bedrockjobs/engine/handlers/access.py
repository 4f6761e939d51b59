"""CreateToken, AllowAnonymous, RevokeToken, RotateToken, and the server's records of tokens and logins.

Each commit that changes a token or a login publishes all tokens and logins (``TokensChanged``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany, WrongState
from bedrockjobs.base.principal import ANONYMOUS, digest_of, new_token
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import AllowAnonymous, CreateToken, RevokeToken, RotateToken
from bedrockjobs.engine.events import TokensChanged
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.job.rows import LoginRow, TokenRow
from bedrockjobs.store.base import AccessPlan

TOKENS_MAX = 1_000
"""Maximum number of tokens in use, since all of them are read whenever one changes, which takes
milliseconds."""

TOKEN_ROWS_MAX = 2_000
"""Maximum number of stored tokens, including revoked tokens. Beyond it, the token that has been invalid the
longest is deleted."""

TOKEN_ADDRESSES_MAX = 32
"""Maximum number of addresses stored per token, since few tokens are used from more; the oldest are
deleted."""

LOGIN_S = 12 * 3_600
"""Seconds until a login to the pages expires: a working day."""

LOGINS_PER_TOKEN_MAX = 20
"""Maximum number of browsers logged in with one token; the oldest is logged out."""

_CONTROL = AccessPlan(control=True)


def tokens_changed(context: Context) -> TokensChanged:
    """Return all tokens and logins as an event, as the open transaction sees them."""
    records = context.unit.records
    return TokensChanged(records.tokens(), records.logins())


def counts(token: TokenRow, now: str) -> bool:
    """Return True if a token is valid at the timestamp ``now``."""
    return not token.revoked and (not token.expires or token.expires > now)


@handles(CreateToken, plan=lambda _: _CONTROL)
def create_token(context: Context, command: CreateToken) -> Answer:
    """Create a token; reply with the token and its secret."""
    records = context.unit.records
    tokens = records.tokens()
    if not tokens and command.roles != ["admin"]:
        raise WrongState(
            "The first token must be admin", "roles: expected admin, which can create the others"
        )
    if command.names and command.roles == ["admin"]:
        raise BadArguments("Malformed names", "names: expected none for admin, which is never narrowed")
    _check_no_data(command)
    expires = _in_future(context, "expires", command.expires)
    until = _in_future(context, "anonymousUntil", command.anonymous_until)
    anonymous_roles = command.anonymous_roles or (["operate"] if until else [])
    if anonymous_roles and tokens:
        raise WrongState(
            "It is not the first token",
            "anonymousRoles, anonymousUntil: expected no token before this one; see AllowAnonymous",
        )
    used = [token for token in tokens if counts(token, context.now_ms)]
    if any(token.name == command.name for token in used):
        raise WrongState("Name is taken", f"name: there is a token {command.name}; see RotateToken")
    if len(used) >= TOKENS_MAX:
        raise TooMany("Too many tokens", f"expected at most {TOKENS_MAX} that are in use")
    _forget_oldest(context, tokens)
    secret = new_token()
    records.delete_logins(command.name)
    if anonymous_roles:
        others = AllowAnonymous(roles=anonymous_roles, by=command.by)
        records.put_token(_row(context, ANONYMOUS, "", others, until))
        context.note("token created", name=ANONYMOUS, by=command.by, detail=",".join(anonymous_roles))
    token = _row(context, command.name, digest_of(secret), command, expires)
    return _written(context, token, "token created", command.by, secret)


@handles(AllowAnonymous, plan=lambda _: _CONTROL)
def allow_anonymous(context: Context, command: AllowAnonymous) -> Answer:
    """Set the permission of clients without a token; reply with it."""
    tokens = context.unit.records.tokens()
    if not tokens:
        raise WrongState("There is no token", "clients need no token until the first one is created")
    _check_no_data(command)
    expires = _in_future(context, "expires", command.expires)
    row = _row(context, ANONYMOUS, "", command, expires)
    former = next((token for token in tokens if token.name == ANONYMOUS), None)
    if former is None:
        _forget_oldest(context, tokens)
    elif counts(former, context.now_ms):
        row = row._replace(last_used=former.last_used, addresses=former.addresses)
    return _written(context, row, "token created", command.by)


def _check_no_data(command: CreateToken | AllowAnonymous) -> None:
    if command.no_data and not {"read", "produce"}.issuperset(command.roles):
        raise BadArguments("Malformed noData", "noData: expected no other roles than read and produce")


def _in_future(context: Context, attribute: str, time: str | datetime | timedelta | None) -> str:
    """Return a time as a timestamp, empty if it was not given; raise BadArguments if it is in the past."""
    found = stamped(time, context.now_ms)
    if time is not None and found <= context.now_ms:
        reason = "Malformed expires" if attribute == "expires" else "Malformed anonymousUntil"
        raise BadArguments(reason, f"{attribute}: expected a time in the future")
    return found


def _row(
    context: Context, name: str, digest: str, command: CreateToken | AllowAnonymous, expires: str
) -> TokenRow:
    return TokenRow(
        name,
        digest,
        ",".join(command.roles),
        jsontext.dump(list(command.names)),
        int(command.no_data),
        command.by,
        context.now,
        expires,
        "",
        "",
        "[]",
    )


def _forget_oldest(context: Context, tokens: Sequence[TokenRow]) -> None:
    """Make room for another row by deleting the token that has been invalid the longest."""
    if len(tokens) >= TOKEN_ROWS_MAX:
        gone = [token for token in tokens if not counts(token, context.now_ms)]
        context.unit.records.delete_token(min(gone, key=lambda token: token.revoked or token.expires).name)


@handles(RevokeToken, plan=lambda _: _CONTROL)
def revoke_token(context: Context, command: RevokeToken) -> Answer:
    """Revoke a token; do nothing if it was already revoked."""
    token = _existing(context, command.name)
    if token.revoked:
        return Answer()
    others = [one for one in context.unit.records.tokens() if one.name != token.name]
    if token.role == "admin" and not any(
        one.role == "admin" and counts(one, context.now_ms) for one in others
    ):
        raise WrongState("It is the last admin", "name: expected another valid admin token")
    context.unit.records.delete_logins(token.name)
    _written(context, token._replace(revoked=context.now), "token revoked", command.by)
    return Answer()


@handles(RotateToken, plan=lambda _: _CONTROL)
def rotate_token(context: Context, command: RotateToken) -> Answer:
    """Give a token another secret; reply with it."""
    token = _existing(context, command.name)
    if not counts(token, context.now_ms):
        raise WrongState("It was revoked", f"name: expected a valid token; create a new {command.name}")
    expires = _in_future(context, "expires", command.expires)
    secret = new_token()
    context.unit.records.delete_logins(token.name)
    changed = token._replace(digest=digest_of(secret), expires=expires or token.expires)
    return _written(context, changed, "token rotated", command.by, secret)


def _existing(context: Context, name: str) -> TokenRow:
    found = [token for token in context.unit.records.tokens() if token.name == name]
    if not found:
        raise NotFound("No such token", f"name: there is no token {name}; see ListTokens")
    return found[0]


def _written(context: Context, token: TokenRow, kind: str, by: str, secret: str = "") -> Answer:
    context.unit.records.put_token(token)
    context.note(kind, name=token.name, by=by, detail=token.role)
    context.emit(tokens_changed(context))
    shown = {**shown_token(token), **({"token": secret} if secret else {})}
    return Answer(jsontext.dump(shown))


def shown_token(token: TokenRow) -> dict[str, object]:
    """Return a token as shown in replies."""
    return {
        "name": token.name,
        "roles": token.role.split(","),
        "names": jsontext.parse(token.names),
        "noData": bool(token.no_data),
        "by": token.by,
        "created": token.created,
        "expires": token.expires,
        "lastUsed": token.last_used,
        "revoked": token.revoked,
        "addresses": jsontext.parse(token.addresses),
    }


# --- records without a command -----------------------------------------------------------------------------


def log_in(context: Context, token: str, digest: str, gone: str) -> None:
    """Log in to the pages with a token; if there are too many logins, end ``gone`` or the oldest."""
    records = context.unit.records
    of_token = [login for login in records.logins() if login.token == token]
    of_token.sort(key=lambda login: login.digest != gone)  # a stable sort keeps the others in order
    for login in of_token[: max(len(of_token) + 1 - LOGINS_PER_TOKEN_MAX, 0)]:
        records.delete_login(login.digest)
    records.put_login(LoginRow(digest, token, context.now_ms, after_seconds(context.now_ms, LOGIN_S)))
    context.emit(tokens_changed(context))


def log_out(context: Context, digest: str) -> None:
    """Log out of the pages."""
    context.unit.records.delete_login(digest)
    context.emit(tokens_changed(context))


def note_used(context: Context, name: str, minute: str, address: str) -> None:
    """Record when and from where a token was used; raise an event if the address is new."""
    for token in context.unit.records.tokens():
        if token.name == name:
            known: list[str] = jsontext.parse(token.addresses)
            if address not in known:
                if known and name != ANONYMOUS:
                    detail = f"{address}: the token was not used from there before"
                    context.note("new address", name=name, by=name, detail=detail)
                known = [*known, address][-TOKEN_ADDRESSES_MAX:]
            context.unit.records.use_token(name, minute, jsontext.dump(known))


def note_wrong(context: Context, count: int, address: str) -> None:
    """Record an event about wrong tokens."""
    context.note("wrong token", by=address, detail=f"{count} wrong token(s), the last from {address}")
