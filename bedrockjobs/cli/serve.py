"""``bedrockjobs serve`` and ``config``: each field of ``Settings`` is an option of both, by its class.

A new field is immediately an option, an environment variable and a line of the help. The log format is the
only setting that this module names, since errors of the settings are logged in it.
"""

from __future__ import annotations

import json
import logging
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from bedrockjobs.base.clock import WORDS, days_text
from bedrockjobs.base.settings import FORMS, Settings, is_duration, without_passwords
from bedrockjobs.base.settings_file import VARIABLE, TableEntry
from bedrockjobs.cli.output import write_many
from bedrockjobs.cli.parameters import MAIN_SECTION, FieldOption, SectionedCommand, SubcommandGroup
from bedrockjobs.cli.session import Session, output_option, pass_session
from bedrockjobs.cli.settings_sources import (
    SECRET,
    BadSettings,
    found_settings,
    option_name,
    read_settings,
    settings_from,
    variable_name,
)
from bedrockjobs.databases import EXIT_FAILURE, EXIT_USAGE, StartError
from bedrockjobs.databases.file import usable_path
from bedrockjobs.observe import logs
from bedrockjobs.tls import BadCertificate, chosen_context

log = logging.getLogger(__name__)

SECTIONS = {
    "s": f"Time limits ({WORDS})",
    "max": "Limits of number and size",
    "bytes": "Limits of number and size",
}
"""Headings of the help, by the last word in the name of a setting, which is its unit."""


def section_of(field: str) -> str:
    """Return the heading under which the help lists a setting."""
    return SECTIONS.get("s" if is_duration(field) else field.rpartition("_")[2], MAIN_SECTION)


class Setting(FieldOption):
    """The option of a setting; ``Settings`` validates its value and reads its environment variable."""

    def __init__(self, field: str, info: FieldInfo) -> None:
        """Derive the option from a field of Settings."""
        name, attributes = option_name(field), self._attributes(field, info)
        if info.annotation is bool:
            name = f"{name}/{name.replace('--', '--no-', 1)}"
        attributes |= {"default": None, "allow_from_autoenv": False}
        super().__init__([name, field], section=section_of(field), **attributes)

    @staticmethod
    def _attributes(field: str, info: FieldInfo) -> dict[str, Any]:
        annotation, default = info.annotation, str(info.default).lower()
        attributes: dict[str, Any] = {"type": str, "metavar": FORMS.get(field)}
        if get_origin(annotation) is Literal:
            attributes = {"type": click.Choice(get_args(annotation))}
        elif annotation is bool:
            attributes = {}
        elif is_duration(field):
            attributes["metavar"], default = "DURATION", days_text(info.default)
        elif annotation in (int, float):
            attributes["metavar"] = "BYTES" if "bytes" in field else "NUMBER"
        words = f"; default: {default}" if default else ""
        attributes["help"] = f"{info.description}  [{variable_name(field)}{words}]"
        return attributes


config_option = click.Option(
    ["--config", "config"],
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar=VARIABLE,
    help="Settings file (TOML): its table [server] sets what neither an option nor a variable does."
    f"  [{VARIABLE}]",
)
"""The option that names the settings file."""

SETTINGS = [Setting(field, info) for field, info in Settings.model_fields.items()]
"""An option for each setting."""


@click.pass_context
def _serve(ctx: click.Context, /, config: Path | None, **options: Any) -> None:
    """Run the server until it is stopped.

    It serves the Bedrock protocol and HTTP on one port, and locks its database: a second server of the same
    file exits with 69, or waits with --standby. SIGTERM and SIGINT shut it down cleanly, SIGHUP reloads its
    certificate and its settings file.
    """
    try:
        settings = settings_from(options, config)
    except click.UsageError as error:
        if (options["log_format"] or os.environ.get(variable_name("log_format"))) != "json":
            raise
        logs.configure("json")
        log.critical("%s", error.message)
        ctx.exit(error.exit_code)
    from bedrockjobs.server import run_server  # only this command needs the server

    def reload_settings() -> Settings:
        try:
            return settings_from(options, config)
        except click.UsageError as error:
            raise ValueError(error.message.replace("\n", "; ")) from None

    ctx.exit(run_server(settings, reload_settings))


serve = SectionedCommand("serve", callback=_serve, help=_serve.__doc__, params=[config_option, *SETTINGS])


# --- ``bedrockjobs config`` ------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A problem of a file that a setting names, with the exit status that ``serve`` would have."""

    message: str
    status: int


def faults_of_server(entries: Mapping[str, TableEntry]) -> Iterator[Fault]:
    """Yield the problems of the files that the table ``[server]`` names."""
    settings = Settings(**{key: entry.value for key, entry in entries.items()})
    for keys, check in _CHECKS.items():
        named = [key for key in keys if key in entries]
        if not named:
            continue
        try:
            check(settings)
        except BadCertificate as error:
            words, status = str(error), EXIT_USAGE
        except StartError as error:
            words, status = str(error), error.status
        else:
            continue
        key = words.partition(":")[0]
        yield Fault(f"{entries[key if key in entries else named[0]].place}: {words}", status)


def _check_certificates(settings: Settings) -> None:
    chosen_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _check_database(settings: Settings) -> None:
    if not settings.on_postgresql:
        usable_path(settings)


def _check_socket(settings: Settings) -> None:
    """Check only that the folder of the unix socket exists: the server itself creates the socket."""
    path = Path(settings.unix)
    if settings.unix and not path.parent.is_dir():
        raise StartError(f"cannot listen: unix: {path}: there is no folder {path.parent}", EXIT_FAILURE)


def _check_programs(settings: Settings) -> None:
    """Check that the folder of programs for notifications exists; the server only warns if it does not."""
    if settings.notify_commands and not Path(settings.notify_commands).is_dir():
        raise StartError(f"notify_commands: there is no folder {settings.notify_commands}", os.EX_CONFIG)


_CHECKS: dict[tuple[str, ...], Callable[[Settings], None]] = {
    ("tls_cert", "tls_key", "tls_client_ca"): _check_certificates,
    ("database",): _check_database,
    ("unix",): _check_socket,
    ("notify_commands",): _check_programs,
}
"""The checks of the files that settings name; each key has the settings that its check needs together."""


@click.group(cls=SubcommandGroup)
def config() -> None:
    """Show the server's settings, and check a settings file.

    An option of `serve` wins over an environment variable, a variable over the file, the file over the
    default.
    """


def _show(session: Session, /, config: Path | None, origin: bool, **options: Any) -> None:
    """Show the settings that `serve` would use here, with the same options, variables and file.

    Passwords are not shown. With --origin it says where each was set: an option, a variable, a line of the
    file, or nowhere (default).
    """
    sources = found_settings(options, config)
    records = []
    for field in Settings.model_fields:
        value = getattr(sources.settings, field)
        if field in SECRET:
            value = "***" if value else ""
        elif isinstance(value, str):
            value = without_passwords(value)
        elif is_duration(field) and session.form == "table":
            value = days_text(value)
        record = {"setting": field, "value": value}
        records.append(record | {"origin": sources.origins[field]} if origin else record)
    write_many(records, session.form, identity="setting", complete=True)


show = output_option(
    click.Command(
        "show",
        callback=pass_session(_show),
        help=_show.__doc__,
        params=[
            config_option,
            click.Option(["--origin"], is_flag=True, help="Show where each setting comes from."),
            *SETTINGS,
        ],
    )
)
config.add_command(show)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a settings file: exit with 0, or with 78 and all errors by line.

    Both tables of the file are checked, without options and variables. If they are valid, the files that they
    name are read too, as `serve` and `bedrock-worker` read them at startup; the first error decides the exit
    status. It is 78 if the folder of `notify_commands` is missing, although `serve` starts with a warning.
    """
    from bedrock_worker.cli import file_faults
    from bedrock_worker.cli import main as worker  # only this command needs it
    from bedrock_worker.cli import read_settings as read_worker

    server = read_settings(file)
    problems = [*server.problems, *read_worker(click.Context(worker), file)[0]]
    if problems:
        raise BadSettings(list(dict.fromkeys(problems)), of_file=True)
    faults = [*faults_of_server(server.good), *((words, EXIT_USAGE) for words in file_faults(file))]
    if faults:
        raise BadSettings([words for words, _ in faults], status=faults[0][1])
    click.echo(f"{file}: good")


@config.command()
def example() -> None:
    """Write an example settings file: each setting with its description and default, commented out."""
    click.echo(example_text(), nl=False)


def example_text() -> str:
    """Return an example file, with a line ``#name = default`` for each setting below its description."""
    parts = ["[server]\n"]
    for field, info in Settings.model_fields.items():
        words = textwrap.wrap(info.description or "", 100, initial_indent="# ", subsequent_indent="# ")
        parts.append("\n".join([*words, f"#{field} = {_toml(field, info.default)}"]) + "\n")
    return "\n".join(parts)


def _toml(field: str, value: Any) -> str:
    # JSON strings, numbers and booleans are valid TOML.
    return json.dumps(days_text(value) if is_duration(field) else value)
