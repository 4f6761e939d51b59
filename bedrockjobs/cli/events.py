"""``bedrockjobs events`` lists events and follows new ones; ``notify`` has the rules to notify about them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, duration_text
from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.errors import line_of
from bedrockjobs.cli.lookup import Pace, job_names
from bedrockjobs.cli.output import (
    Record,
    as_json,
    local_text,
    moment_text,
    printable,
    text_of,
    write_many,
    write_one,
)
from bedrockjobs.cli.parameters import PastTime, SubcommandGroup, near, since_option, since_timestamp
from bedrockjobs.cli.session import Session, built, records_in, server_options
from bedrockjobs.cli.verbs import act, limit_option, listing, takes, typed, typed_command
from bedrockjobs.commands import Events, ListRules, MuteRule, Overview, PutRule, RemoveRule, TestRule
from bedrockjobs.commands.rules import OLDER_S_DEFAULT, OVER_DEFAULT

COLUMNS = ("seq", "at", "kind", "name", "jobID", "runID", "by", "detail")

FROM_NOW = "-1"
"""The value of --after that stands for the number of the newest event."""


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Follow new events until interrupted.")
@click.option("--after", metavar="NUMBER", help="Only events with a higher number; -1: only new ones.")
@click.option(
    "--kind", metavar="KIND", help="Only of this kind: 'lost', 'failed', 'paused', 'worker left', ..."
)
@click.option("--name", metavar="GLOB", shell_complete=job_names, help="Only if the name matches.")
@since_option("Only events since")
@limit_option("events, the newest of them")
@server_options
def events(
    session: Session,
    /,
    follow: bool,
    after: str | None,
    since: PastTime | None,
    limit: int,
    **filters: str | None,
) -> None:
    """List the last events, in the order in which they happened."""
    if follow and session.form == "json":
        raise click.UsageError("-f writes continuously: use -o jsonl")
    if since is not None:
        if after is not None:
            raise click.UsageError("give --since or --after, not both")
        after = str(_before(session, since_timestamp(since, session.now())))
    rows, last = _last(session, {**filters, "after": after}, limit)
    if not follow:
        write_many(
            [_row(record) for record in rows] if session.form == "table" else rows,
            session.form,
            COLUMNS,
            none="" if rows else _none(session, filters["kind"]),
            identity="seq",
        )
        return
    _write(rows, session.form)
    pace = Pace()
    while True:
        since_or_after = {**filters, "after": last, "limit": LIST_MAX, **pace.next_parameters()}
        came = session.rows(Events, since_or_after)
        _write(came, session.form)
        if came:
            last = text_of(came[-1], "seq")
        pace.answered(something=bool(came))


def _last(session: Session, filters: dict[str, Any], limit: int) -> tuple[list[Record], str]:
    """Return the last ``limit`` events, and the number of the last event read; new events come after it."""
    if filters["after"] == FROM_NOW:
        return [], str(_newest(session))
    if filters["after"] is None and not (filters["kind"] or filters["name"]):
        filters = {**filters, "after": max(_newest(session) - limit, 0)}
    last = str(filters["after"] or 0)
    newest: deque[Record] = deque(maxlen=limit)
    while True:
        since_or_after = {**filters, "after": last, "limit": LIST_MAX}
        page = session.rows(Events, since_or_after)
        newest += page
        if page:
            last = text_of(page[-1], "seq")
        if len(page) < LIST_MAX:
            return list(newest), last


def _none(session: Session, kind: str | None) -> str:
    """Return the message for an empty list; if the kind is unknown, it names the kinds of recent events."""
    if not kind or session.form != "table":
        return "No events."
    query = built(Events, {"after": max(_newest(session) - LIST_MAX, 0), "limit": LIST_MAX})
    kinds = sorted({text_of(event, "kind") for event in records_in(session.record(query)["events"])} - {kind})
    suggestion = near(kind, kinds)
    advice = f" Did you mean {suggestion!r}?" if suggestion else ""
    return f"No events of the kind {kind!r}.{advice}" + (f" There are: {', '.join(kinds)}." if kinds else "")


def _before(session: Session, begin: str) -> int:
    """Return the number of the last event before a timestamp, by binary search on the event numbers."""
    low, high = 0, _newest(session)
    while low < high:
        middle = (low + high) // 2
        since_or_after = {"after": middle, "limit": 1}
        rows = session.rows(Events, since_or_after)
        if rows and text_of(rows[0], "at") < begin:
            low = int(text_of(rows[0], "seq"))
        else:
            high = middle
    return low


def _newest(session: Session) -> int:
    """Return the number of the newest event."""
    return int(text_of(session.reply(Overview), "newestEvent"))


def _row(record: Record) -> Record:
    """Return an event as a table row; a jobID or runID of 0 means none, and is left empty."""
    shown = {"detail": line_of(text_of(record, "detail"))}
    return {**record, **shown, **{key: "" for key in ("jobID", "runID") if record.get(key) == "0"}}


def _write(records: Iterable[Record], form: str) -> None:
    for record in records:
        if form == "jsonl":
            click.echo(as_json(record))
        elif form == "name":
            click.echo(text_of(record, "seq"))
        else:
            click.echo(_line(_row(record)))
    sys.stdout.flush()


def _line(row: Record) -> str:
    name, by = text_of(row, "name"), text_of(row, "by")
    ids = " ".join(
        f"{word} {text_of(row, key)}"
        for word, key in (("job", "jobID"), ("run", "runID"))
        if text_of(row, key)
    )
    rest = ": ".join(part for part in (f"by {by}" if by else "", text_of(row, "detail")) if part)
    at = moment_text(text_of(row, "at"), SystemClock().now()).partition(" (")[0]
    # The widths are guesses: rows that come later are not known yet.
    parts = (at, f"{text_of(row, 'kind'):14}", f"{name:24}", ids, rest)
    return printable("  ".join(part for part in parts if part)).rstrip()


# --- ``bedrockjobs notify`` ------------------------------------------------------------------------------


@click.group(cls=SubcommandGroup)
def notify() -> None:
    """Send notifications about events, by mail or webhook.

    \b
    bedrockjobs notify add night --on failed --to mailto:ann@example.com
    bedrockjobs notify test night
    bedrockjobs notify mute night --until 2h
    """


act(
    notify,
    "add",
    PutRule,
    "name",
    typed(
        "on",
        "--on",
        "kinds",
        multiple=True,
        required=True,
        metavar="KIND",
        help='Kind of event, such as failed, recovered, missed, timeout, lost, late, "no worker", backlog or'
        ' "disk low"; repeatable.',
    ),
    typed(
        "names", multiple=True, metavar="GLOB", help="Only about these names; repeatable; all if left out."
    ),
    "tags",
    typed(
        "to",
        "--to",
        required=True,
        metavar="ADDRESS",
        help="mailto:ann@example.com, https://..., or ${BEDROCKJOBS_NOTIFY_...}, a variable of the server.",
    ),
    typed("secret", metavar="VARIABLE"),
    typed("over", type=str, metavar="NUMBER", default=OVER_DEFAULT, show_default=True),
    typed("older", metavar="DURATION", default=duration_text(OLDER_S_DEFAULT), show_default=True),
    "no_data",
    typed("group_for", "--group", default="0s", show_default=True),
    typed("quiet", metavar="HOURS"),
    "by",
    text="Send messages about future events; a rule of this name is replaced.",
    outcome="put",
    sentence="Rule {name} is active; `bedrockjobs notify test {name}` shows a message.",
)


def _rule_row(record: Record) -> Record:
    return {**record, **{key: " ".join(jsontext.parse(record[key])) for key in ("on", "names")}}


listing(
    notify,
    ListRules,
    columns=("name", "on", "names", "to", "sent", "lastSent", "tries", "lastError", "mutedUntil"),
    row=_rule_row,
    none="No rules: `bedrockjobs notify add NAME` adds one.",
    text="List the rules by name, and the delivery of their messages.",
)
act(
    notify,
    "remove",
    RemoveRule,
    *("name", "by"),
    text="Remove a rule with its unsent messages.",
    outcome="removed",
    sentence="Removed rule {name}.",
)


@notify.command()
@takes(MuteRule, "name", "until", "by")
@server_options
def mute(session: Session, /, name: str, **_: Any) -> None:
    """Mute a rule until a moment; what happens until then is counted, and never sent."""
    command = typed_command(session, MuteRule)
    session.record(command)
    ends = str(command.until or "")
    sentence = f"Rule {name} sends nothing until {local_text(ends)}." if ends else f"Rule {name} sends again."
    write_one({"name": name, "until": command.until}, session.form, sentence, identity="name")


@notify.command()
@takes(TestRule, "name", "send")
@server_options
def test(session: Session, /, send: bool, **_: Any) -> None:
    """Show what a rule would send about the newest event that it matches."""
    record = session.record(typed_command(session, TestRule))
    if session.form != "table":
        write_one(record, session.form)
        return
    for key in ("to", "subject"):
        click.echo(f"{key.title()}: {text_of(record, key)}")
    click.echo(f"\n{text_of(record, 'text')}", nl=False)
    click.echo("Sent." if send else "Not sent; --send sends it.", err=True)
