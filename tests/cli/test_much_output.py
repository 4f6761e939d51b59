"""A job that prints 100 MB: its costs on disk, on its page, and in the worker's log."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from live_server import clean_environment, start, stop

from tests.cli import warm
from tests.effort import examples
from tests.pace import slowness

MB = 1_000_000
PRINTED_MB = examples(5, night=100)
OTHERS_MB = 0.2
"""Size of an empty database."""

WHAT = ("GET", "POST", "resized", "cache miss")
PAGE_MS = 200
PAGES = 5
LOG_BYTES_MAX = 2_000
DEADLINE_S = 300.0


def block(file: Path) -> None:
    """Write 1 MB of a log with lines that vary as in most programs."""
    dice = random.Random(1)
    with file.open("w") as out:
        while out.tell() < MB:
            out.write(
                f"2026-11-21 03:{dice.randrange(60):02}:{dice.randrange(60):02},{dice.randrange(1000):03}"
                f" INFO {dice.choice(WHAT)} /srv/{dice.randrange(10**6)}.jpg"
                f" size={dice.randrange(10**7)} took={dice.random() * 100:.1f}ms\n"
            )


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def looked_at(address: str, pid: int, path: str) -> float:
    """Load a page a few times; return the server's CPU time for one, in ms."""
    with urllib.request.urlopen(f"http://{address}{path}") as page:  # the first request loads more
        assert b"took=" in page.read()
    before = cpu_s(pid)
    for _ in range(PAGES):
        with urllib.request.urlopen(f"http://{address}{path}") as page:
            page.read()
    return (cpu_s(pid) - before) * 1_000 / PAGES


def room_mb(database: Path) -> float:
    """Return the space in use, without free pages, which the next run fills."""
    with closing(sqlite3.connect(database)) as connection:
        (pages,), (free,), (size,) = (
            connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("page_count", "freelist_count", "page_size")
        )
    return float((pages - free) * size / MB)


def loose(database: Path) -> int:
    """Return the number of chunks that are not compacted."""
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM output WHERE codec = ''").fetchone()[0])


@pytest.mark.parametrize(
    ("settings", "most_mb"),
    [([], 3), (["--output-bytes", str(2 * PRINTED_MB * MB)], PRINTED_MB / 4)],
    ids=["by default", "all of it"],
)
def test_a_job_that_prints_much(settings: list[str], most_mb: float, tmp_path: Path) -> None:
    block(tmp_path / "block")
    server = start(tmp_path / "jobs.db", *settings)
    try:
        script = f"i=0; while [ $i -lt {PRINTED_MB} ]; do cat {tmp_path}/block; i=$((i+1)); done"
        made = ["call", "CreateJob", "name=much"]
        environment = clean_environment()
        subprocess.run(
            [warm.program("bedrockjobs"), *made, "-s", server.address], env=environment, check=True
        )
        worker = subprocess.run(
            [
                *(warm.program("bedrock-worker"), "--name", "much", "--max-jobs", "1", "--as-root"),
                *("--server", server.address, "--", "sh", "-c", script),
            ],
            env=environment,
            capture_output=True,
            timeout=DEADLINE_S,
            check=True,
        )
        log = worker.stdout + worker.stderr
        end = time.monotonic() + DEADLINE_S
        while loose(server.database):  # the rest is compacted after the end of the run
            assert time.monotonic() < end
        page_ms = looked_at(server.address, server.pid, "/ui/runs/1")
    finally:
        assert stop(server.process) == 0
    room = room_mb(server.database)
    print(f"{PRINTED_MB} MB printed: {room:.2f} MB in use, {page_ms:.0f} ms a page, log {len(log)} bytes")
    assert room <= most_mb + OTHERS_MB
    assert page_ms < PAGE_MS or page_ms / slowness() < PAGE_MS
    assert len(log) <= LOG_BYTES_MAX, log[:LOG_BYTES_MAX]
