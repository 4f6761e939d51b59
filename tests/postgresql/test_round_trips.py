"""Statements in one round trip: parameters of every type, and the state after a failed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bedrockjobs import commands as c
from bedrockjobs.store.base import StoreError
from bedrockjobs.store.postgresql.locks import DRAWN_MAX
from bedrockjobs.store.postgresql.session import DatabaseSession, Statement, columns, encoded
from tests.postgresql.cluster import CLUSTER, SCHEMA
from tests.postgresql.conftest import Server

Servers = Callable[[int], list[Server]]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("", b""),
        ("\ud800", "\ufffd".encode()),
        ("ä\0", "ä\ufffd".encode()),
        (-5, b"-5"),
        (True, b"t"),
        (False, b"f"),
        (None, None),
        ([], b"{}"),
        ([1, 2], b"{1,2}"),
        ([None, 1], b"{NULL,1}"),
        ([True, False], b"{t,f}"),
        (["a,b", ""], b'{"a,b",""}'),
        (['"\\'], b'{"\\"\\\\"}'),
        ([None, "x"], b'{NULL,"x"}'),
    ],
)
def test_a_parameter_is_spelled_as_postgresql_reads_it(value: Any, found: bytes | None) -> None:
    assert encoded(value) == found


@pytest.fixture(scope="module")
def session() -> Iterator[DatabaseSession]:
    """Return a connection that all examples share."""
    CLUSTER.empty(SCHEMA)
    session = DatabaseSession(CLUSTER.url, SCHEMA)
    yield session
    session.close()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(deadline=None)
@given(texts=st.lists(TEXT), numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)), text=TEXT)
def test_what_is_sent_comes_back(
    session: DatabaseSession, texts: list[str], numbers: list[int | None], text: str
) -> None:
    statement = "SELECT $1::text[], $2::bigint[], $3::text"
    assert session.run_statements([(statement, (texts, numbers, text))]) == [[(texts, numbers, text)]]


def test_columns_are_those_of_the_rows() -> None:
    assert columns([(1, "a"), (2, "b")]) == [[1, 2], ["a", "b"]]
    assert columns([]) == []


def test_after_a_failure_all_statements_can_be_sent_again(servers: Servers) -> None:
    (one,) = servers(1)
    session = one.store.session
    some: list[Statement] = [("SELECT 1", ()), ("SELECT $1::bigint", (7,)), ("SELECT 3", ())]
    for _ in range(2):
        with pytest.raises(StoreError, match="division by zero"):
            session.run_statements([some[0], ("SELECT 1 / $1::bigint", (0,)), *some[1:]])
        with pytest.raises(StoreError, match="does not exist"):
            session.run_statements([some[1], ("SELECT 1 FROM nothing", ()), some[2]])
        assert session.run_statements(some) == [[(1,)], [(7,)], [(3,)]]


def test_a_parameter_that_cannot_be_sent_leaves_the_connection_usable(servers: Servers) -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise ArithmeticError

    (one,) = servers(1)
    with pytest.raises(ArithmeticError):
        one.value("SELECT $1::text", Unspeakable())
    assert one.value("SELECT 1") == 1


def test_more_is_sent_and_read_than_the_socket_holds(servers: Servers) -> None:
    """Neither side may block because the other does not read."""
    (one,) = servers(1)
    large = "x" * 3_000_000
    statements = [("SELECT $1::text", (large,))] * 4
    assert one.store.session.run_statements(statements) == [[(large,)]] * 4


def test_numbers_beyond_the_plan_are_drawn_many_at_once(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = servers(1)
    context, read = one.open(), 0

    def counted(*statements: Statement) -> Any:
        nonlocal read
        read += 1
        return reading(*statements)

    unit = one.store.unit
    reading = unit._transaction.run_statements
    monkeypatch.setattr(unit._transaction, "run_statements", counted)
    assert [context.unit.new_job_id() for _ in range(2 * DRAWN_MAX)] == list(range(1, 2 * DRAWN_MAX + 1))
    assert read < 15


def test_numbers_that_other_hands_have_used_are_passed_over(servers: Servers) -> None:
    (one,) = servers(1)
    columns_and_values = "(created, jobID, state, name, nextRun) SELECT '', n, 'QUEUED', 'x', ''"
    one.store.session.script(f"INSERT INTO jobs {columns_and_values} FROM generate_series(2, 5000) AS n")
    found = [one.do(c.CreateJob, name="a") for _ in range(2)]
    assert found == [{"jobID": 1}, {"jobID": 5001}]


def test_the_keys_of_a_unit_are_written_by_one_statement(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = servers(1)
    one.do(c.CreateJob, name="a", uniqueKey="old")
    one.do(c.DeleteJob, jobID=1)
    sent: list[str] = []
    session = one.store.session
    commit = session.commit
    monkeypatch.setattr(session, "commit", lambda them: sent.extend(sql for sql, _ in them) or commit(them))
    jobs = [{"name": "a", "uniqueKey": key} for key in ("old", "k1", "k1", "k2")]
    found = one.do(c.CreateJobs, jobs=[*jobs, {"name": "a", "idempotencyKey": "k1"}])
    assert found == {"jobIDs": [2, 3, 3, 4, 5], "created": [True, True, False, True, True]}
    assert sum("INTO keys" in sql for sql in sent) == 1
    assert one.value("SELECT array_agg(jobID ORDER BY jobID) FROM keys") == [2, 3, 4, 5]
    assert one.do(c.CreateJobs, jobs=jobs) == {"jobIDs": [2, 3, 3, 4], "created": [False] * 4}
