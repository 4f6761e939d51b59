"""``bedrockjobs notify``: notification rules."""

from __future__ import annotations

from typing import Any

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import duration_text
from bedrockjobs.cli.groups import SubcommandGroup
from bedrockjobs.cli.output import Record, local_text, text_of, write_one
from bedrockjobs.cli.session import Session, server_options
from bedrockjobs.cli.verbs import act, listing, takes, typed, typed_command
from bedrockjobs.commands import ListRules, MuteRule, PutRule, RemoveRule, TestRule
from bedrockjobs.commands.rules import OLDER_S_DEFAULT, OVER_DEFAULT


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


def _row(record: Record) -> Record:
    return {**record, **{key: " ".join(jsontext.parse(record[key])) for key in ("on", "names")}}


listing(
    notify,
    ListRules,
    columns=("name", "on", "names", "to", "sent", "lastSent", "tries", "lastError", "mutedUntil"),
    row=_row,
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
