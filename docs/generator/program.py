"""``reference/cli.md``: both programs, from their click commands."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import click
from bedrock_worker.cli import main as worker

from bedrockjobs.cli import main as bedrockjobs
from bedrockjobs.cli.call import CommandGroup
from bedrockjobs.cli.serve import Setting
from bedrockjobs.commands import ALL
from docs.generator import NOTE
from docs.generator.markdown import code, table

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

Commands that talk to a server have these options. The sections below leave them out:"""

_SHARED = """\
## Shared options

Several commands have these; their sections only name them:"""

_HEADERS = ("option", "meaning", "default")

_SHARED_BY = 3
"""Commands with the same option from which on it is described once."""

_NAMED_FROM = 2
"""Options with the text of a parameter from which on a link to the parameters replaces their rows."""

Row = tuple[str, str, str]


def page() -> str:
    """Return the page."""
    commands = [*_walked(bedrockjobs, "bedrockjobs"), *_walked(worker, "bedrock-worker")]
    counts = Counter(row for command, _ in commands for row in _rows(command))
    common = [row for row, count in counts.items() if count > len(commands) / 2]
    often = {
        row[0]: row
        for row, count in reversed(counts.most_common())
        if count >= _SHARED_BY and row not in common and not _explained_by(row)
    }
    shared = [row for row in counts if row in often.values()]
    sections = [_section(command, path, common, shared) for command, path in commands]
    tables = [table(_HEADERS, common), _SHARED, table(_HEADERS, shared)]
    return "\n\n".join([NOTE, _INTRO, *tables, *sections]) + "\n"


@cache
def _parameters() -> dict[str, set[str]]:
    """Return the commands that have a parameter, by the words of its description."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for kind in ALL:
        for field in kind.model_fields.values():
            found[_words(field.description or "")].add(kind.__name__)
    return found


def _words(text: str) -> str:
    """Return a description without what differs between an option and its parameter."""
    text = re.sub(r"(?<=\.) (?:@file and - \(stdin\) are read|UTC, ISO 8601 .*)\.$", "", text)
    return re.sub(r"[^a-z0-9.]", "", text.lower())


def _explained_by(row: Row) -> set[str]:
    """Return the commands of the protocol with a parameter that has the description of an option."""
    return _parameters().get(_words(row[1]), set())


def _by_command(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield commands of the protocol that explain several of these options, with the options."""
    left = [row for row in rows if _explained_by(row)]
    while left:
        counts = Counter(name for row in left for name in sorted(_explained_by(row)))
        name, count = counts.most_common(1)[0]
        if count < _NAMED_FROM:
            return
        yield name, [row for row in left if name in _explained_by(row)]
        left = [row for row in left if name not in _explained_by(row)]


def _walked(command: click.Command, path: str) -> Iterator[tuple[click.Command, str]]:
    yield command, path
    if isinstance(command, click.Group) and not isinstance(command, CommandGroup):
        for name, inner in command.commands.items():
            yield from _walked(inner, f"{path} {name}")


def _section(command: click.Command, path: str, common: list[Row], shared: list[Row]) -> str:
    parts = [f"## {path}", _arguments(command)]
    parts += _paragraphs(command.help or "")
    rows = [row for row in _rows(command) if row not in common]
    named = [*_by_command([row for row in rows if row not in shared])]
    elsewhere = [*shared, *(row for _, options in named for row in options)]
    if own := [row for row in rows if row not in elsewhere]:
        parts.append(table(_HEADERS, own))
    parts += [f"As in [{name}](commands.md#{name.lower()}): {_flags(options)}." for name, options in named]
    if also := [row for row in rows if row in shared]:
        parts.append(f"Also: {_flags(also)}.")
    if any(isinstance(parameter, Setting) for parameter in command.params):
        parts.append("Its further options are the [settings](settings.md).")
    epilog = command.epilog
    if path == "bedrock-worker":
        parts.append("[Worker](worker.md) says what commands get, and what exit statuses and signals mean.")
    elif isinstance(epilog, str):
        parts += _paragraphs(epilog)
    if isinstance(command, CommandGroup):
        parts.append("One subcommand for each command of the protocol: see [commands](commands.md).")
    return "\n\n".join(part for part in parts if part)


def _flags(rows: Sequence[Row]) -> str:
    """Return the names of options, without their values."""
    return ", ".join(code(row[0].strip("`").split(" ")[0].removesuffix(",")) for row in rows)


def _rows(command: click.Command) -> list[Row]:
    own = [parameter for parameter in command.params if not isinstance(parameter, Setting)]
    return [row for row in map(_row, own) if row is not None]


def _arguments(command: click.Command) -> str:
    """Return the arguments of a command, empty if it takes options alone or is a group."""
    arguments = [
        parameter.metavar or (parameter.name or "").upper()
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    ]
    return f"Arguments: {code(' '.join(arguments))}." if arguments else ""


def _row(parameter: click.Parameter) -> Row | None:
    if not isinstance(parameter, click.Option) or parameter.hidden or parameter.name in ("version", "help"):
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
