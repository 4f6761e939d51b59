"""Process control through the kernel: subreapers, memory protection, control groups.

Imports only the standard library, since watchdog and guards use it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

# Messages, with file handles, between worker, guard and process; large texts are sent as shared memory.
#
# Both ends are sockets that preserve message boundaries (``SOCK_SEQPACKET``).


INLINE_BYTES_MAX = 32_768
"""Maximum bytes of a text sent through the socket itself; the socket's buffer holds several such texts."""

HANDLES_MAX = 4
"""Maximum handles of a message: a process's socket, its stdout and stderr, and its progress pipe."""

READ_BYTES = 4_096
"""Bytes of one read of a short message or of a wakeup pipe."""

LARGE = b"large "
"""Prefix of a message whose text is in shared memory, its first handle."""


def send(channel: socket.socket, word: bytes, text: bytes = b"", handles: Sequence[int] = ()) -> None:
    """Send a word without blanks, a text and handles; raises OSError."""
    if len(text) <= INLINE_BYTES_MAX:
        socket.send_fds(channel, [word, b" ", text], list(handles))
        return
    large = os.memfd_create("bedrock-text", os.MFD_CLOEXEC)
    try:
        write_all(large, text)
        socket.send_fds(channel, [LARGE + word], [large, *handles])
    finally:
        os.close(large)


def write_all(handle: int, data: bytes) -> None:
    """Write all of the data, in as many calls as it takes; raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def receive(channel: socket.socket) -> tuple[bytes, bytes, list[int]]:
    """Wait for a word, its text and its handles; the word is empty if the peer is gone."""
    try:
        message, handles, _, _ = socket.recv_fds(channel, INLINE_BYTES_MAX + 64, HANDLES_MAX + 1)
    except ConnectionResetError:
        return b"", b"", []
    for handle in handles:
        os.set_inheritable(handle, False)
    if not message.startswith(LARGE):
        word, _, text = message.partition(b" ")
        return word, text, handles
    with os.fdopen(handles[0], "rb") as file:
        file.seek(0)
        return message.removeprefix(LARGE), file.read(), handles[1:]


END_S = 5.0
"""Maximum seconds for killing all processes that a command left; how many survive is reported."""

PAUSE_S, PAUSE_MAX_S = 0.001, 0.1
"""Seconds between two rounds of killing, at first and at most; each pause is twice the one before."""

NEVER = float("inf")
"""A monotonic time that is never reached."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
prctl = ctypes.PyDLL(None).prctl  # looked up before any fork; PyDLL does not release the GIL
prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def protect() -> None:
    """Prevent processes of the same user from reading our memory and environment."""
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def resume_with_death_of_parent() -> None:
    """Let the kernel resume this process, should it be stopped, when its parent dies."""
    prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def become_subreaper() -> None:
    """Become a subreaper: the new parent of each descendant whose parent dies."""
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(keep: Collection[int] = (), seconds: float = END_S) -> int:
    """Kill and reap all children except those to keep, including children inherited meanwhile.

    Returns how many are left after the time limit, because another user or the kernel holds them.
    """
    pause, deadline = PAUSE_S, time.monotonic() + seconds
    while reap(0) and (children := [pid for pid in _children() if pid not in keep]):
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return len(children)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE_MAX_S)
    return 0


def reap(but: int) -> bool:
    """Reap ended children except the child ``but``; return whether there are children left."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == but:
                return True
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return False
    return True


def only_child(pid: int) -> bool:
    """Return whether ``pid`` is our only living child; may reap ended ones."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
            children = [int(child) for child in file.read().split()]
    except OSError:  # not available in every kernel
        reap(0)
        children = _children()
    # The list may be incomplete if another child ended in the meantime, which must then be reaped.
    return children == [pid] and os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _children() -> list[int]:
    """Return the ids of our children, by reading all of ``/proc``: not every kernel lists them."""
    ours, children = str(os.getpid()).encode(), []
    for name in os.listdir("/proc"):  # noqa: PTH208  light: this runs for each command that left something
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if file.read().rpartition(b")")[2].split()[1] == ours:
                    children.append(int(name))
    return children


STOPPED, DEAD = ("T", "t"), ("", "Z", "X")
"""States of stopped or traced processes, and of ended ones."""


def state_of(pid: int) -> str:
    """Return the kernel's state letter of a process, empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


class Stops:
    """Resumes our processes when they are stopped; kills them if they are stopped again.

    A command may send SIGSTOP to all processes of its user, including its guard.
    """

    def __init__(self) -> None:
        self._continued: set[int] = set()

    def end(self, pid: int, handle: int) -> bool:
        """Resume or kill a stopped process; return whether it was killed.

        ``handle`` is its pidfd, so that the signal cannot reach another process.
        """
        again = pid in self._continued
        self._continued.add(pid)
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, signal.SIGKILL if again else signal.SIGCONT)
        return again

    def discard(self, pid: int) -> None:
        """Forget a process that has ended."""
        self._continued.discard(pid)


def was_stopped(pid: int) -> bool:
    """Return whether a child was stopped since the last call."""
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:
        return False


class ControlGroup:
    """A control group (version 2) for one command, if we may create one; it needs no controllers."""

    def __init__(self, parent: str, guard: int) -> None:
        """Determine the path of a guard's group, without creating the group."""
        self.path = f"{parent}/bedrock-run-{guard}"
        self.members: int | None = None
        """Handle of the file through which a process joins the group, or None if ``make`` was not called."""

    @classmethod
    def at(cls, path: str) -> ControlGroup:
        """Return the group with this path."""
        parent, _, name = path.rpartition("/")
        return cls(parent, int(name.rpartition("-")[2]))

    def make(self) -> None:
        """Create the group; raises OSError."""
        os.mkdir(self.path)  # noqa: PTH102
        if not os.path.exists(f"{self.path}/cgroup.kill"):  # noqa: PTH110  Linux before 5.14
            os.rmdir(self.path)  # noqa: PTH106
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self.path)
        self.members = os.open(f"{self.path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def join(self) -> None:
        """Move the calling process into the group."""
        self._write("cgroup.procs", b"0")

    def kill(self) -> None:
        """Kill all processes of the group at once, however fast they fork."""
        with suppress(OSError):
            self._write("cgroup.kill", b"1")

    def remove(self) -> None:
        """Remove the group, unless it still has processes."""
        with suppress(OSError):
            os.rmdir(self.path)  # noqa: PTH106

    def _write(self, name: str, text: bytes) -> None:
        handle = os.open(f"{self.path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(handle, text)
        finally:
            os.close(handle)


def own_control_group() -> str | None:
    """Return the path of our control group if we may create others in it, else None."""
    try:
        with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123
            mounts = [line.split() for line in file if b" - cgroup2 " in line]
        with open("/proc/self/cgroup", "rb") as file:  # noqa: PTH123
            paths = [line[3:].strip() for line in file if line.startswith(b"0::/")]
    except OSError:
        return None
    if not mounts or not paths:
        return None
    root, folder = mounts[0][3], mounts[0][4]
    inside = paths[0].removeprefix(root.rstrip(b"/"))
    path = os.fsdecode(folder + inside).rstrip("/")
    good = os.access(path, os.W_OK) and os.access(f"{path}/cgroup.procs", os.W_OK)
    return path if good else None


# A timerfd that one process arms and another polls, so that arming it causes no wakeup.


CLOCK_MONOTONIC, TFD_NONBLOCK, TFD_CLOEXEC, TFD_TIMER_ABSTIME = 1, 0o4000, 0o2000000, 1
"""Constants of ``timerfd_create(2)``."""

_libc = ctypes.PyDLL(None, use_errno=True)  # does not release the GIL: both calls are short
_Spec = ctypes.c_long * 4  # interval and first expiry, each in seconds and nanoseconds


class Alarm:
    """One timer; its handle is readable once it has expired."""

    def __init__(self) -> None:
        """Create a disarmed timer; raises OSError."""
        self.handle = int(_libc.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC))
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_create")
        self._set = NEVER

    def set(self, moment: float) -> None:
        """Arm the timer for a monotonic time, past times included; with ``NEVER``, disarm it."""
        if moment == self._set:
            return
        seconds, part = (0, 0) if moment == NEVER else divmod(max(moment, 1e-9), 1)
        spec = _Spec(0, 0, int(seconds), int(part * 1e9))
        if _libc.timerfd_settime(self.handle, TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd_settime")
        self._set = moment

    def close(self) -> None:
        """Close the handle."""
        os.close(self.handle)
