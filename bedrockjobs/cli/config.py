"""``bedrockjobs config``: what the settings are and who set them, whether a file is good, and an example."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import click

from bedrockjobs.base.clock import days_text
from bedrockjobs.base.settings import Settings, is_duration, without_passwords
from bedrockjobs.cli.groups import Group
from bedrockjobs.cli.output import write_many
from bedrockjobs.cli.serve import SETTINGS, config_option
from bedrockjobs.cli.session import Session, answers, pass_session
from bedrockjobs.cli.settings_sources import SECRET, BadSettings, found_settings, read_settings
from bedrockjobs.databases import EXIT_USAGE

LINE_CHARS = 100
"""Width of the example's lines."""


@click.group(cls=Group)
def config() -> None:
    """Look at the server's settings, and check a settings file.

    An option of `serve` wins over an environment variable, a variable over the file, the file over the
    default.
    """


def _show(session: Session, /, config: Path | None, origin: bool, **given: Any) -> None:
    """Show each setting that `serve` would have here, with the same options, variables and file.

    Passwords are not shown. With --origin it says who set each: an option, a variable, a line of the file,
    or nobody (default).
    """
    found = found_settings(given, config)
    records = []
    for field in Settings.model_fields:
        value = getattr(found.settings, field)
        if field in SECRET:
            value = "***" if value else ""
        elif isinstance(value, str):
            value = without_passwords(value)
        elif is_duration(field) and session.form == "table":
            value = days_text(value)
        record = {"setting": field, "value": value}
        records.append(record | {"origin": found.origins[field]} if origin else record)
    write_many(records, session.form, identity="setting", complete=True)


show = answers(
    click.Command(
        "show",
        callback=pass_session(_show),
        help=_show.__doc__,
        params=[config_option, click.Option(["--origin"], is_flag=True, help="Say who set it."), *SETTINGS],
    )
)
config.add_command(show)


@config.command()
@click.argument("file", type=click.Path(path_type=Path))
def check(file: Path) -> None:
    """Check a settings file: exit 0, or 78 with all that is wrong, by line.

    Nothing but the file is checked, with both of its tables: no option and no variable. Where it is good,
    the files that it names are read too, as `serve` and `bedrock-worker` read them at their start; the exit
    status is theirs for what is wrong first. Without the folder of `notify_commands` it is 78, though `serve`
    starts and only warns.
    """
    from bedrock_worker.cli import main as worker  # no other command needs it
    from bedrock_worker.settings_file import file_faults
    from bedrock_worker.settings_file import read_settings as read_worker

    server = read_settings(file)
    problems = [*server.problems, *read_worker(click.Context(worker), file)[0]]
    if problems:
        raise BadSettings(list(dict.fromkeys(problems)), of_file=True)
    from bedrockjobs.cli.named_files import faults_of_server

    faults = [*faults_of_server(server.good), *((words, EXIT_USAGE) for words in file_faults(file))]
    if faults:
        raise BadSettings([words for words, _ in faults], status=faults[0][1])
    click.echo(f"{file}: good")


@config.command()
def example() -> None:
    """Write a settings file with each setting, what it is and its default, all commented out."""
    click.echo(example_text(), nl=False)


def example_text() -> str:
    """Return the example: a line ``#name = default`` for each setting, below what it is."""
    parts = ["[server]\n"]
    for field, info in Settings.model_fields.items():
        words = textwrap.wrap(info.description or "", LINE_CHARS, initial_indent="# ", subsequent_indent="# ")
        parts.append("\n".join([*words, f"#{field} = {_toml(field, info.default)}"]) + "\n")
    return "\n".join(parts)


def _toml(field: str, value: Any) -> str:
    # JSON's texts, numbers and booleans are also TOML's.
    return json.dumps(days_text(value) if is_duration(field) else value)
