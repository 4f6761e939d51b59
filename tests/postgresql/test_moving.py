"""A queue that is moved to PostgreSQL and back is the same; where a move fails, both are as they were."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from bedrockjobs import commands as c
from bedrockjobs.base.clock import ManualClock
from bedrockjobs.base.config import SERVER_GONE_S
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli import main
from bedrockjobs.databases import EXIT_CONFIG, StartError
from bedrockjobs.server import Server as WholeServer
from bedrockjobs.store import sqlite_rows, whole_copy
from bedrockjobs.store.bedrock_import import COUNTED_ID_MAX
from bedrockjobs.store.faults import StoreFull
from bedrockjobs.store.inspector import COMPLAINTS_MAX, REPLACED, BadRows, Rules
from bedrockjobs.store.lock import DatabaseLock
from bedrockjobs.store.moved import MARK, MoveError
from bedrockjobs.store.postgresql import moving, schema
from bedrockjobs.store.postgresql.bulk import BulkSession, place_of
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.session import StoreAway
from bedrockjobs.store.schema import VERSION, SchemaError
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.store.tables import Sum, tables
from tests.conformance.engine import START, PostgreSQLQueue, SQLiteQueue
from tests.postgresql import moved
from tests.postgresql.cluster import CLUSTER, free_port

STRICT = Rules()


@pytest.fixture(autouse=True)
def _no_queue_there() -> Iterator[None]:
    """Begin and end without a queue on PostgreSQL."""
    moved.drop()
    yield
    moved.drop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return an empty queue in a file, in a folder of its own."""
    folder = tmp_path / "queue"
    folder.mkdir()
    SQLiteEngine(folder / "jobs.db", Settings()).close()
    return folder / "jobs.db"


@pytest.fixture
def full(path: Path) -> Path:
    """Return a queue with many rows in each table."""
    moved.fill(path)
    return path


def sqlite_queue(path: Path) -> SQLiteQueue:
    """Return the queue in a file, open."""
    clock = ManualClock(START)
    return SQLiteQueue(SQLiteEngine(path, Settings(), clock), "document", clock)


def postgresql_queue() -> PostgreSQLQueue:
    """Return the queue on PostgreSQL, open."""
    clock = ManualClock(START)
    return PostgreSQLQueue(PostgreSQLEngine(CLUSTER.url, clock, name=moved.SCHEMA), "document", clock)


def do(queue: Any, kind: type[c.Command[Any]], **given: Any) -> Any:
    """Do a command that is taken; return its body."""
    outcome = queue.call(kind.read(given))
    assert outcome.code == 200, outcome
    return outcome.body


def mark_in(path: Path) -> str | None:
    """Return where a file says that it was moved to."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = ?", (MARK,)).fetchone()
    return found[0] if found else None


def write(path: Path, *statements: str) -> None:
    """Do something to a file beside all programs of ours."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def bedrockjobs(*arguments: str) -> Result:
    """Run a command."""
    result = CliRunner().invoke(main, arguments, prog_name="bedrockjobs")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def move(*arguments: str) -> Result:
    """Run `bedrockjobs move` with the schema of these tests."""
    return bedrockjobs("move", "--schema", moved.SCHEMA, *arguments)


# --- what arrives ----------------------------------------------------------------------------------------


def test_odd_values_go_there_and_come_back(full: Path, tmp_path: Path) -> None:
    before = moved.content_of(full)
    there = moving.to_postgresql(full, moved.database(), STRICT)
    assert there.rows == len(tables()) * moved.ODD_ROWS
    back = moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    assert back == there
    assert moved.content_of(tmp_path / "back.db") == before
    assert (tmp_path / "back.db").stat().st_mode & 0o777 == 0o600


def test_an_empty_queue_goes_there_and_comes_back(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    assert moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT) == (0, 0, 0)
    assert moved.content_of(tmp_path / "back.db") == moved.content_of(path)


def test_a_new_file_is_made_as_the_server_makes_one(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    made = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(tmp_path / "back.db")) as new:
        assert new.execute(made).fetchall() == old.execute(made).fetchall()
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_the_tables_there_are_as_a_server_makes_them(path: Path) -> None:
    made = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s ORDER BY indexname"
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    with psycopg.connect(CLUSTER.url, autocommit=True) as connection:
        before = connection.execute(made, (moved.SCHEMA,)).fetchall()
        moving.to_postgresql(path, moved.database(), STRICT)
        assert connection.execute(made, (moved.SCHEMA,)).fetchall() == before
    assert len(before) > 15


def test_each_table_has_the_same_columns_on_both_engines() -> None:
    moved.database()
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
    with psycopg.connect(CLUSTER.url) as connection:
        there = connection.execute(query, (moved.SCHEMA,)).fetchall()
    for table in tables():
        found = {column for name, column in there if name == table.name}
        assert {column.lower() for column in table.columns} <= found, table.name


def test_workers_keep_their_runs(path: Path) -> None:
    before = sqlite_queue(path)
    do(before, c.CreateJob, name="mail")
    taken = do(before, c.GetJob, name="mail", worker="w", heartbeat=True)
    before.store.close()
    moving.to_postgresql(path, moved.database(), STRICT)
    after = postgresql_queue()
    do(after, c.AppendOutput, runID=taken["runID"], seq=1, lines=["sent"])
    do(after, c.FinishJob, jobID=taken["jobID"], runID=taken["runID"])
    assert after.store.session.run([("SELECT status, output FROM runs", ())])[0] == [("success", '["sent"]')]
    after.store.close()


def test_what_postgresql_works_out_by_itself_is_there(path: Path) -> None:
    before = sqlite_queue(path)
    parent = do(before, c.CreateJob, name="parent")["jobID"]
    do(before, c.GetJob, name="parent")
    do(before, c.CreateJob, name="child", parentJobID=parent)
    do(before, c.CreateJob, name="held/x")
    do(before, c.PauseJobs, name="held/*")
    before.store.close()
    moving.to_postgresql(path, moved.database(), STRICT)
    after = postgresql_queue()
    assert after.call(c.GetJob(name="held/x")).code == 404
    rows = after.store.session.run([("SELECT parental FROM jobs ORDER BY jobID", ())])[0]
    assert rows == [(True,), (False,), (False,)]
    after.store.close()


def test_numbers_go_on_where_they_were(path: Path, tmp_path: Path) -> None:
    before = sqlite_queue(path)
    do(before, c.CreateJobs, jobs=[{"name": "a"}] * 3)
    assert do(before, c.GetJob, name="a", worker="w")["runID"] == 1
    before.begin()
    before.store.unit.sign_off("2026-01-05 10:00:00")
    before.store.commit()
    before.store.close()
    events = moved.content_of(path)["events"]
    moving.to_postgresql(path, moved.database(), STRICT)
    there = postgresql_queue()
    assert do(there, c.CreateJob, name="a")["jobID"] == 4
    assert do(there, c.GetJob, name="a", worker="w")["runID"] == 2
    do(there, c.PauseJobs, name="b")
    seqs = there.store.session.run([("SELECT seq FROM events ORDER BY seq", ())])[0]
    assert seqs == [(number,) for number in range(1, len(events) + 2)]
    there.store.close()
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    after = sqlite_queue(tmp_path / "back.db")
    assert do(after, c.CreateJob, name="a")["jobID"] == 5
    assert do(after, c.GetJob, name="a", worker="w")["runID"] == 3
    after.store.close()


def test_numbers_are_raised_behind_rows_that_lie_ahead(path: Path) -> None:
    """A jobID of another make may be huge; those are passed over, as the next one would be too large."""
    row = "INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES ('', {}, 'QUEUED', 'a', '')"
    write(path, row.format(41), row.format(COUNTED_ID_MAX), row.format(2**63 - 1))
    moving.to_postgresql(path, moved.database(), STRICT)
    there = postgresql_queue()
    assert do(there, c.CreateJob, name="b")["jobID"] == 42
    there.store.close()


def test_one_wrong_row_is_another_sum() -> None:
    rows = [(1, "a", None), (2, "", "b")]
    for others in (
        [rows[1], rows[0]],
        rows[:1],
        [*rows, rows[0]],
        [(1, "a", ""), rows[1]],
        [("1", "a", None)],
    ):
        one, other = Sum(), Sum()
        list(one.of(rows))
        list(other.of(others))
        assert one != other
    assert Sum() == Sum()


# --- what is refused -------------------------------------------------------------------------------------

Trouble = Callable[[Path, pytest.MonkeyPatch], None]


def target_full(path: Path, _: pytest.MonkeyPatch) -> None:
    there = postgresql_queue()
    do(there, c.CreateJob, name="other")
    there.store.close()


def older(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "PRAGMA user_version = 3")


def newer(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, f"PRAGMA user_version = {VERSION + 1}")


def target_newer(path: Path, _: pytest.MonkeyPatch) -> None:
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    moved.execute("UPDATE meta SET value = '5' WHERE key = 'schemaVersion'")


def zero(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE output SET line = 'a' || char(0) WHERE seq = (SELECT max(seq) FROM output)")


def damage(path: Path, _: pytest.MonkeyPatch) -> None:
    write(
        path, "UPDATE jobs SET data = '{\"k\":1}', checksum = 1 WHERE jobID = (SELECT max(jobID) FROM jobs)"
    )


def no_utf_8(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE events SET detail = CAST(x'ff' AS TEXT) WHERE seq = (SELECT max(seq) FROM events)")


def no_text(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, "UPDATE meta SET value = 7 WHERE key = 'crashPatterns'")


def on_insert(table: str, body: str, *, at_commit: bool = False) -> Trouble:
    """Return what has PostgreSQL do something with each row that arrives."""
    when = f"BEFORE INSERT ON {table}"
    if at_commit:
        when = f"AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED"

    def trouble(_: Path, __: pytest.MonkeyPatch) -> None:
        PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
        moved.execute(
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql"
            f" AS $$ BEGIN {body} RETURN new; END $$",
            f"CREATE {'CONSTRAINT' if at_commit else ''} TRIGGER trouble {when}"
            " FOR EACH ROW EXECUTE FUNCTION trouble()",
        )

    return trouble


def cut(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let somebody end the connection when half of the rows are there."""
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    copied = whole_copy.copy_all

    def copy_all(source: Any, target: Any, rules: Rules, _: Any) -> Any:
        return copied(source, target, rules, lambda done, _: moved.execute(end) if done == 100 else None)

    moved.at_once(monkeypatch)
    monkeypatch.setattr(moving, "copy_all", copy_all)


FULL = "RAISE EXCEPTION 'no room' USING ERRCODE = '53100';"


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (target_full, MoveError, r"holds a queue already: jobs have rows.*--schema"),
        (older, MoveError, r"has schema version 3; `bedrockjobs migrate --database"),
        (newer, MoveError, rf"has schema version {VERSION + 1}; this program knows {VERSION}"),
        (target_newer, SchemaError, r"needs schema version 5"),
        (zero, BadRows, r"^1 rows cannot be moved.*--replace-zeros"),
        (damage, BadRows, r"^1 rows cannot be moved.*--keep-damaged"),
        (no_utf_8, MoveError, r"row behind events, seq \d+: a text is not UTF-8"),
        (no_text, MoveError, r"meta, key 'crashPatterns': expected text"),
        (on_insert("stats", FULL), StoreFull, "no room"),
        (on_insert("meta", FULL, at_commit=True), StoreFull, "no room"),
        (on_insert("output", "new.line := new.line || '.';"), MoveError, "output: what has arrived is not"),
        (on_insert("keys", "RETURN NULL;"), MoveError, "keys: what has arrived is not.*0 rows of"),
        (on_insert("meta", "new.value := new.value || '.';"), MoveError, "meta: what has arrived"),
        (cut, StoreAway, "terminat"),
    ],
    ids=["full", "older", "newer", "target newer", "zero", "damage", "no utf-8", "no text", "no room",
         "no room at the commit", "altered", "missing", "meta altered", "cut"],
)  # fmt: skip
def test_where_it_fails_both_are_as_before(
    trouble: Trouble, error: type[Exception], words: str, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(full, monkeypatch)
    with moved.both_as_before(full), pytest.raises(error, match=words):
        moving.to_postgresql(full, moved.database(), STRICT)


@contextmanager
def small_file(draft: Path) -> Iterator[sqlite3.Connection]:
    """Context a new file on a disk without room for much."""
    with sqlite_rows.new_queue(draft) as connection:
        connection.execute("PRAGMA max_page_count = 60")
        yield connection


def no_room(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def full_disk(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "new_queue", small_file)


def no_name(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last step fails: the file gets its name when the other queue is marked already."""
    monkeypatch.setattr(Path, "replace", no_room)


def damage_there(_: Path, __: pytest.MonkeyPatch) -> None:
    moved.execute("UPDATE jobs SET data = '{\"k\":1}', checksum = 1")


@pytest.mark.parametrize(
    ("trouble", "error", "words"),
    [
        (full_disk, MoveError, "the disk of .*back or that of temporary files is full"),
        (no_name, OSError, "No space"),
        (cut, StoreAway, "terminat"),
        (damage_there, BadRows, rf"^{moved.ODD_ROWS} rows cannot be moved"),
        (target_newer, SchemaError, "needs schema version 5"),
    ],
)
def test_on_the_way_back_too(
    trouble: Trouble,
    error: type[Exception],
    words: str,
    full: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moving.to_postgresql(full, moved.database(), STRICT)
    back = tmp_path / "back" / "jobs.db"
    back.parent.mkdir()
    trouble(full, monkeypatch)
    with moved.both_as_before(full), pytest.raises(error, match=words):
        moving.to_sqlite(moved.database(), back, STRICT)
    assert list(back.parent.iterdir()) == []


def test_a_file_in_the_way_stays(path: Path, tmp_path: Path) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    (tmp_path / "other").write_text("mine")
    with pytest.raises(MoveError, match="exists; a queue is moved into a new file"):
        moving.to_sqlite(moved.database(), tmp_path / "other", STRICT)
    assert (tmp_path / "other").read_text() == "mine"


def test_all_bad_rows_are_told_at_once(full: Path) -> None:
    zero(full, pytest.MonkeyPatch())
    write(full, "UPDATE jobs SET checksum = 1")
    with pytest.raises(BadRows) as error:
        moving.to_postgresql(full, moved.database(), STRICT)
    assert error.value.count == moved.ODD_ROWS + 1
    assert len(error.value.complaints) == COMPLAINTS_MAX < moved.ODD_ROWS
    assert error.value.complaints[0].startswith(f"jobs, jobID {moved.FIRST_KEY}: the data is not")


def test_bad_rows_are_taken_along_where_that_is_wanted(full: Path, tmp_path: Path) -> None:
    damage(full, pytest.MonkeyPatch())
    before = moved.content_of(full)
    zero(full, pytest.MonkeyPatch())
    moving.to_postgresql(full, moved.database(), Rules(keep_damaged=True, replace_zeros=True))
    moving.to_sqlite(moved.database(), tmp_path / "back.db", Rules(keep_damaged=True))
    after = moved.content_of(tmp_path / "back.db")
    assert after["jobs"] == before["jobs"]
    with closing(sqlite3.connect(tmp_path / "back.db")) as connection:
        last = connection.execute("SELECT line FROM output ORDER BY seq DESC LIMIT 1").fetchone()
    assert last == (f"a{REPLACED}",)


def test_a_zero_in_a_job_is_never_replaced(full: Path) -> None:
    write(full, "UPDATE jobs SET lastRun = char(0) WHERE jobID = (SELECT max(jobID) FROM jobs)")
    with pytest.raises(BadRows) as error:
        moving.to_postgresql(full, moved.database(), Rules(replace_zeros=True))
    assert "lastRun has the character 0" in error.value.complaints[0]


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
            other.execute("SELECT pg_advisory_xact_lock_shared(%s)", (moved.database().keys.of("control"),))
        else:
            other.execute("INSERT INTO drains (worker, since) VALUES ('w', '')")
        with pytest.raises(MoveError, match="use"):
            moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
        if held == "control":  # the other waits for as long as there is hope
            with pytest.raises(MoveError, match="use"):
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
        pytest.raises(MoveError, match=r"servers use the queue .*: here-1\. Stop"),
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
    assert sqlite_rows.undo_move(full)
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
    assert "can be served again. What was done at postgresql://" in undone.stdout
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
    with pytest.raises(MoveError, match="was moved to"):
        moving.to_sqlite(moved.database(), tmp_path / "more.db", STRICT)
    assert "What was done at" in move("--undo", "--from", CLUSTER.url).stdout
    postgresql_queue().store.close()


def on_postgresql() -> WholeServer:
    """Return a server, not yet started, of the queue on PostgreSQL."""
    return WholeServer(Settings(database=CLUSTER.url, database_schema=moved.SCHEMA, server_name="s", port=0))


async def test_a_server_that_is_there_is_in_the_way_and_one_that_comes_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.to_postgresql(path, moved.database(), STRICT)
    server = on_postgresql()
    await server.start()
    with pytest.raises(MoveError, match=r"servers use the queue at .*: s"):
        await asyncio.to_thread(moving.to_sqlite, moved.database(), tmp_path / "back.db", STRICT)
    await server.stop()
    moving.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    for _ in range(2):  # the second has looked before it was moved
        with pytest.raises(StartError, match="was moved to") as refused:
            await on_postgresql().start()
        assert refused.value.status == EXIT_CONFIG
        monkeypatch.setattr(schema, "prepare", lambda *_: None)
    moving.undo_move(moved.database())


def test_servers_that_were_asleep_hear_of_the_mark(path: Path, tmp_path: Path) -> None:
    """What they remember between units is read anew."""
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


# --- the command -----------------------------------------------------------------------------------------


def test_the_command_says_how_much_it_moved(full: Path, tmp_path: Path) -> None:
    there = move("--from", f"sqlite:///{full}", "--to", CLUSTER.url, "-o", "json")
    assert there.exit_code == 0, there.stderr
    told = json.loads(there.stdout)
    assert told.pop("seconds") >= 0
    rows = len(tables()) * moved.ODD_ROWS
    assert told == {
        "from": str(full), "to": moved.database().place, "jobs": moved.ODD_ROWS, "runs": moved.ODD_ROWS,
        "rows": rows,
    }  # fmt: skip
    back = move("--from", CLUSTER.url, "--to", str(tmp_path / "back.db"))
    assert f"Moved {moved.ODD_ROWS} jobs and {moved.ODD_ROWS} runs, {rows} rows in all, from" in back.stdout


def test_bad_rows_are_listed(full: Path) -> None:
    zero(full, pytest.MonkeyPatch())
    result = move("--from", str(full), "--to", CLUSTER.url)
    assert result.exit_code == 4
    complaint, refusal = result.stderr.splitlines()
    assert complaint.endswith(": line has the character 0")
    assert refusal.startswith("Error: 1 rows cannot be moved as they are")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--from", "{path}"], 2, "--to is missing"),
        (["--from", "{path}", "--to", "other.db"], 2, "`bedrockjobs backup` copies a file"),
        (["--from", "{url}", "--to", "{url}"], 2, "pg_dump"),
        (["--from", "{path}", "--to", "{url}", "--undo"], 2, "--undo has a meaning without --to only"),
        (["--from", "{path}", "--to", "postgresql://u:secr%et@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:secr/et@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:12/secret@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "postgresql://u:12/secret@h/db", "--to", "new.db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:secret@127.0.0.1:{port}/db"], 69, "refused"),
        (["--from", "{path}", "--to", "{url}", "--schema", "No"], 2, "small letters"),
        (["--from", "{path}", "--to", "mysql://h/db"], 2, "expected a path or"),
        (["--from", "absent.db", "--to", "{url}"], 4, "there is no database absent.db"),
        (["--undo", "--from", "absent.db"], 4, "there is no database absent.db"),
        (["--from", "{url}", "--to", "new.db"], 4, "there is no queue at postgresql://tester@127.0.0.1"),
        (["--undo", "--from", "{url}"], 4, "there is no queue at"),
        (["--from", "junk", "--to", "{url}"], 1, "file is not a database"),
    ],
)
def test_what_is_wrong_is_told_without_the_password(
    arguments: list[str], status: int, words: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("no database" * 100)
    given = [one.format(path=path, url=CLUSTER.url, port=free_port()) for one in arguments]
    with moved.both_as_before(path):
        result = move(*given)
    assert (result.exit_code, words in result.stderr) == (status, True), result.stderr
    assert "secr" not in result.stderr
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@h:5433/db?sslmode=require&password=q", "postgresql://u@h:5433/db"),
        ("postgres://h", "postgresql://h/"),
        ("postgresql:///db?host=/run/postgresql&user=u", "postgresql://u@%2Frun%2Fpostgresql/db"),
        ("postgresql://u:p%2F@a:1,b:2/db", "postgresql://u@a:1,b:2/db"),
        ("postgresql://u:p@a,b/db?port=7", "postgresql://u@a:7,b:7/db"),
        ("postgresql://u:p@[::1]:7/db", "postgresql://u@[::1]:7/db"),
    ],
)
def test_a_place_is_a_url_without_its_password(url: str, place: str) -> None:
    assert place_of(url) == place


WITHOUT_DRIVER = "import sys; sys.modules['psycopg'] = None; from bedrockjobs.cli import main; main()"


@pytest.mark.parametrize("arguments", [["move", "--from", "a.db", "--to"], ["backup", "b.db", "--database"]])
def test_a_driver_that_is_missing_is_named(arguments: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_DRIVER, *arguments, "postgresql://h/db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "pip install 'bedrockjobs[postgresql]'" in done.stderr


# --- backup ----------------------------------------------------------------------------------------------


def test_a_backup_is_one_snapshot_while_servers_go_on(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = moved.content_of(full)
    moving.to_postgresql(full, moved.database(), STRICT)
    server = postgresql_queue()
    created = []

    def create(done: int, total: int) -> None:
        if done % 100 == 0:
            created.append(do(server, c.CreateJob, name="meanwhile"))

    moved.at_once(monkeypatch)
    copy = moving.copy_to_file(moved.database(), tmp_path / "copy.db", overwrite=False, progress=create)
    assert len(created) > 5
    assert (copy.jobs, copy.size) == (moved.ODD_ROWS, (tmp_path / "copy.db").stat().st_size)
    after = moved.content_of(tmp_path / "copy.db")
    numbers = {key.decode() if isinstance(key, bytes) else key: value for key, value, _ in after.pop("meta")}
    before.pop("meta")
    assert after == before
    assert numbers["nextJobID"] >= 1
    server.store.close()


def test_the_command_makes_a_backup_of_a_url(full: Path, tmp_path: Path) -> None:
    moving.to_postgresql(full, moved.database(), STRICT)
    copy = tmp_path / "copy.db"
    database = ["--database", CLUSTER.url, "--schema", moved.SCHEMA]
    done = bedrockjobs("backup", str(copy), *database)
    assert f"Wrote {copy}: " in done.stdout
    assert moved.content_of(copy) == moved.content_of(full)
    again = bedrockjobs("backup", str(copy), *database)
    assert (again.exit_code, "--force replaces it" in again.stderr) == (4, True)
    assert bedrockjobs("backup", str(copy), "--force", *database).exit_code == 0
    absent = bedrockjobs("backup", str(tmp_path / "b.db"), "--database", CLUSTER.url, "--schema", "absent")
    assert (absent.exit_code, "there is no queue at" in absent.stderr) == (4, True)
    assert not (tmp_path / "b.db").exists()


def test_a_damaged_job_does_not_prevent_a_backup(full: Path, tmp_path: Path) -> None:
    moving.to_postgresql(full, moved.database(), STRICT)
    damage_there(full, pytest.MonkeyPatch())
    copy = moving.copy_to_file(moved.database(), tmp_path / "copy.db", overwrite=False, progress=None)
    assert copy.jobs == moved.ODD_ROWS


def test_an_error_of_the_database_ends_the_command(full: Path) -> None:
    on_insert("stats", FULL)(full, pytest.MonkeyPatch())
    result = move("--from", str(full), "--to", CLUSTER.url)
    assert result.exit_code == 1
    assert "PostgreSQL: no room" in result.stderr
    assert result.stderr.rstrip().endswith("nothing was done")
