"""Both event loops: the server runs on uvloop where it can, and on asyncio's own loop elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.effort import PROFILE


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each asynchronous test of this folder on both loops, or on the usual one where it must be fast."""
    if PROFILE == "fast":
        return {"uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where anything a client did ended in a traceback in the server's log."""
    yield
    for record in caplog.get_records("call"):
        assert not record.exc_info, f"a traceback in the log: {record.getMessage()}: {record.exc_info}"
        assert "Traceback" not in record.getMessage()
