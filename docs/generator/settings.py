"""``reference/settings.md``: ``Settings``, and the constants of ``config.py`` with their reasons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from bedrockjobs.base import config
from bedrockjobs.base.clock import days_text
from bedrockjobs.base.settings import CERTIFICATES, RELOADABLE, Settings, is_duration
from bedrockjobs.cli.settings_sources import option_name, variable_name
from docs.generator import NOTE
from docs.generator.markdown import code, size, table

_INTRO = """\
# Settings and limits

## Settings

Each setting is an option of `bedrockjobs serve`, an environment variable, and a key of the table `[server]`
in a settings file (`--config FILE`, `BEDROCKJOBS_CONFIG`): the option without leading dashes and with `_`
for `-`. Options take precedence over variables, variables over the file, the file over defaults: see
[how to configure](../how-to/configure.md). Times are texts such as `90s`, `5m`, `1h30m`, or numbers of
seconds. Settings with a ↻ are read again on HUP; others need a restart."""

_CONSTANTS = """\
## Fixed limits

The same on every server. A command that exceeds one is refused with its name. The reason for each is in
[config.py](../../bedrockjobs/base/config.py)."""

_UNITS = {"chars": "characters", "bytes": "bytes", "ms": "ms", "s": "s"}


def page() -> str:
    """Return the page."""
    settings = table(
        ("option", "variable", "default", "allowed", "meaning"),
        (
            (
                code(option_name(name)),
                code(variable_name(name)),
                _default(name, field.default),
                _allowed(name, field),
                f"{field.description}{' ↻' if name in RELOADABLE | CERTIFICATES else ''}",
            )
            for name, field in Settings.model_fields.items()
        ),
    )
    constants = table(
        ("constant", "value", "meaning"),
        (
            (code(name), _value(name, value), _meaning(reason))
            for name, value, reason in constants_of_config()
        ),
    )
    return "\n\n".join([NOTE, _INTRO, settings, _CONSTANTS, constants]) + "\n"


def constants_of_config() -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and reason of every constant: its reason is the string below it."""
    body = ast.parse(Path(config.__file__).read_text()).body
    for statement, reason in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        if name.isupper() and isinstance(reason, ast.Expr) and isinstance(reason.value, ast.Constant):
            yield name, getattr(config, name), " ".join(str(reason.value.value).split())


def _meaning(reason: str) -> str:
    """Return what a constant limits, without the reason for its value."""
    found = re.match(r"(?:`[^`]*`|[^`])+?(?=[.;:](?: |$))", reason.replace("``", "`"))
    return f"{found[0]}." if found else reason


def _default(name: str, default: Any) -> str:
    if is_duration(name):
        return days_text(default)
    if "bytes" in name:
        return size(default)
    return code(str(default).lower() if isinstance(default, bool) else str(default))


def _allowed(name: str, field: Any) -> str:
    if choices := get_args(field.annotation):
        return " · ".join(code(str(choice)) for choice in choices)
    words = []
    for limit in field.metadata:
        for attribute, word in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below")):
            if hasattr(limit, attribute):
                value = getattr(limit, attribute)
                words.append(f"{word} {days_text(value) if is_duration(name) else f'{value:,}'}")
    return " ".join(words)


def _value(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if "BYTES" in name:
        return size(value)
    for part in name.lower().split("_"):
        if part in _UNITS:
            return f"{value:,} {_UNITS[part]}"
    return f"{value:,}" if name != "DEFAULT_PORT" else str(value)
