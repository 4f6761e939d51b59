"""What is wrong with a file of definitions: all of it at once, each with its line.

It knows no key and no format.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from bedrockjobs.base.wire import command_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bedrockjobs.base.errors import CommandError
    from bedrockjobs.imports.place import Place


PROBLEMS_SHOWN = 100
"""Problems of one file that are told; the others are counted. What was meant is looked for in as many."""


class BadDefinitions(ValueError):
    """A file cannot be read; each problem names the file, its line as far as known, the entry and the key."""

    def __init__(self, *problems: str) -> None:
        """Say each problem on a line of its own."""
        super().__init__("\n".join(problems))
        self.problems = problems


class Faults:
    """Collects what is wrong with one file."""

    def __init__(self, file: str) -> None:
        """Begin with nothing; ``file`` is what messages call it."""
        self._file = file
        self._found: list[tuple[int, str]] = []

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def add(self, what: str, line: int = 0) -> None:
        """Note a problem and its line; 0 where nobody knows it."""
        self._found.append((line, self.text(what, line)))

    def text(self, what: str, line: int = 0) -> str:
        """Return how a problem is told."""
        at = f"{self._file}: line {line}: " if line else f"{self._file}: " if self._file else ""
        return f"{at}{what}"

    def check(self) -> None:
        """Raise BadDefinitions with all that was noted, by line."""
        if self._found:
            texts = [text for _, text in sorted(self._found, key=lambda found: found[0])]
            if len(texts) > PROBLEMS_SHOWN:
                texts[PROBLEMS_SHOWN:] = [f"{self._file}: and {len(texts) - PROBLEMS_SHOWN} more"]
            raise BadDefinitions(*texts)


class Entry(NamedTuple):
    """One entry of a file, which notes what is wrong with it."""

    faults: Faults
    label: str
    """What messages call it: ``schedule backup``, or its number."""
    place: Place | None = None

    @property
    def line(self) -> int:
        """Return where it begins; 0 where nobody knows."""
        return self.place.line if self.place else 0

    def wrong(self, what: str, key: str = "") -> None:
        """Note a problem; with ``key`` it has the line of this key."""
        self.faults.add(f"{self.label}: {what}", self._line_of(key))

    def text(self, what: str, *keys: str) -> str:
        """Return how a problem is told; it has the line of the first of ``keys`` that is there."""
        lines = (self._line_of(key) for key in keys if self.place and key in self.place.keys)
        return self.faults.text(f"{self.label}: {what}", next(lines, self.line))

    def _line_of(self, key: str) -> int:
        return self.place.keys.get(key, self.place.line) if self.place else 0

    def unknown(self, key: str, known: Iterable[str]) -> None:
        """Note a key that means nothing here."""
        near = get_close_matches(key, list(known), 1) if len(self.faults) < PROBLEMS_SHOWN else []
        self.wrong(f"unknown key {key!r}{f', expected {near[0]}' if near else ''}", key)

    def refused(self, error: ValidationError | CommandError, spelled: Mapping[str, str]) -> None:
        """Note all that a class of the protocol refuses; ``spelled`` are the keys by parameter."""
        if not isinstance(error, ValidationError):
            self.wrong(error.detail or error.reason)
            return
        for parameter, refusal in command_errors(error):
            self.wrong(refusal.detail or refusal.reason, spelled.get(parameter, parameter))
