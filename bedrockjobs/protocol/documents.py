"""What describes the commands, for programs and for people: written once somebody asks for it."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.commands import COMMANDS, Command, complete
from bedrockjobs.protocol.docs_page import DocsPage
from bedrockjobs.protocol.openapi import describe
from bedrockjobs.protocol.openapi_strict import strict
from bedrockjobs.service import VERSION


class Written(NamedTuple):
    """What describes the commands of one server."""

    strict: str
    """The text of ``/openapi.json``: for tools that generate clients."""
    lax: str
    """The text of ``/openapi.json?lax=1``: everything that the server takes."""
    page: DocsPage
    """The page ``/docs``."""


class Documents:
    """The descriptions of one server. A thread writes them, as it takes half a second."""

    def __init__(self, root_path: str) -> None:
        """Describe a server below ``root_path``."""
        self._root_path = root_path
        self._writing: asyncio.Future[Written] | None = None
        complete()  # while there is no thread: it must not be done by two at once

    async def written(self) -> Written:
        """Return them."""
        if self._writing is None:
            work = asyncio.to_thread(_written, self._root_path, tuple(COMMANDS.items()))
            self._writing = asyncio.ensure_future(work)
        return await asyncio.shield(self._writing)


@lru_cache(maxsize=4)
def _written(root_path: str, _: tuple[tuple[str, type[Command[Any]]], ...]) -> Written:
    """Write them, once for all servers of a process that have the same commands."""
    description = describe(VERSION, root_path)
    page = DocsPage(description, root_path)
    return Written(jsontext.dump(strict(description)), jsontext.dump(description), page)
