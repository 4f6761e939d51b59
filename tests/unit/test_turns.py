"""Long work in slices: what runs in between, its result, and its context."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

import pytest

from bedrockjobs.base.background import TimeSlices, in_slices, yield_to_loop
from bedrockjobs.base.config import SLICE

WHO: ContextVar[str] = ContextVar("who", default="nobody")


def test_it_stops_after_each_slice_and_goes_on_where_it_was() -> None:
    done: list[int] = []

    def walk() -> str:
        done.extend(in_slices(range(2 * SLICE + 1)))
        return "done"

    slices = TimeSlices[str]()
    results = [slices.start(walk), slices.resume(), slices.resume()]
    assert results == [None, None, "done"]
    assert done == [*range(2 * SLICE + 1)]


def test_one_work_follows_another() -> None:
    def stop() -> str:
        yield_to_loop()
        return "two"

    slices = TimeSlices[str]()
    assert slices.start(lambda: "one") == "one"
    assert slices.start(stop) is None
    assert slices.resume() == "two"
    assert slices.start(lambda: "three") == "three"


def test_outside_of_such_work_nothing_stops() -> None:
    yield_to_loop()
    assert list(in_slices(range(2 * SLICE))) == [*range(2 * SLICE)]


def test_what_it_raises_comes_to_whoever_goes_on_with_it() -> None:
    def fail() -> str:
        yield_to_loop()
        raise ZeroDivisionError

    slices = TimeSlices[str]()
    assert slices.start(fail) is None
    with pytest.raises(ZeroDivisionError):
        slices.resume()
    assert slices.start(lambda: "the next one is not hurt")


def test_it_sees_the_context_of_who_began_it() -> None:
    def look() -> list[str]:
        seen = [WHO.get()]
        yield_to_loop()
        return [*seen, WHO.get()]

    slices = TimeSlices[list[str]]()
    assert slices.start(lambda: [WHO.get()]) == ["nobody"]
    before = WHO.set("me")
    try:
        assert slices.start(look) is None
        assert slices.resume() == ["me", "me"]
    finally:
        WHO.reset(before)


def test_work_that_waits_goes_on_when_that_is_there() -> None:
    called: list[str] = []
    arrived: list[Callable[[], object]] = []

    def ask() -> str:
        yield_to_loop(arrived.append)
        yield_to_loop()
        return "done"

    slices = TimeSlices[str]()
    assert slices.start(ask) is None
    slices.call_when_ready(lambda: called.append("there"), lambda resume: called.append("soon"))
    assert called == []
    arrived[0]()
    assert called == ["there"]
    assert slices.resume() is None
    slices.call_when_ready(lambda: called.append("there"), lambda resume: called.append("soon"))
    assert called == ["there", "soon"]
    assert slices.resume() == "done"
