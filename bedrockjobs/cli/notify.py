"""``bedrockjobs notify``: who is told of what happens."""

from __future__ import annotations

from datetime import timedelta

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.wire import stamped
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.options import by_option
from bedrockjobs.cli.output import Record, text_of, write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, records_in, talks
from bedrockjobs.cli.time_text import local_text
from bedrockjobs.cli.values import Moment
from bedrockjobs.commands import ListRules, MuteRule, PutRule, RemoveRule, TestRule
from bedrockjobs.commands.rules import OLDER_S_DEFAULT, OVER_DEFAULT

NONE = "Nobody is told of anything: `bedrockjobs notify add NAME` says who is."
LIST_COLUMNS = ("name", "on", "names", "to", "sent", "lastSent", "tries", "lastError", "mutedUntil")

_name_argument = click.argument("name")


@click.group(cls=Group)
def notify() -> None:
    """Say who is told of what happens, by mail or posted to an address.

    \b
    bedrockjobs notify add night --on failed --to mailto:ann@example.com
    bedrockjobs notify test night
    bedrockjobs notify mute night --until 2h
    """


@notify.command()
@_name_argument
@click.option(
    "--on",
    "kinds",
    multiple=True,
    required=True,
    metavar="KIND",
    help='Kind of event, such as failed, recovered, missed, timeout, lost, late, "no worker", backlog or'
    ' "disk low"; repeatable.',
)
@click.option(
    "--names", multiple=True, metavar="GLOB", help="Names that it is about; repeatable; all if left out."
)
@click.option("--tags", metavar="WORD[,WORD]", help="Only events of jobs that have one of these tags.")
@click.option(
    "--to",
    required=True,
    metavar="ADDRESS",
    help="mailto:somebody@example.com, https://..., or ${BEDROCKJOBS_NOTIFY_...}, a variable of the server.",
)
@click.option(
    "--secret", default="", metavar="VARIABLE", help="${BEDROCKJOBS_NOTIFY_...} that signs what is posted."
)
@click.option(
    "--over",
    default=OVER_DEFAULT,
    metavar="NUMBER",
    show_default=True,
    help="With --on backlog: more ready jobs than this.",
)
@click.option(
    "--older",
    default=duration_text(OLDER_S_DEFAULT),
    metavar="DURATION",
    show_default=True,
    help='With --on late and "no worker": how long a ready job may wait.',
)
@click.option("--no-data", is_flag=True, help="No output in its messages, and one line of an error.")
@click.option(
    "--group", default="0s", show_default=True, metavar="DURATION", help="Time between two messages."
)
@click.option("--quiet", default="", metavar="HOURS", help='No messages then: "22:00-07:00 Europe/Berlin".')
@by_option
@talks
@pass_session
def add(
    session: Session,
    name: str,
    kinds: tuple[str, ...],
    names: tuple[str, ...],
    tags: str | None,
    to: str,
    secret: str,
    over: int,
    older: str,
    no_data: bool,
    group: str,
    quiet: str,
    by: str,
) -> None:
    """Tell somebody of what happens from now on; a rule of this name is replaced."""
    given: dict[str, object] = {
        "name": name, "on": list(kinds), "names": list(names) or None, "tags": tags, "to": to,
        "secret": secret, "noData": no_data, "groupFor": group, "quiet": quiet, "over": over,
        "older": older, "by": by,
    }  # fmt: skip
    session.record(built(PutRule, given))
    said = f"Rule {name} counts from now on; `bedrockjobs notify test {name}` shows a message."
    write_one(
        {"name": name, "outcome": "put"},
        session.form,
        said,
        identity="name",
    )


@notify.command("list")
@talks
@pass_session
def list_rules(session: Session) -> None:
    """List the rules, and how the delivery of their messages stands."""
    found = records_in(session.record(ListRules(limit=1_000))["rules"])
    if session.form == "table":
        found = [{**record, "on": _words(record, "on"), "names": _words(record, "names")} for record in found]
    write_many(found, session.form, LIST_COLUMNS, none=NONE, identity="name")


@notify.command()
@_name_argument
@by_option
@talks
@pass_session
def remove(session: Session, name: str, by: str) -> None:
    """Forget a rule: what it has not sent is not sent."""
    session.record(built(RemoveRule, {"name": name, "by": by}))
    write_one({"name": name, "outcome": "removed"}, session.form, f"Removed rule {name}.", identity="name")


@notify.command()
@_name_argument
@click.option(
    "--until",
    type=Moment(),
    metavar="TIME",
    help="When it sends again: UTC, ISO 8601 with a zone, or a time from now like 2h; left out: now.",
)
@by_option
@talks
@pass_session
def mute(session: Session, name: str, until: str | timedelta | None, by: str) -> None:
    """Let a rule send nothing until a moment; what happens until then is counted, and never told."""
    end = session.moment(until)
    command = built(MuteRule, {"name": name, "until": end, "by": by})
    session.record(command)
    assert isinstance(command, MuteRule)
    ends = stamped(command.until)
    said = f"Rule {name} sends nothing until {local_text(ends)}." if ends else f"Rule {name} sends again."
    write_one({"name": name, "until": command.until}, session.form, said, identity="name")


@notify.command()
@_name_argument
@click.option("--send", is_flag=True, help="Send it, marked as a test.")
@talks
@pass_session
def test(session: Session, name: str, send: bool) -> None:
    """Show what a rule would send of the newest event that it is about."""
    record = session.record(built(TestRule, {"name": name, "send": send}))
    if session.form != "table":
        write_one(record, session.form)
        return
    for key in ("to", "subject"):
        click.echo(f"{key.title()}: {text_of(record, key)}")
    click.echo(f"\n{text_of(record, 'text')}", nl=False)
    click.echo("Sent." if send else "Not sent: --send does.", err=True)


def _words(record: Record, key: str) -> str:
    return " ".join(jsontext.parse(record[key]))
