"""What is wrong with the entries of a sync: all of it told by a dry run, the first of it refused otherwise.

It knows no schedule and no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands.schedules import SYNC_PROBLEMS_MAX
from bedrockjobs.engine.handlers.context import Answer


class Problems:
    """Collects the refusals of single entries."""

    def __init__(self, what: str) -> None:
        """Begin with none; ``what`` is the attribute that lists the entries."""
        self._what = what
        self._found: list[tuple[int, str, CommandError]] = []
        self.warnings: list[dict[str, object]] = []
        """What is doubtful about entries that are taken, as it is answered."""

    @property
    def enough(self) -> bool:
        """Tell whether no more of them are told."""
        return len(self._found) >= SYNC_PROBLEMS_MAX

    def warner(self, place: int, name: str) -> Callable[[str], None]:
        """Return a function that notes what is doubtful about the entry of this place and name."""

        def warn(detail: str) -> None:
            if len(self.warnings) < SYNC_PROBLEMS_MAX:
                self.warnings.append({"place": place, "name": name, "detail": detail})

        return warn

    @contextmanager
    def of(self, place: int, name: str) -> Iterator[None]:
        """Note what is refused inside, of the entry of this place and name."""
        try:
            yield
        except CommandError as error:
            self._found.append((place, name, error))

    def check(self) -> None:
        """Raise the first refusal, with the place of its entry, and how many more there are."""
        if self._found:
            place, _, first = self._found[0]
            at = f"{self._what}.{place}"
            where = f"{at}: " if first.detail.startswith("expected ") else f"{at}."
            more = f"; dryRun tells {len(self._found) - 1} more" if len(self._found) > 1 else ""
            raise type(first)(first.reason, f"{where}{first.detail}{more}")

    def told(self) -> list[dict[str, object]]:
        """Return them as they are answered."""
        return [
            {"place": place, "name": name, "reason": error.reason, "detail": error.detail}
            for place, name, error in self._found
        ]


def synced(
    added: list[str],
    changed: list[str],
    removed: list[str],
    unchanged: list[str],
    problems: Problems,
    **more: object,
) -> Answer:
    """Return the answer of a sync; what else there is to say is left out if it is empty."""
    found = {"added": added, "changed": changed, "removed": removed, "unchanged": unchanged}
    said = {
        name: value
        for name, value in {**more, "problems": problems.told(), "warnings": problems.warnings}.items()
        if value
    }
    return Answer(jsontext.dump({**found, **said}))
