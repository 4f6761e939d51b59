"""``python -P -m bedrock_worker.run.template MODULE [FOLDER]``: imports a module and forks for its runs.

Through stdin, a socket, the guard asks for a process and sends its first run; the worker then gives that
process further runs (``pooled``). A process exits after its last run, and after a run that left something
behind or changed the process state (``process_state``).
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from bedrock_worker import current, functions
from bedrock_worker.functions import DONE, FAIL_PERMANENTLY, RAISED, RETRY, SNOOZE, TRY_AGAIN, UNFIT, look_in
from bedrock_worker.run import kernel, run_function
from bedrock_worker.run.kernel import ControlGroup
from bedrock_worker.run.process_state import ITIMERS, OFF, ProcessState, flushed

RESULT_BYTES_MAX = 3_000
"""Maximum bytes of a result that is sent with the end of its run; a larger one stays in the result file."""

BEFORE = "BEDROCK_BEFORE_FILE"
"""The variable with the path of the file that has the results of earlier jobs of the workflow."""

STAYS = (DONE, SNOOZE, RETRY, FAIL_PERMANENTLY, UNFIT)
"""Exit statuses of functions that ended normally; after any other status, the process is not reused."""


def main(arguments: Sequence[str]) -> int:
    """Import a module and fork processes until the guard is gone; return the exit status."""
    module, *folders = arguments
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    run_function.print_line_by_line()
    for folder in folders:
        look_in(folder)
    before = dict(os.environb), os.getcwd()  # noqa: PTH109  compared after the import
    try:
        importlib.import_module(module)
    except Exception:
        traceback.print_exc()
        return RAISED
    imported = _Imported(*before)
    flushed()
    for at in (1, 2):  # later output belongs to no run
        os.dup2(nothing, at)
    run_function.prepare(module)
    _renew_stdin(os.devnull)  # prepared once instead of in each fork
    gc.freeze()  # forked processes share the memory of existing objects
    channel.send(b'{"ready": true}')
    return _serve(channel, imported)


class _Imported:
    """What the import of a module changed in this process; each run finds the same changes."""

    def __init__(self, environment: Mapping[bytes, bytes], folder: str) -> None:
        """Record the changes since ``environment`` and ``folder``; undo what would end the template."""
        now = dict(os.environb)
        self.set = {name: value for name, value in now.items() if environment.get(name) != value}
        self.unset = environment.keys() - now.keys()
        there = os.getcwd()  # noqa: PTH109
        self.folder = None if there == folder else there
        self.timers = [(kind, signal.setitimer(kind, 0.0)) for kind in ITIMERS]
        self.temporary = _temporary_folder()
        self._on_child = signal.getsignal(signal.SIGCHLD)
        # otherwise the module or the kernel might reap our children
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def begin_process(self) -> None:
        """Restore in a forked process the module's handler of SIGCHLD."""
        if self._on_child not in (None, signal.SIG_DFL):
            signal.signal(signal.SIGCHLD, self._on_child)

    def begin_run(self) -> None:
        """Set the timers that the import had set."""
        for kind, left in self.timers:
            if left != OFF:
                signal.setitimer(kind, *left)

    def end_run(self) -> None:
        """Cancel the timers that the import had set."""
        for kind, left in self.timers:
            if left != OFF:
                signal.setitimer(kind, 0.0)


def _temporary_folder() -> str | None:
    """Return the temporary folder that the module has set, or None; set the default folder again."""
    tempfile = sys.modules.get("tempfile")
    if tempfile is None or tempfile.tempdir is None:
        return None
    chosen, tempfile.__dict__["tempdir"] = tempfile.tempdir, None
    return None if chosen == tempfile.gettempdir() else str(chosen)


def _serve(channel: socket.socket, imported: _Imported) -> NoReturn:
    ours, prepared = os.getpid(), False
    while True:
        word, value, handles = kernel.receive(channel)
        if not word:
            os._exit(DONE)  # without exit handlers: those belong to the runs
        if word == b"reap":
            _, status = os.waitpid(int(value), 0)
            channel.send(b'{"status": %d}' % os.waitstatus_to_exitcode(status))
            continue
        ended, group, first, head = value.split(b"\n", 3)
        # Done before the fork, since the child copies each page that it touches.
        request = json.loads(head.decode())
        environment = _Environment(request["env"], imported)
        if not prepared:  # once, so that the variables exist and the child only changes them
            environment.set(request["own"])
            prepared = True
        try:
            pid = os.fork()
        except OSError as error:
            channel.send(b'{"error": %d}' % (error.errno or 0))
        else:
            if pid == 0:
                channel.close()
                mine = socket.socket(fileno=handles[0])
                _be_process(
                    mine, ours, os.fsdecode(group), first, request, environment, imported, handles[1:]
                )
        for handle in handles:
            os.close(handle)
        if ended != b"0":  # the previous process, whose status the guard has already
            os.waitpid(int(ended), 0)


def _be_process(
    channel: socket.socket,
    template: int,
    group: str,
    word: bytes,
    request: dict[str, Any],
    environment: _Environment,
    imported: _Imported,
    handles: Sequence[int],
) -> NoReturn:
    """Perform runs in a forked process; ``request`` describes the first."""
    os.setsid()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != template:  # the parent died before PDEATHSIG was set
        os._exit(RAISED)
    if group:
        with suppress(OSError):
            ControlGroup.at(group).join()
    channel.send(b'{"pid": %d}' % os.getpid())
    *output, progress = handles
    for at, handle in enumerate(output, 1):
        os.dup2(handle, at)
        os.close(handle)
        os.set_blocking(at, True)  # shared with an earlier process, which may have changed it
    current.report_progress_to(progress)
    imported.begin_process()
    if word == b"again":
        kernel.become_subreaper()  # so that it also becomes the parent of orphans
    state: ProcessState | None = None
    data = file = None
    folder, name = os.path.split(request["env"]["BEDROCK_DATA_FILE"])
    while word:
        try:
            if data is not None:
                file = _renew(folder, name, data)
                if "before" in request:
                    _renew(*os.path.split(request["own"][BEFORE]), data[slice(*request["before"])])
        except OSError:
            traceback.print_exc()
            _exit(TRY_AGAIN, None, channel)
        environment.set(request["own"])
        if state is None and word == b"again":
            with suppress(Exception):  # the run raises it again
                functions.open_lifespans()  # before the state is recorded: it stays from run to run
            state = ProcessState()
        imported.begin_run()
        status, result = _perform_run(request, environment, imported, data, file)
        imported.end_run()
        if "before" in request:
            with suppress(OSError):
                os.unlink(request["own"][BEFORE])  # noqa: PTH108
        reusable = word == b"again" and status in STAYS and not _has_children()
        if not (reusable and flushed() and state is not None and state.same()):
            _exit(status, result, channel)
        channel.send(_end("done", status, result, _holds_more(folder, name)))
        word, text, _ = kernel.receive(channel)
        if word:
            head, _, data = text.partition(b"\n")
            request = json.loads(head.decode())  # str, since json would detect the encoding of bytes
    run_function.close_lifespans()
    os._exit(DONE)


def _holds_more(folder: str, name: str) -> bool:
    """Return whether a run left anything in its folder but the file ``name``, its job."""
    try:
        return os.listdir(folder) != [name]  # noqa: PTH208  light: this is done for each run
    except OSError:
        return True


def _renew(folder: str, name: str, data: bytes) -> os.stat_result:
    """Write the next job into the folder, and return the ``stat`` result of its file.

    The file is never truncated to zero: some file systems flush a file that is emptied and rewritten.
    """
    path = f"{folder}/{name}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError:  # the previous run removed the folder, or replaced the file
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
        handle = os.open(path, flags | os.O_EXCL, 0o600)
    try:
        kernel.write_all(handle, data)
        file = os.fstat(handle)
        if file.st_size != len(data):
            os.ftruncate(handle, len(data))
        return file
    finally:
        os.close(handle)


def _perform_run(
    request: dict[str, Any],
    environment: _Environment,
    imported: _Imported,
    data: bytes | None,
    file: os.stat_result | None,
) -> tuple[int, str | None]:
    """Perform one run; return its exit status, and its result, or None if that is in the result file."""
    if "tempfile" in sys.modules:  # which has cached the folder of another run
        sys.modules["tempfile"].__dict__["tempdir"] = imported.temporary
    os.chdir(request["cwd"] if imported.folder is None else imported.folder)
    _renew_stdin(environment.data_file, file)
    results: list[str] = []

    def keep(text: str) -> None:
        if len(text) <= RESULT_BYTES_MAX and len(text.encode()) <= RESULT_BYTES_MAX:
            results.append(text)
        else:
            Path(environment["BEDROCK_RESULT"]).write_text(text, encoding="utf-8")

    module, function = request["function"]
    job = _read_all(0) if data is None else data
    status = run_function.run_for_job(module, function, job.decode(), keep)
    return status, results[-1] if results else None


def _read_all(handle: int) -> bytes:
    """Return the content of a file, without moving its offset."""
    data = b""
    while more := os.pread(handle, os.fstat(handle).st_size, len(data)):
        data += more
    return data


def _end(word: str, status: int, result: str | None, files: bool = False) -> bytes:
    """Return the message that reports the end of a run: a line of JSON, and its result."""
    head = b'{"%s": %d, "files": %s}\n' % (word.encode(), status, b"true" if files else b"false")
    return head if result is None else head + result.encode()


_clearenv = ctypes.PyDLL(None).clearenv
_stdin: list[TextIO] = []
"""The stdin of this process's runs, which holds the job."""


def _renew_stdin(path: str, file: os.stat_result | None = None) -> None:
    """Make stdin read the job at ``path``; usually it is open already, and only has to be rewound."""
    try:
        same = os.path.samestat(os.fstat(0), file or os.stat(path))  # noqa: PTH116  light: done for each run
    except OSError:  # a run closed it
        same = False
    if same:
        os.lseek(0, 0, os.SEEK_SET)
    else:
        stdin = os.open(path, os.O_RDONLY)
        os.dup2(stdin, 0)
        if stdin:
            os.close(stdin)
        os.set_inheritable(0, True)  # so that programs it starts can read the job too
    try:
        _stdin[0].seek(0)
    except (LookupError, ValueError, OSError):  # not created yet, or closed by a run
        _stdin[:] = [open(0, closefd=False)]  # noqa: SIM115  lives as long as the process
    sys.stdin = _stdin[0]


_ENCODING = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class _Environment:
    """The environment of the runs in this process: a common ``base``, and variables of each run."""

    def __init__(self, base: Mapping[str, str], imported: _Imported) -> None:
        """Start with the common variables; those that the module has set (``imported``) take precedence."""
        self._base = {os.fsencode(name): os.fsencode(value) for name, value in base.items()}
        self._imported = imported
        self.data_file = base.get("BEDROCK_DATA_FILE", "")

    def __getitem__(self, name: str) -> str:
        return os.fsdecode(self._base[os.fsencode(name)])

    def set(self, own: Mapping[str, str]) -> None:
        """Replace the environment by that of a run, with the run's ``own`` variables."""
        environment = os.environ.__dict__[
            "_data"
        ]  # in bytes: converting its texts takes several times as long
        how = _ENCODING  # the arguments that fsencode uses, which takes twice the time
        variables = {**self._base, **{name.encode(*how): value.encode(*how) for name, value in own.items()}}
        variables |= self._imported.set
        for name in self._imported.unset:
            variables.pop(name, None)
        _clearenv()  # a run may have set variables without Python's knowledge
        environment.clear()
        environment.update(variables)
        for name, value in variables.items():
            os.putenv(name, value)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _exit(status: int, result: str | None, channel: socket.socket) -> NoReturn:
    """Exit like the interpreter, but skip its teardown, which costs more than the fork.

    The status is sent to the guard, which then need not wait until the template has reaped this process.
    """
    run_function.close_lifespans()
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()  # waits for threads, as multiprocessing does
    atexit._run_exitfuncs()
    if not flushed():
        status = status or run_function.NOT_FLUSHED
    with suppress(OSError):  # the run may have closed it
        channel.send(_end("exit", status, result))
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
