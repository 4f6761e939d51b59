"""The watchdog process: forks the guards, resumes stopped ones, and kills what a killed guard leaves behind.

It exits after the worker and the last guard. It runs in an isolated interpreter and imports only the standard
library, ``guard`` and ``kernel``.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import select
import signal
import socket
from contextlib import suppress
from typing import NoReturn

from bedrock_worker.run import kernel
from bedrock_worker.run.guard import FAULT, Guard

ROUND_S = 0.5
"""Maximum seconds of one round of killing what a killed guard left; requests of the worker wait meanwhile."""

ROUNDS_MAX = 10
"""Maximum rounds of killing, between which requests are served: some processes may not be killable."""

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that the watchdog ignores: the worker handles what a supervisor sends to all processes. The worker
starts it with these blocked."""

FOLDER_BYTES = 4_096
"""Bytes of shared memory in which a guard stores the path of its run's folder (``PATH_MAX``)."""


class Watchdog:
    """Forks the guards, and exits after the worker and the last of them."""

    def __init__(self, worker: socket.socket, *, adopts: bool) -> None:
        self._worker, self._adopts = worker, adopts
        self._parent_group = kernel.own_control_group() if adopts else None
        self._guards: dict[int, int] = {}
        self._stops = kernel.Stops()
        self._folders: dict[int, mmap.mmap] = {}
        """Shared memory with the folder of each guard's run, by process id."""
        self._left: list[bytes] = []
        """Folders of runs whose guards were killed; removed if the worker dies before it removes them."""
        self._rounds_left = 0
        """How many rounds of killing the processes that killed guards left may still follow."""
        self._poll = select.poll()

    def fork_guards(self) -> None:
        """Fork guards while the worker is connected, then wait for the last of them."""
        if self._adopts:
            kernel.become_subreaper()
        children, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(children, select.POLLIN)
        self._poll.register(self._worker, select.POLLIN)
        there = True
        while there or self._guards or self._rounds_left:
            for handle, _ in self._poll.poll(ROUND_S * 1_000 if self._rounds_left else None):
                if handle == children:
                    with suppress(BlockingIOError):
                        os.read(children, kernel.READ_BYTES)
                    self._end_stops()
                elif handle in self._guards:
                    self._clean_up(handle, alone=not there)
                elif not self._serve():
                    there = False
                    self._poll.unregister(self._worker)
                    self._remove_leftover_folders()
            if self._rounds_left:
                self._end_rest()

    def _end_stops(self) -> None:
        """Resume stopped guards: only they enforce the time limits of their runs."""
        for handle, pid in self._guards.items():
            if kernel.was_stopped(pid):
                self._stops.end(pid, handle)

    def _clean_up(self, handle: int, *, alone: bool) -> None:
        """Clean up after a guard that has ended; if it was killed, kill its descendants and tell the worker.

        With ``alone``, the worker is dead: then remove the folder of the run too.
        """
        pid = self._guards.pop(handle)
        self._stops.discard(pid)
        self._poll.unregister(handle)
        os.close(handle)
        status = FAULT  # unless it can be reaped
        with suppress(ChildProcessError):
            _, status = os.waitpid(pid, 0)
        if self._adopts and status:
            group = None if self._parent_group is None else kernel.ControlGroup(self._parent_group, pid)
            if group is not None:
                group.kill()
            if kernel.end_children(set(self._guards.values()), seconds=ROUND_S):
                self._rounds_left = ROUNDS_MAX
            if group is not None:
                group.remove()
        folder = self._folders.pop(pid)
        if status and (path := folder[:].partition(b"\0")[0]):
            self._left = [*filter(os.path.lexists, self._left), path]
            if alone:
                self._remove_leftover_folders()
        folder.close()
        kernel.reap(0)
        if status:
            with suppress(OSError):  # the worker is gone, or reads nothing
                self._worker.send(b"%d" % pid, socket.MSG_DONTWAIT)

    def _end_rest(self) -> None:
        """Kill what killed guards left; some of it becomes our child late, when its own parent has ended."""
        left = kernel.end_children(set(self._guards.values()), seconds=ROUND_S)
        self._rounds_left = self._rounds_left - 1 if left else 0

    def _remove_leftover_folders(self) -> None:
        """Remove the folders that the worker did not remove before it died."""
        import shutil  # imported here: otherwise each guard is larger, and each fork slower

        for path in self._left:
            shutil.rmtree(path, ignore_errors=True)
        self._left = []

    def _serve(self) -> bool:
        """Fork a guard; return whether the worker is still connected."""
        word, _, handles = kernel.receive(self._worker)
        if not word:
            return False
        if handles:
            folder = mmap.mmap(-1, FOLDER_BYTES)
            try:
                pid = os.fork()
            except OSError as error:
                os.write(handles[0], json.dumps({"error": error.errno, "in": "", "files": False}).encode())
            else:
                if pid == 0:
                    self._guard(handles[0], folder)
                guard = os.pidfd_open(pid)
                self._guards[guard] = pid
                self._folders[pid] = folder
                self._poll.register(guard, select.POLLIN)
        for handle in handles:
            os.close(handle)
        return True

    def _guard(self, control: int, folder: mmap.mmap) -> NoReturn:
        """Run as a guard, in the forked process."""
        status = FAULT  # unless its work is done; otherwise the watchdog kills what it left
        kernel.resume_with_death_of_parent()  # the parent is this watchdog, or the worker after it
        try:
            self._worker.close()
            for guard in self._guards:
                os.close(guard)
            daemons = not self._adopts
            Guard(
                socket.socket(fileno=control), self._parent_group, daemons=daemons, note=folder
            ).run_commands()
            status = 0
        except BaseException as error:
            with suppress(OSError):
                os.write(control, json.dumps({"fault": f"{type(error).__name__}: {error}"}).encode())
        finally:
            os._exit(status)


def main(adopts: bool) -> None:
    """Serve the worker at the other end of stdin."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    kernel.protect()
    kernel.resume_with_death_of_parent()
    worker = socket.socket(fileno=os.dup(0))
    os.dup2(1, 0)  # /dev/null
    gc.freeze()  # guards share the memory of existing objects
    Watchdog(worker, adopts=adopts).fork_guards()
