"""What a check of `bedrockjobs doctor` has found."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bedrockjobs.cli.output import one_line

Level = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    """What a check found, and what to do about it."""

    level: Level
    check: str
    words: str
    advice: str = ""

    @property
    def line(self) -> str:
        """Return it as one line."""
        advice = f" -> {self.advice}" if self.advice else ""
        return one_line(f"{self.check:<9}{self.words}{advice}")
