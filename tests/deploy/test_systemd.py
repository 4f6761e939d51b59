"""Communication with systemd: datagrams, watchdog pings, listening sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bedrockjobs import systemd

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the socket at which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


# --- what is told ----------------------------------------------------------------------------------------


def test_lines_are_told_in_one_datagram(manager: socket.socket) -> None:
    assert systemd.notify("READY=1", "STATUS=listening")
    assert manager.recv(1_000) == b"READY=1\nSTATUS=listening"


def test_an_abstract_socket_is_told_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0bedrockjobs-test-{os.getpid()}")
        listener.settimeout(DEADLINE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@bedrockjobs-test-{os.getpid()}")
        assert systemd.notify("STOPPING=1")
        assert listener.recv(1_000) == b"STOPPING=1"


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "/nowhere/notify"])
def test_nobody_is_told_where_nobody_listens(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not systemd.notify("READY=1")


# --- the watchdog ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "pid", "seconds"),
    [
        ("30000000", None, 30.0),
        ("30000000", "own", 30.0),
        ("30000000", "1", None),
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_the_limit_is_this_processes_own(
    monkeypatch: pytest.MonkeyPatch, limit: str | None, pid: str | None, seconds: float | None
) -> None:
    pid = str(os.getpid()) if pid == "own" else pid
    for name, value in (("WATCHDOG_USEC", limit), ("WATCHDOG_PID", pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert systemd.watchdog_s() == seconds


async def test_signs_of_life_come_until_they_are_stopped(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    watchdog = systemd.SystemdWatchdog()
    for _ in range(3):
        assert await asyncio.to_thread(manager.recv, 1_000) == b"WATCHDOG=1"
    watchdog.stop()
    manager.setblocking(False)
    with suppress(BlockingIOError):
        while True:  # until those that were on their way are read
            manager.recv(1_000)
    await asyncio.sleep(0.05)
    with pytest.raises(BlockingIOError):
        manager.recv(1_000)


async def test_nobody_watches_and_no_sign_is_given(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    systemd.SystemdWatchdog().stop()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1_000)


# --- sockets ---------------------------------------------------------------------------------------------

ADOPT = """
import os, sys
from bedrockjobs import systemd
os.environ["LISTEN_PID"] = str(os.getpid()) if sys.argv[1] == "mine" else "1"
try:
    found = systemd.listening()
except ValueError as error:
    print(error)
else:
    print([each.getsockname() for each in found], [each.get_inheritable() for each in found],
          systemd.listening(), [name for name in os.environ if name.startswith("LISTEN_")])
"""


def adopt(whose: str, *files: socket.socket, names: str = "") -> str:
    """Return the output of a process that was given these sockets like by systemd."""
    environment = {**os.environ, "LISTEN_FDS": str(len(files)), "PYTHONPATH": str(ROOT)}
    if names:
        environment["LISTEN_FDNAMES"] = names
    redirections = " ".join(f"{3 + at}<&{each.fileno()}" for at, each in enumerate(files))
    done = subprocess.run(
        ["bash", "-c", f'exec "$@" {redirections}', "-", sys.executable, "-c", ADOPT, whose],
        env=environment,
        pass_fds=[each.fileno() for each in files],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return done.stdout.strip()


def test_a_socket_is_taken_over_once_and_not_passed_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert adopt("mine", listener) == f"[{address!r}] [False] [] []"


def test_sockets_of_another_process_are_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert adopt("another's", listener) == "[] [] [] []"


def test_a_socket_that_does_not_listen_is_named(tmp_path: Path) -> None:
    with socket.socket() as silent, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        assert adopt("mine", silent) == "socket 1: expected ListenStream= with a TCP port"
        assert adopt("mine", unix, names="jobs") == "socket jobs: expected ListenStream= with a TCP port"


def test_outside_of_systemd_there_are_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        monkeypatch.delenv(name, raising=False)
    assert systemd.listening() == []
