"""The group commit window: when a commit waits for more commands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from bedrockjobs.base.background import TimeSlices
from bedrockjobs.base.config import (
    NAMES_PER_COMMIT_MAX,
    NAMES_PER_SHARED_COMMIT_MAX,
    NAMES_QUEUED_MAX,
    PATTERNS_MAX,
)
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.committer import PROBE_S, PROBES_MAX, TRY_EVERY, GroupCommitWindow, ManyNames
from bedrockjobs.engine.submission import Submission

MOST = 100


def group_of(most: int = MOST, look_s: float = 0.0) -> GroupCommitWindow:
    """Return a group commit window in which each check takes some seconds."""
    return GroupCommitWindow(Settings(batch_max=most), count(step=look_s).__next__)


def looks(group: GroupCommitWindow, arrivals: Sequence[int]) -> int:
    """Run a transaction with requests that arrive between checks; return the number of checks."""
    taken = 0

    def arrived(room: int) -> list[Submission]:
        nonlocal taken
        taken += 1
        number = arrivals[taken - 1] if taken <= len(arrivals) else 0
        return [Submission() for _ in range(min(number, room))]

    group.probes, together = 0, 1
    while found := group.more(arrived, together):
        together += len(found)
    group.committed(together)
    return taken


def test_a_single_client_is_hardly_ever_looked_for() -> None:
    group = group_of()
    for _ in range(100):
        looks(group, [])
    assert sum(looks(group, []) for _ in range(10 * TRY_EVERY)) == 10


def test_two_clients_are_found_and_then_expected() -> None:
    group = group_of()
    for _ in range(100):
        looks(group, [])
    tries = 0
    while not looks(group, [1]):  # the new arrival is found by one of the probes
        tries += 1
    assert tries < TRY_EVERY
    found = [looks(group, [1]) for _ in range(10 * TRY_EVERY)]
    assert min(found) == 1
    assert sum(found) <= 10 * (TRY_EVERY + 2), "one look finds the other, a second one is a rare try"


def test_who_left_is_looked_for_once() -> None:
    group = group_of()
    for _ in range(100):
        looks(group, [1])
    assert sum(looks(group, []) for _ in range(TRY_EVERY)) <= 2


def test_drops_do_not_keep_the_first_one_waiting() -> None:
    assert looks(group_of(), [1] * 1000) == PROBES_MAX


def test_a_look_that_takes_long_is_the_last() -> None:
    assert looks(group_of(look_s=PROBE_S * 0.9), [1] * 1000) == PROBES_MAX
    assert looks(group_of(look_s=PROBE_S * 1.1), [1] * 1000) == 1, "somebody else used the turn"


def test_it_tells_that_it_looks() -> None:
    group, slices = group_of(), TimeSlices[int]()
    taken = slices.start(lambda: looks(group, [1]))
    seen = []
    while taken is None:
        seen.append(group.probing)
        taken = slices.resume()
    assert seen == [True] * taken
    assert not group.probing


def test_no_more_share_a_commit_than_may() -> None:
    assert looks(group_of(3), [1, 5, 1]) == 2
    assert looks(group_of(1), [1]) == 0


def asking(names: int) -> Submission:
    """Return a submission that asks for a number of names."""
    found = Submission()
    found.many = names
    return found


def test_a_transaction_has_a_limited_number_of_names() -> None:
    aside, plain = ManyNames(), asking(0)
    many = [asking(100) for _ in range(12)]
    assert aside.put_aside([plain]) == [plain]
    assert aside.put_aside([*many[:6], plain, *many[6:]]) == [plain]
    per_commit = NAMES_PER_COMMIT_MAX // 100
    assert aside.some(1) == many[:per_commit]
    assert aside.some(1) == [], "others came meanwhile"
    assert len(aside.waiting) == 12 - per_commit
    assert aside.all() == many[per_commit:]
    assert not aside.waiting
    aside.put_aside([asking(2 * NAMES_PER_COMMIT_MAX)])
    assert len(aside.some(0)) == 1, "one is done however many it asks for"
    aside.put_aside([asking(NAMES_QUEUED_MAX - 1)])
    assert not aside.full
    aside.put_aside([asking(1)])
    assert aside.full
    aside.some(0)
    assert not aside.full


def test_where_servers_share_a_database_a_transaction_does_one_of_the_largest() -> None:
    aside = ManyNames(NAMES_PER_SHARED_COMMIT_MAX)
    many = [asking(PATTERNS_MAX) for _ in range(3)]
    aside.put_aside(many)
    assert [aside.some(0) for _ in range(3)] == [[one] for one in many]
