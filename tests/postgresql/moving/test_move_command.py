"""The commands that move and copy a queue: their messages and their refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bedrockjobs import commands as c
from bedrockjobs.store.postgresql import transfer
from bedrockjobs.store.postgresql.transfer import place_of
from bedrockjobs.store.schema import tables
from tests.postgresql.cluster import CLUSTER, free_port
from tests.postgresql.moving import moved
from tests.postgresql.moving.moved import (
    FULL,
    STRICT,
    bedrockjobs,
    damage_there,
    do,
    move,
    on_insert,
    postgresql_queue,
    zero,
)

# --- the command -----------------------------------------------------------------------------------------


def test_the_command_says_how_much_it_moved(full: Path, tmp_path: Path) -> None:
    there = move("--from", f"sqlite:///{full}", "--to", CLUSTER.url, "-o", "json")
    assert there.exit_code == 0, there.stderr
    told = json.loads(there.stdout)
    assert told.pop("seconds") >= 0
    rows = len(tables()) * moved.ODD_ROWS
    assert told == {
        "from": str(full),
        "to": moved.database().place,
        "jobs": moved.ODD_ROWS,
        "runs": moved.ODD_ROWS,
        "rows": rows,
    }
    back = move("--from", CLUSTER.url, "--to", str(tmp_path / "back.db"))
    assert f"Moved {moved.ODD_ROWS} jobs and {moved.ODD_ROWS} runs, {rows} rows in all, from" in back.stdout


def test_bad_rows_are_listed(full: Path) -> None:
    zero(full, pytest.MonkeyPatch())
    result = move("--from", str(full), "--to", CLUSTER.url)
    assert result.exit_code == 4
    complaint, refusal = result.stderr.splitlines()
    assert complaint.endswith(": detail contains a NUL character")
    assert refusal.startswith("Error: 1 rows cannot be moved as they are")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--from", "{path}"], 2, "--to is missing"),
        (["--from", "{path}", "--to", "other.db"], 2, "`bedrockjobs backup` copies a file"),
        (["--from", "{url}", "--to", "{url}"], 2, "pg_dump"),
        (["--from", "{path}", "--to", "{url}", "--undo"], 2, "--undo cannot be combined with --to"),
        (["--from", "{path}", "--to", "postgresql://u:secr%et@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:secr/et@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:12/secret@h/db"], 2, "is not one of PostgreSQL"),
        (["--from", "postgresql://u:12/secret@h/db", "--to", "new.db"], 2, "is not one of PostgreSQL"),
        (["--from", "{path}", "--to", "postgresql://u:secret@127.0.0.1:{port}/db"], 69, "refused"),
        (["--from", "{path}", "--to", "{url}", "--schema", "No"], 2, "lower-case letters"),
        (["--from", "{path}", "--to", "mysql://h/db"], 2, "expected a path"),
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
    transfer.to_postgresql(full, moved.database(), STRICT)
    server = postgresql_queue()
    created = []

    def create(done: int, total: int) -> None:
        if done % 100 == 0:
            created.append(do(server, c.CreateJob, name="meanwhile"))

    moved.at_once(monkeypatch)
    copy = transfer.copy_to_file(moved.database(), tmp_path / "copy.db", overwrite=False, progress=create)
    assert len(created) > 5
    assert (copy.jobs, copy.size) == (moved.ODD_ROWS, (tmp_path / "copy.db").stat().st_size)
    after = moved.content_of(tmp_path / "copy.db")
    numbers = {key.decode() if isinstance(key, bytes) else key: value for key, value, _ in after.pop("meta")}
    before.pop("meta")
    assert after == before
    assert numbers["nextJobID"] >= 1
    server.store.close()


def test_the_command_makes_a_backup_of_a_url(full: Path, tmp_path: Path) -> None:
    transfer.to_postgresql(full, moved.database(), STRICT)
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
    transfer.to_postgresql(full, moved.database(), STRICT)
    damage_there(full, pytest.MonkeyPatch())
    copy = transfer.copy_to_file(moved.database(), tmp_path / "copy.db", overwrite=False, progress=None)
    assert copy.jobs == moved.ODD_ROWS


def test_an_error_of_the_database_ends_the_command(full: Path) -> None:
    on_insert("stats", FULL)(full, pytest.MonkeyPatch())
    result = move("--from", str(full), "--to", CLUSTER.url)
    assert result.exit_code == 1
    assert "PostgreSQL: no room" in result.stderr
    assert result.stderr.rstrip().endswith("nothing was done")
