"""The code that templates are compiled to, made once by a process of its own.

To compile them all takes a quarter of a second of Python. A thread that does it takes the interpreter from
the event loop again and again; a process does not. The server only loads what it made: two milliseconds.
"""

from __future__ import annotations

import asyncio
import marshal
import subprocess
import sys
from types import CodeType
from typing import BinaryIO

import jinja2
from jinja2.bccache import Bucket

from bedrockjobs.base.config import TEMPLATES_S_MAX

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from bedrockjobs.pages.templates import write_code; write_code()"
)


class TemplateCode(jinja2.BytecodeCache):
    """Code by template, kept in memory; jinja asks here before it compiles, and tells what it compiled."""

    def __init__(self) -> None:
        """Begin without code."""
        self._code: dict[str, CodeType] = {}
        self._fetching: asyncio.Task[None] | None = None

    async def fetch(self) -> None:
        """Get the code of all templates, once; where no process can make it, jinja compiles when asked."""
        loop, fetching = asyncio.get_running_loop(), self._fetching
        if fetching is None or not (fetching.done() or fetching.get_loop() is loop):
            fetching = self._fetching = loop.create_task(self._fetch())
        if not fetching.done():
            await asyncio.shield(fetching)

    async def _fetch(self) -> None:
        self._code.update(await asyncio.to_thread(_made_apart))

    def write(self, file: BinaryIO) -> None:
        """Write all code, for this version of Python."""
        marshal.dump(self._code, file)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give jinja the code of a template, if it is there."""
        bucket.code = self._code.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what jinja compiled."""
        assert bucket.code is not None
        self._code[bucket.key] = bucket.code


def _made_apart() -> dict[str, CodeType]:
    """Return what a process compiled, nothing where it failed."""
    command = [sys.executable, "-I", "-c", _PROGRAM, *sys.path]
    try:
        done = subprocess.run(  # noqa: S603  our own module
            command,
            capture_output=True,
            check=True,
            timeout=TEMPLATES_S_MAX,
            start_new_session=True,  # signals that are meant for the server do not end it
        )
        code: dict[str, CodeType] = marshal.loads(done.stdout)  # noqa: S302  from our own process
    except (OSError, subprocess.SubprocessError, ValueError, EOFError, TypeError):
        return {}
    return code
