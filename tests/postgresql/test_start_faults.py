"""Faults at the start of a server: one sentence, an exit status, and no changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from bedrockjobs.base.settings import Durability
from bedrockjobs.store.base import StoreError, StoreFull
from bedrockjobs.store.postgresql.connect_checks import StartFault, start_fault
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.schema import VERSION, refuse_foreign
from bedrockjobs.store.postgresql.session import SessionRequirements, fault_of
from bedrockjobs.store.schema import SchemaError
from tests.postgresql.cluster import CLUSTER, Node, free_port, url_of

DURABLE: tuple[Durability, ...] = ("full", "replicated")
NEW = "started"
"""A schema that no other test has."""


def fault(url: str, terms: SessionRequirements | None = None) -> StartFault:
    """Start on a URL, which must fail; return the error."""
    with pytest.raises((StoreError, SchemaError)) as told:
        PostgreSQLEngine(url, name=NEW, terms=terms).close()
    return start_fault(told.value)  # type: ignore[arg-type]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Check that no schema was created."""
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {NEW} CASCADE")
    yield
    assert CLUSTER.do(f"SELECT to_regnamespace('{NEW}')") == [(None,)]


@pytest.fixture
def plain() -> Iterator[str]:
    """Return the URL of a role that may only log in."""
    CLUSTER.do("DROP ROLE IF EXISTS plain")
    CLUSTER.do("CREATE ROLE plain LOGIN")
    yield CLUSTER.url.replace("tester@", "plain@")
    CLUSTER.do("DROP OWNED BY plain CASCADE; DROP ROLE plain")


@pytest.mark.usefixtures("nothing_left")
def test_what_somebody_has_to_change(plain: str) -> None:
    url = CLUSTER.url
    assert fault(f"{url}?bad=1").status == 78
    assert "cannot be read" in fault(f"{url}?bad=1").sentence
    assert fault(url.replace("/postgres", "/missing")).status == 78
    assert "CREATE DATABASE" in fault(url.replace("/postgres", "/missing")).sentence
    assert "Create the role" in fault(url.replace("tester@", "nobody@")).sentence
    poor = fault(plain)
    assert poor.status == 78
    assert "GRANT CREATE ON DATABASE" in poor.sentence


@pytest.mark.usefixtures("nothing_left")
def test_what_may_be_there_in_a_moment(plain: str) -> None:
    gone = fault(url_of(free_port()))
    assert gone.status == 69
    assert "Check host and port" in gone.sentence
    CLUSTER.do("ALTER ROLE plain CONNECTION LIMIT 0")
    full = fault(plain)
    assert full.status == 69
    assert "connection limit" in full.sentence
    CLUSTER.do("ALTER ROLE plain CONNECTION LIMIT -1")
    CLUSTER.do("ALTER ROLE plain SET default_transaction_read_only = on")
    read_only = fault(plain)
    assert read_only.status == 69
    assert "name the primary" in read_only.sentence


def test_a_role_without_more_rights_than_it_needs_will_do(plain: str) -> None:
    CLUSTER.do(f"DROP SCHEMA IF EXISTS {NEW} CASCADE")
    CLUSTER.do(f"CREATE SCHEMA {NEW} AUTHORIZATION plain")
    PostgreSQLEngine(plain, name=NEW).close()
    blind = fault(plain, SessionRequirements("replicated"))
    assert blind.status == 78
    assert "GRANT pg_monitor" in blind.sentence
    CLUSTER.do(f"UPDATE {NEW}.meta SET value = '{VERSION + 1}' WHERE key = 'schemaVersion'")
    newer = fault(plain)
    assert newer.status == 78
    assert f"schema version {VERSION + 1}" in newer.sentence
    CLUSTER.do(f"UPDATE {NEW}.meta SET value = '{VERSION}' WHERE key = 'schemaVersion'")
    CLUSTER.do(
        f"CREATE TABLE {NEW}.pg_dist_partition AS SELECT '{NEW}.jobs'::regclass AS logicalrelid,"
        " 'n' AS partmethod, 's' AS repmodel, 0 AS colocationid"
    )
    CLUSTER.do(f"GRANT SELECT ON {NEW}.pg_dist_partition TO plain")
    PostgreSQLEngine(plain, name=NEW).close()  # a local table is as those of PostgreSQL
    for change in ("repmodel = 't'", "partmethod = 'h'"):
        CLUSTER.do(f"UPDATE {NEW}.pg_dist_partition SET {change}, colocationid = 1")
        spread = fault(plain)
        assert spread.status == 78
        assert "Citus has distributed jobs" in spread.sentence


@pytest.mark.parametrize("version", ["CockroachDB CCL v24.1.0", "PostgreSQL 11.2-YB-2.21.0.0-b0 on x86_64"])
def test_what_only_speaks_like_postgresql_is_refused(version: str) -> None:
    with pytest.raises(SchemaError, match="needs PostgreSQL itself"):
        refuse_foreign(version)
    refuse_foreign("PostgreSQL 15.14 on x86_64-pc-linux-gnu")


def test_what_cannot_be_brought_about_here() -> None:
    said = fault_of(psycopg.errors.DiskFull("could not extend file"))
    assert isinstance(said, StoreFull)
    assert start_fault(said).status == 69
    assert "Free space" in start_fault(said).sentence
    slow = fault_of(psycopg.errors.QueryCanceled("canceling statement"))
    assert slow is not None
    assert "took too long" in start_fault(slow).sentence


def test_a_database_that_does_not_sync_promises_nothing_but_relaxed() -> None:
    node = Node(settings={"fsync": "off"})
    node.start()
    try:
        for durability in DURABLE:
            refused = fault(node.url, SessionRequirements(durability))
            assert refused.status == 78
            assert "fsync is off" in refused.sentence
        with closing(PostgreSQLEngine(node.url, name=NEW, terms=SessionRequirements("relaxed"))) as relaxed:
            assert relaxed.session.run_statements([("SHOW synchronous_commit", ())]) == [[("off",)]]
    finally:
        node.stop()


def test_commits_wait_for_the_disk_whatever_the_role_is_used_to() -> None:
    try:
        for weak, strong in (("local", "on"), ("remote_apply", "remote_apply")):
            CLUSTER.do(f"ALTER ROLE tester SET synchronous_commit = {weak}")
            with closing(PostgreSQLEngine(CLUSTER.url, name=NEW)) as full:
                assert full.session.run_statements([("SHOW synchronous_commit", ())]) == [[(strong,)]]
    finally:
        CLUSTER.do("ALTER ROLE tester RESET synchronous_commit")
        CLUSTER.do(f"DROP SCHEMA IF EXISTS {NEW} CASCADE")
