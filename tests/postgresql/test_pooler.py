"""A pooler that gives each transaction another connection: everything works as without one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.settings import Compatibility, Settings
from bedrockjobs.cli import doctor_postgresql as doctor
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.postgresql import inspection
from bedrockjobs.store.postgresql import session as sessions
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.session import SessionRequirements, StatementPipeline
from tests.conformance.engine import START, PostgreSQLQueue
from tests.conformance.scenario import Scenario
from tests.conformance.test_cases import RUNS
from tests.effort import PROFILE
from tests.postgresql.cluster import CLUSTER, SCHEMA, as_user, emptied, quiet_port, url_of

EACH = 15
CASES = [(mode, case) for engine, mode, case in RUNS if engine == RUNS[0][0]][
    :: 1 if PROFILE == "random" else EACH
]
"""Scenarios of the queue in their modes: every fifteenth of those that are run without a pooler."""

CONNECTIONS = 3
"""What the pooler has of PostgreSQL's."""

KEEPS_PREPARED = (1, 21)
"""The first version of pgbouncer that can keep prepared statements, which is then turned off."""

SETTINGS = """
[databases]
* = user=tester host=127.0.0.1 port={target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
server_round_robin = 1
log_connections = 0
log_disconnections = 0
{more}
"""


class Pooler:
    """A pgbouncer in transaction mode."""

    def __init__(self, more: str = "") -> None:
        """Start it before the cluster; skips the test if there is none."""
        program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
        if program is None:
            if PROFILE == "fast":
                pytest.skip("there is no pgbouncer: install the package pgbouncer")
            raise RuntimeError("The tests need pgbouncer: install the package pgbouncer")
        target, port = CLUSTER.port, quiet_port()
        self._folder = Path(tempfile.mkdtemp(prefix="pool-"))
        words = as_user(self._folder)
        told = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        major, minor = told.split()[1].split(".")[:2]
        if (int(major), int(minor)) >= KEEPS_PREPARED:
            more += "\nmax_prepared_statements = 0"
        settings = self._folder / "settings.ini"
        settings.write_text(SETTINGS.format(target=target, port=port, connections=CONNECTIONS, more=more))
        self._process = subprocess.Popen(
            [*words, program, settings], stderr=subprocess.PIPE, text=True, cwd=self._folder
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if "process up" in line:
                break
        self.url = url_of(port)
        """Where it listens."""
        self._fill()

    def _fill(self) -> None:
        """Let it open all its connections, since for one client it would open only one."""
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                client = stack.enter_context(psycopg.connect(self.url))
                client.execute("SELECT 1")  # which begins a transaction

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate(timeout=10)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module")
def pooler() -> Iterator[Pooler]:
    """Start a pooler."""
    CLUSTER.empty(SCHEMA)
    pooler = Pooler()
    yield pooler
    pooler.stop()


@pytest.fixture
def store(pooler: Pooler) -> Iterator[PostgreSQLEngine]:
    """Return an engine behind the pooler, on an empty database."""
    CLUSTER.do(emptied(SCHEMA))
    store = PostgreSQLEngine(pooler.url, ManualClock(START), name=SCHEMA)
    yield store
    store.close()


@pytest.mark.parametrize(("mode", "case"), CASES, ids=[f"{mode}-{one.name}" for mode, one in CASES])
def test_scenario_behind_a_pooler(store: PostgreSQLEngine, mode: Compatibility, case: Scenario) -> None:
    assert store.session.pooled, "it has found that out by itself"
    assert isinstance(store._clock, ManualClock)
    queue = PostgreSQLQueue(store, mode, store._clock)
    for step in case.steps:
        step.run(queue)


def test_transactions_have_their_parameters_wherever_they_are(store: PostgreSQLEngine) -> None:
    shown = (
        "SELECT pg_backend_pid(), current_setting('search_path'),"
        " current_setting('idle_in_transaction_session_timeout'), current_setting('plan_cache_mode')"
    )
    seen = set()
    for _ in range(CONNECTIONS):
        ((pid, *parameters),) = store.session.run_statements([(shown, ())])[0]
        assert parameters == [f'"{SCHEMA}"', "5s", "force_generic_plan"]
        seen.add(pid)
    assert len(seen) == CONNECTIONS, "they are not the same connection"
    shown_elsewhere = CLUSTER.do("SHOW plan_cache_mode")
    assert shown_elsewhere == [("auto",)]


def test_parameters_that_are_set_once_are_missed(store: PostgreSQLEngine) -> None:
    """The control: each transaction sets all parameters, as its connection may be another one."""
    store.session.parameters.clear()
    with pytest.raises(StoreError, match='"control" does not exist'):
        PostgreSQLQueue(store, "document", ManualClock(START)).call(c.CreateJob(name="a"))


def test_statements_that_stay_prepared_are_missed(
    store: PostgreSQLEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: statements are not prepared, as other connections do not know them."""
    monkeypatch.setattr(
        sessions, "StatementPipeline", lambda connection, prepares: StatementPipeline(connection)
    )
    store.session.connect_again()
    queue = PostgreSQLQueue(store, "document", ManualClock(START))

    def play() -> None:
        for _ in range(CONNECTIONS):
            queue.call(c.CreateJob(name="a"))

    with pytest.raises(StoreError, match="prepared statement"):
        play()


def test_a_pooler_that_ignores_parameters_is_found_out(pooler: Pooler) -> None:
    silent = Pooler("ignore_startup_parameters = options")
    try:
        store = PostgreSQLEngine(silent.url, name=SCHEMA)
        assert store.session.pooled
        store.close()
    finally:
        silent.stop()
    told = PostgreSQLEngine(CLUSTER.url, name=SCHEMA, terms=SessionRequirements(pooled=True))
    assert told.session.pooled
    told.close()
    straight = CLUSTER.another()
    assert not straight.session.pooled
    straight.close()


def test_commits_behind_a_pooler_wait_for_the_disk(pooler: Pooler) -> None:
    clock = ManualClock(START)
    CLUSTER.do("ALTER ROLE tester SET synchronous_commit = off")
    other = Pooler()
    try:
        store = PostgreSQLEngine(other.url, clock, name=SCHEMA)
        assert store.session.run_statements([("SHOW synchronous_commit", ())]) == [[("on",)]]
        queue = PostgreSQLQueue(store, "document", clock)
        assert queue.call(c.CreateJob(name="a")).code == 200
        store.close()
    finally:
        other.stop()
        CLUSTER.do("ALTER ROLE tester RESET synchronous_commit")


def test_doctor_tells_that_servers_do_not_hear_each_other(
    pooler: Pooler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "NOTIFICATION_S", 0.2)
    (found,) = doctor.check_listening(Settings(database=pooler.url))
    assert (found.level, found.check) == ("warn", "listen")
    assert "LISTEN over database receives nothing" in found.message
    (found,) = doctor.check_listening(Settings(database=pooler.url, database_direct=CLUSTER.url))
    assert (found.level, found.check) == ("ok", "listen")
