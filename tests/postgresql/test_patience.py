"""What is done beside the loop: its result reaches who waits for it, or is dropped as it should be."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bedrockjobs.base.background import TimeSlices
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql import session as sessions
from bedrockjobs.store.postgresql.session import DatabaseSession, done_beside
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.talk import DEADLINE_S


class Beside:
    """Some work that takes until it may end, and what became of its result."""

    def __init__(self) -> None:
        """Nothing is done yet."""
        self.may_end = threading.Event()
        self.dropped = threading.Event()

    def work(self) -> str:
        """Return a result once that is allowed."""
        assert self.may_end.wait(DEADLINE_S)
        return "made"

    def begin(self) -> TimeSlices[str]:
        """Begin it within work that stops."""
        slices: TimeSlices[str] = TimeSlices()
        assert slices.start(lambda: done_beside(self.work, lambda _: self.dropped.set())) is None
        return slices


async def test_a_result_reaches_who_waits() -> None:
    beside = Beside()
    slices = beside.begin()
    ready = asyncio.Event()
    slices.call_when_ready(ready.set, lambda _: None)
    beside.may_end.set()
    async with asyncio.timeout(DEADLINE_S):
        await ready.wait()
    assert slices.resume() == "made"
    assert not beside.dropped.is_set()


def test_a_result_for_a_loop_that_has_ended_is_dropped() -> None:
    beside = Beside()
    kept = []

    async def begin() -> None:
        kept.append(beside.begin())
        kept[0].call_when_ready(lambda: None, lambda _: None)

    asyncio.run(begin())
    beside.may_end.set()
    assert beside.dropped.wait(DEADLINE_S)


def test_a_session_that_ended_while_it_connected_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    session = DatabaseSession(CLUSTER.url, SCHEMA)
    connect = sessions.connect

    def ended_meanwhile(*given: Any) -> Any:
        made = connect(*given)
        session.end()
        return made

    monkeypatch.setattr(sessions, "connect", ended_meanwhile)
    with pytest.raises(StoreAway, match="ended"):
        session.connect_again()
    assert not session.is_open
