"""Start and stop a server process. Not named conftest, as other folders have one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from tests.cli import warm

DEADLINE_S = 60
"""Time limit for a program, many times what it needs on a busy machine."""


class Running(NamedTuple):
    """A server that listens."""

    process: subprocess.Popen[str]
    address: str
    database: Path

    @property
    def pid(self) -> int:
        """Return the pid of the server itself."""
        return warm.forked_by(self.process.pid)


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment without variables that affect these tests."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("BEDROCKJOBS_")}
    return {**mine, **more}


NO_MORE = ("--wal-bytes", "0", "--ballast-bytes", "0")
"""No room on disk beforehand: to write it takes as long as the rest of a start."""


def start(
    database: Path, *arguments: str, stderr: int | None = None, room: tuple[str, ...] = NO_MORE
) -> Running:
    """Start a server on a free port and wait until it listens."""
    process = subprocess.Popen(
        [
            *(warm.program("bedrockjobs"), "serve", "--port", "0", "--database", str(database)),
            *(*room, *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=clean_environment(),
    )
    assert process.stdout is not None
    guard = threading.Timer(DEADLINE_S, process.kill)
    guard.start()
    line = process.stdout.readline()  # the first line, or the end of the output if it cannot start
    guard.cancel()
    found = re.search(r"127\.0\.0\.1:\d+", line)
    if found is None:
        stop(process)
        raise AssertionError(f"expected where the server listens, got {line!r}")
    return Running(process, found.group(), database)


def stop(process: subprocess.Popen[str]) -> int:
    """Stop a server and return its exit status."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(DEADLINE_S)
    finally:
        process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
