"""``bedrockjobs config``: show settings and their origin, check a settings file, write an example file."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from bedrockjobs.base.clock import days_text
from bedrockjobs.base.settings import Settings, is_duration, without_passwords
from bedrockjobs.base.settings_file import TableEntry
from bedrockjobs.cli.output import write_many
from bedrockjobs.cli.parameters import SubcommandGroup
from bedrockjobs.cli.serve import SETTINGS, config_option
from bedrockjobs.cli.session import Session, output_option, pass_session
from bedrockjobs.cli.settings_sources import SECRET, BadSettings, found_settings, read_settings
from bedrockjobs.databases import EXIT_FAILURE, EXIT_USAGE, StartError
from bedrockjobs.databases.file import usable_path
from bedrockjobs.tls import BadCertificate, chosen_context


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
