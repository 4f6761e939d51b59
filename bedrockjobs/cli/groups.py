"""Classes for click: groups with full summaries, options in sections, and choices with suggestions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import click

from bedrockjobs.base.vocabulary import ANY_FAILURE, called, meant

SUMMARY_CHARS = 1_000
"""Maximum characters of a summary: longer than any summary, since click by default cuts it."""


def near(word: str, known: Sequence[str]) -> str:
    """Return the known word that was probably meant, ignoring case; empty if none is similar."""
    lower = {each.lower(): each for each in reversed(known)}
    matches = get_close_matches(word.lower(), lower, 1)
    return lower[matches[0]] if matches else ""


MAIN_SECTION = "Options"


class SubcommandGroup(click.Group):
    """A group that lists its commands with full summaries."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command with the first sentence of its help."""
        if rows := self.summaries(ctx):
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def summaries(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the commands that are not hidden, with the first sentence of their help."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        return [
            (name, command.get_short_help_str(SUMMARY_CHARS))
            for name, command in commands
            if command is not None and not command.hidden
        ]


class FieldOption(click.Option):
    """An option for a field of a command class; the help lists the option under the heading ``section``."""

    def __init__(self, *names: Any, field: str = "", section: str = MAIN_SECTION, **attributes: Any) -> None:
        """Set ``field`` to the name of the field; it is empty for an option that belongs to no field."""
        super().__init__(*names, **attributes)
        self.field = field
        self.section = section


class FieldArgument(click.Argument):
    """An argument for a field of a command class."""

    def __init__(self, *names: Any, field: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.field = field


class SectionedCommand(click.Command):
    """A command whose help lists options in sections; options without a heading come first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for each section."""
        sections: dict[str, list[tuple[str, str]]] = {MAIN_SECTION: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(getattr(parameter, "section", MAIN_SECTION), []).append(record)
        for section, records in sections.items():
            with formatter.section(section):
                formatter.write_dl(records)


class WordChoice(click.Choice[str]):
    """A choice of words that accepts synonyms, and suggests a word for a misspelled one."""

    def __init__(
        self,
        choices: Sequence[str],
        also: Mapping[str, str] | None = None,
        *,
        empty: bool = False,
        **attributes: Any,
    ) -> None:
        """Accept ``choices``, the keys of ``also`` as synonyms, and with ``empty`` an empty text."""
        super().__init__(choices, **attributes)
        self.empty = empty
        self.also = dict(also or {})

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        """Return the word for people if it is one word: help shows this word, and both are accepted."""
        label = called(str(choice))
        return super().normalize_choice(choice if " " in label else label, ctx)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the error for an invalid choice, without the empty text among the choices."""
        return super().get_invalid_choice_message(value, ctx).replace(", ''.", ".")

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the metavar without the empty text among the choices."""
        metavar = super().get_metavar(param, ctx)
        return metavar and metavar.replace("|]", "]")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the choice; raises click.BadParameter, with a suggestion if a similar word exists."""
        if self.empty and not value:
            return ""
        word = self.also.get(str(value).lower()) or meant(str(value))
        word = word if word in self.choices else value
        try:
            return super().convert(word, param, ctx)
        except click.BadParameter as error:
            guess = near(str(value), [*self.choices, *self.also])
            guess = self.also.get(guess, guess)
            if not guess:
                raise
            self.fail(f"{error.message} Did you mean {self.normalize_choice(guess, ctx)!r}?", param, ctx)


STATUSES_ALSO = {
    "failure": ANY_FAILURE,
    "failures": ANY_FAILURE,
    "succeeded": "success",
    "ok": "success",
    "timed out": "timeout",
    "timedout": "timeout",
}
"""Synonyms for the statuses of runs."""

STATES_ALSO = {
    "fail": "FAILED",
    "queue": "QUEUED",
    "ready": "QUEUED",
    "waiting": "PAUSED",
    "done": "FINISHED",
    "canceled": "CANCELLED",
}
"""Synonyms for the states of jobs."""
