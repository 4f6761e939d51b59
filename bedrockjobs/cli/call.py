"""``bedrockjobs call``, ``query`` and ``status``: any command of the protocol, and read-only queries.

The code of ``call`` names no command: each command class becomes a subcommand with its own help.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import UnknownCommand
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.wire import wire_name
from bedrockjobs.cli.output import Record, printable, raw_record, write_many, write_one
from bedrockjobs.cli.parameters import SubcommandGroup, TextOrFile, near, read_source
from bedrockjobs.cli.session import (
    Session,
    built,
    record_of,
    records_in,
    returned_unless_written,
    server_options,
)
from bedrockjobs.commands import COMMANDS, Command, Query, Status, command_named
from bedrockjobs.commands.take import TakeOptions

if TYPE_CHECKING:
    from bedrockjobs.client import Response


class CommandGroup(SubcommandGroup):
    """A group with one subcommand for each command of the protocol; names are case-insensitive."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of the registry."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand for a command, or None if there is no such command."""
        try:
            return _subcommand(command_named(cmd_name))
        except UnknownCommand:
            return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; suggest a similar one if there is none."""
        suggestion = near(args[0], list(COMMANDS))
        if suggestion and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {suggestion!r}?")
        return super().resolve_command(ctx, args)


@click.group(cls=CommandGroup)
def call() -> None:
    """Send any command: call CreateJob name=foo data='{"a":1}'.

    Names are the protocol's, without case. key=@file and key=@- read the value from a file or stdin; key=@@x
    is the text @x. `bedrockjobs call COMMAND --help` lists a command's keys.
    """


class CallCommand(click.Command):
    """A subcommand whose help lists the keys of its command."""

    def __init__(self, *arguments: Any, kind: type[Command[Any]], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.kind = kind

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write into the help the parameters of the command, given as ``key=value``, and then the options."""
        fields = self.kind.model_fields.items()
        with formatter.section("Keys (* is required)"):
            formatter.write_dl(
                [
                    (f"{wire_name(name)}{'*' if field.is_required() else ''}", _described(field))
                    for name, field in fields
                ]
            )
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of the command as a command line."""
        with formatter.section("Example"):
            # Not wrapped, so that it can be copied.
            formatter.write(f"  {shlex.join([*ctx.command_path.split(), *example_pairs(self.kind)])}\n")


def example_pairs(command_class: type[Command[Any]]) -> list[str]:
    """Return the example of a command as ``key=value`` pairs."""
    parameters = command_class.example.request.items()
    return [f"{key}={value if isinstance(value, str) else jsontext.dump(value)}" for key, value in parameters]


def _described(field: FieldInfo) -> str:
    """Return the description of a key; its choices are added unless the description names all of them."""
    description = field.description or ""
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if get_origin(kind) is Literal]
    choices = [str(choice) for kind in kinds for choice in get_args(kind) if choice != ""]
    all_named = all(re.search(rf"\b{choice}\b", description) for choice in choices)
    return description if all_named else f"{description} One of {', '.join(choices)}."


def _subcommand(command_class: type[Command[Any]]) -> click.Command:
    keys = sorted(command_class.wire_names.values())

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(f"{key}=") for key in keys if key.lower().startswith(incomplete.lower())]

    @click.command(
        command_class.__name__,
        cls=CallCommand,
        kind=command_class,
        help=(command_class.__doc__ or "").strip(),
    )
    @click.argument("pairs", metavar="KEY=VALUE...", nargs=-1, shell_complete=complete)
    @server_options
    def send(session: Session, pairs: tuple[str, ...]) -> None:
        answer = session.send(built(command_class, parameters(command_class, pairs)))
        takes = issubclass(command_class, TakeOptions)
        taken = _taken_jobs(record_of(answer)) if takes else []
        with returned_unless_written(session, taken):
            _write(answer, session)

    return send


def parameters(command_class: type[Command[Any]], pairs: tuple[str, ...]) -> dict[str, str]:
    """Return ``key=value`` pairs as parameters by wire name; raises click.UsageError."""
    values: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"expected key=value, got {pair!r}")
        name = command_class.wire_names.get(key.strip().lower())
        if name is None:
            known = sorted(command_class.wire_names.values())
            suggestion = near(key.strip(), known)
            advice = f", did you mean {suggestion!r}? It has" if suggestion else "; it has"
            raise click.UsageError(f"{command_class.__name__} has no {key!r}{advice} {', '.join(known)}")
        if name in values:
            raise click.UsageError(f"{name} is given twice")
        values[name] = _value(name, value)
    return values


def _value(name: str, value: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    try:
        return read_source(value[1:])
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _taken_jobs(record: Record) -> list[Record]:
    """Return the jobs in the reply of a command that takes jobs; empty if none was taken."""
    if "jobs" in record:
        return records_in(record["jobs"]) if record["jobs"] != "null" else []
    if "job" in record:
        return [raw_record(record["job"])] if record["job"] != "null" else []
    return [record] if "jobID" in record else []


def _write(answer: Response, session: Session) -> None:
    """Write a reply: a single list as a table, other JSON by keys, and text that is not JSON unchanged."""
    text = answer.body.decode(errors="replace")
    if text.startswith("["):
        rows: list[Record] = [_row(RawJSON(element)) for element in jsontext.elements(text)]
        write_many(rows, session.form, complete=True)
    elif text and not text.startswith("{"):
        for line in text.splitlines():
            click.echo(printable(line))
    else:
        _write_object(record_of(answer), session, answer.reason)


def _write_object(record: Record, session: Session, text: str) -> None:
    (key, value), *more = [*record.items()] or [("", RawJSON())]
    if session.form != "json" and not more and value.startswith("["):
        rows: list[Record] = [_row(RawJSON(element), key) for element in jsontext.elements(value)]
        write_many(rows, session.form, complete=True)
    else:
        write_one(record, session.form, "" if record else text)


def _row(value: RawJSON, key: str = "") -> Record:
    """Return a list element as a record: an array by position, and a single value under ``key``."""
    if value.startswith("{"):
        return raw_record(value)
    if value.startswith("["):
        return {str(at): RawJSON(element) for at, element in enumerate(jsontext.elements(value), 1)}
    return {key: value}


@click.command()
@click.argument("sql", metavar="SELECT", type=TextOrFile())
@server_options
def query(session: Session, sql: str) -> None:
    """Run one query on the server's database, read-only: 'select * from jobs'.

    The final `;` is optional; @file and - (stdin) are read.
    """
    text = sql.strip()
    command = built(Query, {"query": text if text.endswith(";") else f"{text};", "format": "json"})
    reply = session.record(command)
    columns = distinct(jsontext.parse(reply["headers"]))
    rows = [[RawJSON(value) for value in jsontext.elements(row)] for row in jsontext.elements(reply["rows"])]
    records: list[Record] = [dict(zip(columns, row, strict=True)) for row in rows]
    write_many(records, session.form, columns, stored=True)


def distinct(headers: Sequence[str]) -> list[str]:
    """Return a unique key for each header, so that ``select name, name`` keeps both columns."""
    keys: list[str] = []
    for header in headers:
        key, count = header, 1
        while key in keys:
            count += 1
            key = f"{header}_{count}"
        keys.append(key)
    return keys


@click.command()
@server_options
def status(session: Session) -> None:
    """Show the version and the status of the server."""
    write_one(session.reply(Status), session.form)
