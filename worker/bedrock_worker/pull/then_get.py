"""Fetches the next job of a slot with the report of the previous one (``thenGet``).

It saves the slot a request, and the server a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from bedrock_worker.options import Options
from bedrock_worker.pull.job import TakenJob, job_after
from bedrockjobs.base.config import PATTERN_CHARS_MAX, PATTERNS_MAX
from bedrockjobs.base.glob import is_plain
from bedrockjobs.commands.jobs import RunEnd

E = TypeVar("E", bound=RunEnd)


class ThenGet:
    """The fetch of the next job."""

    def __init__(
        self, options: Options, names: Callable[[], tuple[str, ...]], wanted: Callable[[], bool]
    ) -> None:
        """Request jobs for the patterns that ``names`` returns, if ``wanted`` returns true at that time."""
        self._options, self._names, self._wanted = options, names, wanted
        self.asking = False
        """True while an answer with a job may be in flight."""
        self.job: TakenJob | None = None
        """The fetched job."""

    @property
    def expects(self) -> bool:
        """Return whether a job may arrive, or has arrived and is not started."""
        return self.asking or self.job is not None

    def asks(self) -> bool:
        """Decide whether the report about to be sent requests a job.

        A second request would lose a job that has already arrived, as with an answer that refused the report.
        """
        self.asking = self.job is None and self._wanted() and pattern_of(self._names()) is not None
        return self.asking

    @property
    def question(self) -> dict[str, Any]:
        """Return the parameters of the request."""
        return {"then_get": pattern_of(self._names()), **self._options.taker}

    def added_to(self, report: E) -> E:
        """Return the report, with the request added if there is one."""
        return report.model_copy(update=self.question) if self.asks() else report

    def answered(self, body: bytes) -> None:
        """Read the job from an answer; raises ValueError."""
        if self.asking:
            self.asking = False
            self.job = job_after(body)

    def unanswered(self) -> None:
        """Expect no job: the report was refused or its answer was lost."""
        self.asking = False


@lru_cache(maxsize=8)
def pattern_of(names: tuple[str, ...]) -> str | None:
    """Return the name patterns as one ``thenGet`` text, or None if that is not possible."""
    if any("," in name for name in names):
        return None
    if len(names) == 1:
        return names[0]
    listed = ",".join(names)
    plain = all(is_plain(name) and name == name.strip() for name in names)
    return listed if plain and len(names) <= PATTERNS_MAX and len(listed) <= PATTERN_CHARS_MAX else None
