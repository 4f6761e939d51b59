"""Fixtures for servers on one PostgreSQL, with shared commits and row locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from time import monotonic
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.engine.handlers import take
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.unit import perform
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.job.take_request import TakeRequest, names_from
from bedrockjobs.store.postgresql.schema import SIGNATURE
from bedrockjobs.store.postgresql.transfer import TransferDatabase, install_functions
from tests.conformance.engine import START, PostgreSQLQueue
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.protocol.talk import DEADLINE_S

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


class Server(PostgreSQLQueue):
    """One server, whose units a test executes step by step."""

    def do(self, kind: type[c.Command[Any]], **given: Any) -> Any:
        """Execute a command in a separate unit; return its body, or the status line of its refusal."""
        outcome = self.call(kind.read(given))
        return outcome.body if outcome.code == 200 else f"{outcome.code} {outcome.reason}"

    def open(self, *commands: c.Command[Any]) -> Context:
        """Open a unit for some commands without executing them."""
        return Context(self.begin(*commands), self.compatibility, NoWorkers(), moment=self.clock.now())

    def opened(self, *commands: c.Command[Any]) -> Context:
        """Open a unit and execute the commands; the test commits."""
        context = self.open(*commands)
        for command in commands:
            perform(context, command)
        return context

    def take(self, context: Context, name: str) -> Answer | None:
        """Take a job as for a waiter, without an access plan."""
        names = names_from(name, None)
        assert names is not None
        return take.take(context, TakeRequest(names))

    def commit(self) -> None:
        """Commit the open unit."""
        self.store.commit()

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return one value of the database, read outside of any unit."""
        return self.store.session.run_statements([(sql, parameters)])[0][0][0]


@pytest.fixture
def clock() -> ManualClock:
    """Return the standing clock of all servers."""
    return ManualClock(START)


@pytest.fixture
def servers(clock: ManualClock) -> Iterator[Callable[[int], list[Server]]]:
    """Return a function that starts some servers on one empty database."""
    stores = []

    def start(count: int) -> list[Server]:
        stores.append(CLUSTER.engine(clock))
        stores.extend(CLUSTER.another(clock) for _ in range(count - 1))
        return [Server(store, "document", clock) for store in stores]

    yield start
    for store in stores:
        store.close()


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], Any]], Future[Any]]]:
    """Return a function that runs a function in a separate thread."""
    with ThreadPoolExecutor() as threads:
        yield threads.submit


def until_blocked(watcher: Server, count: int = 1) -> None:
    """Wait until a number of units wait for a lock; fails after a deadline."""
    deadline = monotonic() + DEADLINE_S
    while watcher.value(BLOCKED) < count:
        assert monotonic() < deadline, "nobody waits"


ROLE = "shop"


@pytest.fixture
def sql_function() -> Iterator[None]:
    """Provide an empty database with the function, and a role that may do nothing else."""
    CLUSTER.empty(SCHEMA)
    install_functions(TransferDatabase(CLUSTER.url, SCHEMA))
    CLUSTER.do(
        f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN;"
        f" GRANT EXECUTE ON FUNCTION {SCHEMA}.{SIGNATURE} TO {ROLE}"
    )
    yield
    CLUSTER.do(
        f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}; DROP FUNCTION {SCHEMA}.{SIGNATURE};"
        f" REVOKE USAGE ON SCHEMA {SCHEMA} FROM PUBLIC"
    )


def application(role: str = ROLE) -> closing[psycopg.Connection[tuple[Any, ...]]]:
    """Connect as an application, without autocommit."""
    return closing(psycopg.connect(CLUSTER.url, user=role))
