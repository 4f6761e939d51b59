"""The worker's end of its watchdog: starts it and tells it which process groups and folders end with us.

What the watchdog does is in ``watchdog``. There is one for all commands of a worker.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from bedrock_worker.log import event
from bedrock_worker.run import watchdog

END_S = 5.0
"""Time for the watchdog to end once its pipe is closed; it has nothing left to do."""


IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a supervisor sends to all processes of a service: the worker decides what they mean."""


def _ignore() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)


class WatchdogClient:
    """A watchdog, started when the first command needs it, and again where somebody ended it."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._groups: dict[int, int] = {}
        self._folders: set[Path] = set()

    def expect(self) -> tuple[int, int, bytes]:
        """Return a number for a command, the handle to announce itself on, and the beginning of what it says.

        It says that and its process group. Raises OSError where no watchdog can be started.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        number = next(self._numbers)
        return number, self._stdin.fileno(), b"run %d " % number

    def begun(self, number: int, group: int) -> None:
        """Know a command that has announced itself."""
        self._groups[number] = group

    def until(self, number: int, moment: float) -> None:
        """Let a command live until a monotonic moment, which may be infinite; it need not have begun."""
        self._tell(f"until {number} {moment!r}\n".encode())

    def over(self, number: int) -> None:
        """Forget a command, before its group's id can become another's; or one that could not be started."""
        self._groups.pop(number, None)
        self._tell(b"over %d\n" % number)

    @contextmanager
    def folder(self, prefix: str) -> Iterator[Path]:
        """Make a folder, and remove it at the end with all that is in it; if we die, the watchdog does."""
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._folders.add(folder)
        self._tell_of(b"folder", folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                event(logging.WARNING, "folder not removed", folder=folder)
            self._folders.discard(folder)
            self._tell_of(b"removed", folder)

    def close(self) -> None:
        """End the watchdog."""
        if self._process is not None:
            self._leave(self._process)

    def _start(self) -> None:
        if self._process is not None:
            self._leave(self._process)
        self._process = subprocess.Popen(  # noqa: S603  our own file
            [sys.executable, "-I", "-S", str(Path(watchdog.__file__)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            env={},
            cwd="/",
            start_new_session=True,
            preexec_fn=_ignore,
        )
        for number, group in self._groups.items():
            self._tell(b"run %d %d\n" % (number, group))
        for folder in self._folders:
            self._tell_of(b"folder", folder)

    def _tell_of(self, word: bytes, folder: Path) -> None:
        line = b"%s %s\n" % (word, os.fsencode(folder).hex().encode())
        if self._process is not None and len(line) <= select.PIPE_BUF:  # else it could mix with others
            self._tell(line)

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process is not None
        assert self._process.stdin is not None
        return self._process.stdin

    def _tell(self, line: bytes) -> None:
        with suppress(BrokenPipeError):  # the next command starts another one
            self._stdin.write(line)

    def _leave(self, process: subprocess.Popen[bytes]) -> None:
        self._stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None
