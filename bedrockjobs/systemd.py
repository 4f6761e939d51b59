"""What a service tells systemd, and what it is given: readiness, the watchdog, sockets that listen already.

The protocols are those of sd_notify(3) and sd_listen_fds(3): a datagram, and numbers in the environment.
Outside of systemd nothing is told and nothing is given. It knows no server.
"""

from __future__ import annotations

import asyncio
import os
import socket

FIRST_FD = 3
"""The first file descriptor that systemd passes on."""

PINGS_PER_LIMIT = 3
"""Signs of life in the time after which systemd kills a service: one may be late without harm."""


def notify(*lines: str) -> bool:
    """Tell systemd something, as in ``READY=1``; return whether it was told.

    It never waits and never raises: a service must not fail because nobody listens to it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.setblocking(False)
            told.connect(address)
            told.sendall("\n".join(lines).encode())
    except OSError:
        return False
    return True


def watchdog_s() -> float | None:
    """Return the seconds after which systemd takes this process for dead; None where it does not watch."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        limit = int(os.environ.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return limit / 1_000_000 if limit > 0 else None


class SystemdWatchdog:
    """Signs of life from the event loop: a loop that stands still gives none."""

    def __init__(self) -> None:
        """Give the first sign, if systemd watches, and go on until ``stop``."""
        self._timer: asyncio.TimerHandle | None = None
        limit = watchdog_s()
        self._every_s = None if limit is None else limit / PINGS_PER_LIMIT
        self._ping()

    def _ping(self) -> None:
        if self._every_s is not None:
            notify("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._ping)

    def stop(self) -> None:
        """Give no more signs."""
        if self._timer is not None:
            self._timer.cancel()


def listening() -> list[socket.socket]:
    """Return the sockets that systemd opened for this process; none where it opened none.

    They are handed out once: the environment is cleared, and no child inherits them. Raises ValueError for a
    socket that is not a listening TCP one, naming it.
    """
    pid, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    found: list[socket.socket] = []
    try:
        for at in range(int(count)):
            name = names[at] if at < len(names) and names[at] else str(at + 1)
            found.append(_adopted(FIRST_FD + at, name))
    except ValueError:
        for each in found:
            each.close()
        raise
    return found


def _adopted(file: int, name: str) -> socket.socket:
    """Return the socket of a file descriptor."""
    os.set_inheritable(file, False)
    try:
        adopted = socket.socket(fileno=file)
    except OSError:
        raise ValueError(f"socket {name}: systemd passed something that is no socket") from None
    listens = adopted.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if adopted.family not in (socket.AF_INET, socket.AF_INET6) or not listens:
        adopted.close()
        raise ValueError(f"socket {name}: expected ListenStream= with a TCP port")
    adopted.setblocking(False)
    return adopted
