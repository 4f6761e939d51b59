"""CLI commands derived from the command classes of the protocol.

``takes`` adds arguments and options for fields, from which their types, metavars and help follow.
``typed_command`` builds the command from the typed values. ``act`` and ``listing`` make whole CLI commands
from a class, its fields and a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from inspect import cleandoc
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import click
from pydantic import AfterValidator, BeforeValidator
from pydantic.fields import FieldInfo

from bedrockjobs.base.clock import duration_text
from bedrockjobs.base.config import PRIORITIES, WORKER_CHARS_MAX
from bedrockjobs.base.programs import WholeNumber
from bedrockjobs.base.wire import (
    Boolean,
    JobID,
    JSONObject,
    Name,
    OnlyTrue,
    Printed,
    Priority,
    Timestamp,
    Whole,
    wire_name,
)
from bedrockjobs.cli.lookup import job_id_of, job_names, paged, run_ids, worker_names
from bedrockjobs.cli.output import Record, text_of, write_many, write_one
from bedrockjobs.cli.parameters import (
    MAIN_SECTION,
    CommandLine,
    FieldArgument,
    FieldOption,
    Modifier,
    Moment,
    TextOrFile,
    WordChoice,
    current_user,
)
from bedrockjobs.cli.parameters import Duration as DurationType
from bedrockjobs.cli.session import Session, built, records_in, server_options
from bedrockjobs.commands import Command
from bedrockjobs.commands.base import Parameters
from bedrockjobs.commands.jobs import Delay
from bedrockjobs.commands.options import Duration, JobOptions, Lock
from bedrockjobs.commands.take import Pattern

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Command[Any])

SECTIONS = {
    "Command that a worker runs": ("cmd", "argv", "url", "run_timeout", "grace"),
    "Failed, lost and waiting runs": (
        "retries",
        "backoff",
        "max_backoff",
        "on_lost",
        "lease",
        "lock",
        "concurrency_key",
        "concurrency_limit",
        "expire_after",
        "on_child_failure",
    ),
    "Ticks of a schedule": ("catchup", "overlap", "max_late", "jitter", "hosts", "expect", "ping_grace"),
    "Retention and labels": ("keep", "keep_success", "keep_fail", "output_lines", "tags", "traceparent"),
}
"""Headings of the help for job options, each with its fields; options of other fields have no heading."""

FLAGS = {"job_priority": "--priority", "run_id": "--run"}
"""Options whose names do not follow from their fields, by field."""

PRIORITY = click.Choice([str(priority) for priority in sorted(PRIORITIES)])

FROM_FILE = "@file and - (stdin) are read."

FROM_NOW = "UTC, ISO 8601 with a zone, or a time from now like 2h."

DURATIONS = frozenset(
    wire_name(field)
    for field, info in JobOptions.model_fields.items()
    if Duration in get_args(info.annotation)
)
"""Job options (wire names) that are durations."""


class OptionType(NamedTuple):
    """Parameters for options whose values have a certain type, and a last sentence for their help."""

    attributes: Mapping[str, Any]
    sentence: str = ""


_SHAPES: tuple[tuple[Any, OptionType], ...] = (
    (Delay, OptionType({"type": DurationType(whole=True), "metavar": "DURATION"})),
    (Duration, OptionType({"metavar": "DURATION"})),
    (Timestamp, OptionType({"type": Moment(), "metavar": "TIME"}, FROM_NOW)),
    (JSONObject, OptionType({"type": TextOrFile()}, FROM_FILE)),
    (Printed, OptionType({"type": TextOrFile()}, FROM_FILE)),
    (Priority, OptionType({"type": PRIORITY})),
    (Boolean, OptionType({"is_flag": True})),
    (OnlyTrue, OptionType({"is_flag": True})),
    (Name, OptionType({"metavar": "NAME", "shell_complete": job_names})),
    (Lock, OptionType({"metavar": "NAME|true"})),
    (JobID, OptionType({"metavar": "ID"})),
    (Pattern, OptionType({"metavar": "GLOB", "shell_complete": job_names})),
    (Whole, OptionType({"metavar": "NUMBER"})),
)
"""The click parameters of an option, by the type of its field. A field has a type of this list if it has the
type's last validator; the first such type applies."""

_FIELDS: dict[str, dict[str, Any]] = {
    "argv": {"type": CommandLine(), "metavar": "'PROGRAM ARG...'|JSON"},
    "url": {"metavar": "URL|JSON"},
    "tags": {"metavar": "WORD[,WORD]"},
    "cmd": {"metavar": "COMMAND"},
    "repeat": {"metavar": "REPEAT"},
    "retry_after": {"type": Modifier()},
    "idempotency_key": {"metavar": "KEY"},
    "concurrency_key": {"metavar": "KEY"},
    "unique_key": {"metavar": "KEY"},
    "unique_for": {"metavar": "DURATION"},
    "run_id": {"metavar": "RUNID", "shell_complete": run_ids},
    "worker": {"metavar": "NAME", "shell_complete": worker_names},
    "source": {"metavar": "NAME"},
    "by": {
        "metavar": "NAME",
        "default": current_user,
        "envvar": "BEDROCKJOBS_BY",
        "help": f"Who requests it; default: you. At most {WORKER_CHARS_MAX} characters.",
    },
}
"""Parameters of the options of some fields, which do not follow from the type of the field."""


class CommandParameter(NamedTuple):
    """A field, the names of its option or argument, and parameters that replace those of its type."""

    field: str
    names: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = {}


def typed(field: str, *names: str, **attributes: Any) -> CommandParameter:
    """Return a field with its own names or parameters; a name without dashes makes it an argument."""
    return CommandParameter(field, names, attributes)


JOB = typed("job_id", "job_id", metavar="ID|NAME", shell_complete=job_names)
"""An argument that takes a job by its jobID or its name."""

RUN = typed("run_id", help="Refuse if this is no longer the job's current run.")
"""The option --run: a command is refused if this run is no longer the current run of the job."""

GLOB = typed("name", "mask", required=False)
"""An optional argument for a pattern of names."""


def takes(
    command_class: type[Parameters], *fields: str | CommandParameter, section: str = MAIN_SECTION
) -> Callable[[F], F]:
    """Add an argument for each of ``fields`` that is required, and an option for each that is not."""

    def add(command: F) -> F:
        for each in reversed(fields):
            one = each if isinstance(each, CommandParameter) else CommandParameter(each)
            info = command_class.model_fields[one.field]
            attributes = _attributes(command_class, one.field, info) | {**one.attributes}
            names = one.names or _names(one.field, info)
            if names[0].startswith("-"):
                if one.field == "by":
                    names = (*names, "by")
                option = click.option(*names, cls=FieldOption, field=one.field, section=section, **attributes)
                command = option(command)
                continue
            attributes.pop("help", None)
            if not attributes.get("required", True) and "metavar" in attributes:
                attributes["metavar"] = f"[{attributes['metavar'].strip('[]')}]"
            command = click.argument(*names, cls=FieldArgument, field=one.field, **attributes)(command)
        return command

    return add


def _names(field: str, info: FieldInfo) -> tuple[str, ...]:
    return (field,) if info.is_required() else (FLAGS.get(field, f"--{field.replace('_', '-')}"),)


@cache
def _in_options(command_class: type[Parameters]) -> tuple[dict[str, str], re.Pattern[str]]:
    """Return the options by the names that the protocol's texts use, and a pattern to find the names."""
    replacements = {"PingSchedule": "`bedrockjobs ping`", "its nextRun": "its next run"} | {
        wire_name(field): FLAGS.get(field, f"--{field.replace('_', '-')}")
        for field in command_class.model_fields
        if "_" in field
    }
    return replacements, re.compile("|".join(rf"\b{word}\b" for word in replacements))


def _validator(shape: Any) -> Any:
    """Return the last validator of a type, by which fields of this type are recognized."""
    return [mark for mark in get_args(shape) if isinstance(mark, (BeforeValidator, AfterValidator))][-1]


def _attributes(command_class: type[Parameters], field: str, info: FieldInfo) -> dict[str, Any]:
    """Return the parameters of the option of a field."""
    replacements, pattern = _in_options(command_class)
    help_text = pattern.sub(lambda option: replacements[option.group()], info.description or "")
    option: dict[str, Any] = {"type": str, "help": help_text}
    parts = [info.annotation, *get_args(info.annotation)]
    choice = next((part for part in parts if get_origin(part) is Literal), None)
    if field in _FIELDS:
        return option | _FIELDS[field]
    if choice is not None:
        empty = field in command_class.emptied
        return {**option, "type": WordChoice(get_args(choice), empty=empty)}
    marks = [*info.metadata, *(mark for part in parts for mark in getattr(part, "__metadata__", ()))]
    for shape, (attributes, more) in _SHAPES:
        if _validator(shape) in marks:
            option |= attributes
            option["help"] = " ".join(filter(None, (help_text, more)))
            break
    least = next((mark.ge for mark in marks if hasattr(mark, "ge")), None)
    most = next((mark.le for mark in marks if hasattr(mark, "le")), None)
    if option.get("metavar") == "NUMBER" and least is not None and field not in command_class.emptied:
        option["type"] = WholeNumber(least, most)
    if option.get("is_flag"):
        del option["type"]
    return option


def job_options(command: F) -> F:
    """Add an option for each field of ``JobOptions``, in sections; the command must be a SectionedCommand."""
    listed = {field for fields in SECTIONS.values() for field in fields}
    sections = {
        **SECTIONS,
        MAIN_SECTION: tuple(field for field in JobOptions.model_fields if field not in listed),
    }
    for section, fields in reversed(sections.items()):
        command = takes(JobOptions, *fields, section=section)(command)
    return command


def typed_values(session: Session, command_class: type[Parameters]) -> dict[str, Any]:
    """Return the values that were typed for the fields of a class, by wire name; None if left out.

    A time from now becomes a timestamp by the server's clock, and the name of a job its jobID.
    """
    context = click.get_current_context()
    parameters: dict[str, Any] = {}
    for parameter in context.command.params:
        field = getattr(parameter, "field", "")
        if field not in command_class.model_fields or parameter.name is None:
            continue
        value, default = context.params[parameter.name], command_class.model_fields[field].default
        if isinstance(value, timedelta):
            value = session.parse_time(value)
        elif isinstance(value, float):
            value = int(value)
        elif isinstance(value, tuple):
            value = list(value) or None
        elif isinstance(value, bool):
            value = (not default) if value else None
        elif value == "" and default == "":
            value = None
        elif value is not None and parameter.make_metavar(context).strip("[]") == "ID|NAME":
            value = job_id_of(session, value)
        parameters[wire_name(field)] = value
    return parameters


def typed_command(session: Session, command_class: type[C], **more: Any) -> C:
    """Return the command that was typed, with ``more`` parameters by wire name; raises click.UsageError."""
    return built(command_class, {**typed_values(session, command_class), **more})


def limit_option(what: str) -> Callable[[F], F]:
    """Return the option --limit for a list of ``what``."""
    return click.option(
        "--limit",
        type=WholeNumber(min=1),
        default=100,
        show_default=True,
        metavar="NUMBER",
        help=f"How many {what}.",
    )


def act(
    group: click.Group,
    name: str,
    command_class: type[Command[Any]],
    *fields: str | CommandParameter,
    sentence: str,
    outcome: str = "",
    text: str = "",
    needs: str = "",
) -> None:
    """Add a CLI command that sends a command and prints a sentence about it.

    ``sentence`` may contain names of arguments and of members of the reply in braces. Output forms other than
    the table have the arguments and ``outcome``; if ``outcome`` is empty, they have the reply. ``text`` is
    the help, by default the docstring of the class. ``needs`` is the error message if all options are left
    out; if it is empty, they may be left out.
    """

    @group.command(name, help=text or cleandoc(command_class.__doc__ or ""))
    @takes(command_class, *fields)
    @server_options
    def command(session: Session, /, **_: Any) -> None:
        parameters = typed_values(session, command_class)
        arguments = [
            parameter.field
            for parameter in click.get_current_context().command.params
            if isinstance(parameter, FieldArgument)
        ]
        changes = parameters.keys() - {wire_name(field) for field in arguments} - {"by"}
        if needs and all(parameters[key] is None for key in changes):
            raise click.UsageError(needs)
        sent = built(command_class, parameters)
        reply: Record = session.record(sent)
        identity = {wire_name(field): getattr(sent, field) for field in arguments}
        record = {**identity, "outcome": outcome} if outcome else reply
        shown = {**identity, **{key: text_of(reply, key) for key in reply}}
        write_one(record, session.form, sentence.format_map(shown))


def listing(
    group: click.Group,
    command_class: type[Command[Any]],
    *fields: str | CommandParameter,
    columns: Sequence[str] = (),
    none: str = "",
    none_at_all: str = "",
    row: Callable[[Record], Record] | None = None,
    what: str = "",
    identity: str = "name",
    text: str = "",
) -> None:
    """Add ``list`` to a group: the rows of a command's reply as a table or as JSON.

    ``what`` is the plural of the listed things, for the option --limit; if it is empty, there is no such
    option, and all pages are read. ``none`` is the message for an empty list, and ``none_at_all`` the message
    if no filter was given. ``row`` converts a record to a table row.
    """

    limited: Callable[[Any], Any] = limit_option(what) if what else lambda command: command

    @group.command("list", help=text or cleandoc(command_class.__doc__ or ""))
    @takes(command_class, *fields)
    @limited
    @server_options
    def command(session: Session, /, **options: Any) -> None:
        parameters, most = typed_values(session, command_class), options.get("limit")
        if most is None:
            records = rows(session, command_class, parameters)
        else:
            records = paged(session, command_class, parameters, most)
        if row is not None and session.form == "table":
            records = [row(record) for record in records]
        particular = any(value is not None for value in parameters.values())
        message = none if particular else none_at_all or none
        write_many(records, session.form, columns, none=message, identity=identity)


def rows(session: Session, command_class: type[Command[Any]], parameters: Mapping[str, Any]) -> list[Record]:
    """Return all rows of a list, page by page if the reply is paged."""
    paging = command_class.paging
    if paging is None:
        return session.rows(command_class, parameters)
    records: list[Record] = []
    while True:
        after = {paging.cursor: text_of(records[-1], paging.key)} if records else {}
        page = records_in(session.reply(command_class, {**parameters, **after})[paging.rows])
        records += page
        if len(page) < parameters.get("limit", command_class.model_fields["limit"].default):
            return records


def option_text(key: str, value: object) -> object:
    """Return the value of a job option for people: a duration as ``10m``, any other value unchanged."""
    return duration_text(float(str(value))) if key in DURATIONS else value
