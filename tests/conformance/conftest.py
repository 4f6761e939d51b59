"""One engine at a time for every conformance test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.unit import PostgreSQLUnit
from tests.conformance import engine as engines
from tests.conformance.engine import START, Engine, PostgreSQLQueue
from tests.conformance.recording import recording_engine
from tests.postgresql.cluster import CLUSTER, SCHEMA

ENGINES = {**engines.ENGINES, "sqlite": recording_engine}
"""SQLite is behind the seam, which lets through all that handlers may use, and nothing else."""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[tuple[PostgreSQLEngine, ManualClock] | None]:
    """Open one store on PostgreSQL, if that is tried: to connect takes longer than a scenario.

    Each scenario gets a unit of its own, which remembers nothing, and empty tables.
    """
    if "postgresql" not in engines.TRIED:
        yield None
        return
    clock = ManualClock(START)
    store = CLUSTER.engine(clock)
    yield store, clock
    store.close()


@pytest.fixture(params=engines.TRIED)
def engine(
    request: pytest.FixtureRequest,
    mode: Compatibility,
    postgresql: tuple[PostgreSQLEngine, ManualClock] | None,
) -> Iterator[Engine]:
    """Open each engine in turn, in the compatibility mode that the test names as ``mode``."""
    if request.param == "postgresql":
        assert postgresql is not None
        store, clock = postgresql
        store.rollback()
        CLUSTER.empty(SCHEMA)
        clock.move_to(START)
        store.unit = PostgreSQLUnit(store.session, store._keys, store.id, clock, serial=False)
        yield PostgreSQLQueue(store, mode, clock)
        return
    with ENGINES[request.param](mode) as opened:
        yield opened
