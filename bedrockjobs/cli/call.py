"""``bedrockjobs call COMMAND key=value ...``: every command of the protocol, derived from its class.

It must not know a single command by name: a new class is a new subcommand with its own help.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic.fields import FieldInfo

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import UnknownCommand
from bedrockjobs.base.wire import RawJSON, wire_name
from bedrockjobs.cli.groups import Group, near
from bedrockjobs.cli.output import Record, printable, raw_record, write_many, write_one
from bedrockjobs.cli.session import Session, built, pass_session, record_of, talks
from bedrockjobs.cli.values import read_source
from bedrockjobs.commands import COMMANDS, Command, command_named

if TYPE_CHECKING:
    from bedrockjobs.client import Answer


class CommandGroup(Group):
    """One subcommand for each command of the protocol, whatever the case it is typed in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the registry's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand of a command's class."""
        try:
            return _subcommand(command_named(cmd_name))
        except UnknownCommand:
            return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; one that is like the word is named where there is none."""
        meant = near(args[0], list(COMMANDS))
        if meant and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


@click.group(cls=CommandGroup)
def call() -> None:
    """Send any command: call CreateJob name=foo data='{"a":1}'.

    Names are the protocol's, without case. key=@file and key=@- read the value from a file or stdin; key=@@x
    is the text @x. `bedrockjobs call COMMAND --help` lists a command's keys.
    """


class CallCommand(click.Command):
    """A subcommand whose help lists the keys of its command."""

    def __init__(self, kind: type[Command[Any]], **attributes: Any) -> None:
        """Make the subcommand of ``kind``."""
        super().__init__(kind.__name__, help=(kind.__doc__ or "").strip(), **attributes)
        self.kind = kind

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the keys, then the options."""
        fields = self.kind.model_fields.items()
        with formatter.section("Keys (* must be given)"):
            formatter.write_dl(
                [
                    (f"{wire_name(name)}{'*' if field.is_required() else ''}", _described(field))
                    for name, field in fields
                ]
            )
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example of the command, as it is typed here."""
        with formatter.section("Example"):
            # Not wrapped: it is there to be copied.
            formatter.write(f"  {shlex.join([*ctx.command_path.split(), *example_pairs(self.kind)])}\n")


def example_pairs(kind: type[Command[Any]]) -> list[str]:
    """Return the example of a command as ``key=value`` pairs."""
    given = kind.example.request.items()
    return [f"{key}={value if isinstance(value, str) else jsontext.dump(value)}" for key, value in given]


def _described(field: FieldInfo) -> str:
    """Return what a key means, with the words it may be where not all of them are told already."""
    words = field.description or ""
    kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if get_origin(kind) is Literal]
    choices = [str(choice) for kind in kinds for choice in get_args(kind) if choice != ""]
    told = all(re.search(rf"\b{choice}\b", words) for choice in choices)
    return words if told else f"{words} One of {', '.join(choices)}."


def _subcommand(kind: type[Command[Any]]) -> click.Command:
    keys = sorted(kind.wire_names.values())

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(f"{key}=") for key in keys if key.lower().startswith(incomplete.lower())]

    @pass_session
    def send(session: Session, pairs: tuple[str, ...]) -> None:
        _write(session.ask(built(kind, parameters(kind, pairs))), session)

    argument = click.Argument(["pairs"], metavar="KEY=VALUE...", nargs=-1, shell_complete=complete)
    return talks(CallCommand(kind, callback=send, params=[argument]))


def parameters(kind: type[Command[Any]], pairs: tuple[str, ...]) -> dict[str, str]:
    """Return ``key=value`` pairs as parameters by wire name; raises click.UsageError."""
    given: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"expected key=value, got {pair!r}")
        name = kind.wire_names.get(key.strip().lower())
        if name is None:
            known = sorted(kind.wire_names.values())
            meant = near(key.strip(), known)
            hint = f", did you mean {meant!r}? It has" if meant else "; it has"
            raise click.UsageError(f"{kind.__name__} has no {key!r}{hint} {', '.join(known)}")
        if name in given:
            raise click.UsageError(f"{name} is given twice")
        given[name] = _value(name, value)
    return given


def _value(name: str, value: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    if not value.startswith("@"):
        return value
    try:
        return read_source(value[1:])
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from None


def _write(answer: Answer, session: Session) -> None:
    """Write a reply: what is one list is a table, what is no JSON (a Query as text) stands as it is."""
    text = answer.body.decode(errors="replace")
    if text.startswith("["):
        rows: list[Record] = [_row(RawJSON(element)) for element in jsontext.elements(text)]
        write_many(rows, session.form, complete=True)
    elif text and not text.startswith("{"):
        for line in text.splitlines():
            click.echo(printable(line))
    else:
        _write_object(record_of(answer), session, answer.reason)


def _write_object(record: Record, session: Session, words: str) -> None:
    (key, value), *more = [*record.items()] or [("", RawJSON())]
    if session.form != "json" and not more and value.startswith("["):
        rows: list[Record] = [_row(RawJSON(element), key) for element in jsontext.elements(value)]
        write_many(rows, session.form, complete=True)
    else:
        write_one(record, session.form, "" if record else words)


def _row(value: RawJSON, key: str = "") -> Record:
    """Return one element of a list as a record: an object as it is, an array by position, or alone."""
    if value.startswith("{"):
        return raw_record(value)
    if value.startswith("["):
        return {str(at): RawJSON(element) for at, element in enumerate(jsontext.elements(value), 1)}
    return {key: value}
