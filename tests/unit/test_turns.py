"""Long work in slices: what is done in between, what comes of it, and what it sees."""

from __future__ import annotations

from contextvars import ContextVar

import pytest

from bedrockjobs.base.config import SLICE
from bedrockjobs.base.turns import Slices, give_turn, in_turns

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def test_it_stops_after_each_slice_and_goes_on_where_it_was() -> None:
    done: list[int] = []
    work = Slices(lambda: done.extend(in_turns(range(2 * SLICE + 1))) or done.append(-1))
    stops = []
    while not work.dead:
        work.switch()
        stops.append(len(done))
    assert len(stops) == 3
    assert done == [*range(2 * SLICE + 1), -1]


def test_outside_of_such_work_nothing_stops() -> None:
    give_turn()
    assert list(in_turns(range(2 * SLICE))) == [*range(2 * SLICE)]


def test_what_it_raises_comes_to_whoever_goes_on_with_it() -> None:
    def fail() -> None:
        give_turn()
        raise ZeroDivisionError

    work = Slices(fail)
    work.switch()
    with pytest.raises(ZeroDivisionError):
        work.switch()
    assert work.dead


def test_it_sees_the_context_of_who_prepared_it() -> None:
    seen = []

    def look() -> None:
        seen.append(WHO.get())
        give_turn()
        seen.append(WHO.get())

    before = WHO.set("me")
    try:
        work = Slices(look)
        work.switch()
        work.switch()
    finally:
        WHO.reset(before)
    assert seen == ["me", "me"]
