"""The commands about who may do what: tokens, and what operators changed."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import GLOB_CHARS_MAX, NAME_CHARS_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import Shape
from bedrockjobs.base.principal import ROLES, TOKEN_CHARS_MAX
from bedrockjobs.base.wire import Boolean, JobID, OneLine, Timestamp, listed, one_line, refused
from bedrockjobs.commands.base import BUSY, SLOW, Command, Empty, Example, Paging, Refusal, Reply, Scoping
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern

NAME_PATTERN = "[A-Za-z0-9._@/:-]{1,100}"
"""What a token may be called: what is easily typed, and stands for itself in logs and addresses."""

SCOPE_PATTERNS_MAX = 20
"""Patterns of one token: each of its reads may be as many reads."""

NO_TOKEN = Refusal(404, "No such token", "No token has this name.")


def _roles(value: Any) -> list[str]:
    """Return roles in their order; those that another one holds are left out."""
    given = listed(value, "a comma list of roles")
    if not given or any(role not in ROLES for role in given):
        raise refused("Malformed roles", f"one or more of {', '.join(ROLES)}")
    for highest in ("admin", "operate"):
        if highest in given:
            return [highest]
    return [role for role in ROLES if role in given]


def _names(value: Any) -> list[str]:
    """Read a JSON list, or a comma list, of patterns; empty: all names."""
    found = listed(value, "a JSON array of name patterns") if value else []
    if not all(isinstance(item, str) and 0 < len(item) <= GLOB_CHARS_MAX for item in found):
        raise refused("Malformed names", f"name patterns of 1 to {GLOB_CHARS_MAX} characters")
    return list(dict.fromkeys(map(one_line, found)))


def _some_stars(value: list[str]) -> list[str]:
    if any(item.count("*") > 3 for item in value):  # what two patterns have in common grows with them
        raise refused("Malformed names", "at most 3 stars in a pattern of a token")
    return value


def _roles_shape() -> dict[str, Any]:
    one = "|".join(ROLES)
    items = {"type": "string", "enum": list(ROLES)}
    texts = json_schemas.text_of(f"(?:{one})(?:,(?:{one})){{0,4}}")
    return {"anyOf": [{"type": "array", "items": items, "minItems": 1, "maxItems": 5}, texts]}


TokenName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$", max_length=100)]


class TokenReply(Reply):
    """A token without its secret, which nobody keeps."""

    name: str
    roles: list[str]
    names: list[str] = Field(description="The names it sees, as GLOB patterns; none: all.")
    no_data: bool = Field(description="Whether it sees no data, results and output of jobs.")
    by: str
    created: str
    expires: str = Field(description="When it ends; empty: never.")
    last_used: str = Field(description="To the minute; empty: never.")
    revoked: str = Field(description="When it was revoked; empty: it was not.")
    addresses: list[str] = Field(
        description="Where it was used from, the newest last; 32 at most. Another one is an event."
    )


class NewTokenReply(TokenReply):
    """A token, with its secret: this is the only time that it is shown."""

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


class CreateToken(Command[NewTokenReply]):
    """Make a token; its secret is answered once. From the first one on everybody needs one."""

    group = "access"
    role = "admin"
    example = Example({"name": "deploy", "roles": ["operate"], "names": ["report/*"]}, _NEW)
    refusals = [
        Refusal(402, "Malformed roles", "`roles` are none."),
        Refusal(402, "Malformed names", "`names` are no patterns, or stand beside admin."),
        Refusal(402, "Malformed noData", "`noData` stands beside other roles than read and produce."),
        Refusal(402, "Malformed expires", "`expires` has passed."),
        Refusal(405, "The first token must be admin", "There never was a token, and this one is another."),
        Refusal(405, "Name is taken", "A token of this name is in use."),
        Refusal(429, "Too many tokens", "1,000 tokens are in use."),
    ]

    name: TokenName = Field(description="Name of the token; what its bearer changes carries it as `by`.")
    roles: Annotated[list[str], BeforeValidator(_roles), Shape(_roles_shape)] = Field(
        description="What it is for: read, produce, work, or several; operate holds these, admin holds all."
    )
    names: Annotated[
        list[str],
        Field(max_length=SCOPE_PATTERNS_MAX),
        BeforeValidator(_names),
        AfterValidator(_some_stars),
        Shape(json_schemas.patterns),
    ] = Field(
        default=[], description="GLOB patterns of the names that it sees; all if left out. Not for admin."
    )
    no_data: Boolean = Field(
        default=False, description="It sees no data, results and output of jobs; for read and produce alone."
    )
    expires: Timestamp | None = Field(default=None, description="When it ends; never if left out.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class ListTokens(Command[TokensReply]):
    """List the tokens, those included that were revoked; no secrets."""

    group = "access"
    where = "reader"
    role = "admin"
    paging = Paging("tokens", "name", "after")
    example = Example({}, {"tokens": [_TOKEN]})
    refusals = [BUSY]

    after: OneLine = Field(
        default="",
        max_length=NAME_CHARS_MAX,
        description="Only names behind this one: the last of the page before.",
    )
    limit: Limit = Field(default=100, description="How many at the most.")


class RevokeToken(Command[Empty]):
    """Let a token count no more: what its bearers wait for ends at once."""

    group = "access"
    role = "admin"
    repeatable = True
    example = Example({"name": "deploy"})
    refusals = [
        NO_TOKEN,
        Refusal(405, "It is the last admin", "No other admin token that counts would be left."),
    ]

    name: TokenName = Field(description="Name of the token.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class RotateToken(Command[NewTokenReply]):
    """Give a token another secret, answered once; the one before counts no more."""

    group = "access"
    role = "admin"
    example = Example({"name": "deploy"}, _NEW)
    refusals = [NO_TOKEN, Refusal(405, "It was revoked", "The token was revoked, or has expired.")]

    name: TokenName = Field(description="Name of the token.")
    expires: Timestamp | None = Field(default=None, description="When it ends; as before if left out.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class IdentityReply(Reply):
    """What a token allows."""

    name: str
    roles: list[str]
    names: list[str]
    no_data: bool
    expires: str


class Authenticate(Command[IdentityReply]):
    """Tell what a token allows; on a raw connection all that follows is then done with it."""

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
        Refusal(403, "Forbidden", "There is no such token, or it counts no more."),
        Refusal(429, "Too many wrong tokens", "More than 10 in a second came from one address."),
    ]

    token: str = Field(min_length=1, max_length=TOKEN_CHARS_MAX, description="The token: `bj_…`.")


class AuditEntry(Reply):
    """Something that an operator changed."""

    seq: int
    at: str
    by: str = Field(description="The name of the token; without tokens what the caller said.")
    address: str = Field(description="Where from.")
    command: str
    name: str = Field(description="Of a job, a worker, a token, or a pattern.")
    job_id: int
    detail: dict[str, Any] = Field(description="Parameters of the command; no data.")
    before: dict[str, Any] | None = Field(description="A schedule as it was; null where there was none.")
    after: dict[str, Any] | None = Field(description="A schedule as it is; null where there is none.")


class AuditReply(Reply):
    """What operators changed, the newest first."""

    entries: list[AuditEntry]


class ListAudit(Command[AuditReply]):
    """Tell what operators and admins changed, the newest first; kept for 90 days by default."""

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
        default=None, max_length=WORKER_CHARS_MAX, description="Only what this token changed."
    )
    command: OneLine | None = Field(default=None, max_length=100, description="Only by this command.")
    name: Pattern | None = Field(default=None, description="Only where the name matches this GLOB pattern.")
    since: Timestamp | None = Field(default=None, description="Only from this moment on.")
    before: JobID | None = Field(
        default=None, description="Only older ones: the last seq of the page before."
    )
    limit: Limit = Field(default=100, description="How many at the most.")
