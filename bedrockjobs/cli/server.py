"""``bedrockjobs server``: the servers that share a database."""

from __future__ import annotations

import click

from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.output import write_many
from bedrockjobs.cli.session import Session, pass_session, records_in, talks
from bedrockjobs.commands import ListServers

LIST_COLUMNS = ("name", "address", "started", "pulse", "version", "workers", "state")


@click.group(cls=Group)
def server() -> None:
    """List the servers that share the database."""


@server.command("list")
@talks
@pass_session
def list_servers(session: Session) -> None:
    """List the servers that are alive; of a database that is a file, that is one."""
    found = records_in(session.record(ListServers())["servers"])
    write_many(found, session.form, LIST_COLUMNS, none="No servers.", identity="name")
