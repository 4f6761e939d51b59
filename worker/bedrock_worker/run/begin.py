"""Child setup: turns a freshly forked process into a command.

Imports only the standard library and ``kernel``.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bedrock_worker.run import kernel
from bedrock_worker.run.kernel import ControlGroup

CANNOT_KILL, FAULT = 128 + int(signal.SIGKILL), 70
"""Exit statuses that nobody reads: the guard is dead; an internal error (EX_SOFTWARE)."""

DEFAULT_AGAIN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the watchdog or Python ignores, and that a command expects at their defaults."""


def catch_signals() -> None:
    """Install no-op handlers for these signals, which exec resets to the defaults.

    Ignored signals would stay ignored after exec.
    """
    for number in DEFAULT_AGAIN:
        signal.signal(number, lambda *_: None)


def paths_of(program: str, env: Mapping[str, str]) -> list[str]:
    """Return the candidate paths of a program, in search order."""
    if "/" in program:
        return [program]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = [f"{folder}/{program}" if folder else program for folder in folders]
    # To try one that is not there costs more than to look here. What is relative means the folder of the
    # command, and we stand elsewhere.
    there = [path for path in paths if not path.startswith("/") or os.access(path, os.F_OK)]
    return there or paths


def become(
    given: Mapping[str, Any],
    stdio: Sequence[int],
    report: int,
    guard: int,
    group: ControlGroup | None,
    paths: Sequence[str],
) -> NoReturn:
    """Execute the command in this process; on failure write the reason to ``report``, which exec closes.

    It does little: each page of memory that it touches is copied, which is most of the cost of a start.
    """
    where = ""
    try:
        os.setsid()
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # it died before we asked
            os._exit(CANNOT_KILL)
        for at, handle in enumerate(stdio):
            os.dup2(handle, at)
            os.set_inheritable(at, True)  # also if it already had that number
        if group is not None:
            with suppress(OSError):
                group.join()
        where = given["cwd"]
        os.chdir(where)
        where = ""
        if not given["privileges"]:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if given["nice"]:
            os.nice(given["nice"])
        for kind, soft, hard in given["limits"]:
            resource.setrlimit(kind, (soft, hard))
        _exec(paths, given["argv"], given["env"])
    except OSError as error:
        os.write(report, json.dumps({"error": error.errno, "in": where}).encode())
    except BaseException as error:
        os.write(report, json.dumps({"fault": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(FAULT)


def _exec(paths: Sequence[str], argv: list[str], env: Mapping[str, str]) -> None:
    """Try one path after the other; raise the most telling error if none can be executed."""
    why: OSError | None = None
    for path in paths:
        try:
            os.execve(path, argv, env)  # noqa: S606  allowed by the operator, without a shell
        except OSError as error:
            if why is None or why.errno in (errno.ENOENT, errno.ENOTDIR):
                why = error
    raise why or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
