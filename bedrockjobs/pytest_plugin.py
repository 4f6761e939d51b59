"""Fixtures for those who test their jobs and schedules with pytest, which finds them by itself.

Nothing is loaded before a test asks for a server.
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
    """Return where the clock of ``bedrockjobs_server`` stands at first; override it to begin elsewhere."""
    from bedrockjobs.testing import START

    return START


@pytest.fixture
def bedrockjobs_server(bedrockjobs_start: datetime | str) -> Iterator[ServerUnderTest]:
    """Yield a server with an empty database, whose clock stands still until the test moves it."""
    from bedrockjobs.testing import ServerUnderTest

    with ServerUnderTest(bedrockjobs_start) as server:
        yield server
