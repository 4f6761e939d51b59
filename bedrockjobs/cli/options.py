"""Options that several commands share: what ``JobOptions`` says of a job, and who asks for something.

The flags of a job's options are derived from the class: a new field is a flag at once. Nothing here knows a
command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from bedrockjobs.base.config import WORKER_CHARS_MAX
from bedrockjobs.base.duration import duration_text
from bedrockjobs.base.wire import Whole, wire_name
from bedrockjobs.cli.groups import WordChoice
from bedrockjobs.cli.values import Moment, Words, current_user
from bedrockjobs.commands.options import Duration, JobOptions, Lock

F = TypeVar("F", bound=Callable[..., Any])

MAIN_SECTION = "Options"

SECTIONS = {
    "What a worker is to run": ("cmd", "argv", "url", "run_timeout", "grace"),
    "When a run fails, is lost or has to wait": (
        "retries", "backoff", "max_backoff", "on_lost", "lease", "lock", "expire_after", "on_child_failure",
    ),
    "Ticks of a schedule": ("catchup", "overlap", "max_late", "jitter", "hosts", "expect", "ping_grace"),
    "What is kept": ("keep", "keep_success", "keep_fail", "output_lines", "tags", "traceparent"),
}  # fmt: skip
"""Where the help lists an option of a job; one that is named nowhere comes with the command's own."""

METAVARS = ((Duration, "DURATION"), (Whole, "NUMBER"), (Lock, "NAME|true"))

DURATIONS = frozenset(
    wire_name(field)
    for field, info in JobOptions.model_fields.items()
    if Duration in get_args(info.annotation)
)
"""The options (wire names) that are lengths of time."""

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "argv": {"type": Words(), "metavar": "'PROGRAM ARG...'|JSON"},
    "url": {"metavar": "URL|JSON"},
    "tags": {"metavar": "WORD[,WORD]"},
    "cmd": {"metavar": "COMMAND"},
}
"""How options are typed that have a shape of their own."""


class SectionedOption(click.Option):
    """An option that the help lists under a heading of its own."""

    def __init__(self, *arguments: Any, section: str = MAIN_SECTION, **attributes: Any) -> None:
        """Belong to ``section``."""
        super().__init__(*arguments, **attributes)
        self.section = section


class SectionedCommand(click.Command):
    """Shows its options in sections: those without a heading first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each section."""
        sections: dict[str, list[tuple[str, str]]] = {MAIN_SECTION: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", MAIN_SECTION), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


def job_options(command: F) -> F:
    """Add a flag for each option of a job, listed in sections: needs ``SectionedCommand``."""
    sections = {field: section for section, fields in SECTIONS.items() for field in fields}
    ordered = [*sections, *(field for field in JobOptions.model_fields if field not in sections)]
    for field in reversed(ordered):
        attributes = _attributes(field, JobOptions.model_fields[field])
        section = sections.get(field, MAIN_SECTION)
        name = f"--{field.replace('_', '-')}"
        command = click.option(name, field, cls=SectionedOption, section=section, **attributes)(command)
    return command


SAID = {"PingSchedule": "`bedrockjobs ping`", "its nextRun": "its next run"} | {
    wire_name(field): f"--{field.replace('_', '-')}" for field in JobOptions.model_fields if "_" in field
}
"""What a help says for words of the protocol."""

_SAID = re.compile("|".join(rf"\b{word}\b" for word in SAID))


def _attributes(field: str, info: FieldInfo) -> dict[str, Any]:
    words = _SAID.sub(lambda found: SAID[found.group()], info.description or "")
    found: dict[str, Any] = {"type": str, "help": words}
    if field in ATTRIBUTES:
        return found | ATTRIBUTES[field]
    for part in get_args(info.annotation):
        if get_origin(part) is Literal:
            return {**found, "type": WordChoice(get_args(part), empty=True)}
        for shape, metavar in METAVARS:
            if part == shape:
                return {**found, "metavar": metavar}
    return found


def chosen_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given for a job's options, by wire name; None where nothing was."""
    return {wire_name(field): given[field] for field in JobOptions.model_fields}


def option_text(key: str, value: object) -> object:
    """Return the value of an option as it is shown: a length of time as ``10m``, the rest as it is."""
    return duration_text(float(str(value))) if key in DURATIONS else value


def by_option(command: F) -> F:
    """Add --by, who asks for it: the user if left out."""
    return click.option(
        "--by", default=current_user, envvar="BEDROCKJOBS_BY", metavar="NAME",
        help=f"Who wants it: you if left out. At most {WORKER_CHARS_MAX} characters.",
    )(command)  # fmt: skip


def until_option(command: F) -> F:
    """Add --until, a moment or a time from now."""
    return click.option(
        "--until", type=Moment(), metavar="TIME",
        help="When they go on by themselves: UTC, ISO 8601 with a zone, or a time from now like 2h.",
    )(command)  # fmt: skip
