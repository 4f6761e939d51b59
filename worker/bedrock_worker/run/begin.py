"""Starts commands: in a child that shares our memory until exec, as with ``vfork``, or in a forked process.

Imports only the standard library and ``kernel``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bedrock_worker.run import kernel
from bedrock_worker.run.kernel import ControlGroup

# Starting a program like ``vfork``: the child borrows our memory until exec, so nothing is copied.
#
# No Python may run in such a child, since it would change our memory. The child only makes prepared calls of
# the C library: each is a context (``makecontext``) linked to the next one.


MACHINES = ("x86_64", "aarch64")
"""Machines with the ``ucontext_t`` layout of ``_Context``; on others, programs are started by a fork."""

PATHS_MAX = 16
"""Maximum candidate paths of a program; with more, it is started by a fork."""

CALLS_MAX = 20 + PATHS_MAX
"""Maximum calls of a child: one per path and per resource limit, and a dozen others."""

CONTEXT_BYTES, STACK_BYTES = 8_192, 32_768
"""Bytes of each call's context and stack (with room for a signal). Untouched pages cost nothing."""

ARGUMENTS_MAX = 5
"""Maximum arguments of one of ``CALLS``."""

CLONE_VM, CLONE_VFORK = 0x100, 0x4000
"""Flags of ``clone(2)``: share the memory, and suspend the parent until exec or exit."""

FAILED = 127
"""Exit status of a child that could not execute the program."""

CALLS = (
    *("write", "setsid", "signal", "prctl", "close", "dup2", "nice", "setrlimit", "execve"),
    *("memset", "_exit"),
)
"""The C functions that a child may call."""

_libc = ctypes.PyDLL(None)  # does not release the GIL
_Word = ctypes.c_size_t

Call = tuple[str, *tuple[int, ...]]
"""One of ``CALLS`` with its arguments."""


class _Context(ctypes.Structure):
    """The beginning of ``ucontext_t``."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("next", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_flags", ctypes.c_int),
        ("stack_bytes", ctypes.c_size_t),
    )


class VFork:
    """Starts programs one at a time, in a single-threaded process."""

    def __init__(self) -> None:
        """Prepare all that is constant; raises OSError on other machines or C libraries."""
        if os.uname().machine not in MACHINES or ctypes.sizeof(_Word) != 8:
            raise OSError(f"no contexts are known of {os.uname().machine}")
        try:
            self._functions = {name: _place(name) for name in CALLS}
            self._begin = _place("setcontext")
            self._clone, self._make, look = _libc.clone, _libc.makecontext, _libc.getcontext
        except AttributeError as error:
            raise OSError(f"a C library without contexts: {error}") from None
        self._clone.argtypes = [_Word, _Word, ctypes.c_int, _Word]
        self._make.argtypes = [_Word, _Word, ctypes.c_int, *[_Word] * ARGUMENTS_MAX]
        look.argtypes = [_Word]
        each = CONTEXT_BYTES + STACK_BYTES
        self._memory = mmap.mmap(-1, each * (CALLS_MAX + 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._places = [begin + each * at for at in range(CALLS_MAX)]
        self._contexts = [_Context.from_address(at) for at in self._places]
        self._stack = begin + each * (CALLS_MAX + 1)  # the stack grows downwards
        for at, context in zip(self._places, self._contexts, strict=True):
            look(at)
            context.stack, context.stack_bytes = at + CONTEXT_BYTES, STACK_BYTES
        self._mark = ctypes.create_string_buffer(1)
        self._zero = ctypes.create_string_buffer(b"0")
        self._alive, self._asks = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._failed: list[Call] = [("memset", ctypes.addressof(self._mark), 1, 1), ("_exit", FAILED)]
        pid = self._do(self._failed)
        if pid <= 0 or os.waitpid(pid, 0)[1] != FAILED << 8 or not self._is_complete():
            raise OSError("contexts have an unexpected layout")

    def start(
        self, program: Mapping[str, Any], stdio: Sequence[int], group: int | None, paths: Sequence[str]
    ) -> int:
        """Execute the first usable of several paths; return its process id, or 0 if none could be executed.

        The process has its own session, our folder, ``stdio`` and no other handle, and dies with us.
        ``group`` is the handle through which it joins its control group.
        """
        if (
            len(paths) > PATHS_MAX
            or min(stdio) < max(3, len(stdio))  # 0 to 2 become the program's stdin, stdout and stderr
            or not all(_may_be(*limit) for limit in program["limits"])
        ):
            return 0
        limits = [(kind, (ctypes.c_ulong * 2)(soft, hard)) for kind, soft, hard in program["limits"]]
        argv, env = (
            _texts(program["argv"]),
            _texts([f"{name}={value}" for name, value in program["env"].items()]),
        )
        files = [ctypes.create_string_buffer(os.fsencode(path)) for path in paths]
        zero, exec_with = ctypes.addressof(self._zero), (ctypes.addressof(argv), ctypes.addressof(env))
        calls: list[Call] = [
            *([] if group is None else [("write", group, zero, 1)]),  # "0" means the writing process
            ("setsid",),
            ("signal", signal.SIGPIPE, 0),  # SIG_DFL
            ("prctl", kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            # If we died before PDEATHSIG was set, this pipe has no reader, and SIGPIPE kills the child.
            ("close", self._alive),
            ("write", self._asks, zero, 1),
            *(("dup2", handle, at) for at, handle in enumerate(stdio)),
            *([] if program["privileges"] else [("prctl", kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)]),
            *([("nice", program["nice"])] if program["nice"] else []),
            *(("setrlimit", kind, ctypes.addressof(values)) for kind, values in limits),
            *(("execve", ctypes.addressof(file), *exec_with) for file in files),
        ]
        pid = self._do([*calls, *self._failed])
        if pid > 0 and self._is_complete():
            os.waitpid(pid, 0)
            return 0
        return max(pid, 0)

    def _do(self, calls: Sequence[Call]) -> int:
        """Make calls in a child, one after the other, until it executes the program or exits."""
        last = len(calls) - 1
        for at, (name, *words) in enumerate(calls):
            self._contexts[at].next = self._places[at + 1] if at < last else None
            words += [0] * (ARGUMENTS_MAX - len(words))
            self._make(self._places[at], self._functions[name], ARGUMENTS_MAX, *words)
        flags = CLONE_VM | CLONE_VFORK | signal.SIGCHLD
        return int(self._clone(self._begin, self._stack, flags, self._places[0]))

    def _is_complete(self) -> bool:
        """Return whether a child made all of its calls: then it has not executed the program."""
        mark, self._mark[0] = self._mark[0], b"\0"
        return mark != b"\0"


def _place(name: str) -> int:
    return ctypes.cast(getattr(_libc, name), ctypes.c_void_p).value or 0


def _may_be(kind: int, soft: int, hard: int) -> bool:
    """Return whether we may set a resource limit; the child itself would ignore the failure."""
    _, ours = resource.getrlimit(kind)
    return soft <= hard and (ours == resource.RLIM_INFINITY or hard <= ours)


def _texts(texts: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return texts as a NULL-terminated array."""
    return (ctypes.c_char_p * (len(texts) + 1))(*map(os.fsencode, texts), None)


RESET_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the watchdog or Python ignores, and that a command expects at their defaults."""


def catch_signals() -> None:
    """Install no-op handlers for ``RESET_SIGNALS``, so that exec resets them to the defaults.

    Ignored signals would stay ignored after exec.
    """
    for number in RESET_SIGNALS:
        signal.signal(number, lambda *_: None)


def paths_of(program: str, env: Mapping[str, str]) -> list[str]:
    """Return the candidate paths of a program, in search order."""
    if "/" in program:
        return [program]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = [f"{folder}/{program}" if folder else program for folder in folders]
    # Trying a nonexistent path costs more than a check here. Relative paths are relative to the command's
    # folder, which is not our current folder.
    existing = [path for path in paths if not path.startswith("/") or os.access(path, os.F_OK)]
    return existing or paths


def become(
    program: Mapping[str, Any],
    stdio: Sequence[int],
    report: int,
    guard: int,
    group: ControlGroup | None,
    paths: Sequence[str],
) -> NoReturn:
    """Execute the command in this process; on failure write the reason to ``report``, which exec closes.

    Each page of memory that it touches is copied, which is most of the cost of a start: so it does little.
    """
    where = ""
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # the parent died before PDEATHSIG was set
            os._exit(os.EX_SOFTWARE)
        for at, handle in enumerate(stdio):
            os.dup2(handle, at)
            os.set_inheritable(at, True)  # also if the number is already the right one
        if group is not None:
            with suppress(OSError):
                group.join()
        where = program["cwd"]
        os.chdir(where)
        where = ""
        if not program["privileges"]:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if program["nice"]:
            os.nice(program["nice"])
        for kind, soft, hard in program["limits"]:
            resource.setrlimit(kind, (soft, hard))
        _exec(paths, program["argv"], program["env"])
    except OSError as error:
        os.write(report, json.dumps({"error": error.errno, "in": where}).encode())
    except BaseException as error:
        os.write(report, json.dumps({"fault": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(os.EX_SOFTWARE)


def _exec(paths: Sequence[str], argv: list[str], env: Mapping[str, str]) -> None:
    """Try the paths in order; raise the most telling error if none can be executed."""
    why: OSError | None = None
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606  allowed by the operator, without a shell
        except OSError as error:
            if why is None or why.errno in (errno.ENOENT, errno.ENOTDIR):
                why = error
    raise why or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
