"""Work that may wait gives way to commands."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bedrockjobs.base.config import LOOKS_NICE, QUICK_COMMIT_S, TURN_S
from bedrockjobs.base.priority import give_way
from tests.cli.live_server import start, stop


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
        assert pool.submit(looks).result() == (max(before, LOOKS_NICE), 19)
    assert nice() == before


def test_what_reads_the_database_of_a_server_gives_way_to_its_event_loop(tmp_path: Path) -> None:
    running = start(tmp_path / "jobs.db")
    try:
        pid = running.process.pid
        nices = {
            int(thread.name): os.getpriority(os.PRIO_PROCESS, int(thread.name))
            for thread in Path(f"/proc/{pid}/task").iterdir()
        }
    finally:
        stop(running.process)
    assert nices.pop(pid) == nice()
    assert max(nice(), LOOKS_NICE) in nices.values()


def test_a_turn_of_a_thread_is_no_longer_than_a_quick_commit() -> None:
    assert TURN_S <= QUICK_COMMIT_S
