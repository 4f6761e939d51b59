"""Lanes: which takes a queued job is open to. A lane is text in the column ``lane``; no SQL here.

``''`` is open to all, ``mock`` to who asks for mocked jobs. The others are put together of words: ``now``
(somebody triggered it: a pause does not hold it), one of ``cmd``, ``argv``, ``url`` (the job brings its own
command, which the take must accept), and ``lock NAME`` (nobody else with this lock may be running) or
``for WORKER`` (nobody else may take it). ``every`` is the lane of schedules that run on all hosts: nobody
takes them, the server makes jobs of them. ``ping`` is that of schedules whose work is done elsewhere: nobody
takes them, a ping ends their ticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

OPEN_LANE = ""
"""Jobs that any worker may take."""

MOCK_LANE = "mock"
"""Mocked jobs, which only ``getMockedJobs`` takes."""

OWN_COMMANDS = ("cmd", "argv", "url")
"""The options that are a job's own command."""

EVERY_LANE = "every"
"""Schedules that run on all hosts."""

PING_LANE = "ping"
"""Schedules that run nowhere here: each tick waits for a ping."""

UNTAKEN = (EVERY_LANE, PING_LANE)
"""Lanes that no take is open to."""

_WORDS = re.compile(r"(now)? ?(cmd|argv|url)? ?(?:lock (.+)|for (.+))?", re.DOTALL)


class Lane(NamedTuple):
    """A lane taken apart."""

    now: bool
    own: str
    lock: str
    worker: str = ""

    def __str__(self) -> str:
        """Return the text of the lane."""
        last = f"for {self.worker}" if self.worker else f"lock {self.lock}" if self.lock else ""
        words = ("now" if self.now else "", self.own, last)
        return " ".join(word for word in words if word)


@lru_cache(maxsize=4096)
def parse_lane(text: str) -> Lane:
    """Take a lane apart; the open lane has nothing in it."""
    found = _WORDS.fullmatch(text)
    if found is None:
        return Lane(False, "", "")
    return Lane(bool(found[1]), found[2] or "", found[3] or "", found[4] or "")


@lru_cache(maxsize=4096)
def found_in(lane: str) -> str:
    """Return the lane in which jobs of a lane are looked for: all locks share one."""
    parts = parse_lane(lane)
    return f"{parts._replace(lock='')} lock".strip() if parts.lock else lane


def is_narrow(lane: str) -> bool:
    """Tell whether a lane is one of very many with few jobs each, of which nothing is remembered."""
    parts = parse_lane(lane)
    return bool(parts.lock or parts.worker)


def workers_of(lanes: Iterable[str]) -> frozenset[str]:
    """Return the workers for which jobs in some lanes are, and for nobody else."""
    return frozenset(parse_lane(lane).worker for lane in lanes) - {""}
