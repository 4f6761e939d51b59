"""One server: wired up, started, drained and stopped."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any

from bedrockjobs import pages as browser
from bedrockjobs import systemd
from bedrockjobs.base.clock import Clock, StandingClock, SystemClock
from bedrockjobs.base.config import STOP_MORE_S, TURN_S
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe import logs, telemetry
from bedrockjobs.observe import prometheus as metrics
from bedrockjobs.observe.measurements import Measurements
from bedrockjobs.observe.stalls import LoopWatch
from bedrockjobs.observe.stats import Stats
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.listener import Listener, is_loopback
from bedrockjobs.protocol.memory import keep_large_apart
from bedrockjobs.service import VERSION, Service
from bedrockjobs.store import inspection
from bedrockjobs.store.faults import StoreDamaged
from bedrockjobs.store.file_watch import FileGone
from bedrockjobs.store.guarded import is_damage
from bedrockjobs.store.lock import DatabaseLock, Lost, Owned
from bedrockjobs.store.plain_file import PlantedFile
from bedrockjobs.store.reader import SQLiteReader
from bedrockjobs.store.schema import SchemaError
from bedrockjobs.store.sqlite import SQLiteEngine
from bedrockjobs.views import Views

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILURE, EXIT_USAGE, EXIT_OWNED, EXIT_DISK = 0, 1, 2, 69, 74

STANDBY_LOOK_S = 0.2
"""Time between two tries of a standby to take the database over."""

COLLECT_AFTER = (50_000, 20, 50)
"""Thresholds of the garbage collector: requests make few cycles, and many objects that live briefly."""

CHECK_S_MAX = 3_600
"""Time that systemd is asked for while a database is checked: enough for a terabyte on a good disk."""

FILES_KEPT = 64
"""File descriptors that are not connections: the database, the log, the listening sockets."""


class StartError(RuntimeError):
    """The server cannot start; the message is a sentence for whoever started it."""

    def __init__(self, message: str, status: int) -> None:
        """Hold the sentence and the exit status that goes with it."""
        super().__init__(message)
        self.status = status


class Server:
    """A server of one database, within a running event loop."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, lease_clock: Clock | None = None
    ) -> None:
        """Prepare a server; the clocks are the machine's unless a test brings its own."""
        self.settings = settings
        system = SystemClock()
        self.clock = clock or (StandingClock(system.now()) if settings.test_clock else system)
        self._lease_clock = lease_clock or system
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Gets the error when the disk no longer keeps what it promised: the server must end."""
        self._lock: DatabaseLock | None = None
        self._sockets: list[socket.socket] = []
        """Sockets that systemd opened for the server; it then opens none."""
        self._stopped = False

    async def start(self) -> None:
        """Own the database and listen; raises StartError."""
        settings = self.settings
        try:
            self._sockets = systemd.listening()
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        hosts = [each.getsockname()[0] for each in self._sockets] or [settings.host]
        reached = next((host for host in hosts if not is_loopback(host)), None)
        if reached is not None and not settings.insecure:
            raise StartError(
                f"host: {reached} can be reached from other machines, and nobody has to log in."
                " Use 127.0.0.1, or type --insecure if the network is yours.",
                EXIT_USAGE,
            )
        path = self._path()
        self._lock = DatabaseLock(path, accept_loss=settings.accept_loss)
        await self._own(self._lock)
        try:
            await self._check(path)
            await self._open(path)
        except (sqlite3.Error, SchemaError) as error:
            self._lock.release()
            if is_damage(error):
                raise StartError(_damaged(path, str(error)), EXIT_DISK) from None
            raise StartError(f"database: {path}: {error}", EXIT_FAILURE) from None
        except BaseException:
            self._lock.release()
            raise

    async def _check(self, path: Path) -> None:
        """Look for damage where the server before this one did not end as it should; raises StartError."""
        if not inspection.ended_uncleanly(path):
            return
        systemd.notify("STATUS=checking the database", f"EXTEND_TIMEOUT_USEC={CHECK_S_MAX * 1_000_000}")
        begun = self._lease_clock.monotonic()
        faults = await asyncio.to_thread(inspection.faults_of, path, whole=False)
        if faults:
            raise StartError(_damaged(path, "; ".join(faults)), EXIT_DISK)
        took_s = self._lease_clock.monotonic() - begun
        log.info("the server before this one did not stop; the database was checked in %.1f s", took_s)

    def _path(self) -> Path:
        try:
            path = self.settings.database_path().resolve()
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        folder = path.parent
        if not folder.is_dir():
            raise StartError(f"database: there is no folder {folder}", EXIT_USAGE)
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise StartError(f"database: everybody may write to the folder {folder}", EXIT_USAGE)
        return path

    async def _own(self, lock: DatabaseLock) -> None:
        told = False
        while True:
            try:
                lock.acquire()
            except Owned as error:
                if not self.settings.standby:
                    raise StartError(f"{error} --standby would wait for it.", EXIT_OWNED) from None
                if not told:
                    log.info("%s Standing by.", error)
                    systemd.notify("READY=1", "STATUS=standing by")
                    told = True
                await asyncio.sleep(STANDBY_LOOK_S)
            except Lost as error:
                raise StartError(str(error), EXIT_DISK) from None
            except (OSError, PlantedFile) as error:
                raise StartError(f"database: {error}", EXIT_FAILURE) from None
            else:
                return

    async def _open(self, path: Path) -> None:
        try:
            self._engine = SQLiteEngine(path, self.settings, self.clock)
        except PlantedFile as error:
            raise StartError(f"database: {error}", EXIT_FAILURE) from None
        self._describe("which is starting")  # before anything is acknowledged
        self._reader = SQLiteReader(path, self.settings, self._fail)
        notifier, workers = Notifier(), WorkerRegistry(self.clock, self._lease_clock)
        stats, measurements = Stats(), Measurements()
        listeners = Listeners([workers, stats, measurements, notifier])
        self.dispatcher = Dispatcher(
            self._engine,
            self.clock,
            self.settings,
            self._fail,
            workers=workers,
            minutes=stats,
            listeners=listeners,
            on_commit=measurements.committed,
        )
        views = Views(self._reader, notifier, workers, stats, self.clock, self.settings)
        self.service = Service(self.dispatcher, views, workers, notifier, self.clock, self.settings)
        service = self.service
        look = metrics.Metrics(
            self._reader,
            views,
            self.dispatcher,
            workers,
            measurements,
            stats.since_start,
            self.settings,
        )
        watched = metrics.routes(look, lambda: service.connections)
        self._connections = Connections(service, SystemClock(), self.settings)
        self._listener = Listener(
            self._connections,
            self.settings,
            more=[*watched, *browser.routes(self.service, self.settings)],
            sockets=self._sockets,
        )
        self._telemetry = telemetry.connect(VERSION)
        if self._telemetry is not None:
            listeners.add(self._telemetry)
        await self._reader.open()
        self.dispatcher.start()
        self._loop_watch = LoopWatch(measurements)
        try:
            await self._listener.open()
        except OSError as error:
            await self.dispatcher.drain()
            await self._reader.close()
            self._engine.close()
            raise StartError(f"cannot listen: {error}", EXIT_FAILURE) from None
        self._loop_watch.start()
        self._describe(f"on {self.where()}")

    def _describe(self, words: str) -> None:
        assert self._lock is not None
        self._lock.describe(f"the server with pid {os.getpid()} {words}")

    def _fail(self, error: Exception) -> None:
        self.dispatcher.health.failed(error)
        if not self.failed.done():
            self.failed.set_result(error)

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self._listener.addresses[0][1]

    def where(self) -> str:
        """Return the addresses it listens on, as a person reads them."""
        addresses = self._listener.addresses
        places = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]
        if self.settings.unix:
            places.append(f"unix:{Path(self.settings.unix).absolute()}")
        return " and ".join(places)

    async def abandon(self) -> None:
        """Let go of the reader, whose thread would keep a process alive that has to end."""
        self._loop_watch.stop()
        await self._reader.close()

    async def stop(self) -> None:
        """Drain: answer who waits, finish what was begun, close the connections, close the file; once."""
        if self._stopped:
            return
        self._stopped = True
        self._listener.stop_accepting()
        self._reader.queries.refuse()
        await self.service.drain()
        await self._reader.queries.close()
        await self._connections.close()
        await self._listener.close()
        await self._reader.close()
        self._engine.close()
        self._loop_watch.stop()
        assert self._lock is not None
        self._lock.release()
        if self._telemetry is not None:
            await self._telemetry.close()


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status."""
    logs.configure(settings.log_format)
    logging.captureWarnings(True)
    os.umask(0o077)
    _raise_file_limit(settings.connections_max + FILES_KEPT)
    keep_large_apart()
    try:
        import uvloop
    except ImportError:
        runner = asyncio.Runner()
    else:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    try:
        with runner:
            return runner.run(_serve(settings))
    except StartError as error:
        if settings.log_format == "json":
            log.critical("%s", error)
        else:
            print(f"bedrockjobs: {error}", file=sys.stderr)
        return error.status
    except Exception:  # it must be told like any other end
        log.critical("the server ended by an error that nobody expected", exc_info=True)
        return EXIT_FAILURE
    finally:
        faulthandler.cancel_dump_traceback_later()


def _tame_collector() -> None:
    """Let the garbage collector look less often, and not at what lives as long as the server."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


async def _serve(settings: Settings) -> int:
    server = Server(settings)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    stop = asyncio.ensure_future(stopped.wait())
    watchdog = systemd.Watchdog()
    start = asyncio.ensure_future(server.start())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not start.done():  # a standby that is told to go, or a check that takes long
        faulthandler.dump_traceback_later(STOP_MORE_S, exit=True)
        start.cancel()
        await asyncio.wait({start}, timeout=STOP_MORE_S)
        logging.shutdown()
        os._exit(EXIT_OK)  # nobody was answered yet; threads that were begun would keep the process alive
    start.result()
    _tame_collector()
    sys.setswitchinterval(TURN_S)
    words = (
        f"bedrockjobs {VERSION} listens on {server.where()}, database {settings.database},"
        f" durability {settings.durability}"
    )
    print(logs.sentence(settings.log_format, __name__, words), flush=True)
    systemd.notify("READY=1", f"STATUS=listening on {server.where()}")
    ends: list[asyncio.Future[Any]] = [stop, server.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # Whatever holds the stop up: the process ends, and tells where each of its threads was.
    faulthandler.dump_traceback_later(settings.drain_s + STOP_MORE_S, exit=True)
    if server.failed.done():
        error = server.failed.result()
        if isinstance(error, StoreDamaged):
            log.critical("%s", _damaged(settings.database_path(), str(error)))
        else:
            why = "its file is gone" if isinstance(error, FileGone) else "the disk failed"
            log.critical("%s, the server ends: %s", why, error)
        await server.abandon()
        logging.shutdown()
        os._exit(EXIT_DISK)  # nothing more is written: closing the database would copy its log into it
    log.info("stopping")
    systemd.notify("STOPPING=1")
    await server.stop()
    watchdog.stop()
    return EXIT_OK


def _damaged(path: Path, words: str) -> str:
    """Return what to do about a damaged database."""
    return (
        f"database: {path} is damaged, and nothing is served from it: {words}. Restore a backup, or save"
        f" what can be read: `sqlite3 {path} .recover | sqlite3 new.db`. `bedrockjobs doctor --scrub`"
        " tells more."
    )


def _raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
