"""Listening sockets: TCP on one port for both protocols, and a unix socket."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from bedrockjobs.base.principal import net_of
from bedrockjobs.base.settings import Settings
from bedrockjobs.protocol.connection import RawConnection, TLSSniffer
from bedrockjobs.protocol.connections import LOOPBACK, Connections, FairQueue
from bedrockjobs.protocol.http import HTTPFront
from bedrockjobs.protocol.http_connection import AiohttpProtocol, HTTPConnection

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE_MAX = 1_000
"""Maximum number of connections accepted in one iteration of the event loop, which takes 20 ms. With a lower
limit, a flood could arrive faster than a busy machine accepts it; the kernel's queue would overflow, and new
clients would only retry after seconds."""

ARRIVALS_MAX = 1_000
"""Maximum number of accepted connections that wait to be served. One more connection closes the newest one of
the network that has the most."""

_OWN = frozenset(map(net_of, LOOPBACK))
"""The addresses of this machine, as keys of ``Arrivals``."""

AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER value that closes a socket with a reset and leaves no TIME_WAIT."""

KEEPALIVE = (("TCP_KEEPIDLE", 45), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""TCP keepalive: a dead peer is detected after 75 s. An idle raw connection has no other deadline."""


class Arrivals(FairQueue[socket.socket]):
    """Accepted connections that wait to be served."""

    @property
    def full(self) -> bool:
        """Return whether connections from this machine alone fill the queue, so that accepting has to pause.

        Connections from this machine have no limit on their rate. A flood from another address never pauses
        accepting, since a pause would delay every client behind the flood in the kernel's queue.
        """
        return self._count >= ARRIVALS_MAX and len(self._of) == 1 and next(iter(self._of)) in _OWN

    def add(self, place: str, accepted: socket.socket) -> socket.socket | None:
        """Add a connection of a network; if too many wait then, return the connection to close."""
        self.put(place, accepted)
        if self._count <= ARRIVALS_MAX:
            return None
        most = max(self._of.values(), key=len)
        self._count -= 1
        return most.pop()


class Listener:
    """The listening sockets of one server."""

    def __init__(
        self,
        connections: Connections,
        settings: Settings,
        *,
        more: Sequence[web.RouteDef] = (),
        sockets: Sequence[socket.socket] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Configure listening on ``sockets`` if given, otherwise at the address in ``settings``.

        ``more`` are additional HTTP routes. With ``tls``, connections from other machines must use TLS, and
        connections from this machine may.
        """
        self._sniffer = None if tls is None else TLSSniffer(tls, connections)
        self._more = more
        self._sockets = sockets
        self._unix: tuple[Path, int] | None = None
        self._connections = connections
        self._settings = settings
        self._servers: list[asyncio.Server] = []
        self._accepting: list[socket.socket] = []
        self._full = False
        """Whether the last failure to accept was logged."""
        self._arrivals = Arrivals()
        self._begins = False
        """Whether ``_begin_some`` runs in the next iteration of the event loop."""
        self._begun: set[asyncio.Task[object]] = set()
        """Tasks that create the transports of accepted connections."""
        self._runner: web.AppRunner | None = None
        self.addresses: list[tuple[str, int]] = []
        """Host and port of each TCP socket."""

    async def listen(self, handed_over: Sequence[socket.socket] = ()) -> None:
        """Start listening, on the sockets that another listener has handed over, if there are any.

        Raises OSError if an address is not available.
        """
        settings = self._settings
        self._sockets = handed_over or self._sockets
        hosts = [each.getsockname()[0] for each in self._sockets] or [settings.host]
        front = HTTPFront(
            self._connections.service,
            settings,
            local_only=all(map(is_loopback, hosts)),
            root_path=settings.root_path,
            more=self._more,
            memory=self._connections.memory,
        )
        self._plain = front.plain
        self._runner = web.AppRunner(
            front.application(), handle_signals=False, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        if settings.unix:
            await self._listen_unix(Path(settings.unix))
        for listening in self._sockets:
            await self._listen(listening)
        if self._sockets:
            return
        await self._listen(settings.host, settings.port)
        if settings.host == "127.0.0.1":
            try:
                await self._listen("::1", self.addresses[0][1])
            except OSError as error:
                log.info("not listening on ::1: %s", error)

    async def _listen(self, where: str | socket.socket, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(where, str):
            try:
                server = await loop.create_server(self._connect, where, port, start_serving=False)
            except OSError as error:
                reason = IN_WORDS.get(error.errno or 0, error.strerror)
                raise OSError(error.errno, f"{where}, port {port}: {reason}") from None
        else:
            server = await loop.create_server(self._connect, sock=where, start_serving=False)
        self._servers.append(server)
        for listening in map(self._serve, server.sockets):  # accepted sockets inherit these options
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                if hasattr(socket, name):
                    listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            self.addresses.append(listening.getsockname()[:2])

    async def _listen_unix(self, path: Path) -> None:
        listening, inode = _bound(path)
        self._unix = (path, inode)
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(self._connect, sock=listening, start_serving=False)
        self._servers.append(server)
        for each in server.sockets:
            self._serve(each)

    def _serve(self, bound: socket.socket) -> socket.socket:
        """Listen on a bound socket and accept its connections; return a duplicate that the listener owns.

        The event loop's own server is not used because uvloop accepts only one connection per iteration, so
        under load a new client would wait for one iteration per client before it.
        """
        listening = socket.socket(fileno=os.dup(bound.fileno()))
        listening.setblocking(False)
        try:
            # Backlog of connections not yet accepted: after a restart all clients reconnect at once.
            listening.listen(4_096)
        except OSError as error:
            listening.close()
            where = ", port ".join(map(str, bound.getsockname()[:2]))
            raise OSError(error.errno, f"{where}: {IN_WORDS.get(error.errno or 0, error.strerror)}") from None
        self._accepting.append(listening)
        asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)
        return listening

    def _accept(self, listening: socket.socket) -> None:
        """Accept pending connections, up to ``ACCEPTED_AT_ONCE_MAX``."""
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            if self._arrivals.full:
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                self._full = False
                return
            except ConnectionError:  # the client is already gone
                continue
            except OSError as error:  # out of file descriptors or memory
                if not self._full:
                    log.warning("no connection can be accepted: %s", error.strerror)
                self._full = True
                loop.remove_reader(listening.fileno())
                # Delay before accepting again when the process is out of file descriptors or memory.
                loop.call_later(0.1, self._accept_again, listening)
                return
            place = address[0] if isinstance(address, tuple) else ""
            if not self._connections.arrives(place):
                _reset(accepted)
                continue
            accepted.setblocking(False)
            if (surplus := self._arrivals.add(net_of(place), accepted)) is not None:
                _reset(surplus)
            if not self._begins:
                self._begins = True
                loop.call_soon(self._begin_some)

    def _begin_some(self, most: int = 20) -> None:
        """Serve the next accepted connections, at most ``most``; later iterations serve the others.

        With their first requests, twenty connections take 5 to 10 ms.
        """
        loop = asyncio.get_running_loop()
        for accepted in self._arrivals.some(most):
            begun = loop.create_task(self._create_transport(accepted))
            self._begun.add(begun)
            begun.add_done_callback(self._begun.discard)
        self._begins = bool(self._arrivals)
        if self._begins:
            loop.call_soon(self._begin_some)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._accepting:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    async def _create_transport(self, accepted: socket.socket) -> None:
        """Create the transport of an accepted connection."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._connect, accepted)
        except OSError:  # the client is already gone
            accepted.close()

    def _connect(self) -> RawConnection:
        return RawConnection(self._connections, self._http, self._sniffer)

    def renew_tls(self, context: ssl.SSLContext) -> None:
        """Use another TLS context for new connections; open connections keep their context."""
        assert self._sniffer is not None
        self._sniffer.context = context

    def _http(self) -> HTTPConnection:
        return HTTPConnection(self._connections, self._plain, self._aiohttp)

    def _aiohttp(self) -> AiohttpProtocol:
        assert self._runner is not None
        server = self._runner.server
        assert server is not None
        limit = self._settings.head_bytes_max
        options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": 1e8,  # aiohttp does not see plain requests; ``idle_http_s`` replaces it
            "lingering_time": 1.0,  # how long a client may continue to send a refused body
            "auto_decompress": False,
            "max_headers": self._settings.headers_max,
            "max_line_size": limit,
            "max_field_size": limit,
        }
        return AiohttpProtocol(server, loop=asyncio.get_running_loop(), **options)

    def hand_over(self) -> list[socket.socket]:
        """Stop accepting; return the TCP sockets, which still listen, for another listener."""
        handed = [
            socket.socket(fileno=os.dup(each.fileno())) for each in self._accepting if not _is_unix(each)
        ]
        self.stop_accepting()
        return handed

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay."""
        for listening in self._accepting:
            asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        self._accepting = []
        self._begin_some(len(self._arrivals))
        for server in self._servers:
            server.close()
        if self._unix is not None:
            path, inode = self._unix
            self._unix = None
            if path.exists() and path.stat().st_ino == inode:
                path.unlink()

    async def close(self) -> None:
        """Shut down aiohttp, after all connections have been closed."""
        if self._runner is not None:
            await self._runner.cleanup()


def _is_unix(listening: socket.socket) -> bool:
    return listening.family == socket.AF_UNIX


def _reset(accepted: socket.socket) -> None:
    """Reset a connection without a reply, which is cheapest."""
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
    accepted.close()


IN_WORDS = {
    errno.EADDRINUSE: "another program listens there; stop it, or choose another --port",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose another --host",
    errno.EACCES: "this needs rights that the server does not have; choose a --port above 1023",
}
"""Explanations of errors when binding a port, with advice."""


def _bound(path: Path) -> tuple[socket.socket, int]:
    """Bind a unix socket at ``path``, replacing a stale one; return the socket and its inode.

    Raises OSError.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
                if not tried.connect_ex(str(path)):
                    raise OSError(errno.EADDRINUSE, "another program listens there")  # noqa: TRY301
            path.unlink()
        # The umask that gives the unix socket mode 0660: its owner and group may connect.
        before = os.umask(0o117)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listening.close()
        reason = error.strerror
        if error.errno == errno.EADDRINUSE and path.exists() and not path.is_socket():
            reason = "a file that is not a socket is there; choose another --unix"
        elif error.errno == errno.ENOENT:
            reason = f"there is no folder {path.parent}"
        raise OSError(error.errno, f"unix: {path}: {reason}") from None
    return listening, path.stat().st_ino


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
