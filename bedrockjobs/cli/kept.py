"""``bedrockjobs kept``: what is kept of runs, output, events and ticks, how long, and how much it is.

\b
bedrockjobs kept list
bedrockjobs kept set 'import/*' --runs-for 7d --output-bytes 1M
bedrockjobs kept remove 'import/*'
"""

from __future__ import annotations

from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.duration import days_text
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.options import by_option
from bedrockjobs.cli.output import Record, write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.values import Duration, Size
from bedrockjobs.commands import ListRetention, RemoveRetention, SetRetention

COLUMNS = ("name", "kind", "for", "bytes", "most", "count", "used", "oldest of all", "by")


@click.group(cls=Group)
def kept() -> None:
    """Limit what is kept of runs, output, events and the history of schedules, and see how much it is.

    \b
    bedrockjobs kept list
    bedrockjobs kept set 'import/*' --runs-for 7d --output-bytes 1M
    bedrockjobs kept remove 'import/*'
    """


@kept.command("list")
@talks
@pass_session
def list_kept(session: Session) -> None:
    """List what is kept, and how much there is now.

    Of very many only the first 50,000 are counted.
    """
    found = records_in(session.record(built(ListRetention, {}))["kept"])
    shown = [_in_words(row) for row in found] if session.form == "table" else found
    write_many(shown, session.form, COLUMNS, identity="name")


def _in_words(row: Record) -> Record:
    seconds, count = jsontext.parse(row["seconds"]), jsontext.parse(row["count"])
    return {
        **row,
        "for": None if seconds is None else days_text(seconds),
        "oldest of all": row["oldest"],
        "count": f"{count}+" if jsontext.parse(row["more"]) else count,
    }


@kept.command("set")
@click.argument("name", metavar="GLOB")
@click.option(
    "--runs-for", type=Duration(), metavar="DURATION", help="Time after its end a run is kept: 30d."
)
@click.option("--runs-bytes", type=Size(), metavar="SIZE", help="Room for their runs, with output: 1G.")
@click.option(
    "--output-for", type=Duration(), metavar="DURATION", help="Time after its run output is kept: 7d."
)
@click.option("--output-bytes", type=Size(), metavar="SIZE", help="Output kept of one run.")
@click.option(
    "--events-for", type=Duration(), metavar="DURATION", help="Time events are kept; a day at least."
)
@click.option(
    "--ticks-for", type=Duration(), metavar="DURATION", help="Time the history of schedules is kept."
)
@click.option("--events-bytes", type=Size(), metavar="SIZE", help="Room for events older than a day.")
@click.option("--ticks-bytes", type=Size(), metavar="SIZE", help="Room for the history of each schedule.")
@by_option
@talks
@pass_session
def set_kept(session: Session, /, name: str, by: str, **given: Any) -> None:
    """Limit what is kept of the names that match GLOB.

    For each name and kind the longest GLOB decides; * is for all others.
    """
    limits = {
        "runs": given["runs_for"], "runsBytes": given["runs_bytes"], "output": given["output_for"],
        "outputBytes": given["output_bytes"], "events": given["events_for"], "ticks": given["ticks_for"],
        "eventsBytes": given["events_bytes"], "ticksBytes": given["ticks_bytes"],
    }  # fmt: skip
    if all(value is None for value in limits.values()):
        raise click.UsageError("nothing to limit: give at least one option; --help lists them")
    session.ask(built(SetRetention, {"name": name, **limits, "by": by or None}))
    write_one({"name": name, "outcome": "limited"}, session.form, f"Limited what is kept of {name}.")


@kept.command("remove")
@click.argument("name", metavar="GLOB")
@by_option
@talks
@pass_session
def remove_kept(session: Session, name: str, by: str) -> None:
    """Take back what was set for GLOB."""
    session.ask(built(RemoveRetention, {"name": name, "by": by or None}))
    write_one({"name": name, "outcome": "removed"}, session.form, f"{name} has no such limit any more.")
