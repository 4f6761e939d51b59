"""Takes the next job into a slot with the answer to the report of the one before (``thenGet``).

It saves the slot a question of its own, and the server a commit. Sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from bedrock_worker.options import Options
from bedrock_worker.pull.job import Job, job_after
from bedrockjobs.base.config import PATTERN_CHARS_MAX, PATTERNS_MAX
from bedrockjobs.base.glob import is_plain
from bedrockjobs.commands.jobs import Ending

E = TypeVar("E", bound=Ending)


class ThenGet:
    """The job after one."""

    def __init__(
        self, options: Options, names: Callable[[], tuple[str, ...]], wanted: Callable[[], bool]
    ) -> None:
        """Ask for the names that ``names`` returns, wherever ``wanted`` says so at the moment."""
        self._options, self._names, self._wanted = options, names, wanted
        self.asking = False
        """Whether an answer may be on its way that brings a job."""
        self.job: Job | None = None
        """The job that came."""

    @property
    def expects(self) -> bool:
        """Tell whether a job may come, or has come and is not begun."""
        return self.asking or self.job is not None

    def asks(self) -> bool:
        """Tell whether the job is asked for; decided now, for the report that is to be sent.

        Where one has come already, as with an answer that did not take the report, it would be lost.
        """
        self.asking = self.job is None and self._wanted() and pattern_of(self._names()) is not None
        return self.asking

    @property
    def question(self) -> dict[str, Any]:
        """Return the parameters that ask for it."""
        return {"then_get": pattern_of(self._names()), **self._options.taker}

    def added_to(self, report: E) -> E:
        """Return the report as it is to be sent, with the question where there is one."""
        return report.model_copy(update=self.question) if self.asks() else report

    def answered(self, body: bytes) -> None:
        """Take the job out of an answer; raises ValueError for one that cannot be read."""
        if self.asking:
            self.asking = False
            self.job = job_after(body)

    def unanswered(self) -> None:
        """Expect no job: the report was refused, or nobody knows."""
        self.asking = False


@lru_cache(maxsize=8)
def pattern_of(names: tuple[str, ...]) -> str | None:
    """Return the name patterns as one text, as ``thenGet`` takes them; None where no text says the same."""
    if any("," in name for name in names):
        return None
    if len(names) == 1:
        return names[0]
    listed = ",".join(names)
    plain = all(is_plain(name) and name == name.strip() for name in names)
    return listed if plain and len(names) <= PATTERNS_MAX and len(listed) <= PATTERN_CHARS_MAX else None
