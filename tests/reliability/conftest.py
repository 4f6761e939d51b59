"""Check that every test of this folder closes the connections it opened."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.reliability.wire import Wire


@pytest_asyncio.fixture(autouse=True)
async def _connections_are_closed() -> AsyncIterator[None]:
    yield
    for wire in Wire.ever:
        wire.close()
    Wire.ever.clear()
