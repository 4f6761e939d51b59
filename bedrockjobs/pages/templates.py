"""Compiles and renders templates without blocking the event loop, and frees memory afterwards."""

from __future__ import annotations

import asyncio
import marshal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any, BinaryIO, TypeVar

import jinja2
from jinja2.bccache import Bucket
from jinja2.runtime import Context

from bedrockjobs.base.background import done_in_turns, pause_after_s
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import PAGE_TURN_S, TEMPLATES_S_MAX
from bedrockjobs.base.priority import give_way
from bedrockjobs.pages import formatting

# Compile all templates once, in a separate process.
#
# Compiling takes 0.25 s of Python. A thread would compete with the event loop for the interpreter; another
# process does not. The server only loads the compiled code, in 2 ms.


_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from bedrockjobs.pages.templates import write_code; write_code()"
)


class TemplateCode(jinja2.BytecodeCache):
    """A bytecode cache of jinja that keeps the compiled templates in memory."""

    def __init__(self) -> None:
        self._code: dict[str, CodeType] = {}
        self._fetching: asyncio.Task[None] | None = None

    async def fetch(self) -> None:
        """Let a process compile all templates, once; if that fails, jinja compiles each on first use."""
        loop, fetching = asyncio.get_running_loop(), self._fetching
        if fetching is None or not (fetching.done() or fetching.get_loop() is loop):
            fetching = self._fetching = loop.create_task(self._fetch())
        if not fetching.done():
            await asyncio.shield(fetching)

    async def _fetch(self) -> None:
        self._code.update(await asyncio.to_thread(_made_apart))

    def write(self, file: BinaryIO) -> None:
        """Write the compiled templates, for this version of Python."""
        marshal.dump(self._code, file)

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code of a template, if cached."""
        bucket.code = self._code.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store the code of a template."""
        assert bucket.code is not None
        self._code[bucket.key] = bucket.code


def _made_apart() -> dict[str, CodeType]:
    """Return the code that a separate process compiled, by key; empty if the process failed."""
    command = [sys.executable, "-I", "-c", _PROGRAM, *sys.path]
    try:
        done = subprocess.run(  # noqa: S603  our own module
            command,
            capture_output=True,
            check=True,
            timeout=TEMPLATES_S_MAX,
            start_new_session=True,  # not ended by signals meant for the server
        )
        code: dict[str, CodeType] = marshal.loads(done.stdout)  # noqa: S302  from our own process
    except (OSError, subprocess.SubprocessError, ValueError, EOFError, TypeError):
        return {}
    return code


_FOLDER = Path(__file__).parent / "templates"
_monotonic = SystemClock.monotonic
T = TypeVar("T")


_in_use: ContextVar[list[_Values]] = ContextVar("in_use")
"""The contexts of the page that is being rendered."""


class _Values(Context):
    """The context of one template, or of one that it imports."""

    environment: Templates

    def __init__(self, environment: Templates, *args: Any, **named: Any) -> None:
        super().__init__(environment, *args, **named)
        _in_use.get().append(self)

    def call(self, called: Any, /, *args: Any, **named: Any) -> Any:
        """Call a macro or a function, as most rows do; if it is time, first yield to other tasks."""
        pause_after_s(PAGE_TURN_S, _monotonic)
        return super().call(called, *args, **named)


class Templates(jinja2.Environment):
    """The templates, compiled before the first page is rendered."""

    context_class = _Values

    def __init__(self, code: TemplateCode) -> None:
        """Load the templates of this package, with ``code`` as bytecode cache."""
        super().__init__(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            bytecode_cache=code,
        )
        self.filters.update(formatting.FILTERS, in_turns=_in_turns)
        self.globals.update(formatting.GLOBALS)
        self._code = code

    async def prepare(self) -> None:
        """Compile all templates, once, without blocking the event loop."""
        await self._code.fetch()

    async def page(
        self, name: str, values: Mapping[str, Any], busy: Callable[[], bool] = lambda: False
    ) -> str:
        """Render a template; while ``busy`` returns true, yield to other tasks between rows."""
        return await done_in_turns(partial(self._page, name, values), _monotonic, busy)

    def _page(self, name: str, values: Mapping[str, Any]) -> str:
        """Render a page, then clear its contexts.

        A template and its macros form a reference cycle that would keep the values, up to 16 MiB of jobs per
        page, until the next garbage collection.
        """
        in_use: list[_Values] = []
        _in_use.set(in_use)
        try:
            return self.get_template(name).render(values)
        finally:
            for each in in_use:
                each.vars.clear()
                each.parent = {}


def _in_turns(rows: Iterable[T]) -> Iterator[T]:
    """Iterate over rows whose rendering calls no macro, yielding to other tasks in between."""
    for row in rows:
        yield row
        pause_after_s(PAGE_TURN_S, _monotonic)


@cache
def templates() -> Templates:
    """Return the templates, shared by all servers of this process."""
    return Templates(TemplateCode())


def write_code() -> None:
    """Compile all templates and write their code to stdout; runs in the separate process."""
    give_way()
    code = TemplateCode()
    made = Templates(code)
    for name in made.list_templates():
        made.get_template(name)
    code.write(sys.stdout.buffer)
