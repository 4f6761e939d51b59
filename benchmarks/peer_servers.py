"""The servers of other queues: tuned fairly, syncing all they can, each on a free port with its own data."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from served import START_S, stop


class Missing(Exception):
    """What a server needs is not installed; says how to install it."""


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def listens(port: int) -> bool:
    """Return whether somebody does."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def program(name: str, package: str, *places: Path) -> str:
    """Return the path of a program; raise Missing if it is nowhere."""
    found = shutil.which(name) or next((str(place) for place in places if place.exists()), None)
    if found is None:
        raise Missing(f"{name} is not installed (Debian: apt install {package})")
    return found


def version_of(*command: str) -> str:
    """Return the version that a program tells."""
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else said.strip()


class Server:
    """One running server; use it with ``with``. Making one raises Missing."""

    stop_signal: int = signal.SIGTERM
    user: str | None = None
    """Who it runs as; None is who runs this."""

    def __init__(self, directory: Path) -> None:
        """Prepare a server that keeps its data below ``directory``."""
        self._parent = directory
        self._process: subprocess.Popen[str]
        self.folder: Path
        self.port = 0
        self.version = ""

    def command(self) -> list[str]:
        """Return what starts it in the foreground."""
        raise NotImplementedError

    def listening(self) -> bool:
        """Return whether it serves."""
        return listens(self.port)

    def prepare(self) -> None:
        """Do what comes before the start."""

    def serve(self) -> None:
        """Do what comes after the start."""

    def __enter__(self) -> Self:
        """Start it and wait until it serves."""
        self.folder = Path(tempfile.mkdtemp(prefix="bedrockjobs-peer-", dir=self._parent))
        try:
            if self.user is not None:
                shutil.chown(self.folder, self.user)
            self.prepare()
            self.port = free_port()
            with (self.folder / "log").open("w") as log:
                self._process = subprocess.Popen(
                    self.command(), stdout=log, stderr=log, text=True, cwd=self.folder, user=self.user
                )
        except BaseException:
            shutil.rmtree(self.folder)
            raise
        try:
            self._wait()
            self.serve()
        except BaseException:
            self._end()
            raise
        return self

    def _wait(self) -> None:
        end = time.perf_counter() + START_S
        while not self.listening():
            if self._process.poll() is not None or time.perf_counter() > end:
                raise RuntimeError(f"{self.command()[0]} did not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and remove its data."""
        self._end()

    def _end(self) -> None:
        stop(self._process, self.stop_signal)
        shutil.rmtree(self.folder)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid


class RedisServer(Server):
    """Redis that syncs its log before it answers; no snapshots, and no rewriting within a run."""

    def __init__(self, directory: Path) -> None:
        """Find it."""
        super().__init__(directory)
        self._program = program("redis-server", "redis-server")
        self.version = f"Redis {version_of(self._program, '--version')}"

    def command(self) -> list[str]:
        """Return what starts it."""
        command = [self._program, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [*command, "--auto-aof-rewrite-min-size", "4gb", "--loglevel", "warning"]


class BeanstalkdServer(Server):
    """Beanstalkd that syncs its log before it answers."""

    def __init__(self, directory: Path) -> None:
        """Find it."""
        super().__init__(directory)
        self._program = program("beanstalkd", "beanstalkd")
        self.version = f"beanstalkd {version_of(self._program, '-v')}"

    def command(self) -> list[str]:
        """Return what starts it."""
        return [self._program, "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.folder), "-f", "0"]


class BareServer(Server):
    """A queue in Python that does the least: see ``peer_bare.py``."""

    def __init__(self, directory: Path) -> None:
        """Name it."""
        super().__init__(directory)
        self.version = f"uvloop {version('uvloop')}, SQLite {sqlite3.sqlite_version}"

    def command(self) -> list[str]:
        """Return what starts it."""
        script = str(Path(__file__).with_name("peer_bare.py"))
        return [sys.executable, script, str(self.folder / "jobs.db"), "--port", str(self.port)]


class PostgresServer(Server):
    """PostgreSQL that syncs each commit, and makes no checkpoint within a run."""

    stop_signal = signal.SIGINT  # ends its sessions too
    connections = 100
    """How many it takes."""

    def __init__(self, directory: Path) -> None:
        """Find it; it refuses to run as root, then it runs as the user of its package."""
        super().__init__(directory)
        installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=self._major)
        self._program = Path(program("postgres", "postgresql", *reversed(installed))).resolve()
        self.user = "postgres" if os.geteuid() == 0 else None
        self.version = f"PostgreSQL {version_of(str(self._program), '--version')}"

    @property
    def url(self) -> str:
        """Return the URL of its database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @staticmethod
    def _major(path: Path) -> int:
        return int(path.parts[-3])

    def prepare(self) -> None:
        """Make a database."""
        command = [str(self._program.with_name("initdb")), "-D", "data", "-U", "postgres", "-A", "trust"]
        subprocess.run(
            [*command, "-E", "UTF8", "--locale", "C"],
            cwd=self.folder,
            user=self.user,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def command(self) -> list[str]:
        """Return what starts it."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "fsync": "on",
            "synchronous_commit": "on",
            "shared_buffers": "256MB",
            "max_wal_size": "4GB",
            "checkpoint_timeout": "30min",
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "max_connections": str(self.connections),
            "jit": "off",
        }
        given = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._program), "-D", "data", "-p", str(self.port), *given]

    def listening(self) -> bool:
        """Return whether it takes sessions."""
        asked = [str(self._program.with_name("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0


class PgqueuerServer(PostgresServer):
    """PostgreSQL with the tables of pgqueuer."""

    def __init__(self, directory: Path) -> None:
        """Find both."""
        super().__init__(directory)
        if not all(map(importlib.util.find_spec, ("pgqueuer", "asyncpg"))):
            raise Missing("pgqueuer is not installed (beside the project: pip install pgqueuer asyncpg)")
        self.version = f"pgqueuer {version('pgqueuer')}, {self.version}"

    def serve(self) -> None:
        """Make pgqueuer's tables."""
        import peer_pgqueuer  # only now: it needs what may not be installed

        asyncio.run(peer_pgqueuer.prepare(self.port))
