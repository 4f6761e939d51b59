"""``bedrockjobs query`` and ``status``: looking at the server without changing anything."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.output import Record, write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, talks
from bedrockjobs.cli.values import TextOrFile
from bedrockjobs.commands import Query, Status


@click.command()
@click.argument("sql", metavar="SELECT", type=TextOrFile())
@talks
@pass_session
def query(session: Session, sql: str) -> None:
    """Run one SELECT on the server's database, read-only: 'select * from jobs'.

    The closing `;` may be left out; @file and - (stdin) are read.
    """
    text = sql.strip()
    command = built(Query, {"query": text if text.endswith(";") else f"{text};", "format": "json"})
    reply = session.record(command)
    columns = distinct(jsontext.parse(reply["headers"]))
    rows = [[RawJSON(value) for value in jsontext.elements(row)] for row in jsontext.elements(reply["rows"])]
    records: list[Record] = [dict(zip(columns, row, strict=True)) for row in rows]
    write_many(records, session.form, columns, stored=True)


def distinct(headers: Sequence[str]) -> list[str]:
    """Return the headers as keys: `select name, name` must not lose a column."""
    found: list[str] = []
    for header in headers:
        key, count = header, 1
        while key in found:
            count += 1
            key = f"{header}_{count}"
        found.append(key)
    return found


@click.command()
@talks
@pass_session
def status(session: Session) -> None:
    """Tell what the server is and how it is."""
    write_one(session.record(Status()), session.form)
