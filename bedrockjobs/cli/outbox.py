"""``bedrockjobs outbox``: jobs that applications write into databases of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import click

from bedrockjobs.base.errors import InvalidArgument
from bedrockjobs.cli.output import write_many, write_one
from bedrockjobs.cli.parameters import SubcommandGroup
from bedrockjobs.cli.session import FAILED, Failure, Session, output_option, pass_session, server_options
from bedrockjobs.store.outbox import DIALECTS, OutboxTable, connect, table_sql

SHOWN = ("id", "job", "attempts", "error")


@click.group(cls=SubcommandGroup)
def outbox() -> None:
    """Carry jobs from a table of your own database to the queue, at least once and in order per key.

    \b
    bedrockjobs outbox sql --dialect sqlite
    bedrockjobs outbox relay --from shop.db
    bedrockjobs outbox list --from shop.db
    """


@outbox.command()
@click.option("--dialect", type=click.Choice(DIALECTS), required=True, help="The database.")
def sql(dialect: Any) -> None:
    """Print the statements that create the table."""
    click.echo(table_sql(dialect), nl=False)


from_option = click.option(
    "--from",
    "source",
    metavar="FILE|URL",
    required=True,
    help="A SQLite file, postgresql://..., or with the name of a DB-API module: mysql+pymysql://...",
)


@contextmanager
def _opened(source: str) -> Iterator[OutboxTable]:
    """Open the outbox table; turn the errors of any database into a Failure."""
    try:
        with closing(connect(source)) as connection:
            yield OutboxTable(connection)
    except InvalidArgument as error:
        raise click.UsageError(str(error)) from None
    except Failure:
        raise
    except Exception as error:
        raise Failure(f"outbox: {error}; `bedrockjobs outbox sql` prints its table", FAILED) from None


@outbox.command()
@from_option
@click.option("--once", is_flag=True, help="Send what is there, then stop.")
@server_options
def relay(session: Session, source: str, once: bool) -> None:
    """Send the jobs of an outbox until it is interrupted."""
    from bedrockjobs.outbox import OutboxRelay

    made = OutboxRelay(source, session.client)
    if not once:
        made.run()
        return
    sent = aside = 0
    with _opened(source) as table:
        while True:
            done = made.carry(table)
            sent, aside = sent + done.sent, aside + done.aside
            if not done.sent + done.aside:
                break
    write_one(
        {"sent": sent, "postponed": done.postponed, "aside": aside},
        session.form,
        f"Sent {sent}, tried again later: {done.postponed}, set aside: {aside}.",
    )


@outbox.command("list")
@from_option
@output_option
@pass_session
def list_(session: Session, source: str) -> None:
    """List the rows that can never be sent, by id, with their errors."""
    with _opened(source) as table:
        rows = [{name: getattr(row, name) for name in SHOWN} for row in table.aside()]
    write_many(rows, session.form, SHOWN, none="No row was set aside.", identity="id")
