"""A guard starts one command after the other, reports how each ended, and kills its descendants.

The kernel reparents orphans to the guard, including those in sessions of their own. The guard also kills them
when the worker is dead or the lease has expired. The watchdog forks the guards, resumes stopped ones, and
kills what a killed guard leaves behind. Both are small: they import only the standard library and ``kernel``,
``begin`` and ``warm``.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bedrock_worker.run import kernel
from bedrock_worker.run.begin import VFork, become, catch_signals, paths_of
from bedrock_worker.run.kernel import NEVER, ControlGroup
from bedrock_worker.run.warm import Functions

REPORT_AFTER_S = 0.01
"""Seconds after which the start of a run is reported; the start of a shorter run is reported with its end."""

DATA_FILE = "job.json"
"""The file in a run's folder that holds its job; stdin reads from it too."""

BEFORE_FILE = "before.json"
"""The file in a run's folder with the results of the jobs before it in a workflow, a part of its job."""

__all__ = ["BEFORE_FILE", "DATA_FILE", "Guard"]


class Guard:
    """The parent process of the commands of one slot; it lives until the worker releases it."""

    def __init__(
        self, control: socket.socket, parent_group: str | None, *, daemons: bool, note: mmap.mmap
    ) -> None:
        """Serve the worker at the other end of ``control``.

        ``note`` is memory shared with the watchdog, for the path of the folder that the watchdog removes if
        this guard and the worker are killed.
        """
        self._control, self._parent_group, self._daemons = control, parent_group, daemons
        self._note = note
        self._pid = self._end = self._late = 0
        self._serving = False
        self._until = self._tell_at = NEVER
        self._until_requested: float | None = None
        """The latest deadline that the worker set for the pending run."""
        self._started: dict[str, object] = {}
        self._folder = ""
        self._signalled = self._let_go = False
        self._group: ControlGroup | None = None
        self._vfork: VFork | None = None
        self._functions = Functions(self)
        self._next: tuple[bytes, list[int]] | None = None
        self._output: list[int] = []
        self._alarm: list[int] = []
        """The timer after which the guard kills a run that the worker gave directly to a process."""

    def run_commands(self) -> None:
        """Run one command after the other, each until all its descendants end, until the worker is done."""
        if not self._daemons:
            kernel.become_subreaper()
            self._make_group()
        with suppress(OSError):  # not available on every machine
            self._vfork = VFork()
        self._orphans, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        catch_signals()
        self._report({"guard": os.getpid()})
        while True:
            while self._next is None and not self._let_go:
                self._await_message()
            if self._next is None or self._let_go:
                break
            (request, handles), self._next = self._next, None
            self._serve(request, handles)
        self._functions.end()
        self._end_rest()
        with suppress(OSError):  # the command may have stopped our watchdog while its worker is dead
            os.kill(os.getppid(), signal.SIGCONT)
        if self._group is not None:
            self._group.remove()
        if self._folder and self._clear_folder():  # the worker removes it, or we do if the worker dies
            import shutil  # imported here: otherwise each guard is larger, and each fork slower

            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def group_path(self) -> str:
        """Return the path of the control group, empty if there is none."""
        return "" if self._group is None else self._group.path

    def start(
        self, program: Mapping[str, Any], stdio: Sequence[int], *, grouped: bool = False
    ) -> dict[str, object]:
        """Start a program; return its ``pid``, or why it could not be started."""
        ours, paths = os.getpid(), paths_of(program["argv"][0], program["env"])
        if pid := self._start_by_vfork(program, stdio, paths, grouped):
            return {"pid": pid}
        reads, writes = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reads)
            os.close(writes)
            return {"error": error.errno, "in": ""}
        if pid == 0:
            become(program, stdio, writes, ours, self._group if grouped else None, paths)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            why = pipe.read()
        if not why:
            return {"pid": pid}
        os.waitpid(pid, 0)
        reply: dict[str, object] = json.loads(why)
        return reply

    def _start_by_vfork(
        self, program: Mapping[str, Any], stdio: Sequence[int], paths: Sequence[str], grouped: bool
    ) -> int:
        """Start a program without copying memory; return 0 on failure, so that a fork finds the error."""
        if self._vfork is None:
            return 0
        group = self._group.members if grouped and self._group is not None else None
        try:
            os.chdir(program["cwd"])
            try:
                return self._vfork.start(program, stdio, group, paths)
            finally:
                os.chdir("/")  # the guard does not stay in the folder, so that it can be removed
        except OSError:
            return 0

    def report_started(self, pid: int) -> None:
        """Report the process of the run to the worker after ``REPORT_AFTER_S``, or earlier with its end."""
        self._started = {"started": pid, "guard": os.getpid()}
        self._tell_at = time.monotonic() + REPORT_AFTER_S

    def watch(self, pid: int, end: int) -> None:
        """Direct the worker's signals to the group of a process until its pidfd ``end`` becomes readable.

        With ``pid`` 0, signals are kept for the next process.
        """
        self._pid, self._end = pid, end
        if pid and self._late:
            self._signal(self._late)
            self._late = 0

    def process_messages(self, *handles: int) -> set[int]:
        """Process the worker's messages until one of the handles is readable; return the readable ones."""
        control, poll = self._control.fileno(), select.poll()
        for handle in (self._orphans, *handles, *(() if self._let_go else (control,))):
            poll.register(handle, select.POLLIN)
        while True:
            kernel.reap(self._functions.template_pid or self._pid)
            self._functions.end_stop()
            now = time.monotonic()
            if now >= self._until:
                self._until = NEVER
                self._kill()
                continue
            if now >= self._tell_at:
                self._tell_at = NEVER
                self._report(self._started)
            # Longest sleep between two checks of the deadlines.
            left = min(self._until - now, self._tell_at - now, 3_600.0)
            ready = {handle for handle, _ in poll.poll(left * 1_000)}
            if readable := ready.intersection(handles):
                return readable
            if self._orphans in ready:
                os.read(self._orphans, kernel.READ_BYTES)
            if control in ready:
                self._process_message()
                if self._let_go:
                    poll.unregister(control)
                    self._kill()

    def end_group(self, pid: int) -> None:
        """Kill a process group whose leader is not reaped yet, so that no other group can have its id."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)

    def _make_group(self) -> None:
        if self._parent_group is not None:
            group = ControlGroup(self._parent_group, os.getpid())
            with suppress(OSError):
                group.make()
                self._group = group

    def _serve(self, request: bytes, output: list[int]) -> None:
        """Perform one run and report its outcome."""
        self._serving = True
        if self._functions.process is not None:
            self._end_process()
        head, template, data = request.split(b"\n", 2)
        program = json.loads(head.decode())  # str, since json would detect the encoding of bytes
        self._until = NEVER if program["until"] is None else float(program["until"])
        if self._until_requested is not None:
            self._until = self._until_requested
        self._signalled, self._folder = False, ""
        try:
            stdin = self._make_folder(program["folder"], data, program.get("before"))
        except OSError as error:
            message: dict[str, object] = {"folder": error.errno}
        else:
            if not template:
                self._functions.end()
                message = self._run_command(program, (stdin, *output))
            else:
                self._output, output = output or self._output, []
                message = self._functions.run_in_new_process(
                    head, program["runs_max"], template, self._output
                )
            os.close(stdin)
        for handle in output:
            os.close(handle)
        process = self._functions.process
        self._late, self._until_requested = 0, None
        if process is None:
            self._pid = 0
        self._serving = False
        if self._started and self._tell_at == NEVER and "ended" not in message:
            message = {"ended": -signal.SIGKILL}  # a reported start needs a reported end
        if "ended" in message:
            if self._tell_at != NEVER:
                message |= self._started
            message |= {"signalled": self._signalled, "left": self._end_rest()}
        self._started, self._tell_at = {}, NEVER
        if process is None:
            self._report({**message, "files": bool(self._folder) and self._clear_folder()})
        else:  # the worker gives the process further runs directly, in the same folder
            self._report(message, process.way)
            process.way.close()
            self._signalled = False

    def _await_message(self) -> None:
        """Wait for a message of the worker, or for the exit of the process to which the worker gives runs."""
        process = self._functions.process
        if process is None:
            self._process_message()
            return
        control, poll = self._control.fileno(), select.poll()
        for handle in (control, process.end, *self._alarm):
            poll.register(handle, select.POLLIN)
        ready = {handle for handle, _ in poll.poll()}
        if ready.intersection(self._alarm):
            with suppress(BlockingIOError):  # the timer was armed again in the meantime
                os.read(self._alarm[0], kernel.READ_BYTES)
                self._kill()
        if process.end in ready:
            self._end_process()
        elif control in ready:
            self._process_message()

    def _end_process(self) -> None:
        """Kill the process to which the worker gave runs, and all its descendants; report its end."""
        process = self._functions.process
        assert process is not None
        self._until = NEVER  # this deadline was that of its first run
        self._pid = 0  # signals that arrive now are for the next run
        message = {"gone": process.pid, "ended": self._functions.retire()}
        message |= {"signalled": self._signalled, "left": self._end_rest()}
        self._signalled = False
        # The worker removes the folder, after it has read there which run was the last.
        self._report({**message, "files": True, "folder": self._folder})

    def _run_command(self, program: Mapping[str, Any], stdio: Sequence[int]) -> dict[str, object]:
        """Run a command; return how it ended, or why it could not be started."""
        started = self.start(program, stdio, grouped=True)
        pid = started.get("pid")
        if not isinstance(pid, int):
            return started
        end = os.pidfd_open(pid)
        self.watch(pid, end)
        self.report_started(pid)
        self.process_messages(end)
        os.close(end)
        self.end_group(pid)
        _, status = os.waitpid(pid, 0)
        with suppress(BlockingIOError):
            # it contains the SIGCHLD of this run, which would wake the next one
            os.read(self._orphans, kernel.READ_BYTES)
        return {"ended": os.waitstatus_to_exitcode(status)}

    def _make_folder(self, folder: str, data: bytes, before: tuple[int, int] | None) -> int:
        """Create the folder of a run with its job, and return a handle to read the job.

        ``before`` is the first and last offset of the part of the job that gets a file of its own.
        """
        noted = os.fsencode(folder)
        self._note[: len(noted) + 1] = noted + b"\0"
        os.mkdir(folder, 0o700)  # noqa: PTH102  light: this runs for each command
        self._folder = folder
        if before is not None:
            _write_file(f"{folder}/{BEFORE_FILE}", data[slice(*before)])
        path = f"{folder}/{DATA_FILE}"
        _write_file(path, data)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _clear_folder(self) -> bool:
        """Remove the run's folder if it holds only the job; return whether the folder still exists."""
        try:
            for name in (DATA_FILE, BEFORE_FILE):
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{name}")  # noqa: PTH108
            os.rmdir(self._folder)  # noqa: PTH106
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def _end_rest(self) -> int:
        """Kill the processes that the run left; return how many could not be killed."""
        if self._daemons:
            return 0
        if self._group is not None and self._functions.process is None:
            self._group.kill()
        template = self._functions.living_template()
        if template and kernel.only_child(template):
            return 0
        return kernel.end_children({template})

    def _process_message(self) -> None:
        """Process one message of the worker; an empty one means that the worker is gone."""
        word, value, handles = kernel.receive(self._control)
        if not word:
            self._let_go = True
        elif word == b"run":
            self._next = value, handles
        elif word == b"ask":
            self._report({"there": True})
        elif word == b"alarm":
            for handle in self._alarm:
                os.close(handle)
            self._alarm = handles
        elif word == b"retire":
            if self._functions.process is not None and int(value) == self._functions.process.pid:
                self._end_process()
        elif not self._serving and self._next is None and self._functions.process is None:
            return  # too late: its target has ended
        elif word == b"until":
            self._until = float(value)
            if self._serving or self._next is not None:
                self._until_requested = self._until
        elif self._pid:
            self._signal(int(value))
        else:
            self._late = int(value)
            if self._late == signal.SIGKILL:  # it must not wait for a process that may never start
                self._signalled = True
                self._kill()

    def _signal(self, number: int) -> None:
        """Signal the group of the run if it has not ended."""
        if not select.select([self._end], [], [], 0)[0]:
            self._signalled = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def _kill(self) -> None:
        if self._group is not None:
            self._group.kill()
        self._functions.kill()
        if self._pid and not select.select([self._end], [], [], 0)[0]:
            self.end_group(self._pid)

    def _report(self, message: Mapping[str, object], *handles: socket.socket) -> None:
        with suppress(OSError):  # the worker is gone
            socket.send_fds(
                self._control, [json.dumps(message).encode()], [handle.fileno() for handle in handles]
            )


def _write_file(path: str, data: bytes) -> None:
    """Create a file that only its owner can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        kernel.write_all(handle, data)
    finally:
        os.close(handle)


# --- the watchdog ----------------------------------------------------------------------------------------
#
# It runs in an isolated interpreter, and exits after the worker and the last guard.

ROUND_S = 0.5
"""Maximum seconds of one round of killing what a killed guard left; requests of the worker wait meanwhile."""

ROUNDS_MAX = 10
"""Maximum rounds of killing, between which requests are served: some processes may not be killable."""

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that the watchdog ignores: the worker handles what a supervisor sends to all processes. The worker
starts it with these blocked."""


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
        status = os.EX_SOFTWARE  # unless it can be reaped
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
            folder = mmap.mmap(-1, 4_096)  # for the path of its run's folder (``PATH_MAX``)
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
        status = os.EX_SOFTWARE  # unless its work is done; otherwise the watchdog kills what it left
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
