"""A PostgreSQL cluster for the tests, on loopback, started at its first use.

It syncs like a real one. Each pytest process has one cluster, and its tests share one schema, emptied
before each test, since creating the tables again would take longer than most tests.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any
from weakref import WeakSet

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.clock import Clock
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.postgresql.session import SessionRequirements
from tests.effort import PROFILE
from tests.run import SHARED_FILES

SCHEMA = "tested"
START_LINES_MAX = 100
"""Lines of the log until the cluster is ready, several times what there are."""

AS_NEW = "DISCARD ALL"
"""Makes a connection as it was when it was made."""

KEPT: WeakSet[psycopg.Connection[Any]] = WeakSet()
"""Connections of tests that stay open for other tests."""

END_S = 30
"""Time in which a cluster that is ended is gone."""

CLUSTER_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "deadlock_timeout": "100ms",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "log_min_messages": "log",  # that it is ready, and little more
    "log_checkpoints": "off",
    "autovacuum_naptime": "2000000s",  # plans must be the same in each run, independent of earlier tests
}


def folder_of_programs() -> Path | None:
    """Return the folder of the newest ``initdb`` and ``postgres``, or None."""
    for postgres in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        return postgres.parent
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


@functools.cache
def new_files(programs: Path) -> Path:
    """Return the files of a new server, to be copied: to make them takes a second of processor time.

    Of the processes that share the tests, the first one makes them.
    """
    shared = os.environ.get(SHARED_FILES)
    if shared is None:
        folder = Path(tempfile.mkdtemp(prefix="pg-new-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _make_files(programs, folder)
        return folder / "data"
    found = Path(shared, "pg-new")
    with Path(shared, "pg-new.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            folder = Path(tempfile.mkdtemp(prefix="pg-new-", dir=shared))
            _make_files(programs, folder)
            folder.rename(found)
    return found / "data"


def _make_files(programs: Path, folder: Path) -> None:
    """Make the files of a new server below a folder."""
    words = ("-A", "trust", "-U", "tester", "-E", "UTF8", "--locale=C", "--no-sync")
    command: list[str | Path] = [*as_user(folder), programs / "initdb", "-D", folder / "data", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)


class Node:
    """One PostgreSQL server with its files: a primary or a standby."""

    def __init__(self, primary: str = "", *, settings: Mapping[str, str] | None = None) -> None:
        """Prepare its files: new ones, or a copy of the server at the URL ``primary``.

        Skips the test if there is no PostgreSQL.
        """
        programs = folder_of_programs()
        if programs is None:
            if PROFILE == "fast":
                pytest.skip("there is no PostgreSQL: install the package postgresql")
            raise RuntimeError("The tests need PostgreSQL: install the package postgresql")
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._as_user = as_user(self._folder)
        self._programs = programs
        self._settings = {**CLUSTER_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[str] | None = None
        self._idle: list[psycopg.Connection[Any]] = []
        self.port = quiet_port()
        self.url = url_of(self.port)
        """Where it listens."""
        if primary:
            self._do(
                "pg_basebackup", "-D", self._data, "-d", primary, "-c", "fast", "-X", "stream", "--no-sync"
            )
        else:
            command: list[str | Path] = [*self._as_user, "cp", "-r", new_files(programs), self._data]
            subprocess.run(command, check=True, cwd=self._folder)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _do(self, program: str, *words: str | Path) -> None:
        command = [*self._as_user, self._programs / program, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._folder)

    def follow(self, primary: str, *, name: str = "standby") -> None:
        """Make it a standby of the server at a URL, with a name, from its next start on."""
        given = conninfo_to_dict(primary)
        words = f"host={given['host']} port={given['port']} user={given['user']} application_name={name}"
        self._settings |= {"primary_conninfo": words, "wal_retrieve_retry_interval": "100ms"}
        subprocess.run([*self._as_user, "touch", self._data / "standby.signal"], check=True)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        options = [f"--{name}={value}" for name, value in {**self._settings, "port": self.port}.items()]
        command = [*self._as_user, str(self._programs / "postgres"), "-D", str(self._data), *options]
        self._process = process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=self._folder, start_new_session=True
        )
        assert process.stderr is not None
        told = [""]
        for _, line in zip(range(START_LINES_MAX), process.stderr, strict=False):
            told.append(line)
            if "ready to accept" in line:  # connections, or read-only connections
                break
        self._log = Thread(target=_read_on, args=(process.stderr,), daemon=True)
        self._log.start()
        if "ready to accept" not in told[-1]:
            raise RuntimeError("PostgreSQL did not start: " + "".join(told))

    def do(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement in a transaction of its own; return its rows."""
        with self.connection() as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description is not None else []

    @contextmanager
    def connection(self, schema: str = "public") -> Iterator[psycopg.Connection[Any]]:
        """Yield a connection in autocommit mode, with a schema as search path.

        It is as a new one but was used before: to make one takes PostgreSQL longer than most statements. If
        a statement waits for a transaction of a server in the same loop, it would wait forever, hence the
        timeout.
        """
        connection = None
        while self._idle and connection is None:
            connection = self._idle.pop()
            try:
                connection.execute(AS_NEW)
            except psycopg.Error:  # a test has ended all sessions, or the server
                connection.close()
                connection = None
        if connection is None:
            connection = psycopg.connect(
                self.url, autocommit=True, prepare_threshold=None, options="-c lock_timeout=20s"
            )
            KEPT.add(connection)
        try:
            connection.execute(f"SET search_path = {schema}")
            yield connection
            connection.execute(AS_NEW)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _disconnect(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def promote(self) -> None:
        """Promote a standby, and wait until it is the primary."""
        assert self.do("SELECT pg_promote(true, 20)") == [(True,)]

    def kill(self) -> None:
        """Kill all of its processes at once, like a failing machine."""
        assert self._process is not None
        self._disconnect()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._until_ended(self._process)

    def stop(self) -> None:
        """End it at once, and remove its files."""
        self._disconnect()
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # other modes would wait for clients or for the disk
            self._until_ended(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _until_ended(self, process: subprocess.Popen[str]) -> None:
        """Wait until all of its processes have ended, since each may write to the log."""
        process.wait(timeout=END_S)
        self._log.join(timeout=END_S)
        self._process = None


def _read_on(log: IO[str]) -> None:
    """Read a log to its end, since a full pipe would block its writer."""
    with log:
        for _ in log:
            pass


class Cluster:
    """The PostgreSQL cluster that the tests of a process share."""

    def __init__(self) -> None:
        """Start nothing yet: most tests need no cluster."""
        self._node: Node | None = None
        self._prepared: set[str] = set()

    @property
    def url(self) -> str:
        """Return its URL; starts it at the first call. Skips the test if that is impossible."""
        if self._node is None:
            self._node = Node()
            self._node.start()
        return self._node.url

    @property
    def port(self) -> int:
        """Return its port."""
        assert self.url
        assert self._node is not None
        return self._node.port

    def do(self, sql: str) -> list[tuple[Any, ...]]:
        """Execute a statement in a transaction of its own; return its rows."""
        assert self.url
        assert self._node is not None
        return self._node.do(sql)

    def connection(self, schema: str) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Yield a connection in autocommit mode, with a schema as search path."""
        assert self.url
        assert self._node is not None
        return self._node.connection(schema)

    def owns(self, connection: Any) -> bool:
        """Return whether a connection is one of those that stay open."""
        return connection in KEPT

    def stop(self) -> None:
        """End it at once, and remove its files."""
        if self._node is not None:
            self._node.stop()
            self._node = None

    def empty(self, schema: str) -> None:
        """Create a schema, or reset its tables to their initial state."""
        if schema not in self._prepared:
            PostgreSQLEngine(self.url, name=schema).close()
            self._prepared.add(schema)
        self.do(emptied(schema))

    def engine(self, clock: Clock | None = None) -> PostgreSQLEngine:
        """Return an engine on an empty database."""
        self.empty(SCHEMA)  # before: what a test has left of servers might keep the next out
        return PostgreSQLEngine(self.url, clock, name=SCHEMA)

    def another(
        self, clock: Clock | None = None, terms: SessionRequirements | None = None
    ) -> PostgreSQLEngine:
        """Return one more engine on the database in its present state."""
        return PostgreSQLEngine(self.url, clock, name=SCHEMA, terms=terms)


TABLES = (
    "jobs",
    "runs",
    "output",
    "ticks",
    "keys",
    "workflows",
    "workflowJobs",
    "workflowEdges",
    "pauses",
    "paced",
    "drains",
    "events",
    "stats",
    "rules",
    "seen",
    "tokens",
    "logins",
    "audit",
    "servers",
    "workers",
    "inbox",
)


def emptied(schema: str) -> str:
    """Return the SQL that resets the tables of a schema to their initial state."""
    return "; ".join(
        [
            f"SET search_path = {schema}",
            *(f"DELETE FROM {table}" for table in TABLES),
            "DELETE FROM meta WHERE key IN ('seen', 'away', 'limits', 'retention', 'mutes')",
            "UPDATE meta SET value = '[]' WHERE key = 'crashPatterns'",
            "DELETE FROM sessions",
            "UPDATE control SET epoch = epoch + 1, clock = ''",
            "SELECT setval('jobIDs', 1, false), setval('runIDs', 1, false),"
            " setval(pg_get_serial_sequence('events', 'seq'), 1, false),"
            " setval(pg_get_serial_sequence('audit', 'seq'), 1, false)",
        ]
    )


def as_user(folder: Path) -> list[str]:
    """Return a command prefix: a program ends with this process, and runs as postgres if this is root."""
    words = ["setpriv", "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:  # which PostgreSQL refuses
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        words += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return words


def url_of(*ports: int) -> str:
    """Return the URL of the writable database among those on some ports."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://tester@{hosts}/postgres"


def free_port() -> int:
    """Return an unused port of loopback."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


PORTS = range(20_000, 30_000)
"""Ports below what connections are given, which come and go until a server has its port."""


def quiet_port() -> int:
    """Return a port for a server that starts later, or again and again."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):  # tests seed the usual generator
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")


CLUSTER = Cluster()
"""The cluster of this process; the fixtures of ``conftest.py`` stop it."""
