"""A process for functions that is used again: the worker gives it each run itself, and hears of its end.

Nobody stands between the two while all goes well. Its guard waits for its end, and is told by the worker
where it is to be signalled or ended; where the worker itself stands still, an alarm tells the guard.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bedrock_worker.run import packet
from bedrock_worker.run.alarm import Alarm
from bedrock_worker.run.guard import DATA_FILE
from bedrock_worker.run.kernel import NEVER
from bedrock_worker.run.pump import drain
from bedrock_worker.run.warm import read_end

if TYPE_CHECKING:
    from bedrock_worker.run.guard_link import GuardLink
    from bedrock_worker.run.pump import Listener
    from bedrock_worker.run.watchdog_client import WatchdogClient

WORD_BYTES = 65_536
"""Size of one read of what it says: the end of a run, with a short result."""

Hear = Callable[[dict[str, Any]], None]
"""Takes how a run ended."""


class PooledProcess:
    """The worker's end of one process. Belongs to the event loop of the main thread."""

    def __init__(
        self, way: socket.socket, pid: int, *, kind: bytes, folder: str, data: str, runs: int
    ) -> None:
        """Listen; ``kind`` says what it may run, ``folder`` is its own, and it may serve so many ``runs``.

        ``data`` is the job of the run that it has done already.

        Raises OSError, and closes the way, where the machine is full.
        """
        self._way, self.pid, self.kind, self.folder, self._runs = way, pid, kind, folder, runs
        try:
            self.alarm = Alarm()
        except OSError:
            way.close()
            raise
        way.setblocking(False)
        self._hear: Hear | None = None
        self._data, self._data_before = data, ""
        self.unread = False
        """Whether it died without having read the run that it was given last."""
        asyncio.get_running_loop().add_reader(way.fileno(), self._read)

    @property
    def alive(self) -> bool:
        """Tell whether it may be given a run."""
        return self._way.fileno() >= 0

    def begin(self, head: bytes, data: str, until: float, hear: Hear) -> None:
        """Give it a run, whose end ``hear`` hears; raises OSError where it is dead, or cannot take it."""
        self._runs -= 1
        self._data, self._data_before = data, self._data
        self.alarm.set(until)
        packet.send(self._way, b"again" if self._runs > 0 else b"last", head + b"\n" + data.encode())
        self._hear = hear

    def rest(self) -> None:
        """Be without a run."""
        self._hear = None
        if self.alive:
            self.alarm.set(NEVER)

    def close(self) -> None:
        """Let go of it; it ends where it has no run."""
        if self.alive:
            asyncio.get_running_loop().remove_reader(self._way.fileno())
            self._way.close()
            self.alarm.set(NEVER)  # its guard has it too, and would end another process
            self.alarm.close()

    def read_rest(self) -> None:
        """Hear what it said before it died."""
        while self.alive and self._read():
            pass

    def never_began(self) -> bool:
        """Tell whether it was killed before it began the run that it was given last.

        It begins a run with putting its job into the folder; the kernel may have read it for one who was
        dying.
        """
        if self.unread:
            return True
        if self._data == self._data_before:  # the file tells nothing
            return False
        try:
            handle = os.open(f"{self.folder}/{DATA_FILE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, "rb") as file:
                return file.read() == self._data_before.encode()
        except OSError:
            return False

    def _read(self) -> bool:
        """Hear one word; tell whether there was one."""
        try:
            word = self._way.recv(WORD_BYTES)
        except BlockingIOError:
            return False
        except ConnectionResetError:  # so the kernel says that something is unread
            word, self.unread = b"", True
        except OSError:
            word = b""
        if not word:  # its guard tells the rest
            asyncio.get_running_loop().remove_reader(self._way.fileno())
        elif self._hear is not None:
            self._hear(read_end(word))
        return bool(word)


class NeverBegan(Exception):
    """A process was killed before it began the run that it was given; another may do it."""


class PooledRun:
    """One run in such a process; to whoever waits for its end it is what ``ChildProcess`` is."""

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
        """Begin a run in the process of a guard; raises OSError where that is dead.

        ``head`` says as JSON what is run, ``data`` is the text of its job; ``until`` is the monotonic moment
        at which it is to be killed, even if we stand still.
        """
        assert guard.process is not None
        self._guard, self._watchdog, self._process = guard, watchdog, guard.process
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._found: dict[str, Any] = {}
        self._told = self.signalled = self.folder_left = False
        self.left = 0
        self._process.begin(head, data, until, self._hear)
        for pump in guard.pumps:
            pump.listener = listener
            pump.begin()  # a first run that was short left it unread until its end
        guard.hear = self._hear_guard

    async def started(self) -> int:
        """Return its process id."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the end and return the exit status, negative for the signal that ended it.

        Raises NeverBegan where its process was dead, but not known to be, when it was begun. Where it left
        somebody, they have been killed by then, and its last output has been heard.
        """
        status = await self._ended
        drain(self._guard.pumps)
        for pump in self._guard.pumps:
            pump.end_line()
        return status

    @property
    def folder(self) -> str:
        """Return the folder of its process, which is its own while it runs."""
        return self._process.folder

    @property
    def result(self) -> str | None:
        """Return the result that it told, None where it told none."""
        found: str | None = self._found.get("result")
        return found

    @property
    def running(self) -> bool:
        """Tell whether it is not known to have ended."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Let the guard kill it at a monotonic moment."""
        self._process.alarm.set(moment)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; the process is not used again."""
        self._told = True
        self._guard.tell(b"signal %d" % number)
        if number == signal.SIGKILL:
            self._watchdog.expect_end(self._guard, self._process.pid, lambda: self.running)

    def close(self) -> None:
        """Be done with it: what still runs ends."""
        if not self._guard.alive:
            return
        if self._ended.done() and not self.left:
            self._watchdog.give_back(self._guard)
        else:
            self._watchdog.over(self._guard, killed=False)

    def _hear(self, found: dict[str, Any]) -> None:
        """Take what the process says: it is believed where nothing was signalled and nothing is left."""
        if "exit" in found:
            self._found = found
        elif "done" in found and not self._told:
            self._found = found
            self.folder_left = bool(found.get("files", True))
            self._end(found["done"])
        else:
            self._found = found
            self._guard.tell(b"retire %d" % self._process.pid)

    def _hear_guard(self, found: dict[str, Any] | None) -> None:
        """Take that the process has ended; where the guard was killed, the kernel has killed it as well."""
        if found is not None:
            self._process.read_rest()
        if self._ended.done():
            self.folder_left = True  # nobody clears it any more
            return
        if found is None:
            self.folder_left = self.signalled = True
            self._end(-signal.SIGKILL)
            self._watchdog.over(self._guard, killed=True)
        else:
            self.folder_left, self.left = found["files"], found["left"]
            self.signalled = found["signalled"]
            if not self._found and not self._told and self._process.never_began():
                self._ended.set_exception(NeverBegan())
            self._end(self._found.get("done", found["ended"]))

    def _end(self, status: int) -> None:
        self._process.rest()
        if not self._ended.done():
            self._ended.set_result(status)
