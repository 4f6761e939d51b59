"""The templates of the pages, and how one is filled in so that nothing of it is left behind.

It knows what templates may use, and no page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2
from jinja2.runtime import Context

from bedrockjobs.base.config import PAGE_SLICE
from bedrockjobs.base.turns import done_in_turns, in_turns
from bedrockjobs.pages import words

_FOLDER = Path(__file__).parent / "templates"


_in_use: ContextVar[list[_Values]] = ContextVar("in_use")
"""What the page that is being made was given."""


class _Values(Context):
    """The values that one template sees, or one that it imports."""

    environment: Templates

    def __init__(self, environment: Templates, *given: Any, **named: Any) -> None:
        super().__init__(environment, *given, **named)
        _in_use.get().append(self)


class Templates(jinja2.Environment):
    """The templates, compiled when the first page is looked at; they import each other with context."""

    context_class = _Values

    def __init__(self) -> None:
        """Find the templates beside this module."""
        super().__init__(
            loader=jinja2.FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self.filters.update(words.FILTERS, in_turns=partial(in_turns, each=PAGE_SLICE))
        self.globals.update(words.GLOBALS)
        self._prepared = False

    async def prepare(self) -> None:
        """Compile all templates, once: a quarter of a second that the event loop is not kept for."""
        if not self._prepared:
            await asyncio.to_thread(self._prepare)
            self._prepared = True

    def _prepare(self) -> None:
        for name in self.list_templates():
            self.get_template(name)

    async def page(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page made of a template; the event loop serves others between its rows."""
        return await done_in_turns(partial(self._page, name, values))

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


@cache
def templates() -> Templates:
    """Return the templates of all servers in this process."""
    return Templates()
