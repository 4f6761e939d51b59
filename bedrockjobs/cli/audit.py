"""``bedrockjobs audit``: what operators and admins changed."""

from __future__ import annotations

from datetime import timedelta

import click

from bedrockjobs.cli.output import write_many
from bedrockjobs.cli.pages import limit_option
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.values import Moment
from bedrockjobs.commands import ListAudit

COLUMNS = ("seq", "at", "by", "address", "command", "name", "jobID", "detail")


@click.command()
@click.option("--by", "who", metavar="TOKEN", help="Only what was changed with this token.")
@click.option("--command", help="Only by this command: DeleteJob, SyncSchedules, CreateToken, ...")
@click.option("--name", metavar="GLOB", help="Only where the name matches.")
@click.option("--since", type=Moment(), metavar="WHEN", help="Only from this moment on.")
@limit_option("changes, the newest")
@talks
@pass_session
def audit(
    session: Session,
    who: str | None,
    command: str | None,
    name: str | None,
    since: str | timedelta | None,
    limit: int,
) -> None:
    """Tell what operators and admins changed, the newest first; kept for 90 days.

    Schedules come with how they were and how they are: see -o json.
    """
    given = {"who": who, "command": command, "name": name, "since": session.moment(since), "limit": limit}
    found = records_in(session.record(built(ListAudit, given))["entries"])
    write_many(found, session.form, COLUMNS, none="Nothing was changed.", identity="seq")
