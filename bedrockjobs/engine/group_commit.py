"""Whether a commit waits one more turn of the event loop, for requests that can share it.

What few clients ask arrives one by one: the first request begins a transaction, and the others have come by
the time its statements are done. To look for them takes a few hundredths of what a commit takes. But a
single client asks again only when it is answered, and each look for others is for nothing. So how many shared
the last commit says how many to expect, and what looks found of late whether to look for still more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from bedrockjobs.base.config import NAMES_PER_COMMIT_MAX, NAMES_QUEUED_MAX
from bedrockjobs.base.turns import give_turn
from bedrockjobs.engine.submission import Submission

LOOKS_MAX = 8
"""Looks before one commit: what arrives in drops keeps the first request waiting no longer."""
LOOK_S = 0.0002
"""Seconds of a look after which no other is made: somebody else used that turn of the loop, a page that is
made or a large request, and with each further one what was found would wait for that."""
WINDOW = 8
"""Looks of which it is remembered whether they found something, roughly."""
WORTH = 0.2
"""Share of looks that find something from which on one is made each time: well above what would pay, for the
others it is tried now and then."""
TRY_EVERY = 16
"""Where they do not pay, one commit in so many is looked for all the same: more clients may have come."""

Arrived = Callable[[int], list[Submission]]
"""Returns what waits to be done, so many at the most."""


class GroupCommit:
    """How many requests to expect before a commit."""

    def __init__(self, most: int, monotonic: Callable[[], float]) -> None:
        """Expect company until it is seen that none comes; at most so many share a commit."""
        self._most = most
        self._monotonic = monotonic
        self._shared = 0
        self._found = 1.0
        self._passed = 0
        self._looks = 0
        self.looks_now = False
        """Whether a transaction looks for others in this turn of the loop, which nobody else should use."""

    def begin(self, arrived: Arrived) -> Callable[[int], list[Submission]]:
        """Begin a transaction; return what is called with the number in it, for others that share its commit.

        It gives the loop a turn where that pays, and returns what has ``arrived`` then. Not for servers that
        share a database: there the first round trip has to know all commands.
        """
        self._looks = 0
        return partial(self._company, arrived)

    def _company(self, arrived: Arrived, count: int) -> list[Submission]:
        if count >= self._most or not self._pays(count):
            return []
        begun, self.looks_now = self._monotonic(), True
        give_turn()
        self.looks_now = False
        self._looks = LOOKS_MAX if self._monotonic() - begun > LOOK_S else self._looks + 1
        found = arrived(self._most - count)
        if count >= self._shared:
            self._found += (bool(found) - self._found) / WINDOW
        return found

    def _pays(self, count: int) -> bool:
        if self._looks >= LOOKS_MAX:
            return False
        if count < self._shared or self._found >= WORTH:
            return True
        self._passed += 1
        return self._passed % TRY_EVERY == 0

    def committed(self, count: int) -> None:
        """Take note of how many shared a commit."""
        self._shared = count


def taken_from(gathered: deque[Submission], most: int) -> tuple[list[Submission], int]:
    """Take so many submissions at the most; return those to be done, and the number that nobody needs."""
    if len(gathered) <= most:
        taken = [*gathered]
        gathered.clear()
    else:
        taken = [gathered.popleft() for _ in range(most)]
    if not any([one.gone for one in taken]):  # noqa: C419 - a generator takes three times as long
        return taken, 0
    left = [one for one in taken if not one.gone or one.matters]
    return left, len(taken) - len(left)


class ManyNames:
    """The takes that ask for many names, and the ends of their waits: a few for each transaction.

    Whoever sends them waits for others who do the same, and nobody else does.
    """

    def __init__(self, most: int = NAMES_PER_COMMIT_MAX) -> None:
        """Begin empty; a transaction does so many names at the most."""
        self._most = most
        self._did_some = False
        self._waiting: deque[Submission] = deque()
        self._names = 0

    def __len__(self) -> int:
        """Return how many submissions wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Tell whether no more names may wait."""
        return self._names >= NAMES_QUEUED_MAX

    def put_aside(self, arrived: list[Submission]) -> list[Submission]:
        """Keep those that ask for many names; return the others."""
        if not any([one.many for one in arrived]):  # noqa: C419 - as above
            return arrived
        many = [one for one in arrived if one.many]
        self._waiting += many
        self._names += sum(one.many for one in many)
        return [one for one in arrived if not one.many]

    def some(self, others: int) -> list[Submission]:
        """Take out what a transaction may do beside ``others``: at least one, but in every second one none.

        Others came while the last one was done, and do not wait for one more.
        """
        found: list[Submission] = []
        self._did_some = not (others and self._did_some)
        if not self._did_some:
            return found
        room = self._most
        while self._waiting and (not found or room >= self._waiting[0].many):
            found.append(self._waiting.popleft())
            room -= found[-1].many
            self._names -= found[-1].many
        return found

    def all(self) -> list[Submission]:
        """Take out all of them."""
        found = [*self._waiting]
        self._waiting.clear()
        self._names = 0
        return found
