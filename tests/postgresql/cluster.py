"""A PostgreSQL for the tests: a cluster of its own on loopback, started when it is first asked for.

It syncs as a real one does. One process of pytest has one cluster, and its tests share one schema, emptied
before each: to make the tables anew would take longer than most tests.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest

from bedrockjobs.base.clock import Clock
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from tests.effort import PROFILE

SCHEMA = "tested"
START_LINES_MAX = 100
"""Lines of the log until the cluster is ready, several times what there are."""

CLUSTER_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "deadlock_timeout": "100ms",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "log_min_messages": "log",  # that it is ready, and next to nothing more: nobody reads on
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
}


def folder_of_programs() -> Path | None:
    """Return where ``initdb`` and ``postgres`` are, the newest where there are several; None without any."""
    for postgres in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        return postgres.parent
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


class Cluster:
    """One PostgreSQL with its files."""

    def __init__(self) -> None:
        """Begin without: most tests need none."""
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Return where it listens; the first time, it is started. Skips the test where that cannot be."""
        if self._process is None:
            self._start()
        return self._url

    def _start(self) -> None:
        programs = folder_of_programs()
        if programs is None:
            if PROFILE == "fast":
                pytest.skip("there is no PostgreSQL: install the package postgresql")
            raise RuntimeError("The tests need PostgreSQL: install the package postgresql")
        as_user = ["setpriv", "--pdeathsig", "QUIT"]
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        if os.geteuid() == 0:  # which PostgreSQL refuses
            user = pwd.getpwnam("postgres")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            as_user += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        data = self._folder / "data"
        subprocess.run(
            [*as_user, programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "-E", "UTF8",
             "--locale=C", "-N"],
            check=True, stdout=subprocess.DEVNULL, cwd=self._folder,
        )  # fmt: skip
        self._process = self._listening([*as_user, str(programs / "postgres"), "-D", str(data)])

    def _listening(self, command: list[str]) -> subprocess.Popen[str]:
        """Start it on a port that is free, and wait until it says that it is ready."""
        port = free_port()
        options = [f"--{name}={value}" for name, value in {**CLUSTER_SETTINGS, "port": port}.items()]
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, cwd=self._folder)
        assert process.stderr is not None
        told = []
        for _, line in zip(range(START_LINES_MAX), process.stderr, strict=False):
            told.append(line)
            if "ready to accept connections" in line:
                self._url = f"postgresql://tester@127.0.0.1:{port}/postgres"
                return process
        raise RuntimeError("PostgreSQL did not start: " + "".join(told))

    def stop(self) -> None:
        """End it at once, and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # SIGTERM would wait for who is connected
            self._process.communicate(timeout=30)
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def engine(self, clock: Clock | None = None) -> PostgreSQLEngine:
        """Return an engine on an empty database."""
        engine = PostgreSQLEngine(self.url, clock, name=SCHEMA)
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(EMPTY)
        return engine

    def another(self, clock: Clock | None = None) -> PostgreSQLEngine:
        """Return one more engine on the database as it is."""
        return PostgreSQLEngine(self.url, clock, name=SCHEMA)


TABLES = (
    "jobs",
    "runs",
    "output",
    "ticks",
    "keys",
    "pauses",
    "drains",
    "events",
    "stats",
    "servers",
    "workers",
)
EMPTY = "; ".join(
    [f"SET search_path = {SCHEMA}", *(f"DELETE FROM {table}" for table in TABLES),
     "DELETE FROM meta WHERE key IN ('seen', 'away')",
     "UPDATE meta SET value = '[]' WHERE key = 'crashPatterns'",
     "UPDATE control SET epoch = epoch + 1", "SELECT setval('jobIDs', 1, false), setval('runIDs', 1, false)"]
)  # fmt: skip
"""What makes the tables as they are when they are new."""


def free_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


CLUSTER = Cluster()
"""The cluster of this process; the fixtures of ``conftest.py`` stop it."""
