"""``bedrockjobs limit``: how many jobs of a name may be queued, created a second, and run at once."""

from __future__ import annotations

import click

from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.options import by_option
from bedrockjobs.cli.output import write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.values import WholeNumber
from bedrockjobs.commands import ListLimits, RemoveLimit, SetLimit

NONE = "No limits: `bedrockjobs limit set GLOB` sets one."
COLUMNS = ("name", "queued", "perSecond", "running", "runs", "refused", "lastRefused", "by")


@click.group(cls=Group)
def limit() -> None:
    """Limit what may be created, which is refused beyond with 429, and how many jobs run at once, by name.

    \b
    bedrockjobs limit set 'mail/*' --running 4
    bedrockjobs limit set 'import/*' --queued 10000 --per-second 50
    bedrockjobs limit list
    """


@limit.command("set")
@click.argument("name", metavar="GLOB")
@click.option(
    "--queued", type=WholeNumber(0), metavar="NUMBER", help="Jobs that may be queued; any number if left out."
)
@click.option(
    "--per-second",
    type=WholeNumber(0),
    metavar="NUMBER",
    help="Jobs that may be created a second; any number if left out.",
)
@click.option(
    "--running",
    type=WholeNumber(0),
    metavar="NUMBER",
    help="Jobs that may run at once, the others wait; any number if left out.",
)
@by_option
@talks
@pass_session
def set_limit(
    session: Session, name: str, queued: int | None, per_second: int | None, running: int | None, by: str
) -> None:
    """Limit the names that match GLOB, which share it; replaces what was set for GLOB before."""
    if queued is None and per_second is None and running is None:
        raise click.UsageError("nothing to limit: give --queued, --per-second or --running")
    given = {"name": name, "queued": queued, "perSecond": per_second, "running": running, "by": by or None}
    session.ask(built(SetLimit, given))
    write_one({"name": name, "outcome": "limited"}, session.form, f"Limited {name}.")


@limit.command("remove")
@click.argument("name", metavar="GLOB")
@by_option
@talks
@pass_session
def remove_limit(session: Session, name: str, by: str) -> None:
    """Take back what was set for GLOB."""
    session.ask(built(RemoveLimit, {"name": name, "by": by or None}))
    write_one({"name": name, "outcome": "removed"}, session.form, f"{name} has no limit any more.")


@limit.command("list")
@talks
@pass_session
def list_limits(session: Session) -> None:
    """List the limits, and how many jobs this server has refused for each."""
    found = records_in(session.record(built(ListLimits, {}))["limits"])
    write_many(found, session.form, COLUMNS, none=NONE, identity="name")
