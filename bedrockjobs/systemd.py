"""Integration with systemd: readiness, watchdog and socket activation.

Implements sd_notify(3) and sd_listen_fds(3) with the documented environment variables and a datagram socket.
Outside of systemd the functions do nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket


def notify(*lines: str) -> bool:
    """Send lines such as ``READY=1`` to systemd; return whether they were sent.

    Never blocks and never raises: a service must not fail because systemd does not listen.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.connect(address)
            sock.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True


def watchdog_s() -> float | None:
    """Return the watchdog timeout in seconds, or None without a watchdog."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        limit = int(os.environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return limit / 1_000_000 if limit > 0 else None


class SystemdWatchdog:
    """Sends watchdog pings from the event loop, so that they stop if the loop hangs."""

    def __init__(self) -> None:
        """Send the first ping, and further ones until ``stop``; do nothing unless systemd expects pings."""
        self._timer: asyncio.TimerHandle | None = None
        limit = watchdog_s()
        # Three watchdog pings per timeout, so that a single late one does no harm.
        self._every_s = None if limit is None else limit / 3
        self._ping()

    def _ping(self) -> None:
        if self._every_s is not None:
            notify("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._ping)

    def stop(self) -> None:
        """Stop sending pings."""
        if self._timer is not None:
            self._timer.cancel()


def listening() -> list[socket.socket]:
    """Return the listening TCP sockets passed by systemd; empty if there are none.

    Only the first call returns them: it clears the environment and makes the sockets non-inheritable. Raises
    ValueError, with the name of the socket, if systemd passed anything else.
    """
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets: list[socket.socket] = []
    try:
        for at in range(int(count)):
            name = names[at] if at < len(names) and names[at] else str(at + 1)
            sockets.append(_adopted(3 + at, name))  # after stdin, stdout and stderr
    except ValueError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _adopted(file: int, name: str) -> socket.socket:
    """Return the socket of a passed file descriptor; raises ValueError unless it listens on TCP."""
    os.set_inheritable(file, False)
    try:
        adopted = socket.socket(fileno=file)
    except OSError:
        raise ValueError(f"socket {name}: systemd passed something other than a socket") from None
    listens = adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if adopted.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        adopted.close()
        raise ValueError(f"socket {name}: expected ListenStream= with a TCP port")
    adopted.setblocking(False)
    return adopted
