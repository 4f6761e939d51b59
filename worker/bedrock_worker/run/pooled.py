"""A reusable process for functions, to which the worker gives runs directly.

The guard only waits for the exit of the process, and signals or kills it on request. At the deadline of a
run, a timer tells the guard to kill the process, even if the worker hangs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bedrock_worker.run import kernel
from bedrock_worker.run.guard import DATA_FILE
from bedrock_worker.run.kernel import NEVER, Alarm
from bedrock_worker.run.pipes import drain
from bedrock_worker.run.warm import read_end

if TYPE_CHECKING:
    from bedrock_worker.run.guard_link import GuardLink
    from bedrock_worker.run.pipes import Listener
    from bedrock_worker.run.watchdog_client import WatchdogClient

Hear = Callable[[dict[str, Any]], None]
"""Called with the message that reports the end of a run."""


class PooledProcess:
    """The worker's end of one process. Belongs to the event loop of the main thread."""

    def __init__(
        self, channel: socket.socket, pid: int, *, kind: bytes, folder: str, data: str, runs: int
    ) -> None:
        """Listen to a process that has a ``folder`` and may serve ``runs`` more runs of a ``kind``.

        ``data`` is the job of the run that the process has done already. Raises OSError, and closes the
        socket, if the machine is out of resources.
        """
        self._way, self.pid, self.kind, self.folder, self._runs = channel, pid, kind, folder, runs
        try:
            self.alarm = Alarm()
        except OSError:
            channel.close()
            raise
        channel.setblocking(False)
        self._on_end: Hear | None = None
        self._data, self._data_before = data, ""
        self.unread = False
        """True if the process died without reading its last run."""
        asyncio.get_running_loop().add_reader(channel.fileno(), self._read_message)

    @property
    def is_alive(self) -> bool:
        """Return whether the process can take a run."""
        return self._way.fileno() >= 0

    def start_run(self, head: bytes, data: str, until: float, hear: Hear) -> None:
        """Give the process a run and call ``hear`` when the run ends; raises OSError if that fails."""
        self._runs -= 1
        self._data, self._data_before = data, self._data
        self.alarm.set(until)
        kernel.send(self._way, b"again" if self._runs > 0 else b"last", head + b"\n" + data.encode())
        self._on_end = hear

    def mark_idle(self) -> None:
        """Mark the process as idle."""
        self._on_end = None
        if self.is_alive:
            self.alarm.set(NEVER)

    def close(self) -> None:
        """Close the connection; an idle process exits."""
        if self.is_alive:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
            self.alarm.set(NEVER)  # the guard also holds the timer, and would kill a later process
            self.alarm.close()

    def read_rest(self) -> None:
        """Read the messages that the process sent before it died."""
        while self.is_alive and self._read_message():
            pass

    def never_began(self) -> bool:
        """Return whether the process was killed before it began its last run.

        A process begins a run by writing the job into its folder; it may be killed after reading the request,
        but before that.
        """
        if self.unread:
            return True
        if self._data == self._data_before:  # then the file does not tell which run wrote it
            return False
        try:
            handle = os.open(f"{self.folder}/{DATA_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                return file.read() == self._data_before.encode()
        except OSError:
            return False

    def _read_message(self) -> bool:
        """Read one message; return whether there was one."""
        try:
            word = self._way.recv(kernel.READ_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # so that the kernel reports unread data again
            word, self.unread = b"", True
        except OSError:
            word = b""
        if not word:  # the process has ended, which its guard reports
            asyncio.get_running_loop().remove_reader(self._way.fileno())
        elif self._on_end is not None:
            self._on_end(read_end(word))
        return bool(word)


class NeverBegan(Exception):
    """A process was killed before it began its run, which another process can perform."""


class PooledRun:
    """One run in a reusable process, with the interface of ``ChildProcess``."""

    def __init__(
        self,
        guard: GuardLink,
        watchdog: WatchdogClient,
        head: bytes,
        data: str,
        *,
        until: float,
        listener: Listener,
    ) -> None:
        """Start a run in the process of a guard; raises OSError if the process is dead.

        ``head`` describes the run as JSON, ``data`` is the text of its job; the guard kills the run at the
        monotonic time ``until``, even if the worker hangs.
        """
        assert guard.process is not None
        self._guard, self._watchdog, self._process = guard, watchdog, guard.process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._found: dict[str, Any] = {}
        self._told = self.was_signalled = self.folder_left = False
        self.survivors = 0
        self._process.start_run(head, data, until, self._on_message)
        for pump in guard.pumps:
            pump.listener = listener
            pump.start_reading()  # not yet done if the first run was short
        guard.on_message = self._on_guard_message

    async def started(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the end and return the exit status, negative for a signal.

        By then, all processes that the run left are killed, and all output is read. Raises NeverBegan if the
        process was already dead when the run was given to it.
        """
        status = await self._ended
        drain(self._guard.pumps)
        for pump in self._guard.pumps:
            pump.end_line()
        return status

    @property
    def folder(self) -> str:
        """Return the folder of the process."""
        return self._process.folder

    @property
    def result(self) -> str | None:
        """Return the result that the run reported, or None."""
        result: str | None = self._found.get("result")
        return result

    @property
    def running(self) -> bool:
        """Return whether the run may still be going on."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Set the monotonic time at which the guard kills the run."""
        self._process.alarm.set(moment)

    def signal(self, number: int) -> None:
        """Signal the whole process group; the process is not reused."""
        self._told = True
        self._guard.send(b"signal %d" % number)
        if number == signal.SIGKILL:
            self._watchdog.expect_end(self._guard, self._process.pid, lambda: self.running)

    def release(self) -> None:
        """Release the run; if it is still running, it is killed."""
        if not self._guard.is_alive:
            return
        if self._ended.done() and not self.survivors:
            self._watchdog.give_back(self._guard)
        else:
            self._watchdog.release_guard(self._guard, killed=False)

    def _on_message(self, message: dict[str, Any]) -> None:
        """Handle a message of the process; if it cannot be trusted, let the guard end the process."""
        if "exit" in message:
            self._found = message
        elif "done" in message and not self._told:
            self._found = message
            self.folder_left = bool(message.get("files", True))
            self._end(message["done"])
        else:
            self._found = message
            self._guard.send(b"retire %d" % self._process.pid)

    def _on_guard_message(self, message: dict[str, Any] | None) -> None:
        """Handle the end of the process; the message is None if the guard was killed with the process."""
        if message is not None:
            self._process.read_rest()
        if self._ended.done():
            self.folder_left = True  # nothing else would remove it
            return
        if message is None:
            self.folder_left = self.was_signalled = True
            self._end(-signal.SIGKILL)
            self._watchdog.release_guard(self._guard, killed=True)
        else:
            self.folder_left, self.survivors = message["files"], message["left"]
            self.was_signalled = message["signalled"]
            if not self._found and not self._told and self._process.never_began():
                self._ended.set_exception(NeverBegan())
            self._end(self._found.get("done", message["ended"]))

    def _end(self, status: int) -> None:
        self._process.mark_idle()
        if not self._ended.done():
            self._ended.set_result(status)
