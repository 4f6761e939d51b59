"""The worker's interface to its watchdog: starts and restarts it, and obtains guards from it.

A worker has one watchdog, and one guard per slot.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import bedrock_worker
from bedrock_worker.log import event
from bedrock_worker.run import kernel
from bedrock_worker.run.guard_link import GuardLink
from bedrock_worker.run.watchdog import IGNORED, ROUND_S

CODE = """
import sys
_, folder, kind = sys.argv
package = sys.modules["bedrock_worker"] = type(sys)("bedrock_worker")
package.__path__ = [folder]
from bedrock_worker.run.watchdog import main
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

CLEAN_UP_S = 2 * ROUND_S
"""Maximum seconds that the whole worker waits for the watchdog to clean up after a killed guard."""

STARTS_MAX = 2
"""Maximum requests for one guard: the watchdog may have been killed just before the first request."""


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

        A watchdog that does not report this within ``CLEAN_UP_S`` is stopped or busy; it cleans up later.
        """
        assert self._way is not None
        self._resume_watchdog()
        loop, poll = asyncio.get_running_loop(), select.poll()
        deadline = loop.time() + CLEAN_UP_S
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
        for _ in range(STARTS_MAX):
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
