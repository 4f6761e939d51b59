"""Classes for click: groups with full summaries, options in sections, choices, and types of values.

Values are durations, timestamps, sizes, words, and text that may come from a file.
"""

from __future__ import annotations

import getpass
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from bedrockjobs.base import clock
from bedrockjobs.base.clock import offset_seconds_of, seconds_of, timestamp
from bedrockjobs.base.config import DURATION_S_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.vocabulary import ANY_FAILURE, called, meant

# --- groups, options and choices -------------------------------------------------------------------------


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
            (name, command.get_short_help_str(1_000))  # click cuts summaries by default; none is so long
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


# --- types of option values ------------------------------------------------------------------------------
#
# They do not depend on command classes, which validate the values further.

F = TypeVar("F", bound=Callable[..., Any])

FILE_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of a file whose content is the value of an option: a server's default limit for a request."""

_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)


class Duration(click.ParamType[float]):
    """A duration in seconds."""

    name = "duration"

    def __init__(self, *, whole: bool = False) -> None:
        """Accept a duration; with ``whole``, fractions of a second are refused."""
        self.whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        seconds = value if isinstance(value, (int, float)) else seconds_of(str(value))
        if seconds is None:
            self.fail(f"expected {clock.WORDS}, got {value!r}", param, ctx)
        if self.whole and seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """A number of bytes, with or without a decimal unit: 1000000000, 10M, 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"expected bytes, such as 500000, 500k, 10M or 1G, got {value!r}", param, ctx)
        return int(match[1]) * int(1_000 ** " kmgt".index(match[2].lower() or " "))


class Modifier(click.ParamType[str]):
    """A date modifier of SQLite such as ``+5 MINUTES``, or a duration, which becomes such a modifier."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the modifier; a text that is not a duration is left for the server to validate."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None or text.lstrip().startswith("+"):
            return text
        if seconds != int(seconds):
            self.fail(f"expected whole seconds, got {value!r}", param, ctx)
        return f"+{int(seconds)} SECONDS"


class Moment(click.ParamType["str | timedelta"]):
    """A timestamp, or a time from now such as ``5m`` or ``-24h``."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | timedelta:
        """Return a timedelta for a time from now, or else the text, which the command class validates."""
        text = str(value)
        seconds = seconds_of(text)
        if seconds is None:
            seconds = offset_seconds_of(text)
        if seconds is None:
            return text
        if abs(seconds) > DURATION_S_MAX:
            self.fail(f"expected at most {DURATION_S_MAX} seconds from now, got {value!r}", param, ctx)
        return timedelta(seconds=seconds)


class CommandLine(click.ParamType[str]):
    """A program with its arguments, quoted as for a shell or as a JSON array; no shell is used."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the program and its arguments as a JSON array; empty if there are none."""
        text = str(value)
        if not text.strip() or text.lstrip().startswith("["):
            return text.strip()
        try:
            return json.dumps(shlex.split(text), ensure_ascii=False)
        except ValueError as error:
            self.fail(f"expected words quoted as for a shell, or a JSON array: {error}", param, ctx)


class TextOrFile(click.ParamType[str]):
    """Text, ``@file`` for the content of a file, or ``-`` for stdin."""

    name = "text|@file|-"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        text = str(value)
        if text != "-" and not text.startswith("@"):
            return text
        try:
            return read_source("-" if text == "-" else text[1:])
        except ValueError as error:
            self.fail(str(error), param, ctx)


def current_user() -> str:
    """Return the name of the current user; empty if it is unknown."""
    try:
        return getpass.getuser()[:WORKER_CHARS_MAX]
    except (OSError, KeyError):
        return ""


def read_source(name: str) -> str:
    """Return the text of a file, or of stdin for ``-``, without its last line break.

    Raises ValueError if the text cannot be read, is too large or is not UTF-8.
    """
    label = "stdin" if name == "-" else name
    try:
        if name == "-":
            content = _read(sys.stdin.buffer, label)
        else:
            with Path(name).open("rb") as file:
                content = _read(file, label)
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"cannot read {label}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{label} is not UTF-8: byte {error.start} cannot be read") from None


def _read(file: IO[bytes], label: str) -> bytes:
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{label} is larger than {FILE_BYTES_MAX} bytes")
    return content


DAYS_AGO = {"today": 0, "yesterday": 1}
"""Words for a day, each with how many days ago it was; a word stands for the beginning of that day."""

DAY_FORMATS = "today, yesterday, or a day like 2026-11-22"


class DayParameter(click.ParamType["str | date"]):
    """A day in local time."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | date:
        """Return a word of ``DAYS_AGO`` or a date, which ``bounds_of`` turns into timestamps."""
        if isinstance(value, date) or value.strip().lower() in DAYS_AGO:
            return value if isinstance(value, date) else str(value.strip().lower())
        try:
            return date.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"expected {DAY_FORMATS}, got {value!r}", param, ctx)


def bounds_of(day: str | date, now: datetime) -> tuple[str, str]:
    """Return the timestamps at which a local day begins and ends.

    Raises click.UsageError if the day ends after the year 9999.
    """
    if isinstance(day, str):
        day = now.astimezone().date() - timedelta(days=DAYS_AGO[day])
    try:
        begin, end = (datetime.combine(each, time()) for each in (day, day + timedelta(days=1)))
        return timestamp(begin.astimezone(now.tzinfo)), timestamp(end.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"--on: expected {DAY_FORMATS}") from None


SINCE_FORMATS = "yesterday, today, a time ago like 2h, or a day like 2026-11-22"

PastTime = timedelta | datetime | str
"""A timedelta before now, a datetime (in local time unless it has a zone), or a word of ``DAYS_AGO``."""


class Since(click.ParamType[PastTime]):
    """A time in the past."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PastTime:
        """Return the parsed value, which ``since_timestamp`` turns into a timestamp."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # it was converted before
        text = value.strip().lower()
        if text in DAYS_AGO:
            return text
        seconds = seconds_of(text.removesuffix(" ago").removesuffix("ago"))
        if seconds is not None and seconds <= DURATION_S_MAX:
            return timedelta(seconds=seconds)
        try:
            return datetime.fromisoformat(value.strip())
        except ValueError:
            self.fail(f"expected {SINCE_FORMATS}, got {value!r}", param, ctx)


def since_timestamp(since: PastTime, now: datetime, option: str = "--since") -> str:
    """Return a time in the past as a timestamp; a day begins at local midnight.

    Raises click.UsageError if the time is before the year 1.
    """
    try:
        if isinstance(since, timedelta):
            return timestamp(now - since)
        if isinstance(since, str):
            day = now.astimezone().date() - timedelta(days=DAYS_AGO[since])
            since = datetime.combine(day, time())
        return timestamp(since.astimezone(now.tzinfo))
    except (OverflowError, ValueError):
        raise click.UsageError(f"{option}: expected {SINCE_FORMATS}") from None


def since_option(what: str, name: str = "since", **more: Any) -> Callable[[F], F]:
    """Return the option --since; its help begins with ``what``, such as ``Only runs that began since``."""
    return click.option(
        "--since", name, type=Since(), metavar="WHEN", help=f"{what} then: {SINCE_FORMATS}.", **more
    )
