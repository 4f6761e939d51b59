"""A queue that is moved to PostgreSQL and back is unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bedrockjobs import commands as c
from bedrockjobs.base.clock import timestamp
from bedrockjobs.store import bedrock_import, schema
from bedrockjobs.store.postgresql import transfer
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.schema import VERSION, Sum, tables
from bedrockjobs.store.transfer import COUNTED_ID_MAX, copy_before_migration, copy_database, restore
from tests.conformance.engine import START, PostgreSQLQueue, SQLiteQueue
from tests.postgresql.cluster import CLUSTER
from tests.postgresql.moving import moved
from tests.postgresql.moving.moved import STRICT, do, postgresql_queue, sqlite_queue, write


def test_odd_values_go_there_and_come_back(full: Path, tmp_path: Path) -> None:
    before = moved.content_of(full)
    there = transfer.to_postgresql(full, moved.database(), STRICT)
    assert there.rows == len(tables()) * moved.ODD_ROWS
    back = transfer.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    assert back == there
    assert moved.content_of(tmp_path / "back.db") == before
    assert (tmp_path / "back.db").stat().st_mode & 0o777 == 0o600


def test_an_empty_queue_goes_there_and_comes_back(path: Path, tmp_path: Path) -> None:
    transfer.to_postgresql(path, moved.database(), STRICT)
    assert transfer.to_sqlite(moved.database(), tmp_path / "back.db", STRICT) == (0, 0, 0)
    assert moved.content_of(tmp_path / "back.db") == moved.content_of(path)


def test_a_new_file_is_made_as_the_server_makes_one(path: Path, tmp_path: Path) -> None:
    transfer.to_postgresql(path, moved.database(), STRICT)
    transfer.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    made = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(tmp_path / "back.db")) as new:
        assert new.execute(made).fetchall() == old.execute(made).fetchall()
        assert new.execute("PRAGMA user_version").fetchone() == (VERSION,)


def test_the_tables_there_are_as_a_server_makes_them(path: Path) -> None:
    made = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s ORDER BY indexname"
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    with psycopg.connect(CLUSTER.url, autocommit=True) as connection:
        before = connection.execute(made, (moved.SCHEMA,)).fetchall()
        transfer.to_postgresql(path, moved.database(), STRICT)
        assert connection.execute(made, (moved.SCHEMA,)).fetchall() == before
    assert len(before) > 15


def test_each_table_has_the_same_columns_on_both_engines() -> None:
    moved.database()
    PostgreSQLEngine(CLUSTER.url, name=moved.SCHEMA).close()
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
    with psycopg.connect(CLUSTER.url) as connection:
        there = connection.execute(query, (moved.SCHEMA,)).fetchall()
    for table in tables():
        found = {column for name, column in there if name == table.name.lower()}
        assert {column.lower() for column in table.columns} <= found, table.name


def test_workers_keep_their_runs(path: Path) -> None:
    before = sqlite_queue(path)
    do(before, c.CreateJob, name="mail")
    taken = do(before, c.GetJob, name="mail", worker="w", heartbeat=True)
    before.store.close()
    transfer.to_postgresql(path, moved.database(), STRICT)
    after = postgresql_queue()
    do(after, c.AppendOutput, runID=taken["runID"], seq=1, lines=["sent"])
    do(after, c.FinishJob, jobID=taken["jobID"], runID=taken["runID"])
    assert after.store.session.run_statements([("SELECT status, output FROM runs", ())])[0] == [
        ("success", '["sent"]')
    ]
    after.store.close()


def test_what_postgresql_works_out_by_itself_is_there(path: Path) -> None:
    before = sqlite_queue(path)
    parent = do(before, c.CreateJob, name="parent")["jobID"]
    do(before, c.GetJob, name="parent")
    do(before, c.CreateJob, name="child", parentJobID=parent)
    do(before, c.CreateJob, name="held/x")
    do(before, c.PauseJobs, name="held/*")
    before.store.close()
    transfer.to_postgresql(path, moved.database(), STRICT)
    after = postgresql_queue()
    assert after.call(c.GetJob(name="held/x")).code == 404
    rows = after.store.session.run_statements([("SELECT parental FROM jobs ORDER BY jobID", ())])[0]
    assert rows == [(True,), (False,), (False,)]
    after.store.close()


def test_numbers_go_on_where_they_were(path: Path, tmp_path: Path) -> None:
    before = sqlite_queue(path)
    do(before, c.CreateJobs, jobs=[{"name": "a"}] * 3)
    assert do(before, c.GetJob, name="a", worker="w")["runID"] == 1
    before.begin()
    before.store.unit.record_shutdown("2026-01-05 10:00:00")
    before.store.commit()
    before.store.close()
    events = moved.content_of(path)["events"]
    transfer.to_postgresql(path, moved.database(), STRICT)
    there = postgresql_queue()
    assert do(there, c.CreateJob, name="a")["jobID"] == 4
    assert do(there, c.GetJob, name="a", worker="w")["runID"] == 2
    do(there, c.PauseJobs, name="b")
    seqs = there.store.session.run_statements([("SELECT seq FROM events ORDER BY seq", ())])[0]
    assert seqs == [(number,) for number in range(1, len(events) + 2)]
    there.store.close()
    transfer.to_sqlite(moved.database(), tmp_path / "back.db", STRICT)
    after = sqlite_queue(tmp_path / "back.db")
    assert do(after, c.CreateJob, name="a")["jobID"] == 5
    assert do(after, c.GetJob, name="a", worker="w")["runID"] == 3
    after.store.close()


def test_numbers_are_raised_behind_rows_that_lie_ahead(path: Path) -> None:
    """A foreign jobID may be huge; it is ignored, since the next jobID would be too large."""
    row = "INSERT INTO jobs (created, jobID, state, name, nextRun) VALUES ('', {}, 'QUEUED', 'a', '')"
    write(path, row.format(41), row.format(COUNTED_ID_MAX), row.format(2**63 - 1))
    transfer.to_postgresql(path, moved.database(), STRICT)
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
        list(one.passing(rows))
        list(other.passing(others))
        assert one != other
    assert Sum() == Sum()


def backed_up(path: Path, folder: Path) -> SQLiteQueue:
    copy_database(path, folder / "copy.db", overwrite=False)
    return sqlite_queue(folder / "copy.db")


def restored(path: Path, folder: Path) -> SQLiteQueue:
    """Restore a backup over a queue whose keys have changed since."""
    copy_database(path, folder / "copy.db", overwrite=False)
    since = sqlite_queue(path)
    do(since, c.FinishJob, jobID=do(since, c.GetJob, name="waits")["jobID"])
    do(since, c.CreateJob, name="free", uniqueKey="k")
    since.store.close()
    restore(folder / "copy.db", path, held=None, force=True, now=timestamp(START))
    return sqlite_queue(path)


def imported(path: Path, folder: Path) -> SQLiteQueue:
    """Add the jobs of an original Bedrock database."""
    with closing(sqlite3.connect(folder / "old.db")) as old:
        columns = ", ".join(bedrock_import.COLUMNS)
        old.execute(f"CREATE TABLE jobs ({columns})")
        values = (
            "'2026-01-01 00:00:00', 77, 'QUEUED', 'waits', '2026-01-01 00:00:00', NULL, '', '{}', 500, 0, ''"
        )
        old.execute(f"INSERT INTO jobs VALUES ({values})")
        old.commit()
    assert bedrock_import.import_jobs(folder / "old.db", path, bedrock_import.examine(folder / "old.db")) == 1
    return sqlite_queue(path)


def on_postgresql(path: Path, _: Path) -> PostgreSQLQueue:
    transfer.to_postgresql(path, moved.database(), STRICT)
    return postgresql_queue()


def there_and_back(path: Path, folder: Path) -> SQLiteQueue:
    transfer.to_postgresql(path, moved.database(), STRICT)
    transfer.to_sqlite(moved.database(), folder / "back.db", STRICT)
    return sqlite_queue(folder / "back.db")


@pytest.mark.parametrize("travel", [backed_up, restored, imported, on_postgresql, there_and_back])
def test_unique_keys_hold_wherever_the_rows_travel(
    travel: Callable[[Path, Path], Any], path: Path, tmp_path: Path
) -> None:
    """Also a key that outlives its job; a free key stays free."""
    before = sqlite_queue(path)
    held = {
        "waits": do(before, c.CreateJob, name="waits", uniqueKey="k")["jobID"],
        "starts": do(before, c.CreateJob, name="starts", uniqueKey="k", uniqueFor="started")["jobID"],
        "ended": do(before, c.CreateJob, name="ended", uniqueKey="k", uniqueFor="1h")["jobID"],
    }
    do(before, c.FinishJob, jobID=do(before, c.GetJob, name="ended")["jobID"])
    for until in ("finished", "started"):
        do(before, c.CreateJob, name=f"free {until}", uniqueKey="k", uniqueFor=until)
        do(before, c.FinishJob, jobID=do(before, c.GetJob, name=f"free {until}")["jobID"])
    do(before, c.CreateJob, name="idempotent", idempotencyKey="k")
    before.store.close()
    after = travel(path, tmp_path)
    for name, job_id in held.items():
        assert do(after, c.CreateJob, name=name, uniqueKey="k") == {"jobID": job_id, "created": False}
    for name in ("waits", "starts"):
        assert do(after, c.QueryJob, jobID=held[name])["uniqueKey"] == "k"
    for name in ("free finished", "free started", "free"):
        assert do(after, c.CreateJob, name=name, uniqueKey="k")["created"]
    assert after.call(c.CreateJob(name="another", idempotency_key="k")).code == 405
    after.store.close()


def copied_before_migration(path: Path, _: Path) -> SQLiteQueue:
    """Take the copy that the server of a next version makes, back to this version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "VERSION", VERSION + 1)
        copy = copy_before_migration(path, START)
    assert copy is not None
    return sqlite_queue(copy)


def end_the_rest(queue: Any, running: dict[str, Any]) -> None:
    """End the jobs of the workflow of the test below, of which one runs already, and check what each gets."""
    do(queue, c.FinishJob, jobID=running["jobID"], runID=running["runID"], data={"n": 2})
    assert queue.call(c.GetJob(name="last")).code == 404
    waits = do(queue, c.GetJob, name="waits")
    assert waits["before"] == {"a": {"n": 1}}
    do(queue, c.FinishJob, jobID=waits["jobID"], data={"n": 3})
    last = do(queue, c.GetJob, name="last")
    assert last["before"] == {"b": {"n": 2}, "c": {"n": 3}}
    do(queue, c.FinishJob, jobID=last["jobID"])


@pytest.mark.parametrize(
    "travel", [backed_up, restored, copied_before_migration, on_postgresql, there_and_back]
)
def test_workflows_go_on_wherever_the_rows_travel(
    travel: Callable[[Path, Path], Any], path: Path, tmp_path: Path
) -> None:
    """One in the middle, with a job of each state, and one that failed and is retried."""
    before = sqlite_queue(path)
    jobs: list[dict[str, Any]] = [
        {"ref": "a", "name": "a"},
        {"ref": "b", "name": "b"},
        {"ref": "c", "name": "waits", "after": ["a"]},
        {"ref": "d", "name": "last", "after": ["b", "c"]},
    ]
    do(before, c.CreateWorkflow, name="w", jobs=jobs, idempotencyKey="w")
    do(before, c.FinishJob, jobID=do(before, c.GetJob, name="a")["jobID"], data={"n": 1})
    running = do(before, c.GetJob, name="b", worker="w")
    steps = [{"ref": "x", "name": "x"}, {"ref": "y", "name": "y", "after": ["x"]}]
    failed = do(before, c.CreateWorkflow, name="failed", jobs=steps)["workflowID"]
    do(before, c.FailJob, jobID=do(before, c.GetJob, name="x")["jobID"], error="no disk")
    seen = before.workflows()
    states = [[job["state"] or job["waits"] for job in workflow["jobs"]] for workflow in seen]
    assert states == [["FINISHED", 0, 0, 2], ["FAILED", "CANCELLED"]]
    before.store.close()
    after = travel(path, tmp_path)
    try:
        assert after.workflows() == seen
        end_the_rest(after, running)
        assert do(after, c.RetryWorkflow, workflowID=failed) == {"retried": 2}
        for name in ("x", "y"):
            do(after, c.FinishJob, jobID=do(after, c.GetJob, name=name)["jobID"])
        assert [(each["state"], each["open"], each["failed"]) for each in after.workflows()] == [
            ("FINISHED", 0, 0)
        ] * 2
        again = do(after, c.CreateWorkflow, name="w", jobs=jobs, idempotencyKey="w")
        assert again["workflowID"] == seen[0]["workflowID"]
    finally:
        after.store.close()
