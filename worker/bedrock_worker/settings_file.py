"""``bedrock-worker --config``: reads options from the table ``[worker]`` of a settings file.

A key is an option without its dashes: ``allow_cmd`` is ``--allow-cmd``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from bedrock_worker.policy.rules import read_rules
from bedrockjobs.base.settings_file import SettingsFileError, read_table, unknown_key
from bedrockjobs.client import AsyncClient

CONFIG = 78
"""Exit status for a bad settings file: EX_CONFIG of sysexits.h."""


class BadSettingsFile(click.UsageError):
    """A settings file that cannot be used."""

    exit_code = CONFIG


def defaults_from_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Use the values of the file as defaults, which options and variables override.

    Raises BadSettingsFile, which lists every problem with its line, its key and what is expected.
    """
    if path is None:
        return
    problems, values = read_settings(ctx, path)
    if problems:
        raise BadSettingsFile("\n".join(problems))
    ctx.default_map = values


def read_settings(ctx: click.Context, path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the problems of a file, and its values by parameter name.

    ``ctx`` is a context of the worker's command.
    """
    try:
        table = read_table(path, "worker")
    except SettingsFileError as error:
        return [str(error)], {}
    options = {
        each.opts[0].removeprefix("--").replace("-", "_"): each
        for each in ctx.command.params
        if isinstance(each, click.Option) and each.name not in ("config", "version")
    }
    problems, values = list(table.problems), dict[str, Any]()
    for key, entry in table.entries.items():
        option = options.get(key)
        fault = unknown_key(key, options) if option is None else _fault_of(ctx, option, entry.value)
        if fault:
            problems.append(f"{entry.place}: {key}: {fault}")
        elif option is not None and option.name is not None:
            values[option.name] = entry.value
    return problems, values


def file_faults(path: Path) -> list[str]:
    """Return the problems of the files (token, certificates, rules) that a valid table names."""
    entries = read_table(path, "worker").entries
    values = {key: str(entry.value) for key, entry in entries.items()}
    faults = []
    for keys, check in _FILE_CHECKS.items():
        first = next((key for key in keys if key in values), None)
        if first is None:
            continue
        try:
            check(values)
        except ValueError as error:
            key = str(error).partition(":")[0]
            faults.append(f"{entries[key if key in values else first].place}: {error}")
    return faults


def _check_token(values: Mapping[str, str]) -> None:
    AsyncClient(_NO_SERVER, token_file=values["token_file"], ca="", cert="", key="")


def _check_certificates(values: Mapping[str, str]) -> None:
    """Load the TLS files that the table names; environment variables are ignored."""
    ca, cert, key = (values.get(each, "") for each in ("ca", "cert", "key"))
    AsyncClient(_NO_SERVER, token="", ca=ca, cert=cert, key=key)


def _check_rules(values: Mapping[str, str]) -> None:
    read_rules(Path(values["rules"]).resolve())


_NO_SERVER = "https://localhost"
"""A server that is never contacted."""

_FILE_CHECKS: dict[tuple[str, ...], Callable[[Mapping[str, str]], None]] = {
    ("token_file",): _check_token,
    ("ca", "cert", "key"): _check_certificates,
    ("rules",): _check_rules,
}
"""The check of each group of files, by the options that name them; it raises ValueError."""


def _fault_of(ctx: click.Context, option: click.Option, value: Any) -> str:
    """Return what is wrong with a value, or an empty text."""
    if option.is_flag:
        return "" if isinstance(value, bool) else "expected true or false"
    if option.multiple:
        good, expected = (
            isinstance(value, list) and all(type(each) is str for each in value),
            "a list of texts",
        )
    elif isinstance(option.type, click.IntRange):
        good, expected = type(value) is int, "a whole number"
    elif isinstance(option.type, click.FloatRange):
        good, expected = type(value) in (int, float), "a number"
    else:
        good, expected = type(value) is str, "text in quotes"
    if not good:
        return f"expected {expected}"
    try:
        cast = option.type_cast_value(ctx, value)
        if option.callback is not None:
            option.callback(ctx, option, cast)
    except click.BadParameter as error:
        return error.message
    return ""
