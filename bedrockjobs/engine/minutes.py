"""What counts by the minute, as far as those have to know it who write a minute that is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Minutes(Protocol):
    """The counts of the present minute."""

    def closing(self, minute: str) -> Sequence[int] | None:
        """Return the counts to be written as another minute begins; None where there are none."""
        ...

    def begin(self, minute: str) -> None:
        """Begin a minute."""
        ...
