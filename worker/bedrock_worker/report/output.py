"""Sends a run's output lines and progress to the server while the run goes on.

Lines are sent in order, in batches, each exactly once. While the server cannot be reached, they wait in a
bounded queue. Of the progress, only the latest state is sent: earlier ones may be skipped.
"""

from __future__ import annotations

import asyncio
import io
import logging
import re
import tempfile
from collections import deque
from dataclasses import dataclass
from typing import Any, cast

from bedrock_worker.current import PROGRESS
from bedrock_worker.log import event, printable
from bedrock_worker.pull import ServerLink, TakenJob, pause
from bedrockjobs.base import jsontext
from bedrockjobs.base.config import OUTPUT_LINE_CHARS_MAX, OUTPUT_LINES_PER_APPEND_MAX
from bedrockjobs.base.errors import CommandError, NotFound, UnknownCommand, WrongState
from bedrockjobs.commands import AppendOutput, UpdateJob

# Splitting output into lines of bounded length. No I/O.


LINE_BYTES_MAX = 4_096
"""Maximum bytes of a line; the rest is dropped.

A longer line that overwrites itself after ``\\r``, such as a progress bar, is kept as it was printed last.
"""

CUT = " [cut]"
"""The end of a truncated line."""


class LineSplitter:
    """Splits a stream, which arrives in pieces of any size, into lines of bounded length."""

    def __init__(self) -> None:
        self._part = bytearray()
        self._cut = False
        self._long = False
        """True if the line exceeds the limit, so that only what follows its last ``\\r`` is kept."""
        self._returned = False
        """True after a ``\\r``, so that the next bytes overwrite the line."""

    def feed(self, data: bytes) -> list[str]:
        """Add bytes and return the completed lines."""
        lines: list[str] = []
        *ends, rest = data.split(b"\n")
        for piece in ends:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def end(self) -> list[str]:
        """Return the incomplete last line, if there is one."""
        return [self._take()] if self._part else []

    def _add(self, piece: bytes) -> None:
        if not self._long:
            self._part += piece
            if len(self._part) <= LINE_BYTES_MAX:
                return
            piece, self._long = bytes(self._part), True
            self._part.clear()
        text = piece.rstrip(b"\r")
        if text:
            state = text[text.rfind(b"\r") + 1 :]
            if self._returned or len(state) < len(text):
                self._part.clear()
                self._cut = False
            room = LINE_BYTES_MAX - len(self._part)
            self._part += state[:room]
            self._cut = self._cut or len(state) > room
            self._returned = False
        self._returned = self._returned or len(text) < len(piece)

    def _take(self) -> str:
        text = self._part.decode("utf-8", "replace").rstrip("\r") + (CUT if self._cut else "")
        self._part.clear()
        self._cut = self._long = self._returned = False
        return text


BATCH_BYTES_MAX = 512 * 1024
"""Maximum bytes of the lines in one request, which stay in memory until the server has them."""

PROGRESS_PAUSE_S = 1.0
"""Seconds between progress updates: people read no faster, and each update costs the server a commit."""

MEMORY_BYTES_MAX = 131_072
"""Maximum bytes of the queued lines of one run in memory; further lines go to a file."""

QUEUE_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of the queued lines of one run; further lines are dropped and counted."""

_PERCENT = r"[0-9]{1,3}(?:\.[0-9]{1,6})?"
_PROGRESS_LINE = re.compile(rf"::progress[ \t]+({_PERCENT})(?:[ \t]+(.*?))?[ \t]*::[ \t]*", re.ASCII)
_PROGRESS = re.compile(rf"({_PERCENT})(?: (.*))?", re.ASCII | re.DOTALL)


def progress_of(line: str, pattern: re.Pattern[str] = _PROGRESS_LINE) -> str | None:
    """Return the progress in a line as a JSON object, or None if there is none.

    Control characters in the message are escaped, since pages and terminals show it outside of the output.
    """
    match = pattern.fullmatch(line)
    if match is None or (percent := float(match[1])) > 100:
        return None
    number = int(percent) if percent.is_integer() else percent
    return jsontext.dump({"percent": number, "message": printable(match[2] or "")})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output."""

    stream: str
    """``out`` or ``err``."""
    text: str
    missing: int = 0
    """The number of dropped lines if this line is a notice of them, else 0."""

    @property
    def size(self) -> int:
        """Return the approximate bytes of memory that the line uses."""
        return len(self.text) + 64  # memory of a short line beyond its text


class LineQueue:
    """Bounded FIFO of output lines: recent lines in memory, older ones in unnamed files.

    Two files take turns, one written while the other is read, so that disk space is freed as lines are sent.
    The kernel removes both when the worker ends in any way. A notice replaces lines that did not fit.
    """

    def __init__(self) -> None:
        """Create an empty queue; files are created on demand."""
        self._recent: deque[Line] = deque()
        self._recent_size = 0
        self._written: io.FileIO | None = None
        self._read: io.BufferedReader | None = None
        self._filed = 0
        self._size = 0
        self._dropped = 0
        self._reason = ""

    def __len__(self) -> int:
        """Return the number of queued lines."""
        return self._filed + len(self._recent)

    def add(self, line: Line) -> None:
        """Queue a line, or count it as dropped if there is no room."""
        if self._size + line.size > QUEUE_BYTES_MAX:
            self._drop(line, f"{QUEUE_BYTES_MAX >> 20} MiB wait for the server")
        elif (
            self._dropped and self._size > QUEUE_BYTES_MAX // 2
        ):  # drop many lines in a row, not every other one
            self._drop(line, self._reason)
        else:
            self.add_notice()
            self._append(line)
            if self._recent_size > MEMORY_BYTES_MAX:
                self._move_to_file()

    def add_notice(self) -> None:
        """Queue a notice of the lines dropped so far, if there are any."""
        if self._dropped:
            missing, self._dropped = self._dropped, 0
            self._append(Line("err", f"[{missing} lines dropped: {self._reason}]", missing))

    def take(self, lines_max: int, bytes_max: int) -> list[Line]:
        """Remove and return the oldest lines, up to and including the line that reaches ``bytes_max``."""
        lines: list[Line] = []
        size = 0
        while len(self) and len(lines) < lines_max and size < bytes_max:
            line = self._pop()
            lines.append(line)
            size += line.size
        self._size -= size
        return lines

    def discard_all(self) -> None:
        """Discard all lines and files."""
        for file in (self._written, self._read):
            if file is not None:
                file.close()
        self._written = self._read = None
        self._recent.clear()
        self._recent_size = self._size = self._filed = 0

    def _drop(self, line: Line, reason: str) -> None:
        self._dropped += line.missing or 1
        self._reason = reason

    def _append(self, line: Line) -> None:
        self._recent.append(line)
        self._recent_size += line.size
        self._size += line.size

    def _move_to_file(self) -> None:
        data = b"".join(b"%s%s\n" % (line.stream[:1].encode(), line.text.encode()) for line in self._recent)
        try:
            if self._written is None:
                self._written = tempfile.TemporaryFile(buffering=0, prefix="bedrock-output-")  # noqa: SIM115  closed by close()
            _write_all(self._written, data)
        except OSError as error:
            self._size -= self._recent_size
            for line in self._recent:
                self._drop(line, f"they could not be saved: {error.strerror}")
        else:
            self._filed += len(self._recent)
        self._recent.clear()
        self._recent_size = 0

    def _pop(self) -> Line:
        if not self._filed:
            line = self._recent.popleft()
            self._recent_size -= line.size
            return line
        raw = b"" if self._read is None else self._read.readline()
        if not raw:
            raw = self._swap_files().readline()
        self._filed -= 1
        return Line("out" if raw[:1] == b"o" else "err", raw[1:-1].decode())

    def _swap_files(self) -> io.BufferedReader:
        """Empty the file that has been read, and return the written one for reading."""
        assert self._written is not None
        empty = None if self._read is None else cast("io.FileIO", self._read.detach())
        if empty is not None:
            empty.seek(0)
            empty.truncate()
        self._written.seek(0)
        self._read, self._written = io.BufferedReader(self._written), empty
        return self._read


def _write_all(file: io.FileIO, data: bytes) -> None:
    """Append all of the data or nothing; raises OSError."""
    at, rest = file.tell(), memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.seek(at)
        file.truncate()
        raise


class LiveOutput:
    """Sends the output and the progress of one run to the server."""

    def __init__(self, server: ServerLink, job: TakenJob) -> None:
        """Prepare to send to a server; without a runID, nothing can be sent."""
        self._server, self._job = server, job
        self._wants_lines = self._wants_progress = job.run_id is not None
        self._lines = LineQueue()
        self._next_seq = 1
        self._progress: str | None = None
        self._more = asyncio.Event()
        self._ending = asyncio.Event()
        self._line_task: asyncio.Task[None] | None = None
        self._progress_task: asyncio.Task[None] | None = None

    def add(self, stream: str, line: str) -> bool:
        """Accept a line; return whether it is output, not progress.

        Commands print progress on stdout as ``::progress 40 message::``; functions write ``40 message`` to
        the stream ``PROGRESS``.
        """
        if stream == PROGRESS:
            self._set_progress(progress_of(line, _PROGRESS))
            return False
        if stream == "out" and (progress := progress_of(line)) is not None:
            self._set_progress(progress)
            return False
        if self._wants_lines:
            if len(line) > OUTPUT_LINE_CHARS_MAX:
                line = line[: OUTPUT_LINE_CHARS_MAX - len(CUT)] + CUT
            self._lines.add(Line(stream, line))
            self._more.set()
            if self._line_task is None:
                self._line_task = asyncio.get_running_loop().create_task(self._send_lines())
        return True

    async def finish(self) -> None:
        """Send what is left; wait until the server has all or refuses more, or ``abandon`` is called."""
        self._lines.add_notice()
        self._more.set()
        self._ending.set()
        if tasks := [task for task in (self._line_task, self._progress_task) if task is not None]:
            await asyncio.wait(tasks)  # the report of the run is sent whatever the outcome

    def abandon(self) -> None:
        """Stop sending and discard what is left."""
        self._wants_lines = self._wants_progress = False
        for task in (self._line_task, self._progress_task):
            if task is not None:
                task.cancel()
        self._lines.discard_all()

    def _set_progress(self, progress: str | None) -> None:
        if progress is not None and self._wants_progress:
            self._progress = progress
            if self._progress_task is None or self._progress_task.done():
                self._progress_task = asyncio.get_running_loop().create_task(self._send_progress())

    async def _send_progress(self) -> None:
        """Send the latest progress, and then any that has replaced it meanwhile."""
        job = self._job
        while self._progress is not None and self._wants_progress:
            latest, self._progress = self._progress, None
            try:
                command = UpdateJob(job_id=job.job_id, run_id=job.run_id, progress=latest)
                await self._server.send_until_answered(command)
            except CommandError as error:
                self._wants_progress = False
                event(logging.INFO, "progress not sent", job=job.job_id, run=job.run_id, answer=error)
                return
            await pause(PROGRESS_PAUSE_S, self._ending)

    async def _send_lines(self) -> None:
        try:
            full = False
            while self._wants_lines:
                if not self._lines:
                    if self._ending.is_set():
                        break
                    self._more.clear()
                    await self._more.wait()
                if not full:
                    # Seconds in which lines are collected for one batch: with the request, output is at
                    # most 1 s late.
                    await pause(0.5, self._ending)
                batch = self._lines.take(OUTPUT_LINES_PER_APPEND_MAX, BATCH_BYTES_MAX)
                full = len(self._lines) > 0
                if batch:
                    await self._send_batch(batch)
        finally:
            self._lines.discard_all()

    async def _send_batch(self, batch: list[Line]) -> None:
        lines = [
            line.text if line.stream == "out" else {"line": line.text, "stream": "err"} for line in batch
        ]
        try:
            try:
                seq = await self._append(lines)
            except WrongState as error:
                expected = _expected_seq(error)
                if expected is None:
                    raise
                # The server lost lines that it had acknowledged. Later lines can still be appended.
                event(logging.WARNING, "output lost by the server", run=self._job.run_id, error=error)
                self._next_seq = expected
                seq = await self._append(lines)
        except CommandError as error:
            self._stop_lines(error)
            return
        self._next_seq += len(batch)
        if seq < self._next_seq - 1:
            self._stop_lines("full")

    async def _append(self, lines: list[Any]) -> int:
        assert self._job.run_id is not None
        command = AppendOutput(run_id=self._job.run_id, seq=self._next_seq, lines=lines)
        return (await self._server.send_until_answered(command)).seq

    def _stop_lines(self, answer: CommandError | str) -> None:
        """Send no more lines: the run is over, or the server does not support or accept more output."""
        self._wants_lines = False
        if isinstance(answer, UnknownCommand):
            level = logging.DEBUG  # older servers do not know the command
        else:
            level = logging.INFO if isinstance(answer, (NotFound, WrongState)) else logging.ERROR
        event(level, "output not sent", run=self._job.run_id, answer=answer)


def _expected_seq(error: WrongState) -> int | None:
    """Return the line number that the server expects if the error reports a gap, else None."""
    match = re.search(r"[0-9]+", error.detail) if error.reason == "Gap in output" else None
    return None if match is None else int(match[0])
