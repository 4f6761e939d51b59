"""Unique keys: how they are stored, whether a job holds one, and until when."""

from __future__ import annotations

from typing import NamedTuple

from bedrockjobs.base.jsontext import quoted
from bedrockjobs.commands.create import UNIQUE_KEY_PREFIX, UNIQUE_UNTIL
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import Job


class HeldKey(NamedTuple):
    """A unique key that a job holds."""

    name: str
    """The name of the jobs among which it is unique."""
    key: str
    until: str
    """``finished`` or ``started``, or the timestamp until which it is held."""

    @property
    def until_text(self) -> str:
        """Return a phrase for people that says until when the key is held."""
        if self.until in UNIQUE_UNTIL:
            return "until the job has ended" if self.until == "finished" else "until the job starts"
        return f"until {self.until[:19]}"

    @property
    def until_utc(self) -> str:
        """Return ``until_text`` for error messages: a timestamp is marked as UTC."""
        return self.until_text if self.until in UNIQUE_UNTIL else f"{self.until_text} UTC"

    def after_end(self, job_id: int) -> str:
        """Return the detail of an error about the deleted job ``job_id``, which still holds the key."""
        return f"jobID: there is no job {job_id}; it has ended, and holds its unique key {self.until_utc}"

    @property
    def members(self) -> dict[str, str]:
        """Return the members of a reply about its job, as JSON texts."""
        return {"uniqueKey": quoted(self.key), "uniqueUntil": quoted(self.until)}


def is_held(holds: str, job: Job | None, now: str) -> bool:
    """Return whether a job still holds a key; ``job`` is None if it is gone or has another name.

    Whether it does is computed on demand, not stored at each transition.
    """
    if holds not in UNIQUE_UNTIL:
        return holds > now
    if job is None:
        return False
    return lifecycle.waits_to_start(job) if holds == "started" else job.state in lifecycle.PENDING


def split_holds(stored: str) -> tuple[str, str]:
    """Return the columns ``key`` and ``holds`` of a row in ``keys``, given ``holds`` followed by ``key``."""
    at = stored.index(UNIQUE_KEY_PREFIX)
    return stored[at:], stored[:at]


def held_key(row: tuple[str, str] | None, job: Job | None, now: str) -> HeldKey | None:
    """Return the key that a job holds, given the columns ``key`` and ``holds`` of its row in ``keys``.

    ``job`` is None if it is gone.
    """
    if row is None:
        return None
    stored, holds = row
    _, _, name, key, *_ = stored.split("\x1f")
    there = job if job is not None and job.name == name else None
    return HeldKey(name, key, holds) if is_held(holds, there, now) else None
