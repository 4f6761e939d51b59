"""A connection that records its requests and replies in a ledger."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.history import Ledger
from tests.reliability.wire import Answer, Cut, Wire

SILENCE_S = 30.0
"""Time in which every request must be answered or cut: longer than any wait of these tests that ends."""


class Recorded:
    """One connection with one request at a time; None is a reply that never arrived."""

    def __init__(self, wire: Wire, ledger: Ledger) -> None:
        """Use a connection and a ledger."""
        self.wire = wire
        self.ledger = ledger

    @classmethod
    async def connect(cls, port: int, ledger: Ledger) -> Recorded:
        """Open a connection; raises OSError."""
        return cls(await Wire.connect(port), ledger)

    async def ask(self, verb: str, **asked: Any) -> Answer | None:
        """Send a request and return its answer."""
        number = self.ledger.sent(time.monotonic(), "client", verb, asked)
        try:
            async with asyncio.timeout(SILENCE_S):
                answer = await self.wire.ask(verb, **asked)
        except Cut:
            self.ledger.cut(number, time.monotonic())
            return None
        self.ledger.answered(number, time.monotonic(), answer.code, answer.reply)
        return answer

    def start(self, verb: str, **asked: Any) -> asyncio.Task[Answer | None]:
        """Send a request whose answer is awaited later."""
        return asyncio.create_task(self.ask(verb, **asked))

    async def create(self, token: str, **more: Any) -> Any:
        """Create a job."""
        return await self.ask("CreateJob", **{"name": "job", "data": {"token": token}, **more})

    def close(self) -> None:
        """Close at once."""
        self.wire.close()


PAGE = 1_000


async def look(client: Recorded) -> list[dict[str, Any]]:
    """Return all jobs, and record that they were seen."""
    began, after = time.monotonic(), 0
    jobs: list[dict[str, Any]] = []
    while True:
        answer = await client.wire.ask("ListJobs", limit=PAGE, after=after)
        assert answer.code == 200, answer
        jobs += answer.reply["jobs"]
        if len(answer.reply["jobs"]) < PAGE:
            break
        after = jobs[-1]["jobID"]
    number = client.ledger.sent(began, "looker", "Look", {"whole": True})
    client.ledger.answered(number, time.monotonic(), 200, {"jobs": jobs})
    return jobs
