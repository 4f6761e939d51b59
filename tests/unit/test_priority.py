"""Background work has a lower priority than commands."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import count, pairwise
from pathlib import Path
from statistics import median

import pytest

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import QUICK_COMMIT_S, TURN_S
from bedrockjobs.base.priority import REST_S, STEPS_BETWEEN_RESTS, give_way, rest
from bedrockjobs.store.sandbox import SandboxedConnection
from tests.cli.live_server import start, stop

READS_NICE = 10


def nice() -> int:
    """Return the nice value of this thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_gives_way_alone_and_never_takes_more() -> None:
    before = nice()

    def looks() -> tuple[int, int]:
        give_way()
        first = nice()
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        give_way()
        return first, nice()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(looks).result() == (max(before, READS_NICE), 19)
    assert nice() == before


def test_what_reads_the_database_of_a_server_gives_way_to_its_event_loop(tmp_path: Path) -> None:
    running = start(tmp_path / "jobs.db")
    try:
        pid = running.pid
        begun = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        base = os.getpriority(os.PRIO_PROCESS, begun)
        nices = {
            int(thread.name): os.getpriority(os.PRIO_PROCESS, int(thread.name))
            for thread in Path(f"/proc/{pid}/task").iterdir()
        }
    finally:
        stop(running.process)
    assert nices.pop(pid) == base, "that of the process that started it"
    assert max(base, READS_NICE) in nices.values()


def test_a_turn_of_a_thread_is_no_longer_than_a_quick_commit() -> None:
    assert TURN_S <= QUICK_COMMIT_S


def test_a_long_look_rests_as_often_as_a_quick_commit_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[float] = []
    cpu = SystemClock().thread_cpu()
    monkeypatch.setattr("bedrockjobs.store.sandbox.rest", lambda: spent.append(cpu()))
    looks = sqlite3.connect(":memory:", factory=SandboxedConnection)
    looks.execute("SELECT 1").fetchall()
    assert not spent
    looks.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " SELECT max(json_extract('[' || i || ', 2]', '$[1]')) FROM n",
        (STEPS_BETWEEN_RESTS,),
    ).fetchall()
    assert len(spent) >= 10, "a row takes several steps"
    assert median(after - before for before, after in pairwise(spent)) <= 2 * QUICK_COMMIT_S


@pytest.mark.parametrize(("cpu_s", "wall_s", "ends"), [(60, 60, True), (0, 60, False), (60, 1, False)])
def test_a_read_that_waits_for_the_processor_has_more_time_than_it_may_compute(
    cpu_s: float, wall_s: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = count(step=2)  # a busy machine: two seconds pass at each rest
    reads = sqlite3.connect(":memory:", factory=SandboxedConnection)
    monkeypatch.setattr("bedrockjobs.store.sandbox.CLOCK.monotonic", lambda: next(times))
    reads.limit(cpu_s, wall_s, 1_000)
    counted = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) FROM n"
    )
    with nullcontext() if ends else pytest.raises(sqlite3.OperationalError, match="interrupted"):
        rows = reads.execute(counted, (STEPS_BETWEEN_RESTS,)).fetchall()
        assert rows == [(STEPS_BETWEEN_RESTS,)]


def test_a_rest_is_an_instant() -> None:
    clock = SystemClock()
    begun = clock.monotonic()
    rest()
    assert clock.monotonic() - begun >= REST_S
    assert REST_S <= QUICK_COMMIT_S / 10
