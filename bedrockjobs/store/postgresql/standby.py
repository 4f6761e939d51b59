"""Reads on a standby, while it is there and keeps up with what this server told the primary.

A standby shows what was, not what is. Whether it keeps up is seen by this server's own sign of life: what the
primary has confirmed must be found there soon. That also tells a copy of another database.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

import psycopg

from bedrockjobs.base.errors import CommandError, Unavailable
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.store.postgresql.line import STOPPING, Connection, Line
from bedrockjobs.store.postgresql.neighbours import SQL

log = logging.getLogger(__name__)

LAG_S_MAX = 5.0
"""How far a standby may be behind to be read: a person who reads on takes it for now; others are slower."""

LOOK_S = 1.0
"""Time between two looks at how far it is behind: as often as a server gives a sign of life."""

_T = TypeVar("_T")


class Reads(Protocol):
    """Where reads are done."""

    @property
    def pending(self) -> int:
        """Return how many reads run or wait."""
        ...

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Let ``act`` read, as ``Line.do`` does."""
        ...

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Begin nothing more; what runs may end."""
        ...

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        ...


class Standby:
    """A standby, and whether it may be read now."""

    def __init__(self, url: str, line: Line, session: str, confirmed: Callable[[], str]) -> None:
        """Read at ``url``, in connections like ``line``, while the server with ``session`` is seen there.

        ``confirmed`` tells the stamp of its last sign of life that the primary has; empty before the first.
        """
        self._url = url
        self._line = line.elsewhere(url)
        self._session = session
        self._confirmed = confirmed
        self._looking: asyncio.Task[None] | None = None
        self._told: bool | None = None
        self.usable = False
        """Whether it is there and keeps up."""

    def beside(self, primary: Line, *, first: bool) -> EitherLine:
        """Return a line to the primary that is one to the standby too; ``first`` where both can read."""
        return EitherLine(primary, primary.elsewhere(self._url), self, standby_first=first)

    def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.ensure_future(self._live())

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._line.close()

    async def _live(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        confirmed = self._confirmed()
        if not confirmed:  # the server is not yet among the others
            return
        try:
            shown = await self._line.do(self._shown)
        except (CommandError, psycopg.Error) as error:
            self._tell(usable=False, why=error.detail if isinstance(error, CommandError) else str(error))
            return
        if not shown:
            self._tell(
                usable=False, why="it does not know this server: it is far behind, or of another database"
            )
        elif after_seconds(shown, LAG_S_MAX) < confirmed:
            self._tell(usable=False, why=f"it is behind: it shows {shown}, and the primary has {confirmed}")
        else:
            self._tell(usable=True, why="")

    async def _shown(self, connection: Connection) -> str:
        cursor = await connection.execute(SQL["own_pulse"], (self._session,))
        found = await cursor.fetchone()
        return str(found[0]) if found else ""

    def _tell(self, *, usable: bool, why: str) -> None:
        self.usable = usable
        if usable == self._told:
            return
        self._told = usable
        if usable:
            log.info("reads are done on the standby")
        else:
            log.warning("reads are done on the primary, the standby is not used: %s", why)


class EitherLine:
    """A line to the primary and one to the standby: where one cannot read, the other does."""

    def __init__(self, primary: Line, standby: Line, watch: Standby, *, standby_first: bool) -> None:
        """Read on the standby as long as ``watch`` says that it may be; first there, or only if need be."""
        self._primary = primary
        self._standby = standby
        self._watch = watch
        self._standby_first = standby_first

    @property
    def pending(self) -> int:
        """Return how many reads run or wait."""
        return self._primary.pending + self._standby.pending

    async def do(self, act: Callable[[Connection], Awaitable[_T]], *, again: bool = False) -> _T:
        """Let ``act`` read, as ``Line.do`` does, and once more on the other where one is away.

        So it is where a standby ends a read that is in the way of what the primary has done since.
        """
        if not self._watch.usable:
            return await self._primary.do(act, again=again)
        first, second = self._primary, self._standby
        if self._standby_first:
            first, second = second, first
        try:
            return await first.do(act, again=again)
        except (Unavailable, psycopg.errors.SerializationFailure):
            return await second.do(act, again=again)

    def refuse(self, refusal: CommandError = STOPPING) -> None:
        """Begin nothing more; what runs may end."""
        self._primary.refuse(refusal)
        self._standby.refuse(refusal)

    async def close(self) -> None:
        """Begin nothing more, and end what runs."""
        await self._primary.close()
        await self._standby.close()
