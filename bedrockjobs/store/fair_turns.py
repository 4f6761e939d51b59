"""Takes the jobs of a fair limit in turn: one of each concurrency key, or of each first part of the names.

A take finds the first job in order, as always. If a fair limit applies to that job, a job of equal priority
may come instead: the first job of the key or name whose turn it is. So a customer with a million jobs delays
the only job of another customer by at most one job. Turns go in the order of the texts, and begin again
after the last one.

Positions are in memory only: after a restart, and at another server, the turns begin with the first key.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from bedrockjobs.base.config import IN_TURN_MAX, LIMITS_MAX
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.job.limits import Limit, fair_pattern
from bedrockjobs.job.rows import Job, parse_lane
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.records import HIGHEST


@dataclass(slots=True)
class Turn:
    """Whose turn it is, by the limit of one pattern."""

    key: str = ""
    """The key that had the last turn."""
    name: str = ""
    """A text above all names of the part that had the last turn, and below the next one."""
    names_of_keys: str = ""
    """The last of the names whose jobs were searched for the next key; empty if all names are searched."""
    keys_next: bool = False
    """Whether keys come before names, if jobs with and without a key are queued."""


class TurnSeeks(Protocol):
    """Index seeks of an engine: for jobs with the lane of a job ``first``, apart from its lock."""

    def names_after(self, first: Job, after: str, begin: str) -> list[str]:
        """Return the next names of queued jobs above ``after`` that begin with ``begin``: at most
        ``IN_TURN_MAX``, of jobs without a lock."""

    def first_of_names(self, names: Sequence[str], first: Job, request: TakeRequest, now: str) -> Job | None:
        """Return the job of some names to take now, with the priority of ``first``."""

    def first_of_keys(
        self, pattern: str, turn: Turn, after: str, first: Job, request: TakeRequest, now: str
    ) -> Iterator[tuple[str, Job | None]]:
        """Yield the next locks and keys above ``after``, at most ``IN_TURN_MAX``.

        Each comes with its job to take now, with the priority of ``first``; None if there is none.
        """


class FairTurns:
    """Whose turn it is, by the pattern of a fair limit."""

    def __init__(self) -> None:
        """Begin with the first key and the first name."""
        self._turns: dict[str, Turn] = {}

    def in_turn(
        self, first: Job, limits: Sequence[Limit], request: TakeRequest, now: str, seeks: TurnSeeks
    ) -> Job:
        """Return the job to take now, given the ``first`` one in order."""
        pattern = fair_pattern(first.name, limits)
        lane = parse_lane(first.lane)
        if pattern is None or lane.now or lane.worker or first.mocked:
            return first
        turn = self._turns.get(pattern)
        if turn is None:
            if len(self._turns) >= LIMITS_MAX:  # some of these limits are gone
                self._turns.clear()
            turn = self._turns[pattern] = Turn(keys_next=bool(lane.lock))
        for way in (_of_keys, _of_names) if turn.keys_next else (_of_names, _of_keys):
            job = way(pattern, turn, first, request, now, seeks)
            if job is not None:
                turn.keys_next = not parse_lane(job.lane).lock
                return job
        return first


def _of_names(
    pattern: str, turn: Turn, first: Job, request: TakeRequest, now: str, seeks: TurnSeeks
) -> Job | None:
    """Return the job without a key to take; None if only jobs with a key are due."""
    begin = literal_prefix(pattern)
    found = _next_names(begin, turn.name, first, request, seeks)
    parts: dict[str, dict[str, None]] = {}
    for name in found:
        if request.names.match(name) and glob(name, pattern):
            parts.setdefault(_part(name, begin), {})[name] = None
    if not parse_lane(first.lane).lock and (own := parts.get(_part(first.name, begin))):
        own[first.name] = None  # the oldest of its part, which may have more names than were read
    for part, names in parts.items():
        job = seeks.first_of_names([*names], first, request, now)
        if job is not None:
            turn.name = part + HIGHEST if part.endswith("/") else part
            return job
    turn.name = found[-1] if found else ""
    return None


def _next_names(begin: str, after: str, first: Job, request: TakeRequest, seeks: TurnSeeks) -> list[str]:
    """Return the names whose turn is next."""
    if request.names.exact:
        names = sorted(request.names.exact)
        at = bisect_right(names, after)
        return [*names[at:], *names[:at]][:IN_TURN_MAX]
    names = seeks.names_after(first, after, begin)
    if after and len(names) < IN_TURN_MAX:
        names += [name for name in seeks.names_after(first, "", begin) if name <= after]
    return names


def _of_keys(
    pattern: str, turn: Turn, first: Job, request: TakeRequest, now: str, seeks: TurnSeeks
) -> Job | None:
    """Return the job with a key to take; None if none is due, or no key may start a job now."""
    for after in dict.fromkeys((turn.key, "")):
        for key, job in seeks.first_of_keys(pattern, turn, after, first, request, now):
            turn.key = key
            if job is not None:
                return job
    return None


def name_after(after: str, begin: str) -> str:
    """Return the lowest text that a name above ``after`` with a beginning may have."""
    return max(begin, f"{after}\1") if after else begin


def _part(name: str, begin: str) -> str:
    """Return the beginning of a name up to a slash behind ``begin``, or all of it."""
    part, slash, _ = name[len(begin) :].partition("/")
    return begin + part + slash
