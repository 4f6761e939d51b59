"""``bedrockjobs queue``: which names pile up, and how a name is paused."""

from __future__ import annotations

import click

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.cli.complete import job_names
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.output import Record, text_of, write_many
from bedrockjobs.cli.pages import Listing, limit_option, paged
from bedrockjobs.cli.schedule_control import paused_words
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.time_text import rough_text
from bedrockjobs.commands import ListPauses, ListQueues

QUEUES = Listing(ListQueues, "queues", "after", "name", LIST_MAX)

COUNTS = ("ready", "running", "failed", "later", "paused", "blocked")
"""The counts that are shown of a name; ``paused`` are those that a pause holds back."""


@click.group(cls=Group)
def queue() -> None:
    """See which names pile up and why; pause and resume them.

    \b
    bedrockjobs queue list
    bedrockjobs queue pause 'mail/*' --reason 'the mail server is down' --until 2h
    """


@queue.command("list")
@click.argument("mask", metavar="[GLOB]", required=False, shell_complete=job_names)
@limit_option("names")
@click.option("--after", metavar="NAME", help="Only names behind this one: the last of the page before.")
@click.option(
    "--sort", "order", type=click.Choice(("jobs", "name")), default="jobs", show_default=True,
    help="Those with the most due jobs first, or all names in their order.",
)  # fmt: skip
@talks
@pass_session
def list_queues(session: Session, /, mask: str | None, limit: int, after: str | None, order: str) -> None:
    """List the names of jobs: how many are ready, run or failed, and who paused them.

    `oldest` is how long the oldest ready job has been due, `workers` how many live workers take the name. A
    count with a + is at least so high. Very many jobs are counted now and then: the list says how long ago.
    """
    found = paged(session, QUEUES, {"name": mask, "after": after, "sort": order}, limit)
    if session.form != "table":
        write_many(found, session.form, identity="name")
        return
    pauses = _pauses(session) if any(text_of(each, "pausedBy") for each in found) else {}
    rows = [_row(each, pauses) for each in found]
    age = max((int(text_of(each, "countedAge") or 0) for each in found), default=0)
    if age:
        click.echo(f"What is queued was counted {age} s ago.", err=True)
    write_many(rows, "table", none="No jobs: `bedrockjobs job create NAME` makes the first one.")


def _pauses(session: Session) -> dict[str, Record]:
    """Return what is paused, by pattern."""
    found = records_in(session.record(built(ListPauses, {}))["pauses"])
    return {text_of(pause, "pattern"): pause for pause in found}


def _row(record: Record, pauses: dict[str, Record]) -> Record:
    more = "+" if text_of(record, "more") == "true" else ""
    counts = {key: f"{int(text_of(record, key)):,}" for key in COUNTS}
    pattern = text_of(record, "pausedBy")
    return {
        "name": text_of(record, "name"),
        **{key: f"{count}{more}" if count != "0" else "0" for key, count in counts.items()},
        "oldest": rough_text(float(text_of(record, "age"))) if text_of(record, "oldestReady") else "",
        "workers": f"{int(text_of(record, 'workers')):,}",
        "paused by": paused_words(pattern, pauses.get(pattern, {})) if pattern else "",
    }
