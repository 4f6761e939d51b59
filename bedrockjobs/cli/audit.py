"""``bedrockjobs audit``: what operators and admins changed."""

from __future__ import annotations

import click

from bedrockjobs.cli.output import Record, text_of, write_many
from bedrockjobs.cli.pages import limit_option
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.since import Given, since_option, since_stamp
from bedrockjobs.commands import ListAudit

COLUMNS = ("seq", "at", "by", "address", "command", "name", "jobID", "detail")


@click.command()
@click.option("--by", "who", metavar="TOKEN", help="Only what was changed with this token.")
@click.option(
    "--command", metavar="COMMAND", help="Only by this command: DeleteJob, SyncSchedules, CreateToken, ..."
)
@click.option("--name", metavar="GLOB", help="Only where the name matches.")
@since_option("Only what was changed since")
@limit_option("changes, the newest")
@talks
@pass_session
def audit(
    session: Session,
    who: str | None,
    command: str | None,
    name: str | None,
    since: Given | None,
    limit: int,
) -> None:
    """Tell what operators and admins changed, the newest first; kept for 90 days by default.

    Schedules come with how they were and how they are: see -o json.
    """
    begin = None if since is None else since_stamp(since, session.now())
    given = {"who": who, "command": command, "name": name, "since": begin, "limit": limit}
    found: list[Record] = records_in(session.record(built(ListAudit, given))["entries"])
    if session.form == "table":
        found = [{**record, "jobID": text_of(record, "jobID").lstrip("0")} for record in found]
    write_many(found, session.form, COLUMNS, none="Nothing was changed.", identity="seq")
