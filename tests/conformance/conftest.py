"""One engine at a time for every conformance test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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


Open = Callable[[str, Compatibility], AbstractContextManager[Engine]]


@pytest.fixture
def opened(postgresql: tuple[PostgreSQLEngine, ManualClock] | None) -> Open:
    """Return a function that opens an engine, given its name and a compatibility mode."""

    @contextmanager
    def empty(name: str, mode: Compatibility) -> Iterator[Engine]:
        if name != "postgresql":
            with ENGINES[name](mode) as engine:
                yield engine
            return
        assert postgresql is not None
        store, clock = postgresql
        store.rollback()
        CLUSTER.empty(SCHEMA)
        clock.move_to(START)
        store.unit = PostgreSQLUnit(store.session, store._keys, store.id, clock, serial=False)
        yield PostgreSQLQueue(store, mode, clock)

    return empty


@pytest.fixture(params=engines.TRIED)
def engine(request: pytest.FixtureRequest, mode: Compatibility, opened: Open) -> Iterator[Engine]:
    """Open each engine in turn, in the compatibility mode that the test names as ``mode``."""
    with opened(request.param, mode) as engine:
        yield engine
