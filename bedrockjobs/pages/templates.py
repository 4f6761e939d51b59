"""Render templates, yielding to other tasks in between and freeing memory afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import jinja2
from jinja2.runtime import Context

from bedrockjobs.base.background import done_in_turns, give_turn_after
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import PAGE_TURN_S
from bedrockjobs.base.priority import give_way
from bedrockjobs.pages import words
from bedrockjobs.pages.template_code import TemplateCode

_FOLDER = Path(__file__).parent / "templates"
_monotonic = SystemClock.monotonic
T = TypeVar("T")


_in_use: ContextVar[list[_Values]] = ContextVar("in_use")
"""The contexts of the page that is being rendered."""


class _Values(Context):
    """The context of one template, or of one that it imports."""

    environment: Templates

    def __init__(self, environment: Templates, *given: Any, **named: Any) -> None:
        super().__init__(environment, *given, **named)
        _in_use.get().append(self)

    def call(self, called: Any, /, *given: Any, **named: Any) -> Any:
        """Call a macro or a function, after yielding if it is time: nearly all rows of a page call one."""
        give_turn_after(PAGE_TURN_S, _monotonic)
        return super().call(called, *given, **named)


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
        self.filters.update(words.FILTERS, in_turns=_in_turns)
        self.globals.update(words.GLOBALS)
        self._code = code

    async def prepare(self) -> None:
        """Compile all templates, once, without blocking the event loop."""
        await self._code.fetch()

    async def page(
        self, name: str, values: Mapping[str, Any], busy: Callable[[], bool] = lambda: False
    ) -> str:
        """Render a template, yielding between rows while ``busy``."""
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
    """Iterate over rows that call nothing, yielding to other tasks in between."""
    for row in rows:
        yield row
        give_turn_after(PAGE_TURN_S, _monotonic)


@cache
def templates() -> Templates:
    """Return the templates, shared by all servers of this process."""
    return Templates(TemplateCode())


def write_code() -> None:
    """Compile all templates and write their code to stdout, for ``template_code``."""
    give_way()
    code = TemplateCode()
    made = Templates(code)
    for name in made.list_templates():
        made.get_template(name)
    code.write(sys.stdout.buffer)
