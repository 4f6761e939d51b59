"""The server process: wires up all parts, starts, reloads, drains and stops."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import dateutil.parser  # noqa: F401 - otherwise the first request with an unusual date waits for this import

from bedrockjobs import pages as browser
from bedrockjobs import systemd
from bedrockjobs.base.clock import Clock, SystemClock
from bedrockjobs.base.config import STOP_MORE_S, TURN_S
from bedrockjobs.base.errors import Unavailable
from bedrockjobs.base.programs import runner
from bedrockjobs.base.settings import CERTIFICATES, RELOADABLE, Settings, apply_reloaded, different
from bedrockjobs.databases import EXIT_DISK, EXIT_FAILURE, EXIT_OK, EXIT_USAGE, StartError, database_of
from bedrockjobs.engine.access import Access
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners, Notifier
from bedrockjobs.engine.handlers.access import LOGINS_PER_TOKEN_MAX, TOKEN_ROWS_MAX
from bedrockjobs.engine.own_commands import OutputCompactor
from bedrockjobs.job.rows import LoginRow, TokenRow
from bedrockjobs.observe import logs, telemetry
from bedrockjobs.observe import prometheus as metrics
from bedrockjobs.observe.stats import LoopWatch, Measurements, Stats
from bedrockjobs.observe.telemetry import HeartbeatURL
from bedrockjobs.protocol.authentication import Proxies, caller_of
from bedrockjobs.protocol.connections import Connections, keep_large_apart
from bedrockjobs.protocol.listener import Listener, is_loopback
from bedrockjobs.service import VERSION, Service, WaitingService
from bedrockjobs.store.base import StoreError
from bedrockjobs.tls import BadCertificate, chosen_context
from bedrockjobs.views import Views
from bedrockjobs.views.overview import DepthSampler

log = logging.getLogger(__name__)

COLLECT_AFTER = (2_500, 2, 10_000)
"""Thresholds of Python's garbage collector for its three generations. Requests create few cycles but many
short-lived objects. The first threshold limits how long the collection of the youngest objects stops the
event loop. The second is low so that containers grow old while they are small: a dict that grows to a million
names is then examined only once or twice as a young object. The third makes collections of old objects rare
in return."""


class WaitingFront:
    """Listens while a starting server waits for its database; commands are refused as in an outage."""

    def __init__(
        self, clock: Clock, settings: Settings, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None
    ) -> None:
        """Prepare to listen on duplicates of ``sockets``, or at the settings' address if there are none."""
        # It only refuses, so checks of the caller, and settings for them, are not needed.
        self._settings = settings.model_copy(
            update={"insecure": True, "trusted_proxies": "", "proxy_user_header": ""}
        )
        self._sockets, self._tls = sockets, tls
        self._service = WaitingService(clock, settings)
        self._connections = Connections(self._service, SystemClock(), self._settings)
        self._listener: Listener | None = None

    async def refuse(self, sentence: str, error: StoreError | Unavailable) -> None:
        """Refuse commands because of ``error`` from now on; raises StartError if it cannot listen."""
        self._service.refuse(f"waiting for the database: {sentence}", error)
        if self._listener is None:
            self._listener = Listener(
                self._connections,
                self._settings,
                sockets=[each.dup() for each in self._sockets],
                tls=self._tls,
            )
            try:
                await self._listener.listen()
            except OSError as unavailable:
                raise _cannot_listen(unavailable) from None
            addresses = " and ".join(f"{host}:{port}" for host, port in self._listener.addresses)
            log.info("commands that reach %s meanwhile are refused", addresses)

    def hand_over(self) -> list[socket.socket]:
        """Stop accepting connections; return the TCP sockets, which keep listening; empty without any."""
        return [] if self._listener is None else self._listener.hand_over()

    async def close(self) -> None:
        """Close all connections and sockets."""
        if self._listener is not None:
            self._listener.stop_accepting()
            await self._connections.close()
            await self._listener.close()


def _cannot_listen(error: OSError) -> StartError:
    return StartError(f"cannot listen: {error.strerror or error}", EXIT_FAILURE)


class Server:
    """A server on one database, in a running event loop."""

    def __init__(
        self, settings: Settings, clock: Clock | None = None, lease_clock: Clock | None = None
    ) -> None:
        """Prepare a server; without ``clock`` or ``lease_clock``, the machine's clocks are used."""
        self.settings = settings
        self._database = database_of(settings, clock, lease_clock)
        self.clock = self._database.clock
        self.failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        """Gets an error as its result when data can no longer be written safely; the process must then
        end."""
        self._sockets: list[socket.socket] = []
        """Sockets passed by systemd. If there are any, the server opens no TCP socket itself."""
        self._stopped = False
        self._is_wired = False
        self._tls: ssl.SSLContext | None = None
        self._heartbeat: HeartbeatURL | None = None
        self.reloads = Reloads()
        """The parts that are reloaded on SIGHUP."""

    async def start(self) -> None:
        """Open the database and listen; raises StartError."""
        settings = self.settings
        try:
            self._sockets = systemd.listening()
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        hosts = [each.getsockname()[0] for each in self._sockets] or [settings.host]
        reached = next((host for host in hosts if not is_loopback(host)), None)
        try:
            proxies = Proxies(
                settings.trusted_proxies, settings.proxy_user_header, behind=settings.behind_proxy
            )
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        self._reachable = reached is not None or proxies.any
        if reached is not None and not (settings.insecure or settings.behind_proxy or settings.tls_cert):
            raise StartError(
                f"host: {reached} can be reached from other machines, and connections would not be"
                " encrypted. Use 127.0.0.1, or --tls-cert, or a proxy in front that terminates TLS and"
                " --behind-proxy, or --insecure if you trust the network.",
                EXIT_USAGE,
            )
        try:
            self._tls = _tls_context(settings)
        except BadCertificate as error:
            raise StartError(str(error), EXIT_USAGE) from None
        self._front = WaitingFront(self.clock, settings, self._sockets, self._tls)
        self._database.on_wait = self._front.refuse
        try:
            await self._open()
        finally:
            await self._front.close()

    async def take(self, reloaded: Settings) -> None:
        """Apply those reloaded settings that need no restart, and log all differences.

        Raises BadCertificate; then nothing has changed.
        """
        certified = self._tls is not None and bool(reloaded.tls_cert)
        if certified and different(self.settings, reloaded, CERTIFICATES):
            self._tls = _tls_context(reloaded)  # raises before anything changes
        difference = apply_reloaded(
            self.settings, reloaded, RELOADABLE | (CERTIFICATES if certified else set())
        )
        log.info("settings: %s", difference)
        if not self._is_wired:  # a standby applies them when it starts serving
            return
        if self._tls is not None:
            self._listener.renew_tls(self._tls)
        if "connections_max" in difference.taken:
            _raise_file_limit(self.settings.connections_max)
        if "heartbeat_url" in difference.taken:
            await self._begin_heartbeat()
        self.service.renew_messages()

    async def _begin_heartbeat(self) -> None:
        """Stop the heartbeat, if one is running, and start one with the current settings."""
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        url = self.settings.heartbeat_url
        self._heartbeat = HeartbeatURL(url, self._is_healthy) if url else None
        if self._heartbeat is not None:
            self._heartbeat.start()

    def _renew_tls(self) -> None:
        self._tls = context = _tls_context(self.settings)
        assert context is not None
        self._listener.renew_tls(context)

    async def _open(self) -> None:
        opened = await self._database.open_database(self._fail)
        self._engine, self._reader = opened
        workers, notifier = self._database.workers, Notifier()
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
        self.depths = DepthSampler(views.queues, stats)
        move_clock = self._database.move_clock
        self._access = Access(self.clock, self.settings, reachable=self._reachable)
        self._access.run_of_token = workers.run_of_token
        listeners.add(self._access)
        self.service = Service(
            self.dispatcher, views, workers, notifier, self.clock, self.settings, move_clock, self._access
        )
        service, self._is_wired = self.service, True
        listeners.add(service.messenger)
        metrics_view = metrics.Metrics(
            self._reader, views, self.dispatcher, workers, measurements, stats.since_start, self.settings
        )
        watched = metrics.routes(
            metrics_view,
            lambda: service.connections,
            lambda request: caller_of(request, service.access).scope,
        )
        self._connections = Connections(service, SystemClock(), self.settings)
        self._listener = Listener(
            self._connections,
            self.settings,
            more=[*watched, *browser.routes(self.service, self.settings)],
            sockets=self._sockets,
            tls=self._tls,
        )
        self._packer = OutputCompactor(self.dispatcher.submit)
        listeners.add(self._packer)
        if self._tls is not None:
            self.reloads.add("certificates", self._renew_tls)
        self._telemetry = telemetry.connect(VERSION)
        if self._telemetry is not None:
            listeners.add(self._telemetry)
        await self._reader.open()
        try:
            await self._database.when_there(self._load_secrets)
            await self._database.join(self.dispatcher, notifier, listeners, VERSION)
        except StartError:
            await self._close()
            raise
        self.dispatcher.start()
        self._loop_watch = LoopWatch(measurements)
        try:
            await self._listener.listen(self._front.hand_over())
        except OSError as error:
            await self._database.leave_cluster()
            await self.dispatcher.drain()
            await self.dispatcher.end()
            await self._close()
            raise _cannot_listen(error) from None
        self._loop_watch.start()
        self.depths.start()
        await self._begin_heartbeat()
        self.service.messenger.start()
        self._database.serves_at(self.where())

    def _is_healthy(self) -> bool:
        """Return whether to call the heartbeat URL: commands are accepted and the queue is not on hold."""
        return not (self.service.problem or self.service.hold)

    async def _load_secrets(self) -> None:
        """Load tokens, logins and the key that signs run tokens, before connections are accepted."""
        for (key,) in (await self._reader.view("run_key", {}, 1)).rows:
            self._database.workers.set_run_key(key)
        tokens = await self._reader.view("tokens", {"after": ""}, TOKEN_ROWS_MAX)
        logins = await self._reader.view("logins", {}, TOKEN_ROWS_MAX * LOGINS_PER_TOKEN_MAX)
        self._access.set_initial(
            tuple(TokenRow._make(row) for row in tokens.rows),
            tuple(LoginRow._make(row) for row in logins.rows),
        )

    async def _close(self) -> None:
        await self._packer.close()
        await self._reader.close()
        self._engine.close()
        self._database.release()

    def _fail(self, error: Exception) -> None:
        self.dispatcher.health.failed(error)
        if not self.failed.done():
            self.failed.set_result(error)

    @property
    def port(self) -> int:
        """Return the TCP port of the server."""
        return self._listener.addresses[0][1]

    def where(self) -> str:
        """Return the addresses that the server listens on, as text for people."""
        addresses = self._listener.addresses
        places = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses]
        if self.settings.unix:
            places.append(f"unix:{Path(self.settings.unix).absolute()}")
        return " and ".join(places)

    def why_failed(self, error: Exception) -> str:
        """Return a message about the failure that ends the server."""
        return self._database.why_failed(error)

    async def abandon(self) -> None:
        """Close only the reader, whose thread would keep the process alive; the database is not closed."""
        self._loop_watch.stop()
        await self._reader.close()

    async def stop(self) -> None:
        """Shut down; a second call does nothing.

        Waiters are answered and commands in progress finish, before the connections and the database are
        closed.
        """
        if self._stopped:
            return
        self._stopped = True
        await self.depths.stop()
        if self._heartbeat is not None:
            await self._heartbeat.stop()
        self._listener.stop_accepting()
        self._reader.queries.refuse()
        await self._database.leave_cluster()
        await self.service.drain()
        await self._reader.queries.cancel_all()
        await self._connections.close(at_once=self.dispatcher.cut_off)
        await self._listener.close()
        await self.dispatcher.end()
        await self._close()
        self._loop_watch.stop()
        if self._telemetry is not None:
            await self._telemetry.close()


def _tls_context(settings: Settings) -> ssl.SSLContext | None:
    return chosen_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def run_server(settings: Settings, read_again: Callable[[], Settings] | None = None) -> int:
    """Run a server until SIGTERM or SIGINT; return the exit status.

    On SIGHUP, ``read_again`` is called to read the settings; it raises ValueError if they are invalid.
    """
    logs.configure(settings.log_format)
    logging.captureWarnings(True)
    os.umask(0o077)
    _raise_file_limit(settings.connections_max)
    keep_large_apart()
    try:
        with runner() as running:
            return running.run(_serve(settings, read_again))
    except StartError as error:
        if settings.log_format == "json":
            log.critical("%s", error)
        else:
            print(f"bedrockjobs: {error}", file=sys.stderr)
        return error.status
    except Exception:  # log it like any other failure
        log.critical("the server stopped because of an unexpected error", exc_info=True)
        return EXIT_FAILURE
    finally:
        faulthandler.cancel_dump_traceback_later()


def _tune_collector() -> None:
    """Run the garbage collector less often, and leave the objects of the start out of its collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


async def _serve(settings: Settings, read_again: Callable[[], Settings] | None) -> int:
    server = Server(settings)
    if read_again is not None:
        server.reloads.add("settings", lambda: server.take(read_again()))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, server.reloads.start)
    stop = asyncio.ensure_future(stopped.wait())
    watchdog = systemd.SystemdWatchdog()
    start = asyncio.ensure_future(server.start())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not start.done():  # a waiting standby, or a long check of the database
        faulthandler.dump_traceback_later(STOP_MORE_S, exit=True)
        start.cancel()
        await asyncio.wait({start}, timeout=STOP_MORE_S)
        logging.shutdown()
        os._exit(EXIT_OK)  # no client was served yet, and threads would keep the process alive
    start.result()
    _tune_collector()
    sys.setswitchinterval(TURN_S)
    with_tls = " with TLS" if settings.tls_cert else ""
    text = (
        f"bedrockjobs {VERSION} listens on {server.where()}{with_tls}, database {settings.shown_database},"
        f" durability {settings.durability}"
    )
    with suppress(OSError):  # stdout may be full or closed, which must not stop the server
        print(logs.sentence(settings.log_format, __name__, text), flush=True)
    systemd.notify("READY=1", f"STATUS=listening on {server.where()}")
    ends: list[asyncio.Future[Any]] = [stop, server.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # If the shutdown hangs, the process ends and dumps the stacks of its threads.
    faulthandler.dump_traceback_later(settings.drain_s + STOP_MORE_S, exit=True)
    if server.failed.done():
        log.critical("%s", server.why_failed(server.failed.result()))
        await server.abandon()
        logging.shutdown()
        os._exit(EXIT_DISK)  # nothing is written from here on: closing the database would checkpoint its WAL
    log.info("stopping")
    systemd.notify("STOPPING=1")
    await server.stop()
    watchdog.stop()
    return EXIT_OK


def _raise_file_limit(connections: int) -> None:
    """Allow as many open files as connections, and 64 for the database, the log and listening sockets."""
    wanted = connections + 64
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


# Reloading of files on SIGHUP: settings and certificates.
#
# Each reloadable part has a name and a function. The function applies all of the new contents, or nothing.


Read = Callable[[], Awaitable[None] | None]
"""Function that reads a file and applies it; if it raises ValueError or OSError, it has changed nothing."""


class Reloads:
    """The reloadable parts of one server."""

    def __init__(self) -> None:
        self._parts: dict[str, Read] = {}
        self._one_by_one = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, name: str, read: Read) -> None:
        """Register a part; ``name`` is its name in the log, such as ``certificates``."""
        self._parts[name] = read

    def start(self) -> None:
        """Start reloading all parts in the background."""
        task = asyncio.get_running_loop().create_task(self.run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def run(self) -> None:
        """Reload all parts and log each result; if one fails, the others are still reloaded."""
        async with self._one_by_one:
            if not self._parts:
                log.info("reload requested, but no files are configured")
            for name, read in self._parts.items():
                try:
                    pending = read()
                    if pending is not None:
                        await pending
                except (ValueError, OSError) as error:
                    log.error("%s not reloaded, the previous ones stay in use: %s", name, error)  # noqa: TRY400  without a stack
                except Exception:  # a bug must not end the server
                    log.exception("%s not reloaded, the previous ones stay in use", name)
                else:
                    log.info("%s reloaded", name)
