"""``reference/cli.md``: both programs, from their click commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click
from bedrock_worker.cli import main as worker

from bedrockjobs.cli import main as bedrockjobs
from bedrockjobs.cli.call import CommandGroup
from bedrockjobs.cli.serve import Setting
from docs.generator import NOTE
from docs.generator.markdown import Tables, code, table

_INTRO = """\
# Command line

Results go to stdout, everything else to stderr. `-o` sets the format of results: `table` (for people), `json`
(one document), `jsonl` (one line per record) or `name` (the first value of each record, for scripts).

On a terminal a table fits the width: states, IDs, numbers and times stay complete, long names are shortened
in the middle and long texts at the end, and less important columns are left out, with a note. `-o wide`
shows everything, as do pipes and files.

Every option of `bedrockjobs` is also an environment variable, named after its command:
`BEDROCKJOBS_JOB_LIST_LIMIT=20` is `bedrockjobs job list --limit 20`. The options of `bedrockjobs serve`
have their own names, listed with the [settings](settings.md); those of `bedrock-worker` begin with
`BEDROCKJOBS_WORKER_`.

## Common options

Commands that talk to a server have these options, which their tables leave out:"""

_COMMON_NOTE = "It also has the [common options](#common-options)."

_HEADERS = ("option", "meaning", "default")

Row = tuple[str, str, str]


def page() -> str:
    """Return the page."""
    commands = [*_walked(bedrockjobs, "bedrockjobs"), *_walked(worker, "bedrock-worker")]
    counts = Counter(row for command, _ in commands for row in _rows(command))
    common = [row for row, count in counts.items() if count > len(commands) / 2]
    tables = Tables(_HEADERS)
    sections = [_section(command, path, common, tables) for command, path in commands]
    return "\n\n".join([NOTE, _INTRO, table(_HEADERS, common), *sections]) + "\n"


def _walked(command: click.Command, path: str) -> Iterator[tuple[click.Command, str]]:
    yield command, path
    if isinstance(command, click.Group) and not isinstance(command, CommandGroup):
        for name, inner in command.commands.items():
            yield from _walked(inner, f"{path} {name}")


def _section(command: click.Command, path: str, common: list[Row], tables: Tables) -> str:
    parts = [f"## {path}", _usage(command, path)]
    parts += _paragraphs(command.help or "")
    rows = _rows(command)
    has_common = set(common) <= set(rows)
    if has_common:
        rows = [row for row in rows if row not in common]
    if rows:
        parts.append(tables.text(path, rows))
    if has_common:
        parts.append(_COMMON_NOTE)
    if any(isinstance(parameter, Setting) for parameter in command.params):
        parts.append("Its further options are the [settings](settings.md).")
    epilog = command.epilog
    if isinstance(epilog, str):
        parts += _paragraphs(epilog)
    if isinstance(command, CommandGroup):
        parts.append("One subcommand for each command of the protocol: see [commands](commands.md).")
    return "\n\n".join(part for part in parts if part)


def _rows(command: click.Command) -> list[Row]:
    own = [parameter for parameter in command.params if not isinstance(parameter, Setting)]
    return [row for row in map(_row, own) if row is not None]


def _usage(command: click.Command, path: str) -> str:
    words = [path, "[OPTIONS]"]
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            words.append(parameter.metavar or (parameter.name or "").upper())
    if isinstance(command, click.Group):
        words.append("COMMAND …")
    return f"```\n{' '.join(words)}\n```"


def _row(parameter: click.Parameter) -> Row | None:
    if not isinstance(parameter, click.Option) or parameter.name in ("version", "help"):
        return None
    names = ", ".join(parameter.opts)
    value = "" if parameter.is_flag else f" {_value(parameter)}"
    required = " Required." if parameter.required else ""
    return code(f"{names}{value}"), f"{parameter.help or ''}{required}", _default(parameter)


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.normalize_choice(choice, None) for choice in option.type.choices)
    return option.type.name.upper().replace("INTEGER RANGE", "NUMBER").replace("INTEGER", "NUMBER")


def _default(option: click.Option) -> str:
    default: Any = option.default
    return code(str(default)) if option.show_default and not callable(default) else ""


def _paragraphs(text: str) -> list[str]:
    """Return a help text as Markdown; what click is told not to wrap is code."""
    lines = "\n".join(line.rstrip() for line in _dedented(text).splitlines())
    return [_paragraph(part) for part in re.split(r"\n\n+", lines) if part.strip()]


def _paragraph(part: str) -> str:
    stripped = part.strip("\n")
    if not stripped.startswith("\b"):
        return " ".join(stripped.split())
    return "```\n" + "\n".join(stripped.splitlines()[1:]) + "\n```"


def _dedented(text: str) -> str:
    first, _, rest = text.partition("\n")
    margins = [len(line) - len(line.lstrip()) for line in rest.splitlines() if line.strip()]
    margin = min(margins, default=0)
    return "\n".join([first.strip(), *(line[margin:] for line in rest.splitlines())])
