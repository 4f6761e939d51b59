"""One engine at a time for every conformance test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bedrockjobs.base.settings import Compatibility
from tests.conformance import engine as engines
from tests.conformance.engine import Engine
from tests.conformance.recording import recording_engine

ENGINES = {**engines.ENGINES, "sqlite": recording_engine}
"""SQLite is behind the seam, which lets through all that handlers may use, and nothing else."""


@pytest.fixture(params=engines.TRIED)
def engine(request: pytest.FixtureRequest, mode: Compatibility) -> Iterator[Engine]:
    """Open each engine in turn, in the compatibility mode that the test names as ``mode``."""
    with ENGINES[request.param](mode) as opened:
        yield opened
