"""The templates of the pages, and how one is filled in so that nothing of it is left behind.

It knows what templates may use, and no page. What they are compiled to is in ``template_code``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import jinja2
from jinja2.runtime import Context

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.config import PAGE_TURN_S
from bedrockjobs.base.priority import give_way
from bedrockjobs.base.turns import done_in_turns, give_turn_after
from bedrockjobs.pages import words
from bedrockjobs.pages.template_code import TemplateCode

_FOLDER = Path(__file__).parent / "templates"
_monotonic = SystemClock.monotonic
T = TypeVar("T")


_in_use: ContextVar[list[_Values]] = ContextVar("in_use")
"""What the page that is being made was given."""


class _Values(Context):
    """The values that one template sees, or one that it imports."""

    environment: Templates

    def __init__(self, environment: Templates, *given: Any, **named: Any) -> None:
        super().__init__(environment, *given, **named)
        _in_use.get().append(self)

    def call(self, called: Any, /, *given: Any, **named: Any) -> Any:
        """Return what a macro or a function makes of what it is given; others may have a turn before.

        All parts and nearly all rows of a page call something.
        """
        give_turn_after(PAGE_TURN_S, _monotonic)
        return super().call(called, *given, **named)


class Templates(jinja2.Environment):
    """The templates, compiled when the first page is looked at; they import each other with context."""

    context_class = _Values

    def __init__(self, code: TemplateCode) -> None:
        """Find the templates beside this module; ``code`` is what they were compiled to."""
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
        """Have all templates compiled, once, while the event loop serves others."""
        await self._code.fetch()

    async def page(
        self, name: str, values: Mapping[str, Any], busy: Callable[[], bool] = lambda: False
    ) -> str:
        """Return a page made of a template; between its rows others have turns, all while ``busy``."""
        return await done_in_turns(partial(self._page, name, values), _monotonic, busy)

    def _page(self, name: str, values: Mapping[str, Any]) -> str:
        """Make a page, and let go of the values.

        A template and its macros hold each other in a circle, and with them the values: up to 16 MiB of jobs
        for each look at a page, until the collector comes. So they are told to let go.
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
    """Yield rows that call nothing; others may have a turn after each."""
    for row in rows:
        yield row
        give_turn_after(PAGE_TURN_S, _monotonic)


@cache
def templates() -> Templates:
    """Return the templates of all servers in this process."""
    return Templates(TemplateCode())


def write_code() -> None:
    """Compile all templates and write their code to stdout, for ``template_code``."""
    give_way()
    code = TemplateCode()
    made = Templates(code)
    for name in made.list_templates():
        made.get_template(name)
    code.write(sys.stdout.buffer)
