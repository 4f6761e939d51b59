"""A server of its own process for a benchmark, on a temporary database, and what the kernel says it uses."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_S = 15.0
"""Time a server may take to start; it grows its log before it listens."""
STOP_S = 20.0
"""Time a server may take to stop; it gives its connections ten seconds."""


def stop(process: subprocess.Popen[str], how: int = signal.SIGTERM) -> None:
    """Tell a process to end and wait until it has; after a while, end it."""
    process.send_signal(how)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Served:
    """One running server; use it with ``with``."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        checkout: Path | None = None,
        prepare: Callable[[Path], object] = lambda _: None,
        url: str = "",
    ) -> None:
        """Prepare a server on a new file below ``directory``, with options of ``bedrockjobs serve``.

        It is the one that is installed, unless its code is to come from a ``checkout``. ``prepare`` is given
        the path of the file before the start. With a ``url`` it serves that database instead.
        """
        self._url = url
        self._prepare = prepare
        self._parent = directory
        self._options = options
        self._checkout = checkout
        self._process: subprocess.Popen[str]
        self._folder: Path
        self.port = 0
        self.token = ""
        """What the server is shown, where it wants a token."""
        self.database: Path
        self.started_s = 0.0
        """How long the start took, from the new process until it listens."""

    def __enter__(self) -> Self:
        """Start it and wait until it listens."""
        self._folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-benchmark-", dir=self._parent))
        command = [sys.executable, "-m", "bedrockjobs", "serve", "--port", "0", *self._options]
        self.database = self._folder / "jobs.db"
        self._prepare(self.database)
        command += ["--database", self._url or str(self.database)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("BEDROCKJOBS_")}
        if self._checkout is not None:
            environment["PYTHONPATH"] = f"{self._checkout}:{self._checkout / 'worker'}"
        begun = time.perf_counter()
        with (self._folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=self._folder
            )
        # A benchmark that is told to end must take its server along.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            self.port = self._listening_port()
            self.started_s = time.perf_counter() - begun
        except BaseException:
            self._end()
            raise
        return self

    def _listening_port(self) -> int:
        output = self._process.stdout
        assert output is not None
        printed = select.select([output], [], [], START_S)[0]
        found = re.search(r":(\d+)", output.readline()) if printed else None
        if found is None:
            raise RuntimeError(f"the server did not start:\n{(self._folder / 'log').read_text()}")
        return int(found[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and remove the database."""
        self._end()

    def _end(self) -> None:
        stop(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        shutil.rmtree(self._folder)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def cpu_s(self) -> float:
        """Return the seconds of processor time that all its threads have used so far."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def rss_bytes(self) -> int:
        """Return the memory it holds."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024

    def status(self) -> dict[str, Any]:
        """Return the server's own answer to Status."""
        return self.ask("Status")

    def ask(self, command: str, **parameters: str) -> dict[str, Any]:
        """Return the server's answer to a command."""
        lines = [command, "Connection: close", *(f"{name}: {value}" for name, value in parameters.items())]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found
