"""Takes in jobs that applications created in transactions of their own, soon after the commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from bedrockjobs.base.background import BackgroundTask
from bedrockjobs.base.config import INBOX_AGAIN_S_MIN
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine.handlers.inbox import TakeIn
from bedrockjobs.engine.submission import Outcome, Submission, outcome_of
from bedrockjobs.job.rows import InboxRow
from bedrockjobs.store.base import StoreError

log = logging.getLogger(__name__)

Submit = Callable[[TakeIn, Callable[[Outcome], bool]], Submission]


class Inbox(BackgroundTask):
    """Reads the inbox of a database, and has its jobs created until the inbox is empty.

    All servers of a database do this at the same time; each skips the rows that another one has locked.
    """

    def __init__(self, read: Callable[[], Awaitable[Sequence[InboxRow]]], submit: Submit) -> None:
        """Get the next rows from ``read``, and pass commands to ``submit``."""
        self._read, self._submit = read, submit
        self._wanted, self._closed = False, True
        self._later: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to read the inbox."""
        self._closed = False
        self.soon()

    def soon(self) -> None:
        """Read the inbox soon; do nothing before ``start`` and after ``close``."""
        self._wanted = not self._closed
        if self._wanted:
            super().start()

    async def close(self) -> None:
        """Stop; rows that are left in the inbox are taken in by another server, or after the next start."""
        self._closed, self._wanted = True, False
        if self._later is not None:
            self._later.cancel()
        await self.stop()

    async def _run(self) -> None:
        while self._wanted:
            self._wanted = False
            try:
                rows = await self._read()
                if rows and await self._take_in(rows):
                    self._wanted = not self._closed
            except StoreError as error:  # the next exchange with the other servers looks again
                log.warning("the inbox cannot be read: %s", error)
            except CommandError as error:  # stopping, or full
                log.warning("jobs wait in the inbox: %s", error)

    async def _take_in(self, rows: Sequence[InboxRow]) -> bool:
        """Take in all rows together; if that fails, one by one, so that one row does not hold up the others.

        Return whether to read the inbox again immediately.
        """
        if await self._done(TakeIn(rows=list(rows), postponed=[])) is None:
            return True
        for row in rows:
            refused = await self._done(TakeIn(rows=[row], postponed=[]))
            if refused is None:
                continue
            log.error("job %d (%s) waits in the inbox: %s", row.job_id, row.name, refused)
            if await self._done(TakeIn(rows=[row], postpone=True, postponed=[])) is not None:
                return False  # the database is away
        return True

    async def _done(self, command: TakeIn) -> CommandError | None:
        """Execute a command; return the error that it was refused with, if any."""
        outcome = await outcome_of(lambda deliver: self._submit(command, deliver))
        if command.postponed and self._later is None and not self._closed:
            self._later = asyncio.get_running_loop().call_later(INBOX_AGAIN_S_MIN, self._look_again)
        return outcome if isinstance(outcome, CommandError) else None

    def _look_again(self) -> None:
        self._later = None
        self.soon()
