"""`bedrockjobs backup`: the content of a copy made during writes, and refusals."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from cli_fake import run
from jobs_file import add_jobs, rows_of

from bedrockjobs.base.config import ID_BLOCK
from bedrockjobs.base.priority import STEPS_BETWEEN_RESTS
from bedrockjobs.base.settings import Settings
from bedrockjobs.cli.database import size_text
from bedrockjobs.store import transfer
from bedrockjobs.store.sqlite import SQLiteEngine


def test_a_backup_of_an_open_database_is_whole_and_private(store: SQLiteEngine, tmp_path: Path) -> None:
    result = run("backup", str(tmp_path / "copy.db"), "-o", "json")
    assert result.exit_code == 0, result.stderr
    copy = tmp_path / "copy.db"
    assert json.loads(result.stdout) == {"file": str(copy), "bytes": copy.stat().st_size, "jobs": 300}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert rows_of(copy, "PRAGMA journal_mode") == [("delete",)], "one file, no log beside it"
    for sql in (
        "SELECT * FROM jobs ORDER BY jobID",
        "SELECT * FROM meta ORDER BY key",
        "PRAGMA user_version",
    ):
        assert rows_of(copy, sql) == rows_of(tmp_path / "jobs.db", sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy.db",
        "jobs.db",
        "jobs.db-ballast",
        "jobs.db-shm",
        "jobs.db-wal",
    ]


def test_the_check_of_a_backup_rests_now_and_then(
    store: SQLiteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[None] = []
    monkeypatch.setattr(transfer, "rest", lambda: rests.append(None))
    add_jobs(store, 2 * STEPS_BETWEEN_RESTS // 10)
    assert run("backup", str(tmp_path / "copy.db")).exit_code == 0
    assert len(rests) >= 2, "a row of a table with its indexes takes more than ten steps"


def test_a_server_can_go_on_from_a_backup(store: SQLiteEngine, tmp_path: Path) -> None:
    run("backup", str(tmp_path / "copy.db"))
    restored = SQLiteEngine(tmp_path / "copy.db", Settings())
    restored.begin()
    assert 301 <= restored.unit.new_job_id() <= 301 + ID_BLOCK
    restored.rollback()
    restored.close()


def test_a_backup_is_one_snapshot_while_jobs_are_written(
    store: SQLiteEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PAGES_PER_STEP", 1)
    steps = 0

    def write_between_the_steps(_: int, total: int) -> None:
        nonlocal steps
        steps += 1
        assert steps <= total, "the copy begins anew at each commit"
        add_jobs(store, 1)

    copy = transfer.copy_database(
        tmp_path / "jobs.db", tmp_path / "copy.db", overwrite=False, progress=write_between_the_steps
    )
    assert steps > 20
    assert copy.jobs == 300
    assert rows_of(tmp_path / "copy.db", "SELECT count(*), max(jobID) FROM jobs") == [(300, 300)]
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(300 + steps,)]


def test_a_backup_beside_a_busy_writer_ends(store: SQLiteEngine, tmp_path: Path) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            add_jobs(store, 5)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = run("backup", str(tmp_path / "copy.db"))
    finally:
        done.set()
        writer.join()
    assert result.exit_code == 0, result.stderr
    assert rows_of(tmp_path / "copy.db", "PRAGMA integrity_check") == [("ok",)]
    (count,) = rows_of(tmp_path / "copy.db", "SELECT count(*) FROM jobs")[0]
    assert count % 5 == 0, "a commit is in the copy or it is not"


def test_a_closed_database_is_backed_up_too(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    before = (tmp_path / "jobs.db").read_bytes()
    result = run("backup", str(tmp_path / "copy.db"))
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, f"Wrote {tmp_path}/copy.db")
    assert "300 jobs" in result.stdout
    assert (tmp_path / "jobs.db").read_bytes() == before


def test_a_file_in_the_way_is_replaced_by_force_only(store: SQLiteEngine, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("precious", encoding="utf-8")
    refused = run("backup", str(copy))
    assert (refused.exit_code, refused.stderr) == (4, f"Error: {copy} exists; --force replaces it\n")
    assert copy.read_text(encoding="utf-8") == "precious"
    assert run("backup", str(copy), "--force").exit_code == 0
    assert rows_of(copy, "SELECT count(*) FROM jobs") == [(300,)]


def test_the_database_itself_is_never_the_target(store: SQLiteEngine, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "jobs.db")
    for target in ("jobs.db", "link.db"):
        result = run("backup", str(tmp_path / target), "--force")
        assert (result.exit_code, "is the database itself" in result.stderr) == (4, True)
    assert rows_of(tmp_path / "jobs.db", "SELECT count(*) FROM jobs") == [(300,)]


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_log_beside_the_target_would_be_played_into_the_copy(
    suffix: str, store: SQLiteEngine, tmp_path: Path
) -> None:
    (tmp_path / f"copy.db{suffix}").write_bytes(b"")
    result = run("backup", str(tmp_path / "copy.db"), "--force")
    assert (result.exit_code, f"copy.db{suffix} exists" in result.stderr) == (4, True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is no database"),
        (b"", "is not a database of bedrockjobs"),
        (b"x" * 4096, "copy.db: file is not a database"),
    ],
)
def test_what_cannot_be_backed_up_leaves_nothing_behind(
    content: bytes | None, complaint: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "other.db").write_bytes(content)
    result = run("backup", str(tmp_path / "copy.db"), "--database", str(tmp_path / "other.db"))
    assert result.exit_code in (1, 4)
    assert complaint in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ([] if content is None else ["other.db"])


def test_a_damaged_database_makes_no_backup(store: SQLiteEngine, tmp_path: Path) -> None:
    store.close()
    damaged = bytearray((tmp_path / "jobs.db").read_bytes())
    damaged[-4096 * 3 :] = b"\x5a" * (4096 * 3)
    (tmp_path / "jobs.db").write_bytes(damaged)
    result = run("backup", str(tmp_path / "copy.db"))
    assert result.exit_code in (1, 4)
    assert not [path.name for path in tmp_path.iterdir() if not path.name.startswith("jobs.db")]


def test_an_interrupted_backup_leaves_nothing_behind(store: SQLiteEngine, tmp_path: Path) -> None:
    def interrupt(_: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer.copy_database(
            tmp_path / "jobs.db", tmp_path / "copy.db", overwrite=False, progress=interrupt
        )
    assert {path.name for path in tmp_path.iterdir()} == {
        "jobs.db",
        "jobs.db-ballast",
        "jobs.db-shm",
        "jobs.db-wal",
    }


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 * 1024**4, "5120.0 GiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
