"""What describes the commands, for programs and for people: written once somebody asks for it."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.commands import COMMANDS, Command, complete
from bedrockjobs.protocol.docs_page import DocsPage
from bedrockjobs.protocol.openapi import describe
from bedrockjobs.service import VERSION

Written = tuple[str, DocsPage]
"""The text of ``/openapi.json``, and the page ``/docs``."""


class Documents:
    """The two of one server. A thread writes them, as it takes half a second."""

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
    return jsontext.dump(description), DocsPage(description, root_path)
