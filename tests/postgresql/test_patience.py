"""Connecting in a thread: the caller resumes with the connection, and a session that ends closes it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bedrockjobs.base.background import TimeSlices
from bedrockjobs.store.base import StoreAway
from bedrockjobs.store.postgresql import session as sessions
from bedrockjobs.store.postgresql.session import DatabaseSession, PatientConnection
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.talk import DEADLINE_S


class Connecting:
    """A session that reconnects in a thread, which waits for ``finish``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Connect, and begin to reconnect within pausable work."""
        self.session = DatabaseSession(CLUSTER.url, SCHEMA)
        self.may_end, self.done = threading.Event(), threading.Event()
        self.made: list[PatientConnection] = []
        connect = sessions.connect

        def slowly(*given: Any) -> tuple[PatientConnection, bool]:
            assert self.may_end.wait(DEADLINE_S)
            connection, pooled = connect(*given)
            self.made.append(connection)
            return connection, pooled

        monkeypatch.setattr(sessions, "connect", slowly)
        self.slices: TimeSlices[bool] = TimeSlices()
        assert self.slices.start(self._connect_again) is None
        self.slices.call_when_ready(self.done.set, lambda _: None)

    def _connect_again(self) -> bool:
        self.session.connect_again()
        return True

    async def finish(self) -> None:
        """Let the thread finish."""
        self.may_end.set()
        async with asyncio.timeout(DEADLINE_S):
            while not self.done.is_set():
                await asyncio.sleep(0)


async def test_the_caller_resumes_with_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting = Connecting(monkeypatch)
    await connecting.finish()
    assert connecting.slices.resume()
    assert connecting.session.is_open
    connecting.session.end()


@pytest.mark.parametrize("moment", ["while it connects", "before the caller resumes"])
@pytest.mark.parametrize("resumes", [True, False])
async def test_a_session_that_ends_keeps_no_connection(
    moment: str, resumes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connecting = Connecting(monkeypatch)
    if moment == "while it connects":
        connecting.session.end()
        await connecting.finish()
    else:
        await connecting.finish()
        connecting.session.end()
    if resumes:
        with pytest.raises(StoreAway, match="ended"):
            connecting.slices.resume()
    assert [connection.closed for connection in connecting.made] == [True]
    assert not connecting.session.is_open


def test_a_connection_made_after_the_loop_has_ended_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Connecting] = []

    async def begin() -> None:
        kept.append(Connecting(monkeypatch))

    asyncio.run(begin())
    connecting = kept[0]
    connecting.session.end()
    connecting.may_end.set()
    for thread in threading.enumerate():
        if thread.name == sessions.CONNECTING:
            thread.join(DEADLINE_S)
    assert [connection.closed for connection in connecting.made] == [True]
