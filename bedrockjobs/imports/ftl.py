"""Import FTL cron jobs: ``//ftl:cron`` directives in Go, ``@Cron("...")`` in Kotlin and Java.

The work of a verb must be done by a worker that takes jobs of its name.
"""

from __future__ import annotations

import re
from datetime import datetime

from bedrockjobs.imports import ftl_go, ftl_jvm, gorhill, source
from bedrockjobs.imports.found import ImportedSchedule, check_count, once
from bedrockjobs.imports.ftl_verb import Verb
from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.expression import check_length

OPTIONS = {"run_timeout": "5m", "grace": "1m"}
"""FTL ends a call after 5 minutes, and releases the job 1 minute later in any case."""

FORMS = "five to seven fields of numbers, * , - and /, a duration such as 30s, or a weekday such as Mon"

CHECKED_FROM = datetime(2020, 1, 1)
"""FTL refuses expressions without a tick after this date."""

YEAR_MIN = 1_000
"""Smallest number in a sixth field that FTL interprets as a year."""

_PIECE = re.compile(
    r"\s+|(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<mark>[*,/-])", re.ASCII
)
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_UNITS = {"s": "*/{} * * * * * *", "m": "0 */{} * * * * *", "h": "0 0 */{} * * * *"}


def read(text: str, *, file: str = "") -> list[ImportedSchedule]:
    """Parse the directives of one source file; a verb's name is ``module.verb``, as in FTL's schema.

    Raises Unreadable if a comment or a string is not terminated.
    """
    language = source.language_of(text, file)
    tokens = source.tokens(text, language)
    module, verbs = ftl_go.read(tokens) if language == "go" else ftl_jvm.read(tokens, language)
    check_count(verbs, f"line {tokens[-1].line}")
    return once([_found(module, verb) for verb in sorted(verbs, key=lambda verb: verb.line)])


def reading_of(said: str) -> gorhill.Reading:
    """Parse an expression by FTL's grammar, then by the rules of hashicorp's library. Raises BadSchedule."""
    check_length(said)
    seven = _seven(said, _pieces(said))
    schedule, notes = gorhill.evaluate(seven, gorhill.HASHICORP, said, CHECKED_FROM)
    return gorhill.written(gorhill.Reading(schedule, " ".join(said.split()), tuple(notes)))


def _found(module: str, verb: Verb) -> ImportedSchedule:
    name = f"{module}.{verb.name}".lstrip(".") if verb.name else f"line-{verb.line}"
    found = ImportedSchedule(name, f"line {verb.line}", verb.said)
    if verb.refused:
        return found._replace(refused=verb.refused)
    try:
        reading = reading_of(verb.said)
    except cron.BadSchedule as error:
        return found._replace(refused=str(error))
    return found._replace(options=dict(OPTIONS)).with_reading(*reading).with_warning(*verb.warnings)


def _pieces(said: str) -> list[tuple[str, str]]:
    """Tokenize an expression as FTL does: whitespace only separates numbers."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(said):
        piece = _PIECE.match(said, at)
        if piece is None:
            raise cron.BadSchedule("expression", said, FORMS)
        if piece.lastgroup:
            found.append((piece.lastgroup, piece[0]))
        at = piece.end()
    return found


def _seven(said: str, pieces: list[tuple[str, str]]) -> list[str]:
    """Return the seven fields that FTL passes to its library."""
    kinds, words = [kind for kind, _ in pieces], [word for _, word in pieces]
    if kinds == ["number", "word"] and words[1] in _UNITS and words[0].isdigit() and len(words[0]) < 10:
        count = int(words[0])
        return (_UNITS[words[1]].format(count) if count else "0 0 0 * * * *").split()
    if kinds == ["word"] and words[0].lower() in _WEEKDAYS:
        return ["0", "0", "0", "*", "*", str(_WEEKDAYS.index(words[0].lower())), "*"]
    fields = _Fields(said, pieces).read()
    if not 5 <= len(fields) <= 7:
        raise cron.BadSchedule("expression", said, f"5 to 7 fields, not {len(fields)}: {FORMS}")
    if len(fields) == 7:
        return [text for text, _ in fields]
    texts = [text for text, _ in fields]
    if len(fields) == 5:
        return ["0", *texts, "*"]
    return ["0", *texts] if fields[5][1] >= YEAR_MIN else [*texts, "*"]


class _Fields:
    """Parses fields with Go's rules for numbers: 010 is eight, and 09 is invalid."""

    def __init__(self, said: str, pieces: list[tuple[str, str]]) -> None:
        self._said = said
        self._pieces = [*pieces, ("end", "")]
        self._at = 0

    def read(self) -> list[tuple[str, int]]:
        """Return each field with the largest number in it."""
        found: list[tuple[str, int]] = []
        while self._pieces[self._at][0] != "end":
            terms, numbers = [], [0]
            while True:
                term, values = self._term()
                terms.append(term)
                numbers += values
                if not self._took(","):
                    break
            found.append((",".join(terms), max(numbers)))
        return found

    def _term(self) -> tuple[str, list[int]]:
        values: list[int] = []
        if not self._took("*"):
            values.append(self._number())
            if self._took("-"):
                values.append(self._number())
        text = "-".join(map(str, values)) or "*"
        return (f"{text}/{self._number()}" if self._took("/") else text), values

    def _took(self, mark: str) -> bool:
        if self._pieces[self._at] == ("mark", mark):
            self._at += 1
            return True
        return False

    def _number(self) -> int:
        kind, text = self._pieces[self._at]
        if kind != "number":
            raise cron.BadSchedule("expression", self._said, FORMS)
        self._at += 1
        try:
            return int(text, 8 if len(text) > 1 and text[0] == "0" else 10) if len(text) < 10 else int("x")
        except ValueError:
            expected = f"numbers as Go reads them: without a zero before them, not {text[:20]}"
            raise cron.BadSchedule("expression", self._said, expected) from None
