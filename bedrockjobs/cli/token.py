"""``bedrockjobs token``: who may do what. With --database on the database itself: the way back in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.wire import stamp
from bedrockjobs.cli.database import told
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.output import Record, raw_record, text_of, write_many, write_one
from bedrockjobs.cli.places import file_named, is_url, schema_option
from bedrockjobs.cli.session import Refusal, Session, built, pass_session, record_of, records_in, talks
from bedrockjobs.cli.values import Moment, current_user
from bedrockjobs.commands import Command, CreateToken, ListTokens, RevokeToken, RotateToken

LIST_COLUMNS = ("name", "roles", "names", "expires", "lastUsed", "revoked", "by")

_database = click.option(
    "--database", metavar="FILE|URL",
    help="Work on this file or postgresql://..., beside its server, without a token: the way back in.",
)  # fmt: skip
_expires = click.option(
    "--expires",
    type=Moment(),
    metavar="TIME",
    help="When it ends: a moment, or a time from now like 90d. Never if left out.",
)


@click.group(cls=Group)
def token() -> None:
    """Say who may do what: make, list, renew and revoke tokens.

    As long as there never was a token the server is open to its own machine. The first one must be admin;
    from then on everybody needs one.

    \b
    bedrockjobs token create ann --role admin > ann.token
    bedrockjobs token create web --role produce --names 'mail/*' --expires 90d
    bedrockjobs token revoke web
    """


@token.command("create")
@click.argument("name")
@click.option(
    "--role", "roles", required=True, metavar="ROLE[,ROLE]",
    help="read (look), produce (create), work (take and end), or several; operate holds these, admin all.",
)  # fmt: skip
@click.option("--names", metavar="GLOB[,GLOB]", help="See jobs with these names alone; all if left out.")
@click.option("--no-data", is_flag=True, help="See no data, results and output; for read and produce.")
@_expires
@_database
@schema_option
@talks
@pass_session
def create(
    session: Session,
    /,
    name: str,
    expires: str | timedelta | None,
    database: str | None,
    schema: str,
    **given: Any,
) -> None:
    """Make a token and write it to stdout: this is the only time that it is shown."""
    ends = _moment(session, expires, database)
    given = {"name": name, "noData": given.pop("no_data"), "expires": ends, "by": current_user(), **given}
    _write_new(session, _done(session, built(CreateToken, given), database, schema))


@token.command("rotate")
@click.argument("name")
@_expires
@_database
@schema_option
@talks
@pass_session
def rotate(
    session: Session, name: str, expires: str | timedelta | None, database: str | None, schema: str
) -> None:
    """Give a token another secret, written to stdout; the one before counts no more."""
    given = {"name": name, "expires": _moment(session, expires, database), "by": current_user()}
    _write_new(session, _done(session, built(RotateToken, given), database, schema))


@token.command("revoke")
@click.argument("name")
@_database
@schema_option
@talks
@pass_session
def revoke(session: Session, name: str, database: str | None, schema: str) -> None:
    """Let a token count no more; what its bearers wait for ends at once."""
    _done(session, built(RevokeToken, {"name": name, "by": current_user()}), database, schema)
    write_one({"name": name}, session.form, f"Token {name} counts no more.", identity="name")


@token.command("list")
@talks
@pass_session
def list_tokens(session: Session) -> None:
    """List the tokens, those included that were revoked; their secrets are kept nowhere."""
    found: list[Record] = []
    while True:
        after = text_of(found[-1], "name") if found else ""
        page = records_in(session.record(ListTokens(after=after))["tokens"])
        found += page
        if len(page) < ListTokens.model_fields["limit"].default:
            break
    none = "No tokens: everybody on this machine may do everything."
    write_many(found, session.form, LIST_COLUMNS, none=none, identity="name")


def _moment(session: Session, given: str | timedelta | None, database: str | None) -> str | None:
    """Return a moment, by the server's clock, or by ours where no server is asked."""
    if database is not None and isinstance(given, timedelta):
        return stamp(SystemClock().now() + given)
    return session.moment(given)


def _done(session: Session, command: Command[Any], database: str | None, schema: str) -> Record:
    """Have a command done by the server, or do it on the database itself."""
    if database is None:
        return dict(record_of(session.ask(command)))
    from bedrockjobs.databases.by_hand import do_on_file, do_on_postgresql

    try:
        with told():
            if is_url(database):
                answer = do_on_postgresql(database, schema, command)
            else:
                answer = do_on_file(file_named(database), command)
    except CommandError as error:
        raise Refusal(error) from None
    return dict(raw_record(answer.body or "{}"))


def _write_new(session: Session, record: Record) -> None:
    """Write a new secret: as a table it stands alone on stdout, so that a shell can take it."""
    if session.form == "table":
        name, secret = text_of(record, "name"), text_of(record, "token")
        words = "keep it, it is shown this once; clients take it from BEDROCKJOBS_TOKEN_FILE"
        click.echo(f"Token {name}: {words}.", err=True)
        click.echo(secret)
    else:
        write_one(record, session.form, identity="token")
