"""The outbox: jobs in the transaction of an application with another database."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from bedrock_worker import job
from click.testing import CliRunner
from sqlalchemy.orm import Session

from bedrockjobs import InvalidCommand, ServerUnreachable, Unavailable
from bedrockjobs.base.config import OUTBOX_AGAIN_S, OUTBOX_AGAIN_S_MAX
from bedrockjobs.base.errors import BadArguments, CommandError, InvalidArgument, Unauthenticated
from bedrockjobs.cli import main
from bedrockjobs.cli.session import Session as ProgramSession
from bedrockjobs.commands import CreateJob
from bedrockjobs.outbox import Outbox, OutboxRelay
from bedrockjobs.store.outbox import DIALECTS, ERROR_CHARS_MAX, ROWS_MAX, OutboxTable, connect, table_sql


@job("image/resize", retries=3)
def resize(width: int) -> int:
    return width


class Queue:
    """A client that keeps what is created, as a server does with idempotency keys."""

    def __init__(self) -> None:
        self.jobs: dict[str, CreateJob] = {}
        self.order: list[str] = []
        self.refuses: Callable[[CreateJob], Exception | None] = lambda command: None

    def call(self, command: CreateJob) -> None:
        """Create a job, or refuse it."""
        if (error := self.refuses(command)) is not None:
            raise error
        assert command.idempotency_key
        if command.idempotency_key not in self.jobs:
            self.order.append(command.name)
        self.jobs[command.idempotency_key] = command


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Provide the application's database."""
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        connection.executescript(table_sql("sqlite"))
        yield connection


@pytest.fixture
def relay(queue: Queue) -> OutboxRelay:
    return OutboxRelay("unused.db", queue)  # type: ignore[arg-type]


def count(shop: sqlite3.Connection) -> int:
    """Return how many rows there are."""
    return int(shop.execute("SELECT count(*) FROM bedrockjobs_outbox").fetchone()[0])


def test_a_job_is_part_of_the_transaction(shop: sqlite3.Connection, queue: Queue, relay: OutboxRelay) -> None:
    Outbox(shop).enqueue(resize, 1)
    shop.rollback()
    key = Outbox(shop).enqueue(resize.using(delay="1h"), width=800)
    Outbox(shop).enqueue(CreateJob(name="mail", idempotency_key="own"))
    shop.commit()
    assert relay.carry(OutboxTable(shop)) == (2, 0, 0)
    assert list(queue.jobs) == [key, "own"]
    sent = queue.jobs[key]
    assert (sent.name, sent.data, sent.retries, sent.keep) == ("image/resize", '{"width":800}', 3, 3600)
    assert isinstance(sent.first_run, str)
    assert sent.first_run[:2] == "20", "a delay counts from the call"
    assert count(shop) == 0


@pytest.mark.parametrize("kind", [sqlalchemy.Engine.connect, Session], ids=["Connection", "Session"])
def test_sqlalchemy_writes_it(
    shop: sqlite3.Connection, queue: Queue, relay: OutboxRelay, kind: Callable[[sqlalchemy.Engine], Any]
) -> None:
    (_, _, file) = shop.execute("PRAGMA database_list").fetchone()
    engine = sqlalchemy.create_engine(f"sqlite:///{file}")
    try:
        with closing(kind(engine)) as session:
            Outbox(session).enqueue(resize, 1)
            session.rollback()
            Outbox(session).enqueue(resize, 2)
            session.commit()
    finally:
        engine.dispose()
    assert relay.carry(OutboxTable(shop)).sent == 1
    assert [one.data for one in queue.jobs.values()] == ['{"width":2}']


def test_a_relay_that_dies_after_the_answer_creates_no_second_job(
    shop: sqlite3.Connection, queue: Queue, relay: OutboxRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    Outbox(shop).enqueue(resize, 1)
    shop.commit()
    table = OutboxTable(shop)
    with monkeypatch.context() as patch:
        patch.setattr(OutboxTable, "delete", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            relay.carry(table)
    assert (len(queue.jobs), count(shop)) == (1, 1)
    assert relay.carry(table).sent == 1
    assert (len(queue.jobs), count(shop)) == (1, 0)


def test_rows_of_a_key_keep_their_order_and_others_go_on(
    shop: sqlite3.Connection, queue: Queue, relay: OutboxRelay
) -> None:
    box = Outbox(shop)
    for name, key in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("n", ""), ("a3", "a")):
        box.enqueue(CreateJob(name=name), order_key=key)
    shop.commit()
    table = OutboxTable(shop)
    queue.refuses = lambda command: Unavailable() if command.name == "a1" else None
    assert relay.carry(table) == (2, 1, 0)
    assert relay.carry(table) == (0, 0, 0), "those behind a1 wait with it"
    assert queue.order == ["b1", "n"]
    queue.refuses = lambda command: None
    shop.execute("UPDATE bedrockjobs_outbox SET again = ''")
    shop.commit()
    assert relay.carry(table).sent == 3
    assert queue.order[2:] == ["a1", "a2", "a3"]


def test_a_row_that_can_never_be_sent_is_set_aside(
    shop: sqlite3.Connection, queue: Queue, relay: OutboxRelay, tmp_path: Path
) -> None:
    for name in ("bad", "good"):
        Outbox(shop).enqueue(CreateJob(name=name), order_key="k")
    shop.execute("UPDATE bedrockjobs_outbox SET job = '[' WHERE id = 1")
    Outbox(shop).enqueue(CreateJob(name="worse"))
    shop.commit()
    long = "repeat: expected something else " * ERROR_CHARS_MAX
    queue.refuses = lambda command: (
        BadArguments("Malformed repeat", long) if command.name == "worse" else None
    )
    assert relay.carry(OutboxTable(shop)) == (1, 0, 2)
    assert queue.order == ["good"]
    listed = CliRunner().invoke(main, ["outbox", "list", "--from", str(tmp_path / "shop.db"), "-o", "json"])
    rows = json.loads(listed.stdout)
    assert [row["id"] for row in rows] == [1, 3]
    assert "repeat: expected" in rows[1]["error"]
    assert len(rows[1]["error"]) == ERROR_CHARS_MAX


@pytest.mark.parametrize(
    "error", [ServerUnreachable("away"), Unavailable(), Unauthenticated()], ids=lambda e: type(e).__name__
)
def test_what_passes_is_tried_again_with_a_growing_pause(
    shop: sqlite3.Connection,
    queue: Queue,
    relay: OutboxRelay,
    error: Exception,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Outbox(shop).enqueue(resize, 1)
    shop.commit()
    queue.refuses = lambda command: error
    table, pauses = OutboxTable(shop), []
    monkeypatch.setattr("bedrockjobs.outbox.after_seconds", lambda now, pause_s: pauses.append(pause_s) or "")
    for _ in range(8):
        assert relay.carry(table) == (0, 1, 0)
    assert pauses == [min(OUTBOX_AGAIN_S * 2**n, OUTBOX_AGAIN_S_MAX) for n in range(8)]
    queue.refuses = lambda command: None
    assert relay.carry(table).sent == 1


def test_a_thread_of_the_application_carries_more_than_one_reading(
    shop: sqlite3.Connection, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(ROWS_MAX + 1):
        Outbox(shop).enqueue(CreateJob(name=f"n{number}"))
    shop.commit()
    relay = OutboxRelay(str(tmp_path / "shop.db"), queue)  # type: ignore[arg-type]
    done = relay.carry

    def carry(table: OutboxTable) -> Any:
        found = done(table)
        if len(queue.jobs) == ROWS_MAX + 1:
            relay.stop()
        return found

    monkeypatch.setattr(relay, "carry", carry)
    with relay:
        relay._ends.wait(60)
    assert queue.order == [f"n{number}" for number in range(ROWS_MAX + 1)]
    assert count(shop) == 0


@pytest.mark.parametrize("wrong", [object(), 7])
def test_another_connection_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match=r"^connection: expected a connection of SQLAlchemy, Django"):
        Outbox(wrong).enqueue(resize, 1)


def test_bad_jobs_are_refused_with_the_attribute(shop: sqlite3.Connection) -> None:
    box = Outbox(shop)
    for wrong, words in (
        (lambda: box.enqueue("resize"), "job: expected a function declared with @job"),  # type: ignore[arg-type]
        (lambda: box.enqueue(CreateJob(name="n"), 1), "job: expected no arguments"),
        (lambda: box.enqueue(resize, 1, order_key="k" * 256), "order_key: expected at most 255"),
        (lambda: box.enqueue(resize, "wide"), "width"),
    ):
        with pytest.raises((InvalidArgument, InvalidCommand, CommandError), match=words):
            wrong()
    assert count(shop) == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_table_is_printed(dialect: str) -> None:
    printed = CliRunner().invoke(main, ["outbox", "sql", "--dialect", dialect]).stdout
    assert printed.startswith("CREATE TABLE bedrockjobs_outbox (")
    assert printed.count(";\n") == 3


def test_the_url_of_another_database_names_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", SimpleNamespace(connect=lambda **given: given))  # type: ignore[arg-type]
    assert connect("mysql+pymysql://ann:p%40ss@db:3307/shop") == {
        "host": "db",
        "port": 3307,
        "user": "ann",
        "password": "p@ss",
        "database": "shop",
    }
    with pytest.raises(InvalidArgument, match="from: the module nothere is not installed"):
        connect("mysql+nothere://db/shop")
    with pytest.raises(InvalidArgument, match=r"from: expected .* mysql\+MODULE"):
        connect("mysql://db/shop")


def test_the_program_carries_once(
    shop: sqlite3.Connection, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProgramSession, "client", queue)
    for name in ("a", "b"):
        Outbox(shop).enqueue(CreateJob(name=name))
    shop.commit()
    done = CliRunner().invoke(main, ["outbox", "relay", "--from", str(tmp_path / "shop.db"), "--once"])
    assert (done.exit_code, done.stdout) == (0, "Sent 2, tried again later: 0, set aside: 0.\n")
    assert queue.order == ["a", "b"]


def test_a_database_without_the_table_is_a_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["outbox", "list", "--from", str(tmp_path / "empty.db")])
    assert done.exit_code != 0
    assert (
        "no such table: bedrockjobs_outbox; `bedrockjobs outbox sql` prints its table"
        in str(done.exception) + done.output
    )
