"""Help texts are consistent about what options take, and their examples are existing commands."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from bedrock_worker.cli import main as worker
from cli_fake import run
from click.testing import CliRunner

from bedrockjobs.cli import main
from bedrockjobs.cli.call import example_pairs, parameters
from bedrockjobs.commands import COMMANDS

Path = tuple[str, ...]

WIDTH = 80
"""The smallest common width of a terminal."""

FORMS = {
    "ADDRESS",
    "ADDRESS[,ADDRESS]",
    "BYTES",
    "COMMAND",
    "DIR",
    "DURATION",
    "FILE",
    "FILE|URL",
    "GLOB",
    "GLOB[,GLOB]",
    "HEADER",
    "HOST[,HOST]",
    "HOURS",
    "ID",
    "ID|NAME",
    "KEY",
    "KIND",
    "LOAD",
    "MODULE",
    "NAME",
    "NAME[=VALUE]",
    "NAME|true",
    "NUMBER",
    "NUMBER/DURATION",
    "PATH",
    "REPEAT",
    "ROLE[,ROLE]",
    "RUNID",
    "SIZE",
    "TEXT",
    "TEXT|@FILE|-",
    "TIME",
    "TOKEN",
    "TYPE",
    "URL",
    "URL|JSON",
    "VARIABLE",
    "WHEN",
    "WORD",
    "WORD[,WORD]",
    "ZONE",
    "'PROGRAM ARG...'|JSON",
    "[DURATION]",
}
"""The words for what options take; another one is a new word to learn."""

TEXTS = {"--fingerprint", "--note", "--reason", "--text", "--traceparent", "--prefix"}
"""Options whose value may be any text."""

OF_SEVERAL_KINDS = {
    "--name",  # a name or a pattern
    "--names",  # one pattern, or several by commas
    "--to",  # where a message goes, or a database
    "--on",  # a day, or kinds of events
    "--from",  # a moment, or what is read
    "--by",  # the user's name, or the token that was used
    "--job",  # a job, or its number alone where several may be given
    "--before",  # a moment, or what a page ended with
    "--after",  # what a page ended with
    "--output-bytes",
}
"""Options that mean something else, or take more, from one command to another."""


def commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all its subcommands."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, (*path, name))


ALL = [*commands(main, ()), (("bedrock-worker",), worker)]
IDS = [" ".join(path) or "bedrockjobs" for path, _ in ALL]


def options(command: click.Command) -> Iterator[tuple[str, str]]:
    """Yield the options that take a value, with the displayed form of the value."""
    context = click.Context(command)
    for option in command.params:
        if isinstance(option, click.Option) and not (option.is_flag or option.count):
            yield max(option.opts, key=len), option.make_metavar(context)


def test_what_an_option_takes_is_said_in_words_that_are_few() -> None:
    for path, command in ALL:
        for name, form in options(command):
            choice = (form.startswith("[") and "|" in form) or form in ("[all]", "[ping]")
            assert choice or form in FORMS, (path, name, form)
            assert form != "TEXT" or name in TEXTS, f"{path} {name}: add a form in cli/verbs.py, or to TEXTS"


def test_an_option_takes_the_same_everywhere() -> None:
    forms: defaultdict[str, set[str]] = defaultdict(set)
    for _, command in ALL:
        for name, form in options(command):
            if not form.startswith("["):
                forms[name].add(form)
    assert {name for name, found in forms.items() if len(found) > 1} == OF_SEVERAL_KINDS


@pytest.mark.parametrize(("path", "command"), ALL, ids=IDS)
def test_a_help_is_whole(path: Path, command: click.Command) -> None:
    """It shows no empty default and no type name of the library; its examples are our commands."""
    if command is worker:
        shown = CliRunner().invoke(worker, ["--help"], terminal_width=WIDTH).stdout
    else:
        shown = run(*path, "--help").stdout
    assert "INTEGER" not in shown
    assert not re.search(r"default:\s*\]", shown)
    for line in shown.splitlines():
        if line.startswith("  bedrockjobs ") and not line.startswith("  bedrockjobs call "):
            typed = shlex.split(re.split(r"  +(?!-)", line.strip())[0].partition(" > ")[0])
            assert run(*typed[1:], "--help").exit_code == 0, typed
        elif line.startswith("      bedrock-worker "):
            worker.make_context("bedrock-worker", shlex.split(line)[1:], resilient_parsing=True)


def test_both_programs_say_their_version_alike() -> None:
    for program, name in ((main, "bedrockjobs"), (worker, "bedrock-worker")):
        shown = CliRunner().invoke(program, ["--version"]).stdout
        assert re.fullmatch(rf"{name} \d+\.\d+\.\d+\n", shown)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_command_can_be_copied(name: str) -> None:
    """It is on one line, and the command accepts its attributes."""
    kind = COMMANDS[name]
    pairs = example_pairs(kind)
    typed = shlex.join(["bedrockjobs", "call", name, *pairs])
    assert f"\nExample:\n  {typed}\n" in run("call", name, "--help").stdout
    assert kind.read(parameters(kind, tuple(pairs)))


SLIPS = [
    (["serve", "--db", "x"], "Did you mean '--database'?"),
    (["job", "create", "x", "--in", "5"], "Did you mean '--delay'?"),
    (["job", "list", "--nmae", "x"], "Did you mean '--name'?"),
    (["job", "list", "--json"], "Did you mean '--output json'?"),
    (["--serevr", "x", "status"], "Did you mean '--server'?"),
    (["job", "list", "--qqqqqq"], "No such option '--qqqqqq'."),
]


@pytest.mark.parametrize(("arguments", "said"), SLIPS, ids=lambda value: str(value)[:40])
def test_an_unknown_option_is_answered_with_what_was_meant_or_with_nothing(
    arguments: list[str], said: str
) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.strip().endswith(said)


def test_the_worker_suggests_options_too() -> None:
    result = CliRunner().invoke(worker, ["--nmae", "x"])
    assert (result.exit_code, result.stderr.strip().endswith("Did you mean '--name'?")) == (2, True)


def test_no_help_shows_a_bound_that_is_none() -> None:
    for path, command in commands(main, ("bedrockjobs",)):
        assert "None]" not in command.get_help(click.Context(command, info_name=path[-1]))
