"""Commands for access control: tokens, and the audit of operators' changes."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import GLOB_CHARS_MAX, NAME_CHARS_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.principal import ANONYMOUS, ROLES, TOKEN_CHARS_MAX
from bedrockjobs.base.wire import Boolean, JobID, OneLine, Timestamp, listed, one_line, refused
from bedrockjobs.commands.base import BUSY, SLOW, Command, Empty, Example, Paging, Refusal, Reply, Scoping
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern

NAME_PATTERN = "[A-Za-z0-9._@/:-]{1,100}"
"""Pattern of token names: easy to type, and safe in logs and URLs."""

NO_TOKEN = Refusal(404, "No such token", "No token has this name.")


def _roles(value: Any) -> list[str]:
    """Return the roles in the order of ``ROLES``, without those that another given role includes."""
    roles = listed(value, "a comma list of roles")
    if not roles or any(role not in ROLES for role in roles):
        raise refused("Malformed roles", f"one or more of {', '.join(ROLES)}")
    for highest in ("admin", "operate"):
        if highest in roles:
            return [highest]
    return [role for role in ROLES if role in roles]


def _names(value: Any) -> list[str]:
    """Parse a JSON list, or a comma list, of patterns; an empty list stands for all names."""
    patterns = listed(value, "a JSON array of name patterns") if value else []
    if not all(isinstance(item, str) and 0 < len(item) <= GLOB_CHARS_MAX for item in patterns):
        raise refused("Malformed names", f"name patterns of 1 to {GLOB_CHARS_MAX} characters")
    return list(dict.fromkeys(map(one_line, patterns)))


def _some_stars(value: list[str]) -> list[str]:
    if any(item.count("*") > 3 for item in value):  # stars make intersections of patterns grow
        raise refused("Malformed names", "at most 3 stars in a pattern of a token")
    return value


def _roles_shape(roles: Sequence[str] = ROLES) -> dict[str, Any]:
    one = "|".join(roles)
    items = {"type": "string", "enum": list(roles)}
    texts = json_schemas.text_of(f"(?:{one})(?:,(?:{one})){{0,{len(roles) - 1}}}")
    return {"anyOf": [{"type": "array", "items": items, "minItems": 1, "maxItems": len(roles)}, texts]}


def _anonymous_roles(value: Any) -> list[str]:
    """Return the roles of clients without a token; admin is refused."""
    roles = _roles(value)
    if "admin" in roles:
        raise refused("Malformed roles", "one or more of read, produce, work and operate")
    return roles


TokenName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=100)]
Roles = Annotated[list[str], BeforeValidator(_roles), SchemaType(_roles_shape)]
AnonymousRoles = Annotated[
    list[str], BeforeValidator(_anonymous_roles), SchemaType(lambda: _roles_shape(ROLES[:-1]))
]
# Patterns of one token: each read may become as many queries.
TokenPatterns = Annotated[
    list[str],
    Field(max_length=20),
    BeforeValidator(_names),
    AfterValidator(_some_stars),
    SchemaType(json_schemas.patterns),
]


class TokenReply(Reply):
    """A token without its secret, which is not stored."""

    name: str
    roles: list[str]
    names: list[str] = Field(description="The names that it sees, as GLOB patterns; empty: all.")
    no_data: bool = Field(description="Whether data, results and output of jobs are hidden from it.")
    by: str
    created: str
    expires: str = Field(description="When it expires; empty: never.")
    last_used: str = Field(description="When it was last used, to the minute; empty: never.")
    revoked: str = Field(description="When it was revoked; empty: not revoked.")
    addresses: list[str] = Field(
        description="Addresses it was used from, the newest last; at most 32. Each new one is an event."
    )


class NewTokenReply(TokenReply):
    """A token with its secret, which is shown only once."""

    token: str


class TokensReply(Reply):
    """Tokens by name."""

    tokens: list[TokenReply]


_TOKEN = {
    "name": "deploy",
    "roles": ["operate"],
    "names": ["report/*"],
    "noData": False,
    "by": "ada",
    "created": "2026-11-21 03:29:56",
    "expires": "",
    "lastUsed": "2026-11-21 09:14:00",
    "revoked": "",
    "addresses": ["10.0.0.7"],
}
_NEW = {
    **_TOKEN,
    "lastUsed": "",
    "addresses": [],
    "token": "bj_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmFkC8e1wg",
}


_ANONYMOUS_TOKEN = {
    **_TOKEN,
    "name": ANONYMOUS,
    "roles": ["read"],
    "names": [],
    "lastUsed": "",
    "addresses": [],
}


class CreateToken(Command[NewTokenReply]):
    """Create a token; its secret is returned once. As soon as there is a token, every client needs one.

    AllowAnonymous and the parameters `anonymousRoles` and `anonymousUntil` permit others.
    """

    group = "access"
    role = "admin"
    example = Example({"name": "deploy", "roles": ["operate"], "names": ["report/*"]}, _NEW)
    refusals = [
        Refusal(
            402, "Malformed roles", "A role is unknown, `roles` is empty, or `anonymousRoles` has admin."
        ),
        Refusal(402, "Malformed names", "`names` are not patterns, or are given for admin."),
        Refusal(402, "Malformed noData", "`noData` is given with roles other than read and produce."),
        Refusal(402, "Malformed expires", "`expires` is in the past."),
        Refusal(402, "Malformed anonymousUntil", "`anonymousUntil` is in the past."),
        Refusal(
            405,
            "It is not the first token",
            "`anonymousRoles` or `anonymousUntil` is given, but clients already need a token.",
        ),
        Refusal(
            405, "The first token must be admin", "There has never been a token, and this one is not admin."
        ),
        Refusal(405, "Name is taken", "An active token has this name."),
        Refusal(429, "Too many tokens", "There are 1,000 active tokens."),
    ]

    name: TokenName = Field(
        description="Name of the token; changes made with it are recorded under this name as `by`."
    )
    roles: Roles = Field(
        description="read, produce, work, or several of them; operate includes all three, admin includes"
        " everything."
    )
    names: TokenPatterns = Field(
        default=[], description="GLOB patterns of the names that it sees; all if left out. Not for admin."
    )
    no_data: Boolean = Field(
        default=False,
        description="Hide data, results and output of jobs; only for read and produce. Replies leave these"
        " members out and list them in `hidden`; of an error they have only the type.",
    )
    expires: Timestamp | None = Field(default=None, description="When it expires; never if left out.")
    anonymous_roles: AnonymousRoles | None = Field(
        default=None,
        description="With the first token: what clients without a token may do from now on; see"
        " AllowAnonymous. They are refused if it is left out; with anonymousUntil it is operate.",
    )
    anonymous_until: Timestamp | None = Field(
        default=None, description="With the first token: until when clients without a token may continue."
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class AllowAnonymous(Command[TokenReply]):
    """Let clients without a token use the server with these roles, from where they could before the first.

    Sent again, it replaces the former permission. End it with RevokeToken and the name `(anonymous)`.
    """

    group = "access"
    role = "admin"
    repeatable = True
    example = Example({"roles": ["read"]}, _ANONYMOUS_TOKEN)
    refusals = [
        Refusal(402, "Malformed roles", "`roles` has an unknown role, admin, or none."),
        Refusal(402, "Malformed names", "`names` are not patterns."),
        Refusal(402, "Malformed noData", "`noData` is given with roles other than read and produce."),
        Refusal(402, "Malformed expires", "`expires` is in the past."),
        Refusal(405, "There is no token", "Clients need no token until the first one is created."),
    ]

    roles: AnonymousRoles = Field(
        description="read, produce, work, or several of them; operate includes all three."
    )
    names: TokenPatterns = Field(
        default=[], description="GLOB patterns of the names that such clients see; all if left out."
    )
    no_data: Boolean = Field(
        default=False,
        description="Hide data, results and output of jobs from such clients, as CreateToken does.",
    )
    expires: Timestamp | None = Field(default=None, description="When this ends; never if left out.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class ListTokens(Command[TokensReply]):
    """List all tokens by name, including revoked ones, without secrets."""

    group = "access"
    where = "reader"
    role = "admin"
    paging = Paging("tokens", "name", "after")
    example = Example({}, {"tokens": [_TOKEN]})
    refusals = [BUSY]

    after: OneLine = Field(
        default="",
        max_length=NAME_CHARS_MAX,
        description="Only names after this one: the last of the previous page.",
    )
    limit: Limit = Field(default=100, description="How many at most.")


class RevokeToken(Command[Empty]):
    """Revoke a token; waits and streams of its users end at once.

    The name `(anonymous)` revokes the permission of clients without a token; see AllowAnonymous.
    """

    group = "access"
    role = "admin"
    repeatable = True
    example = Example({"name": "deploy"})
    refusals = [NO_TOKEN, Refusal(405, "It is the last admin", "No other valid admin token would be left.")]

    name: Annotated[str, Field(pattern=f"^({NAME_PATTERN}|{re.escape(ANONYMOUS)})$", max_length=100)] = Field(
        description="Name of the token, or `(anonymous)`."
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class RotateToken(Command[NewTokenReply]):
    """Replace the secret of a token; the new one is returned once, the old one stops working."""

    group = "access"
    role = "admin"
    example = Example({"name": "deploy"}, _NEW)
    refusals = [NO_TOKEN, Refusal(405, "It was revoked", "The token is revoked or expired.")]

    name: TokenName = Field(description="Name of the token.")
    expires: Timestamp | None = Field(default=None, description="When it expires; unchanged if left out.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class IdentityReply(Reply):
    """What a token permits."""

    name: str
    roles: list[str]
    names: list[str]
    no_data: bool
    expires: str


class Authenticate(Command[IdentityReply]):
    """Show what a token permits; a raw connection uses the token for everything that follows."""

    scoping = Scoping()
    group = "access"
    where = "at once"
    role = "read"
    open = True
    example = Example(
        {"token": "bj_…"},
        {"name": "deploy", "roles": ["operate"], "names": ["report/*"], "noData": False, "expires": ""},
    )
    refusals = [
        Refusal(403, "Forbidden", "The token does not exist, or is expired or revoked."),
        Refusal(429, "Too many wrong tokens", "More than 10 wrong tokens in a second came from one address."),
    ]

    token: str = Field(min_length=1, max_length=TOKEN_CHARS_MAX, description="The token: `bj_…`.")


class AuditEntry(Reply):
    """A change by an operator."""

    seq: int
    at: str
    by: str = Field(description="The name of the token; without tokens the name given by the client.")
    address: str = Field(description="The client's address.")
    command: str
    name: str = Field(description="Name of the job, worker, token or pattern.")
    job_id: int
    detail: dict[str, Any] = Field(description="Parameters of the command, without data.")
    before: dict[str, Any] | None = Field(
        description="The schedule before the change; null if it did not exist."
    )
    after: dict[str, Any] | None = Field(description="The schedule after the change; null if it was removed.")


class AuditReply(Reply):
    """Changes by operators, newest first."""

    entries: list[AuditEntry]


class ListAudit(Command[AuditReply]):
    """List changes by operators and admins, newest first; kept for 90 days by default."""

    group = "access"
    where = "reader"
    role = "admin"
    paging = Paging("entries", "seq", "before")
    example = Example(
        {"limit": 1},
        {
            "entries": [
                {
                    "seq": 7,
                    "at": "2026-11-21 03:29:56",
                    "by": "ada",
                    "address": "127.0.0.1",
                    "command": "PauseJobs",
                    "name": "mail/*",
                    "jobID": 0,
                    "detail": {"name": "mail/*", "reason": "the mail server is down"},
                    "before": None,
                    "after": None,
                }
            ]
        },
    )
    refusals = [SLOW, BUSY]

    who: OneLine | None = Field(
        default=None, max_length=WORKER_CHARS_MAX, description="Only changes by this token."
    )
    command: OneLine | None = Field(default=None, max_length=100, description="Only by this command.")
    name: Pattern | None = Field(default=None, description="Only if the name matches this GLOB pattern.")
    since: Timestamp | None = Field(default=None, description="Only from this time on.")
    before: JobID | None = Field(
        default=None, description="Only older ones: the last seq of the previous page."
    )
    limit: Limit = Field(default=100, description="How many at most.")
