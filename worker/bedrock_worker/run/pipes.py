"""Pipes of a command: redaction of secrets, and reading lines of output.

Secrets are found in plain text, JSON and base64. A secret that a command reverses, splits over lines or
encrypts is not found.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import select
from collections.abc import Callable, Iterable, Iterator, Sequence

from bedrock_worker.log import printable
from bedrock_worker.policy.program import SECRET_CHARS_MIN
from bedrock_worker.report.output import CUT, LineSplitter

MASKED = "***"
"""Replacement of a secret."""

_URL_SAFE = str.maketrans("+/", "-_")


class Mask:
    """Redacts given secrets in texts; without secrets, texts stay as they are."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Redact secrets and each of their lines, except texts shorter than ``SECRET_CHARS_MIN``."""
        parts = {
            part
            for secret in secrets
            for part in (secret, *secret.splitlines())
            if len(part) >= SECRET_CHARS_MIN
        }
        forms = {form for part in parts for form in _forms(part)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._forms))) if forms else None

    def __call__(self, text: str) -> str:
        """Return a text with every secret replaced.

        A truncated line (``output.CUT``) may end within a secret; then this part of it is replaced too.
        """
        if self._pattern is None:
            return text
        masked = self._pattern.sub(MASKED, text)
        return self._without_half(masked.removesuffix(CUT)) + CUT if masked.endswith(CUT) else masked

    def _without_half(self, text: str) -> str:
        longest = 0
        for form in self._forms:
            for length in range(min(len(form) - 1, len(text)), longest, -1):
                if text.endswith(form[:length]):
                    longest = length
                    break
        return text[: len(text) - longest] + MASKED if longest else text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield printable(secret)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    for offset in range(3):
        encoded = _base64_inside(secret.encode("utf-8", "surrogateescape"), offset)
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _base64_inside(secret: bytes, offset: int) -> str:
    """Return the base64 characters that a secret has in any text where it begins at byte 3n + ``offset``."""
    encoded = base64.b64encode(bytes(offset) + secret).decode()
    first = (offset * 8 + 5) // 6
    return encoded[first : (offset + len(secret)) * 8 // 6]


# Reading the output of commands from their pipes, line by line.


Listener = Callable[[str, str], None]
"""Called with the stream's name, ``out`` or ``err``, and a line."""


class Pump:
    """Reads one output stream of a command and passes its lines to ``listener``."""

    def __init__(self, pipe: int, name: str) -> None:
        self.ended = asyncio.Event()
        self.listener: Listener = lambda *_: None
        self._pipe, self._name = pipe, name
        self._lines = LineSplitter()
        self._started = False
        os.set_blocking(pipe, False)

    def start_reading(self) -> None:
        """Start reading, unless it has started or ended."""
        if not self._started and not self.ended.is_set():
            self._started = True
            asyncio.get_running_loop().add_reader(self._pipe, self._read_once)

    def drain(self) -> None:
        """Read what is left in the pipe, at most its capacity: a surviving process may still write."""
        # Maximum reads: together the capacity of the largest pipe (``pipe-max-size``), 1 MiB.
        for _ in range(128):
            if self.ended.is_set():
                return
            if not self._read_once():
                break

    def fileno(self) -> int:
        """Return the handle of the pipe, valid until ``ended`` is set."""
        return self._pipe

    def end_line(self) -> None:
        """Pass on an incomplete last line, since further output belongs to another run."""
        for line in self._lines.end():
            self.listener(self._name, line)

    def _read_once(self) -> bool:
        """Read once; return False if nothing was ready to read."""
        try:
            data = os.read(self._pipe, 8_192)  # further output waits in the pipe, not in our memory
        except BlockingIOError:
            return False
        for line in self._lines.feed(data) if data else self._lines.end():
            self.listener(self._name, line)
        if not data:
            self.stop_reading()
        return True

    def stop_reading(self) -> None:
        """Stop reading; a process that still writes gets SIGPIPE."""
        if not self.ended.is_set():
            if self._started:
                asyncio.get_running_loop().remove_reader(self._pipe)
            os.close(self._pipe)
        self.ended.set()


def drain(pumps: Sequence[Pump]) -> None:
    """Read what is left in several pipes, with a single system call if there is nothing."""
    poll = select.poll()
    for pump in pumps:
        if not pump.ended.is_set():
            poll.register(pump.fileno(), select.POLLIN)
    filled = {handle for handle, _ in poll.poll(0)}
    for pump in pumps if filled else ():
        if pump.fileno() in filled:
            pump.drain()
