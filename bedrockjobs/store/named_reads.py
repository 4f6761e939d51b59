"""What all readers share: reads by the name of a statement, and Query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.base.errors import BadQuery
from bedrockjobs.store.base import Page


class FreeQueries(Protocol):
    """What does the SQL of Query."""

    async def run(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text. Raises CommandError."""
        ...

    async def close(self) -> None:
        """End what runs."""
        ...


class Connection(Protocol):
    """What statements are read on, one after another."""

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)
QueriesT = TypeVar("QueriesT", bound=FreeQueries)


class NamedReads(ABC, Generic[ConnectionT, QueriesT]):
    """The reads of one server; who inherits says how a statement is done.

    What an index bounds is read on one connection, what may have to look at very many rows on another, so
    that a slow list keeps nobody waiting who follows a run.
    """

    def __init__(self, seeks: ConnectionT, scans: ConnectionT, queries: QueriesT) -> None:
        """Read with these; they are closed with the reader."""
        self._seeks = seeks
        self._scans = scans
        self.queries = queries
        """What does the SQL of Query."""

    async def close(self) -> None:
        """Close the connections, and end what still runs."""
        await self._seeks.close()
        await self._scans.close()
        await self.queries.close()

    async def query(self, sql: str, form: str) -> str:
        """Run one SELECT that ends in ``;``; return its rows as text.

        ``form``: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines. Raises BadArguments
        for SQL that cannot be read, BadQuery for what is not allowed or too much, TimedOut after ``query_s``,
        TooMany when very many queries wait, Unavailable where none can be done.
        """
        if not sql.rstrip().endswith(";"):
            raise BadQuery("Query Missing Semicolon", "query: expected one SELECT that ends in ;")
        return await self.queries.run(sql, form)

    async def view(
        self,
        name: str,
        parameters: Mapping[str, Any],
        limit: int,
        *,
        scans: bool = False,
        again: bool = False,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Page:
        """Return at most ``limit`` rows of a named statement, none behind the one that exceeds ``bytes_max``.

        ``scans`` says that the statement may look at many rows for few. Raises TooMany when very many reads
        wait, unless somebody reads ``again`` who was let in before; TimedOut after ``query_s``.
        """
        given = {**parameters, "limit": limit + 1}
        return await self._page(name, given, limit, bytes_max, scans=scans, again=again)

    @abstractmethod
    async def _page(
        self, name: str, given: Mapping[str, Any], limit: int, bytes_max: int, *, scans: bool, again: bool
    ) -> Page:
        """Return what ``view`` does."""
