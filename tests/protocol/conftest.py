"""Both event loops: the server runs on uvloop where it can, and on asyncio's own loop elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from zlib import crc32

import pytest
import uvloop

from tests.effort import PROFILE

EACH = {"same": 8, "random": 1}
"""One in so many tests also runs on asyncio's own loop; none does under the other profiles."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the asynchronous tests of this folder on uvloop, and some of them on asyncio's loop as well."""
    loops = {"uvloop": uvloop.new_event_loop}
    if PROFILE in EACH and not crc32(item.nodeid.encode()) % EACH[PROFILE]:
        loops["asyncio"] = asyncio.new_event_loop
    return loops


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where anything a client did ended in a traceback in the server's log."""
    yield
    for record in caplog.get_records("call"):
        assert not record.exc_info, f"a traceback in the log: {record.getMessage()}: {record.exc_info}"
        assert "Traceback" not in record.getMessage()
