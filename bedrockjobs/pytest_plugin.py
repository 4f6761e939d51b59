"""Pytest fixtures for testing jobs and schedules; pytest finds them through an entry point.

The server's modules are imported only when a test uses a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bedrockjobs.testing import ServerUnderTest


@pytest.fixture
def bedrockjobs_start() -> datetime | str:
    """Return the start time of the clock of ``bedrockjobs_server``; override this fixture to change it."""
    from bedrockjobs.testing import START

    return START


@pytest.fixture
def bedrockjobs_server(bedrockjobs_start: datetime | str) -> Iterator[ServerUnderTest]:
    """Yield a server with an empty database, whose clock moves only when the test moves it."""
    from bedrockjobs.testing import ServerUnderTest

    with ServerUnderTest(bedrockjobs_start) as server:
        yield server
