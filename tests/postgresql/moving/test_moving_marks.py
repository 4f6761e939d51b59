"""Obstacles to a move, and the tombstone that keeps servers from serving a moved queue."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.base.settings import Settings
from bedrockjobs.databases import EXIT_CONFIG, StartError
from bedrockjobs.server import Server as WholeServer
from bedrockjobs.store import transfer
from bedrockjobs.store.files import DatabaseLock
from bedrockjobs.store.postgresql import schema
from bedrockjobs.store.postgresql import transfer as moving
from bedrockjobs.store.postgresql.session import StoreAway
from bedrockjobs.store.postgresql.transfer import BulkSession
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.transfer import TransferError
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.moving import moved
from tests.postgresql.moving.moved import STRICT, mark_in, move, postgresql_queue

# --- who is in the way -----------------------------------------------------------------------------------


def test_a_file_that_a_server_owns_is_not_moved(path: Path) -> None:
    lock = DatabaseLock(path.resolve())
    lock.acquire()
    lock.describe("the server on 1.2.3.4")
    with moved.both_as_before(path):
        result = move("--from", str(path), "--to", CLUSTER.url)
        assert result.exit_code == 4
        assert "is owned by the server on 1.2.3.4" in result.stderr
    lock.release()


@pytest.mark.parametrize("held", ["control", "rows"])
def test_a_queue_that_is_in_use_is_not_moved(held: str, path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    with psycopg.connect(CLUSTER.url) as other:
        other.execute(f"SET search_path = {moved.SCHEMA}")
        if held == "control":
            with closing(moved.database().open()) as session:
                keys = schema.keys_of(session, moved.SCHEMA)
            other.execute("SELECT pg_advisory_xact_lock_shared(%s)", (keys.key_of("control"),))
        else:
            other.execute("INSERT INTO drains (worker, since) VALUES ('w', '')")
        with pytest.raises(TransferError, match="use"):
            moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
        if held == "control":  # the other waits for as long as there is hope
            with pytest.raises(TransferError, match="use"):
                moving.undo_move(moved.database())
        other.rollback()
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)


def test_a_queue_with_a_living_server_is_not_moved(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    moved.execute(
        *(
            f"INSERT INTO servers SELECT '{name}', '', '', to_char(clock_timestamp() AT TIME ZONE 'UTC'"
            f" - interval '{silent} s', 'YYYY-MM-DD HH24:MI:SS.MS'), '', '', 4"
            for name, silent in (("gone-1", SERVER_GONE_S + 1), ("here-1", 0))
        )
    )
    with (
        moved.both_as_before(path),
        pytest.raises(TransferError, match=r"servers use the queue .*: here-1\. Stop"),
    ):
        moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    moved.execute("DELETE FROM servers WHERE name = 'here-1'")
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)


# --- a commit whose answer is lost -----------------------------------------------------------------------


@pytest.mark.parametrize("done", [True, False])
def test_a_commit_without_an_answer_is_looked_up(
    done: bool, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = BulkSession.commit

    def broken(session: BulkSession, statements: Any) -> None:
        if done:
            commit(session, statements)
        session.close()
        raise StoreAway("cut")

    monkeypatch.setattr(BulkSession, "commit", broken)
    if done:
        moving.to_postgresql(full, moved.database(), STRICT)
        assert mark_in(full)
        assert moved.content_there()
    else:
        with moved.both_as_before(full), pytest.raises(StoreAway, match="cut"):
            moving.to_postgresql(full, moved.database(), STRICT)


def test_where_nobody_can_be_asked_the_source_stays_marked(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(session: BulkSession, _: Any) -> None:
        session.close()
        monkeypatch.setattr(session, "connect_again", away)
        raise StoreAway("cut")

    def away() -> None:
        raise StoreAway("gone")

    with monkeypatch.context() as patched:
        patched.setattr(BulkSession, "commit", broken)
        with pytest.raises(moving.Undecided, match=r"\(cut\).*\(gone\).*move --undo --from"):
            moving.to_postgresql(full, moved.database(), STRICT)
    assert mark_in(full)
    assert transfer.undo_move(full)
    moving.to_postgresql(full, moved.database(), STRICT)
    with monkeypatch.context() as patched:
        patched.setattr(BulkSession, "commit", broken)
        with pytest.raises(moving.Undecided, match=r"cut; then gone.*move --undo"):
            moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    assert not (tmp_path / "back.db").exists()


# --- the mark --------------------------------------------------------------------------------------------


async def test_no_server_starts_on_a_file_that_was_moved(path: Path) -> None:
    result = move("--from", str(path), "--to", CLUSTER.url)
    assert result.exit_code == 0, result.stderr
    for _ in range(2):
        with pytest.raises(StartError, match=r"was moved to postgresql://tester@127\.0\.0\.1.*schema moved;"):
            await WholeServer(Settings(database=str(path), port=0)).start()
    again = move("--from", str(path), "--to", CLUSTER.url)
    assert again.exit_code == 4
    assert f"move --undo --from {path}" in again.stderr
    undone = move("--undo", "--from", str(path))
    assert undone.exit_code == 0
    assert "can be served again. It lacks all changes made at postgresql://" in undone.stdout
    server = WholeServer(Settings(database=str(path), port=0))
    await server.start()
    await server.stop()
    assert "was not moved" in move("--undo", "--from", str(path)).stdout


def test_no_server_starts_on_a_database_that_was_moved(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    back = tmp_path / "back.db"
    assert move("--from", CLUSTER.url, "--to", str(back)).exit_code == 0
    with pytest.raises(SchemaError, match=f"was moved to {back}; serve it there"):
        postgresql_queue()
    with pytest.raises(TransferError, match="was moved to"):
        moving.to_sqlite(moved.database(), tmp_path / "more.db", STRICT)
    assert "It lacks all changes made at" in move("--undo", "--from", CLUSTER.url).stdout
    postgresql_queue().store.close()


def on_postgresql() -> WholeServer:
    """Return an unstarted server of the queue on PostgreSQL."""
    return WholeServer(Settings(database=CLUSTER.url, database_schema=moved.SCHEMA, server_name="s", port=0))


async def test_a_server_that_is_there_is_in_the_way_and_one_that_comes_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    server = on_postgresql()
    await server.start()
    with pytest.raises(TransferError, match=r"uses? the queue at .*Stop|is in use\. Stop"):
        await asyncio.to_thread(moving.to_sqlite, moved.database(), tmp_path / "back.db", STRICT)
    await server.stop()
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    for _ in range(2):  # the second has looked before it was moved
        with pytest.raises(StartError, match="was moved to") as refused:
            await on_postgresql().start()
        assert refused.value.status == EXIT_CONFIG
        monkeypatch.setattr(schema, "prepare", schema.keys_of)
    moving.undo_move(moved.database())


def test_servers_that_were_asleep_hear_of_the_mark(path: Path, tmp_path: Path) -> None:
    """Values cached between units are read again."""
    moving.to_postgresql(path, moved.database(), STRICT)
    epoch = "SELECT epoch FROM control"
    with psycopg.connect(CLUSTER.url, autocommit=True) as connection:
        connection.execute(f"SET search_path = {moved.SCHEMA}")
        found = [connection.execute(epoch).fetchone()]
        moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
        found.append(connection.execute(epoch).fetchone())
        moving.undo_move(moved.database())
        found.append(connection.execute(epoch).fetchone())
    assert len(set(found)) == 3
