"""A server that receives a signal before it has started ends, at any stage of its start."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import examples

DEADLINE_S = 60

HANGING = """
import asyncio, sys
from bedrockjobs import server
from bedrockjobs.databases import file
from bedrockjobs.base.settings import Settings
from bedrockjobs.store.reader import SQLiteReader

class Hanging(SQLiteReader):
    async def open(self):
        if sys.argv[2] == "opened":
            await super().open()
        print("begun", flush=True)
        await asyncio.Event().wait()

file.SQLiteReader = Hanging
sys.exit(server.run_server(Settings(port=0, database=sys.argv[1], wal_bytes=0, ballast_bytes=0)))
"""


@pytest.mark.parametrize("how_far", ["opened", "opening"][: examples(1, night=2)])
def test_it_ends_though_threads_were_begun(tmp_path: Path, how_far: str) -> None:
    command = [sys.executable, "-c", HANGING, str(tmp_path / "jobs.db"), how_far]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
