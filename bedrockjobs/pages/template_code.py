"""Compile all templates once, in a separate process.

Compiling takes 0.25 s of Python. A thread would compete with the event loop for the interpreter; a process
does not. The server only loads the code, in 2 ms.
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
    """Compiled templates in memory, as a bytecode cache of jinja."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._code: dict[str, CodeType] = {}
        self._fetching: asyncio.Task[None] | None = None

    async def fetch(self) -> None:
        """Compile all templates, once; if the process fails, jinja compiles each on first use."""
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
        """Load the code of a template, if cached."""
        bucket.code = self._code.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store the code of a template."""
        assert bucket.code is not None
        self._code[bucket.key] = bucket.code


def _made_apart() -> dict[str, CodeType]:
    """Return the code compiled by a process; empty if it failed."""
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
