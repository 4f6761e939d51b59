"""What stands behind both protocols: a command goes in, its outcome comes back on the event loop.

It sends each command to who does it, the writer, the reader or itself, and knows nothing of connections.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from bedrockjobs import jsontext
from bedrockjobs.clock import Clock
from bedrockjobs.commands import ALL, Command, Help, ListJobs, Ping, Query, Status
from bedrockjobs.config import ANSWER_BYTES_MAX, Settings
from bedrockjobs.dispatcher import Dispatcher, Entry, Outcome
from bedrockjobs.errors import CommandError, ServerFault
from bedrockjobs.handlers.turn import Answer, render_with_state
from bedrockjobs.store.reader import Reader
from bedrockjobs.wire import stamp

VERSION = version("bedrockjobs")


class Service:
    """The commands of one server."""

    def __init__(self, dispatcher: Dispatcher, reader: Reader, clock: Clock, settings: Settings) -> None:
        """Serve commands from ``dispatcher`` and ``reader``."""
        self._dispatcher = dispatcher
        self._reader = reader
        self._clock = clock
        self._settings = settings
        self._started = stamp(clock.now())
        self._reading: set[asyncio.Task[None]] = set()
        self.connections = 0
        """Open connections, of both protocols."""
        self.draining = False
        """Whether the server stops: nothing new is begun."""

    def submit(self, command: Command[Any], deliver: Callable[[Outcome], bool]) -> Entry | None:
        """Do a command; ``deliver`` gets its outcome, perhaps before this returns.

        It returns False where the outcome went nowhere: a taken job then goes back. Raises CommandError
        where the command cannot be accepted. An Entry comes back for a command that may wait, see ``leave``.
        """
        if command.where == "writer":
            return self._dispatcher.submit(command, deliver)
        if command.where == "reader":
            task = asyncio.ensure_future(self._read(command, deliver))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        else:
            deliver(self._at_once(command))
        return None

    def leave(self, entry: Entry) -> None:
        """Let a waiting command end now: its client is gone or has said all it had to say."""
        self._dispatcher.leave(entry)

    async def call(self, command: Command[Any]) -> Answer:
        """Do a command and return its answer; raises CommandError. When cancelled, a taken job goes back."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def deliver(outcome: Outcome) -> bool:
            if done.cancelled():
                return False
            done.set_result(outcome)
            return True

        entry = self.submit(command, deliver)
        try:
            outcome = await done
        except asyncio.CancelledError:
            if entry is not None:
                self._dispatcher.leave(entry)
            if done.done() and not done.cancelled():
                self.undelivered(done.result())
            raise
        if isinstance(outcome, CommandError):
            raise outcome
        return outcome

    def undelivered(self, outcome: Outcome) -> None:
        """Put back the jobs of an answer that could not be written."""
        if isinstance(outcome, Answer) and outcome.taken:
            self._dispatcher.put_back(outcome.taken)

    async def drain(self) -> None:
        """Answer who waits, finish what was begun, and refuse what comes."""
        self.draining = True
        await self._dispatcher.drain()
        if self._reading:
            await asyncio.wait(self._reading, timeout=self._settings.query_s + 1)

    async def _read(self, command: Command[Any], deliver: Callable[[Outcome], bool]) -> None:
        outcome: Outcome
        try:
            outcome = await self._query(command) if isinstance(command, Query) else await self._list(command)
        except CommandError as error:
            outcome = error
        except Exception as error:  # the connection must get an answer whatever failed
            outcome = ServerFault(detail=f"the reader failed: {type(error).__name__}")
        deliver(outcome)

    async def _query(self, command: Query) -> Answer:
        names, rows = await self._reader.query(command.query)
        form = command.format or ("text" if self._settings.compatibility == "current" else "rows")
        body = self._reader.rendered(names, rows, form)
        return Answer(body, media="text/plain" if form == "text" else "application/json")

    async def _list(self, command: Command[Any]) -> Answer:
        assert isinstance(command, ListJobs)
        rows = await self._reader.jobs(command.after, command.state, command.name, command.limit)
        bodies: list[str] = []
        size = 0
        for row in rows:
            if size >= ANSWER_BYTES_MAX:
                break
            bodies.append(render_with_state(row))
            size += len(bodies[-1])
        return Answer(f'{{"jobs":[{",".join(bodies)}]}}')

    def _at_once(self, command: Command[Any]) -> Outcome:
        if isinstance(command, Ping):
            return Answer()
        if isinstance(command, Help):
            sentences = {kind.__name__: (kind.__doc__ or "").strip().splitlines()[0] for kind in ALL}
            return Answer(jsontext.dump({"commands": sentences}))
        assert isinstance(command, Status)
        return Answer(jsontext.dump(self.status()))

    def status(self) -> dict[str, Any]:
        """Return what Status shows."""
        return {
            "version": VERSION,
            "state": "draining" if self.draining else "serving",
            "durability": self._settings.durability,
            "compatibility": self._settings.compatibility,
            "database": self._settings.database,
            "pid": os.getpid(),
            "started": self._started,
            "now": stamp(self._clock.now()),
            "connections": self.connections,
            "waiting": self._dispatcher.waiting,
            "commits": self._dispatcher.commits,
            "commands": self._dispatcher.commands,
        }
