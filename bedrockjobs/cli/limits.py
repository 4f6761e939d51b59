"""``bedrockjobs limit`` and ``kept``: limits of jobs and of retention, by name pattern."""

from __future__ import annotations

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import days_text
from bedrockjobs.cli.groups import SubcommandGroup
from bedrockjobs.cli.output import Record
from bedrockjobs.cli.values import Size
from bedrockjobs.cli.verbs import act, listing, typed
from bedrockjobs.commands import (
    ListLimits,
    ListRetention,
    RemoveLimit,
    RemoveRetention,
    SetLimit,
    SetRetention,
)


@click.group(cls=SubcommandGroup)
def limit() -> None:
    """Limit how many jobs of a name are queued, created a second (more is refused with 429), started and run.

    \b
    bedrockjobs limit set 'mail/*' --running 4
    bedrockjobs limit set 'tenant/*' --running 3 --per-key
    bedrockjobs limit set 'api/*' --starts 100/1m
    bedrockjobs limit set 'import/*' --queued 10000 --per-second 50
    bedrockjobs limit list
    """


act(
    limit,
    "set",
    SetLimit,
    *("name", "queued", "per_second", "running", "per_key"),
    *(typed("starts", metavar="NUMBER/DURATION"), "burst", "by"),
    text="Limit the names that match GLOB, which share the limit; replaces the former limit of GLOB.",
    outcome="limited",
    sentence="Limited {name}.",
    needs="nothing to limit: give --queued, --per-second, --running or --starts",
)
act(
    limit,
    "remove",
    RemoveLimit,
    *("name", "by"),
    text="Remove the limit of GLOB.",
    outcome="removed",
    sentence="Removed the limit of {name}.",
)
listing(
    limit,
    ListLimits,
    columns=(
        "name",
        "queued",
        "perSecond",
        "running",
        "perKey",
        "runs",
        "starts",
        "refused",
        "lastRefused",
        "by",
    ),
    none="No limits: `bedrockjobs limit set GLOB` sets one.",
)


@click.group(cls=SubcommandGroup)
def kept() -> None:
    """Limit how long runs, output, events and the history of schedules are kept, and see how much there is.

    \b
    bedrockjobs kept list
    bedrockjobs kept set 'import/*' --runs-for 7d --output-bytes 1M
    bedrockjobs kept remove 'import/*'
    """


def _row(row: Record) -> Record:
    seconds, count = jsontext.parse(row["seconds"]), jsontext.parse(row["count"])
    return {
        **row,
        "for": None if seconds is None else days_text(seconds),
        "oldest of all": row["oldest"],
        "count": f"{count}+" if jsontext.parse(row["more"]) else count,
    }


listing(
    kept,
    ListRetention,
    columns=("name", "kind", "for", "bytes", "most", "count", "used", "oldest of all", "by"),
    row=_row,
    text="List retention and its current use: the server's, then by pattern.\n\nCounts stop at 50,000.",
)
_KINDS = ("runs", "output", "events", "ticks")
act(
    kept,
    "set",
    SetRetention,
    "name",
    *(typed(kind, f"--{kind}-for") for kind in _KINDS),
    *(typed(f"{kind}_bytes", type=Size(), metavar="SIZE") for kind in _KINDS),
    "by",
    text="Set the retention of names that match GLOB.\n\n"
    "For each name and kind, the longest matching GLOB applies; * applies to all others.",
    outcome="limited",
    sentence="Set the retention of {name}.",
    needs="nothing to limit: give at least one option; --help lists them",
)
act(
    kept,
    "remove",
    RemoveRetention,
    *("name", "by"),
    text="Remove the retention limits of GLOB.",
    outcome="removed",
    sentence="Removed the retention of {name}.",
)
