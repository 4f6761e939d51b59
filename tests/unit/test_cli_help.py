"""Help texts are consistent about what options take, and their examples are existing commands."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path as File

import click
import pytest
from bedrock_worker.cli import main as worker
from cli_fake import run
from click.testing import CliRunner

from bedrockjobs.base.programs import SYNONYMS, unknown_option
from bedrockjobs.cli import main
from bedrockjobs.cli.call import example_pairs, parameters
from bedrockjobs.cli.parameters import WordChoice
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
    for path, command in ALL:
        assert "None]" not in command.get_help(click.Context(command)), path


def slips(word: str) -> Iterator[str]:
    """Yield misspellings of a word: a letter missing, doubled and swapped with the next one."""
    at = len(word) // 2
    yield word[:at] + word[at + 1 :]
    yield word[:at] + word[at] + word[at:]
    yield word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]


def suggestions(command: click.Command, slip: str) -> list[str]:
    """Return what is suggested instead of an unknown option."""
    error = unknown_option(click.NoSuchOption(slip, ctx=click.Context(command)))
    return re.findall(r"'([^']+)'", error.message.partition(" Did you mean ")[2])


@pytest.mark.parametrize(("path", "command"), ALL, ids=IDS)
def test_each_option_that_is_suggested_exists_and_takes_its_value(path: Path, command: click.Command) -> None:
    shown = {
        name: option
        for option in command.get_params(click.Context(command))
        if isinstance(option, click.Option) and not option.hidden
        for name in (*option.opts, *option.secondary_opts)
        if name.startswith("--")
    }
    meant: dict[str, set[str]] = {slip: set() for slip in SYNONYMS}
    for name in shown:
        for slip in slips(name[2:]) if len(name) > 4 else ():
            meant.setdefault(f"--{slip}", set()).add(name)
    for slip in meant.keys() - shown.keys():
        found = suggestions(command, slip)
        for name, _, value in (suggestion.partition(" ") for suggestion in found):
            assert name in shown, (path, slip, name)
            if value:
                shown[name].type.convert(value, shown[name], None)
        assert meant[slip] <= {*found}, (path, slip)


def test_a_synonym_of_an_option_leads_somewhere() -> None:
    led = {slip for _, command in ALL for slip in SYNONYMS if suggestions(command, slip)}
    assert led == {*SYNONYMS}


def test_each_command_that_is_suggested_exists() -> None:
    """Each misspelled command gets a suggestion, unless it is too short to be like another."""
    for path, command in ALL:
        if not isinstance(command, click.Group):
            continue
        context = click.Context(command, info_name="x")
        for name in command.list_commands(context):
            for slip in slips(name):
                if command.get_command(context, slip) is None:
                    with pytest.raises(click.UsageError) as refused:
                        command.resolve_command(context, [slip])
                    said = re.findall(r"'([^']+)'", refused.value.format_message())[1:]
                    assert all(command.get_command(context, each) for each in said), (path, slip, said)
                    assert name in said or len(name) < 5, (path, slip, said)


def test_each_word_that_is_suggested_is_taken() -> None:
    walked = 0
    for path, command in ALL:
        for option in command.params:
            if not isinstance(option.type, WordChoice):
                continue
            for word in (*option.type.choices, *option.type.also):
                for slip in slips(word) if len(word) > 3 else ():
                    if slip in option.type.also or slip in option.type.choices:
                        continue
                    with pytest.raises(click.BadParameter, match="Did you mean '") as refused:
                        option.type.convert(slip, option, None)
                    said = refused.value.message.partition("Did you mean '")[2].removesuffix("'?")
                    assert option.type.convert(said, option, None) in option.type.choices, (path, slip)
                    walked += 1
    assert walked > 50


ROOT = File(__file__).parents[2]
_JOINED = re.compile(r'"\s*\n\s*f?"')
"""Where a text of the source goes on in the next line."""
_NAMED = re.compile(
    r"(?P<mark>`|<code>)?(?<!from )(?<!\ba )(?P<program>bedrockjobs|bedrock-worker)"
    r" (?P<rest>(?(mark)[^`<]+|[^`<\n]+))"
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\{+[^{}]*\}+")


def named(text: str) -> Iterator[tuple[str, list[str], bool]]:
    """Yield programs that a text names, each with its arguments, and whether it is marked as code."""
    for found in _NAMED.finditer(text):
        words = _QUOTED.sub("X", found["rest"]).split()
        ended = next((at for at, word in enumerate(words) if word in ("--", "|", ">", "&&", "#", ";")), None)
        last = next((at + 1 for at, word in enumerate(words) if word[-1] in ",.;:)("), None)
        words = words[: min(at for at in (ended, last, len(words)) if at is not None)]
        yield found["program"], [word.rstrip(",.;:)(\"'") for word in words], found["mark"] is not None


def wrong(program: str, words: list[str]) -> str:
    """Return the first word that the program does not know; empty if it knows all."""
    command: click.Command = worker if program == "bedrock-worker" else main
    while isinstance(command, click.Group) and words and re.fullmatch(r"[A-Za-z]*[a-z][A-Za-z-]*", words[0]):
        below = command.get_command(click.Context(command), words[0])
        if below is None:
            return words[0]
        command, words = below, words[1:]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    given = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
    return next((each for each in given if each not in known | {"--help", "--version"}), "")


def test_each_command_that_is_advised_exists_with_its_options() -> None:
    """In the texts of both programs, on the web pages and in the documentation."""
    files = [
        *(ROOT / "bedrockjobs").rglob("*.py"),
        *(ROOT / "worker" / "bedrock_worker").rglob("*.py"),
        *(ROOT / "bedrockjobs" / "pages" / "templates").glob("*.html"),
        *(ROOT / "docs").rglob("*.md"),
    ]
    roots = main.list_commands(click.Context(main))
    walked, failures = 0, []
    for file in files:
        text = file.read_text()
        if "bedrockjobs " not in text and "bedrock-worker " not in text:
            continue
        for program, words, is_code in named(_JOINED.sub("", text)):
            if is_code or (words and words[0] in roots):
                walked += 1
                if unknown := wrong(program, words):
                    failures.append((file.relative_to(ROOT).as_posix(), program, *words, unknown))
    assert not failures
    assert walked > 300
    assert wrong("bedrockjobs", ["job", "lst"]) == "lst", "a control"
    assert wrong("bedrockjobs", ["job", "list", "--qq", "X"]) == "--qq", "a control"
