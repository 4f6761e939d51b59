"""``bedrockjobs token`` and ``audit``: who may do what, and what operators changed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click

from bedrockjobs.base.clock import SystemClock, timestamp
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.principal import ANONYMOUS
from bedrockjobs.cli.database import database_errors, file_named, is_url, schema_option
from bedrockjobs.cli.output import Record, raw_record, text_of, write_many, write_one
from bedrockjobs.cli.parameters import (
    Moment,
    PastTime,
    SubcommandGroup,
    current_user,
    since_option,
    since_timestamp,
)
from bedrockjobs.cli.session import CommandRefused, Session, built, interactive, records_in, server_options
from bedrockjobs.cli.verbs import limit_option, listing, takes, typed, typed_command, typed_values
from bedrockjobs.commands import (
    AllowAnonymous,
    Command,
    CreateToken,
    ListAudit,
    ListTokens,
    ListWorkers,
    RevokeToken,
    RotateToken,
    Status,
)

AUDIT_COLUMNS = ("seq", "at", "by", "address", "command", "name", "jobID", "detail")

_database = click.option(
    "--database",
    metavar="FILE|URL",
    help="Open this file or postgresql://... directly, without server and token, to regain access.",
)


@click.group(cls=SubcommandGroup)
def token() -> None:
    """Create, list, renew and revoke access tokens.

    Until the first token is created, the server is open to its own machine. The first token must be admin;
    from then on every client needs one, unless `token anonymous` permits others.

    \b
    bedrockjobs token create ann --role admin > ann.token
    bedrockjobs token create web --role produce --names 'mail/*' --expires 90d
    bedrockjobs token revoke web
    """


@token.command("create")
@takes(
    CreateToken,
    "name",
    typed("roles", "--role", "roles", required=True, metavar="ROLE[,ROLE]"),
    typed("names", metavar="GLOB[,GLOB]"),
    *("no_data", "expires"),
    "anonymous_until",
    typed("anonymous_roles", "--anonymous-role", metavar="ROLE[,ROLE]"),
)
@_database
@schema_option
@server_options
def create(session: Session, /, database: str | None, schema: str, **_: Any) -> None:
    """Create a token and write it to stdout; it cannot be shown again.

    Before the first token, clients that are connected without one are counted; on a terminal you are asked
    how long they may continue.
    """
    given, others = click.get_current_context().params, ""
    if database is None and given["anonymous_until"] is None and given["anonymous_role"] is None:
        others = _others_without_token(session)
    if others and interactive():
        question = f"How long may clients without a token continue ({others}; 0: not at all)?"
        given["anonymous_until"] = click.prompt(question, default="24h", type=_TimeOrZero(), err=True) or None
    _write_new(session, _done(session, CreateToken, database, schema))
    if others and not interactive():
        click.echo(
            f"Clients without a token are now refused ({others}). To let them continue for a while:"
            " bedrockjobs token anonymous --role operate --expires 24h",
            err=True,
        )


def _others_without_token(session: Session) -> str:
    """Return how many other clients there are if no token exists yet; empty if there are none."""
    try:
        if session.rows(ListTokens, {"limit": 1}):
            return ""
        connections = int(session.reply(Status)["connections"]) - 1
        workers = len(session.rows(ListWorkers))
    except CommandRefused:  # a token exists, or creating one is refused too
        return ""
    there = connections > 0 or workers
    return f"other connections: {connections}, live workers: {workers}" if there else ""


class _TimeOrZero(Moment):
    """A time until which clients may continue; a false value if they may not."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | timedelta:
        return "" if str(value).strip() == "0" else super().convert(value, param, ctx)


@token.command("anonymous")
@takes(
    AllowAnonymous,
    typed("roles", "--role", "roles", metavar="ROLE[,ROLE]"),
    typed("names", metavar="GLOB[,GLOB]"),
    *("no_data", "expires"),
)
@click.option("--end", is_flag=True, help="Refuse clients without a token again.")
@_database
@schema_option
@server_options
def anonymous(
    session: Session, /, roles: str | None, database: str | None, schema: str, end: bool, **_: Any
) -> None:
    """Let clients without a token use the server, from where they could before the first token.

    Behind a proxy that is not named in the settings, and with --insecure, these may be all who can reach it.

    \b
    bedrockjobs token anonymous --role read
    bedrockjobs token anonymous --role operate --expires 24h
    bedrockjobs token anonymous --end
    """
    given = click.get_current_context().params
    if end == (roles is not None) or (end and any(given[name] for name in ("names", "no_data", "expires"))):
        raise click.UsageError("give either --role or --end alone")
    if end:
        _send(session, built(RevokeToken, {"name": ANONYMOUS, "by": current_user()}), database, schema)
        write_one({"name": ANONYMOUS}, session.form, "Clients need a token.", identity="name")
        return
    record = _done(session, AllowAnonymous, database, schema)
    until = text_of(record, "expires")
    roles = json.loads(record["roles"])
    until = f" until {until} UTC" if until else ""
    word = "role" if len(roles) == 1 else "roles"
    told = f"Clients without a token have the {word} {', '.join(roles)}{until}."
    write_one(record, session.form, told, identity="name")


@token.command("rotate")
@takes(RotateToken, "name", "expires")
@_database
@schema_option
@server_options
def rotate(session: Session, /, database: str | None, schema: str, **_: Any) -> None:
    """Give a token a new secret, written to stdout; the former one is no longer valid."""
    _write_new(session, _done(session, RotateToken, database, schema))


@token.command("revoke")
@takes(RevokeToken, "name")
@_database
@schema_option
@server_options
def revoke(session: Session, /, name: str, database: str | None, schema: str) -> None:
    """Make a token invalid; waiting requests of its bearers end at once."""
    _done(session, RevokeToken, database, schema)
    write_one({"name": name}, session.form, f"Token {name} is revoked.", identity="name")


listing(
    token,
    ListTokens,
    columns=("name", "roles", "names", "expires", "lastUsed", "revoked", "by"),
    none="No tokens: everybody on this machine may do everything.",
    text="List all tokens by name, including revoked ones; secrets are not stored.",
)


def _done(session: Session, command_class: type[Command[Any]], database: str | None, schema: str) -> Record:
    """Execute a command on the server, or if ``database`` is given directly on that database."""
    values = click.get_current_context().params
    if database is not None:  # no server is there whose clock counts
        for name in ("expires", "anonymous_until"):
            if isinstance(values.get(name), timedelta):
                values[name] = timestamp(SystemClock().now() + values[name])
    return _send(session, typed_command(session, command_class, by=current_user()), database, schema)


def _send(session: Session, command: Command[Any], database: str | None, schema: str) -> Record:
    """Send a command to the server, or if ``database`` is given execute it on that database."""
    if database is None:
        return session.record(command)
    from bedrockjobs.databases import do_on_file, do_on_postgresql

    try:
        with database_errors():
            if is_url(database):
                answer = do_on_postgresql(database, schema, command)
            else:
                answer = do_on_file(file_named(database), command)
    except CommandError as error:
        raise CommandRefused(error) from None
    return raw_record(answer.body or "{}")


def _write_new(session: Session, record: Record) -> None:
    """Write a new secret; as a table, stdout has nothing but the secret, for use in a shell."""
    if session.form == "table":
        name, secret = text_of(record, "name"), text_of(record, "token")
        advice = "keep it, it is shown only once; clients read it from BEDROCKJOBS_TOKEN_FILE"
        click.echo(f"Token {name}: {advice}.", err=True)
        click.echo(secret)
    else:
        write_one(record, session.form, identity="token")


@click.command()
@takes(
    ListAudit,
    typed("who", "--by", "who", metavar="TOKEN"),
    typed(
        "command", metavar="COMMAND", help="Only by this command: DeleteJob, SyncSchedules, CreateToken, ..."
    ),
    "name",
)
@since_option("Only changes since")
@limit_option("changes, the newest")
@server_options
def audit(session: Session, /, since: PastTime | None, limit: int, **_: Any) -> None:
    """List what operators and admins changed, the newest first; kept for 90 days by default.

    Schedules come with their state before and after: see -o json.
    """
    since_time = None if since is None else since_timestamp(since, session.now())
    command = built(ListAudit, {**typed_values(session, ListAudit), "since": since_time, "limit": limit})
    entries: list[Record] = records_in(session.record(command)["entries"])
    if session.form == "table":
        entries = [{**record, "jobID": text_of(record, "jobID").lstrip("0")} for record in entries]
    write_many(entries, session.form, AUDIT_COLUMNS, none="No changes were recorded.", identity="seq")
