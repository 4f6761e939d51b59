"""``bedrockjobs job explain``: what a job is waiting for, in plain words."""

from __future__ import annotations

import click

from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.named_job import job_id_of
from bedrockjobs.cli.output import Record, one_line, printable, text_of, write_one
from bedrockjobs.cli.session import Session, built, in_commands, pass_session, records_in, talks
from bedrockjobs.cli.time_text import with_local_times
from bedrockjobs.commands import ExplainJob

WORDS = {
    "state": "It is not queued",
    "children": "Its parent or its children come first",
    "paused": "Somebody paused it",
    "held": "The queue was restored",
    "nextRun": "It is not due yet",
    "no tick": "Its schedule has no further tick",
    "mocked": "Workers do not take it",
    "limit": "As many run as may at once",
    "lock": "Another job with its lock is running",
    "own command": "No live worker accepts the command it brings",
    "no worker": "No live worker takes it",
    "ahead": "Other jobs go first",
}
"""The server's reasons as sentences; its details follow them."""


@click.command()
@click.argument("job_id", metavar="ID|NAME", shell_complete=job_names)
@talks
@pass_session
def explain(session: Session, job_id: str) -> None:
    """Say why a job does not run: what it waits for, the most decisive first."""
    job_id = job_id_of(session, job_id)
    reply = session.record(built(ExplainJob, {"jobID": job_id}))
    if session.form != "table":
        write_one(reply, session.form)
        return
    reasons = records_in(reply["waitsFor"])
    state = text_of(reply, "state")
    click.echo(printable(f"Job {job_id} ({text_of(reply, 'name')}) is {state}."))
    if not reasons:
        click.echo("Nothing stands in its way.")
        return
    click.echo("What stands in its way" + (", the most decisive first:" if len(reasons) > 1 else ":"))
    for at, reason in enumerate(reasons, 1):
        click.echo(f"  {at}. {one_line(sentence(reason))}")


def sentence(reason: Record) -> str:
    """Return one reason as a sentence."""
    key, detail = text_of(reason, "reason"), in_commands(with_local_times(text_of(reason, "detail")))
    words = WORDS.get(key, key)
    return f"{words}: {detail}" if detail else f"{words}."
