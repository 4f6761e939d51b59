"""``bedrockjobs serve``: each field of ``Settings`` is an option, derived from the class.

A new field is immediately an option, an environment variable and a line of the help. The log format is the
only setting that this module names, since errors of the settings are logged in it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from bedrockjobs.base.clock import WORDS, days_text
from bedrockjobs.base.settings import FORMS, Settings, is_duration
from bedrockjobs.base.settings_file import VARIABLE
from bedrockjobs.cli.parameters import MAIN_SECTION, FieldOption, SectionedCommand
from bedrockjobs.cli.settings_sources import option_name, settings_from, variable_name
from bedrockjobs.observe import logs

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
