"""The rows of the tables, and which jobs a GetJob asks for. No SQL here."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from bedrockjobs.base.config import PRIORITY_DEFAULT
from bedrockjobs.base.glob import glob, is_plain, literal_prefix
from bedrockjobs.job.lanes import MOCK_LANE, OPEN_LANE
from bedrockjobs.job.memory import NO_MEMORY, Memory, decode_memory, encode_memory
from bedrockjobs.job.options import NO_OPTIONS, Options, decode_options


class Job(NamedTuple):
    """One job, field by field as in ``schema.sql``; stamps and JSON are text."""

    created: str
    job_id: int
    state: str
    name: str
    next_run: str
    last_run: str = ""
    repeat: str = ""
    data: str = "{}"
    priority: int = PRIORITY_DEFAULT
    parent_job_id: int = 0
    retry_after: str = ""
    attempt: int = 0
    run_id: int = 0
    expires: str = ""
    lane: str = OPEN_LANE
    options_json: str = "{}"
    memory_json: str = "{}"

    @property
    def options(self) -> Options:
        """Return what a user gave with the job."""
        return NO_OPTIONS if self.options_json == "{}" else decode_options(self.options_json)

    @property
    def memory(self) -> Memory:
        """Return what the server notes about the job."""
        return NO_MEMORY if self.memory_json == "{}" else decode_memory(self.memory_json)

    def remembering(self, notes: Memory) -> Job:
        """Return the job with other notes."""
        return self._replace(memory_json=encode_memory(notes))

    def noting(self, **changes: Any) -> Job:
        """Return the job with some of its notes changed."""
        return self.remembering(self.memory._replace(**changes))

    @property
    def mocked(self) -> bool:
        """Tell whether the job is a mocked one."""
        return self.lane == MOCK_LANE

    @property
    def queued(self) -> bool:
        """Tell whether a GetJob may find it, now or when it is due."""
        return self.state == "QUEUED" or self.state == "RUNQUEUED"


class RunRow(NamedTuple):
    """One run, field by field as in ``schema.sql``."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str
    scheduled_for: str
    started: str
    ended: str
    worker: str
    host: str
    pid: int
    status: str
    exit_code: int | None
    error: str
    result: str
    progress: str
    output: str
    lease: int
    stop: str


class TickRow(NamedTuple):
    """Neighbouring ticks of a schedule with one outcome."""

    job_id: int
    tick: str
    until: str
    count: int  # type: ignore[assignment]
    outcome: str
    reason: str
    late: int
    run_id: int


class PauseRow(NamedTuple):
    """A name pattern that is paused."""

    pattern: str
    by: str
    reason: str
    since: str
    until: str


class Names:
    """Which names a GetJob asks for: all, one, a list of exact ones, or GLOB patterns.

    ``exact`` holds the names of a list, ``patterns`` the patterns otherwise. Instances are made by
    ``names_from`` and shared, so they serve as keys.
    """

    def __init__(self, exact: frozenset[str], patterns: tuple[str, ...]) -> None:
        """Hold a list of exact names, or GLOB patterns."""
        self.exact = exact
        self.patterns = patterns
        self.everything = "*" in patterns
        self.single = next(iter(exact)) if len(exact) == 1 else None

    def match(self, name: str) -> bool:
        """Tell whether a name is asked for."""
        return name in self.exact if self.exact else any(glob(name, pattern) for pattern in self.patterns)

    def prefix(self) -> str:
        """Return what all names asked for begin with, as far as the patterns tell."""
        if self.exact or len(self.patterns) > 1:
            return ""
        return literal_prefix(self.patterns[0])


@lru_cache(maxsize=4096)
def names_from(name: str | None, names: tuple[str, ...] | None) -> Names | None:
    """Return what GetJob's ``name`` or ``names`` ask for, None where they ask for nothing.

    ``name`` is one GLOB pattern, or a comma list of exact names; ``names`` are GLOB patterns.
    """
    if names:
        patterns = names
    elif name and "," in name:
        listed = frozenset(part.strip() for part in name.split(",")) - {""}
        return Names(listed, ()) if listed else None
    elif name:
        patterns = (name,)
    else:
        return None
    if all(map(is_plain, patterns)):
        return Names(frozenset(patterns), ())
    return Names(frozenset(), patterns)
