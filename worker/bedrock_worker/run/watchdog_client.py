"""The worker's ends of its watchdog, which it starts and restarts, of its guards, and of reusable processes.

A worker has one watchdog, and one guard per slot, which serves one command after the other.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import bedrock_worker
from bedrock_worker.log import event
from bedrock_worker.run import kernel
from bedrock_worker.run.guard import DATA_FILE, IGNORED, ROUND_S
from bedrock_worker.run.kernel import NEVER, Alarm, Stops
from bedrock_worker.run.pipes import Listener, Pump, drain
from bedrock_worker.run.warm import read_end

CODE = """
import sys
_, folder, kind = sys.argv
package = sys.modules["bedrock_worker"] = type(sys)("bedrock_worker")
package.__path__ = [folder]
from bedrock_worker.run.guard import main
main(adopts=kind == "adopts")
"""
"""The program of the watchdog's isolated interpreter, which finds no modules but ours.

The package is replaced by an empty module: the dependencies that it imports would make each fork slower.
"""

CLOSE_S = 2.0
"""Maximum seconds in which idle processes for functions close what they have opened, when the worker ends."""

STOP_CHECK_S = 1.0
"""Seconds between checks, while something runs, whether the watchdog or a guard was stopped (SIGSTOP).

The watchdog notices a stopped guard at once; the check is for the case that the watchdog is stopped too.
"""

KILL_WITHIN_S = 3.0
"""Maximum seconds for a guard to kill its run; after them, the guard is pinged."""

PING_WITHIN_S = 1.0
"""Maximum seconds for a guard to answer a ping; it is killed before the lease of its run expires."""


def _until_over(pids: Iterable[int], seconds: float = ROUND_S) -> None:
    """Wait until processes have exited and their children are reparented, up to ``seconds`` for each.

    If a process does not exit in time, the processes after it are not waited for.
    """
    for pid in pids:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            try:
                end = select.poll()
                end.register(handle, select.POLLIN)
                if not end.poll(seconds * 1000):
                    return
            finally:
                os.close(handle)


class WatchdogClient:
    """The worker's watchdog, started on demand. Belongs to the event loop of the main thread."""

    def __init__(self, *, daemons: bool = False, adopts: bool = False) -> None:
        """Configure the watchdog without starting it.

        With ``daemons``, the descendants of a command may outlive its run. With ``adopts``, this process is a
        worker and nothing else, so it may kill any child that it inherits from a killed watchdog or guard.
        """
        self.daemons = daemons
        self._adopts = adopts and not daemons
        self._process: subprocess.Popen[bytes] | None = None
        self._way: socket.socket | None = None
        self._dead = -1
        self._started_at = 0.0
        self._short_lived = 0
        self._guards: set[int] = set()
        self._left = False
        """True if a guard was killed, and its children may have become ours."""
        self._idle: list[GuardLink] = []
        self._busy: set[GuardLink] = set()
        self._stops = kernel.Stops()
        self._look: asyncio.TimerHandle | None = None

    def take(self) -> GuardLink:
        """Return an idle guard, or a new one.

        Raises OSError if no watchdog can be started.
        """
        while self._idle:
            guard = self._idle.pop()
            if guard.is_alive:
                self._watch(guard)
                return guard
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._request_guard(theirs.fileno())
            assert self._process is not None
            made = GuardLink(ours, lambda _: None, self._process.pid)
        except BaseException:
            ours.close()
            raise
        self._watch(made)
        return made

    def take_pooled(self, kind: bytes) -> GuardLink | None:
        """Return an idle guard whose process serves runs of this kind, or None."""
        for at in range(len(self._idle) - 1, -1, -1):
            guard = self._idle[at]
            if guard.process is not None and guard.process.kind == kind and guard.is_alive:
                self._watch(self._idle.pop(at))
                return guard
        return None

    def expect_end(self, guard: GuardLink, pid: int, running: Callable[[], bool]) -> None:
        """Expect a guard to kill its run; kill the guard if the run goes on and the guard answers no ping.

        Otherwise a blocked guard could let a run exceed its time limit. ``running`` returns whether the run
        goes on; ``pid`` is the process of the run, 0 if unknown.
        """

        def ask() -> None:
            if running():
                guard.ping()
                # the guard is killing what the run left
                busy = bool(pid) and kernel.state_of(pid) in kernel.DEAD
                loop.call_later(PING_WITHIN_S + (kernel.END_S if busy else 0.0), look)

        def look() -> None:
            if running() and not guard.answered:
                event(logging.WARNING, "guard does not answer", guard=guard.pid)
                guard.kill()

        loop = asyncio.get_running_loop()
        loop.call_later(KILL_WITHIN_S, ask)

    def _watch(self, guard: GuardLink) -> None:
        """Check periodically, from now on, whether this guard or the watchdog was stopped."""
        self._busy.add(guard)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(STOP_CHECK_S, self._check_for_stops)

    def _check_for_stops(self) -> None:
        self._look = None
        self._resume_watchdog()
        for guard in self._busy:
            guard.resume_if_stopped(self._stops)
        if self._busy:
            self._look = asyncio.get_running_loop().call_later(STOP_CHECK_S, self._check_for_stops)

    def _resume_watchdog(self) -> None:
        if self._process is not None and kernel.state_of(self._process.pid) in kernel.STOPPED:
            event(logging.WARNING, "watchdog was stopped")
            self._stops.end(self._process.pid, self._dead)

    def register_guard(self, guard: int) -> None:
        """Register the process id of a guard that has started."""
        self._guards.add(guard)

    def give_back(self, guard: GuardLink) -> None:
        """Return a guard to the idle ones; its command and all descendants must have ended."""
        guard.mark_idle()
        self._busy.discard(guard)
        if self._process is not None and guard.watchdog == self._process.pid:
            self._idle.append(guard)
        else:  # its watchdog is dead, which would notice at once if the guard is stopped
            self.release_guard(guard, killed=False)

    def release_guard(self, guard: GuardLink, *, killed: bool) -> None:
        """Release a guard; if it was killed, kill its children, as far as they have become ours."""
        self._busy.discard(guard)
        self._stops.discard(guard.pid)
        guard.release()
        if not guard.pid:
            return
        self._guards.discard(guard.pid)
        orphans = killed and self._adopts
        if orphans:
            _until_over([guard.pid])
            if self._process is not None and guard.watchdog == self._process.pid:
                self._until_cleaned_up(guard.pid)
        with suppress(ChildProcessError):  # it is our child only if its watchdog is dead
            os.waitpid(guard.pid, os.WNOHANG)
        if orphans:
            self._left = True
            self._end_orphans()

    def _until_cleaned_up(self, guard: int) -> None:
        """Wait until the watchdog has cleaned up after a killed guard, whose job may start again at once.

        A watchdog that does not report this in time is stopped or busy; it cleans up later.
        """
        assert self._way is not None
        self._resume_watchdog()
        loop, poll = asyncio.get_running_loop(), select.poll()
        deadline = loop.time() + 2 * ROUND_S  # the whole worker waits
        poll.register(self._way, select.POLLIN)
        while poll.poll(max(0.0, deadline - loop.time()) * 1000):
            word, _, _ = kernel.receive(self._way)
            if not word or int(word) == guard:
                return

    def _end_orphans(self) -> None:
        """Kill the children that we inherited from killed guards."""
        if self._left:
            ours = {*self._guards} | ({self._process.pid} if self._process is not None else set())
            kernel.end_children(ours, ROUND_S)

    def stop_guards(self) -> None:
        """Release the idle guards and end the watchdog.

        Processes for functions get ``CLOSE_S`` to close what they have opened.
        """
        ends = [guard.process.pid for guard in self._idle if guard.process is not None]
        for guard in self._idle:
            guard.drop_process()
        _until_over(ends, CLOSE_S)
        while self._idle:
            self.release_guard(self._idle.pop(), killed=False)
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._leave(self._process)

    def _request_guard(self, way: int) -> None:
        for _ in range(2):  # the watchdog may have been killed just before the first request
            if self._way is None:
                self._start()
            assert self._way is not None
            try:
                socket.send_fds(self._way, [b"guard"], [way])
            except (BrokenPipeError, ConnectionResetError):
                self._replace()
            else:
                return
        raise OSError(errno.EAGAIN, "the watchdog exits again and again")

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Blocked until it ignores them. A function to call before exec would make this a fork of our memory.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603  our own file
                    [
                        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", CODE),
                        *(str(Path(bedrock_worker.__file__).parent), "daemons" if self.daemons else "adopts"),
                    ],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        ours.setblocking(False)
        self._way, self._started_at = ours, loop.time()
        self._dead = os.pidfd_open(self._process.pid)
        loop.add_reader(self._dead, self._replace)

    def _replace(self) -> None:
        """Replace a watchdog that has died; running commands keep their guards."""
        # Minimum seconds of life after which a watchdog counts as stable.
        stayed = asyncio.get_running_loop().time() - self._started_at >= 1.0
        self._short_lived = 0 if stayed else self._short_lived + 1
        self._end()
        while self._idle:
            self.release_guard(self._idle.pop(), killed=False)
        # Maximum short-lived watchdogs in a row that are replaced at once, not with the next command.
        again = self._short_lived <= 3
        event(logging.WARNING, "watchdog was ended", again="at once" if again else "with the next command")
        if again:
            with suppress(OSError):  # the next command tries again, and reports the error
                self._start()

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        asyncio.get_running_loop().remove_reader(self._dead)
        os.close(self._dead)
        assert self._way is not None
        self._way.close()
        self._way = self._process = None
        self._stops.discard(process.pid)
        process.send_signal(signal.SIGCONT)  # the watchdog may be stopped
        try:
            process.wait(kernel.END_S)  # it exits once its socket is closed
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._left = self._left or self._adopts
        self._end_orphans()  # the watchdog may have died with orphans of a guard


# --- a guard's link --------------------------------------------------------------------------------------

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


# --- a reusable process for functions --------------------------------------------------------------------
#
# The worker gives runs directly to it. The guard only waits for the exit of the process, and signals or kills
# it on request. At the deadline of a run, a timer tells the guard to kill the process, even if the worker
# hangs.

HearEnd = Callable[[dict[str, Any]], None]
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
        self._on_end: HearEnd | None = None
        self._data, self._data_before = data, ""
        self.unread = False
        """True if the process died without reading its last run."""
        asyncio.get_running_loop().add_reader(channel.fileno(), self._read_message)

    @property
    def is_alive(self) -> bool:
        """Return whether the process can take a run."""
        return self._way.fileno() >= 0

    def start_run(self, head: bytes, data: str, until: float, hear: HearEnd) -> None:
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
