"""Base class of the readers: reads by named statement, and Query."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from bedrockjobs.base.config import ANSWER_BYTES_MAX
from bedrockjobs.base.errors import BadQuery
from bedrockjobs.store.base import Page


class FreeQueries(Protocol):
    """Executes the SQL of Query."""

    async def run(self, sql: str, form: str) -> str:
        """Run one SELECT; return its rows as text. Raises CommandError."""
        ...

    async def close(self) -> None:
        """Cancel running queries."""
        ...


class Connection(Protocol):
    """Executes reads one after another."""

    async def close(self) -> None:
        """Cancel running reads and refuse new ones."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Connection)
QueriesT = TypeVar("QueriesT", bound=FreeQueries)


class NamedReads(ABC, Generic[ConnectionT, QueriesT]):
    """The reads of one server; subclasses execute the statements.

    Index seeks and scans use separate connections, so that a slow list does not delay clients that follow a
    run.
    """

    def __init__(self, seeks: ConnectionT, scans: ConnectionT, queries: QueriesT) -> None:
        """Use these connections and close them with the reader."""
        self._seeks = seeks
        self._scans = scans
        self.queries = queries
        """Executes the SQL of Query."""

    async def close(self) -> None:
        """Close the connections and cancel running reads."""
        await self._seeks.close()
        await self._scans.close()
        await self.queries.close()

    async def query(self, sql: str, form: str) -> str:
        """Run one SELECT that ends in ``;``; return its rows as text.

        ``form``: ``rows`` an array of arrays, ``json`` headers and rows, ``text`` lines. Raises BadArguments
        for invalid SQL, BadQuery if it is not allowed or exceeds a limit, TimedOut after ``query_s``, TooMany
        if too many queries wait, Unavailable if none can run.
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
        """Return at most ``limit`` rows of a named statement, up to the row that exceeds ``bytes_max``.

        ``scans``: the statement may scan many rows. ``again``: a follow-up read, exempt from the limit of
        waiting reads. Raises TooMany if too many reads wait, TimedOut after ``query_s``.
        """
        given = {**parameters, "limit": limit + 1}
        return await self._page(name, given, limit, bytes_max, scans=scans, again=again)

    @abstractmethod
    async def _page(
        self, name: str, given: Mapping[str, Any], limit: int, bytes_max: int, *, scans: bool, again: bool
    ) -> Page:
        """Execute a read of ``view``."""
