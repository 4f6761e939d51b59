"""The worker's end of one guard, which serves one command after the other."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from bedrock_worker.run import kernel
from bedrock_worker.run.kernel import Stops
from bedrock_worker.run.pipes import Pump
from bedrock_worker.run.pooled import PooledProcess

Hear = Callable[[dict[str, Any] | None], None]
"""Called with a message of the guard, or None if the guard is dead."""


class GuardLink:
    """The connection to one guard. Belongs to the event loop of the main thread."""

    def __init__(self, channel: socket.socket, idle: Hear, watchdog: int) -> None:
        """Listen to a guard of the process ``watchdog``; ``idle`` handles messages while no command runs."""
        channel.setblocking(False)
        self.watchdog = watchdog
        self._way, self._idle = channel, idle
        self.pumps: list[Pump] = []
        """The output pipes of the guard's process for functions, shared by several runs."""
        self.process: PooledProcess | None = None
        """The process for functions to which the worker gives runs directly, or None."""
        self._handed: list[int] = []
        self.on_message = idle
        self.pid = 0
        """The guard's process id, 0 until it has started."""
        self.unread = False
        """True if the guard died without reading its last request."""
        self.answered = False
        """True if the guard has answered since the last ping."""
        self._process = -1
        asyncio.get_running_loop().add_reader(channel.fileno(), self._read)

    @property
    def is_alive(self) -> bool:
        """Return whether the guard is not known to be dead and has not been released."""
        return self._way.fileno() >= 0

    def give(self, head: bytes, template: bytes, data: str, output: Sequence[int], hear: Hear) -> None:
        """Start a run; ``hear`` handles its messages.

        ``head`` describes the run and ``template`` how to start its template, each as one line of JSON;
        ``data`` is the text of the job, ``output`` the handles for stdout and stderr. Raises OSError if the
        guard is dead.
        """
        self.drop_process()  # the guard terminates it
        kernel.send(self._way, b"run", b"\n".join((head, template, data.encode())), output)
        self.on_message = hear

    def send(self, word: bytes) -> None:
        """Send a message about the current command."""
        with suppress(OSError):  # the guard is dead, and so is its command
            self._way.send(word)

    def resume_if_stopped(self, stops: Stops) -> None:
        """Resume the guard if it is stopped (SIGSTOP); kill it if that happens again."""
        if self._process >= 0 and kernel.state_of(self.pid) in kernel.STOPPED:
            stops.end(self.pid, self._process)

    def ping(self) -> None:
        """Ping the guard."""
        self.answered = False
        self.send(b"ask")

    def kill(self) -> None:
        """Kill a guard that does not respond; the kernel and the watchdog then end its run."""
        if self._process >= 0:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def keep_process(self, pid: int, *, kind: bytes, folder: str, data: str, runs: int) -> None:
        """Keep the process whose socket came with the last message, for at most ``runs`` runs of its kind."""
        try:
            channel = socket.socket(fileno=self._handed.pop())
            process = PooledProcess(channel, pid, kind=kind, folder=folder, data=data, runs=runs)
        except (IndexError, OSError):  # the handle limit is reached
            self.send(b"retire %d" % pid)
            return
        with suppress(OSError):  # the guard is dead, and so is the process
            kernel.send(self._way, b"alarm", handles=[process.alarm.handle])
        self.process = process

    def drop_process(self) -> None:
        """Close the connection to the process for functions, which then exits."""
        if self.process is not None:
            self.process.close()
            self.process = None

    def mark_idle(self) -> None:
        """Mark the guard as idle."""
        self.on_message = self._idle

    def release(self) -> None:
        """Release the guard, which kills what still runs and removes the folder of the run."""
        if self.is_alive:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
        if self._process >= 0:
            os.close(self._process)
            self._process = -1
        self.drop_process()
        for pump in self.pumps:
            pump.stop_reading()

    def _read(self) -> None:
        try:
            # Each message is much shorter than 64 KiB.
            word, self._handed, _, _ = socket.recv_fds(self._way, 65_536, kernel.HANDLES_MAX)
        except BlockingIOError:
            return
        except ConnectionResetError:  # so that the kernel reports unread data again
            word, self.unread = b"", True
        except OSError:
            word = b""
        if not word:
            process, resting = self.process, self.on_message == self._idle
            self.release()
            self.on_message(None)
            if process is not None and resting:  # otherwise the run checks the folder
                shutil.rmtree(process.folder, ignore_errors=True)
            return
        self._on_message(json.loads(word))
        for handle in self._handed:
            os.close(handle)
        self._handed = []

    def _on_message(self, message: dict[str, Any]) -> None:
        if message.keys() == {"guard"}:
            with suppress(OSError):  # the guard is dead, or the handle limit is reached
                self._process = os.pidfd_open(message["guard"])
                self.pid = message["guard"]
            return
        if "there" in message:
            self.answered = True
            return
        if "gone" not in message:
            self.on_message(message)
            return
        resting = True
        if self.process is not None and self.process.pid == message["gone"]:
            process, self.process = self.process, None
            resting = self.on_message == self._idle
            self.on_message(message)
            process.close()
        if resting:  # otherwise the run checks the folder
            shutil.rmtree(message["folder"], ignore_errors=True)
