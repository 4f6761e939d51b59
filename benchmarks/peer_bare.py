"""The least that a queue in Python does: uvloop, one SQLite file, and one commit for all that has come.

It checks nothing and can do nothing but create, take and finish jobs of one name; what it answers is on the
disk. `peers.py` measures it beside the others: what is between it and ours is ours, and what is between it
and them is the language's. It must not import anything of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from collections import deque

import uvloop

PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536", "wal_autocheckpoint = 4000")
TABLE = (
    "CREATE TABLE jobs (jobID INTEGER PRIMARY KEY, created TEXT, state TEXT, name TEXT, nextRun TEXT,"
    " priority INTEGER, data TEXT)"
)
INDEX = "CREATE INDEX queued ON jobs (name, priority DESC, nextRun) WHERE state = 'QUEUED'"
CREATE = "INSERT INTO jobs (created, state, name, nextRun, priority, data) VALUES (?, ?, ?, ?, 500, ?)"
NEXT = (
    "SELECT jobID, data FROM jobs WHERE state = 'QUEUED' AND name = ? ORDER BY priority DESC, nextRun LIMIT 1"
)
TAKE = "UPDATE jobs SET state = 'RUNNING' WHERE jobID = ?"
FINISH = "DELETE FROM jobs WHERE jobID = ?"
NOW = "2030-01-01 00:00:00.000"
LOOKS_MAX = 3
"""Turns of the loop that fewer requests than the last time wait for others."""


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, queue: Queue) -> None:
        """Belong to a queue."""
        self._queue = queue
        self._rest = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Cut requests."""
        *heads, self._rest = (self._rest + data).split(b"\r\n\r\n")
        for head in heads:
            verb, *lines = head.decode().split("\r\n")
            self._queue.ask(self, verb, dict(line.split(": ", 1) for line in lines))

    def connection_lost(self, _: Exception | None) -> None:
        """Wait no longer."""
        if self in self._queue.waiting:
            self._queue.waiting.remove(self)

    def answer(self, body: str) -> None:
        """Send an answer."""
        if not self.transport.is_closing():
            self.transport.write(b"200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body.encode()))


class Queue:
    """The jobs of one file."""

    def __init__(self, path: str) -> None:
        """Make the file."""
        self._execute = sqlite3.connect(path, isolation_level=None).execute
        for pragma in PRAGMAS:
            self._execute(f"PRAGMA {pragma}")
        self._execute(TABLE)
        self._execute(INDEX)
        self._asked: list[tuple[Connection, str, dict[str, str]]] = []
        self._answers: list[tuple[Connection, str]] = []
        self._before = self._looks = 0
        self.waiting: deque[Connection] = deque()

    def ask(self, client: Connection, verb: str, headers: dict[str, str]) -> None:
        """Do a request with the next commit."""
        self._asked.append((client, verb, headers))
        if len(self._asked) == 1:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        if len(self._asked) < self._before and self._looks < LOOKS_MAX:
            self._looks += 1
            asyncio.get_running_loop().call_soon(self._look)
            return
        asked, self._asked, self._looks = self._asked, [], 0
        self._before = len(asked)
        self._execute("BEGIN IMMEDIATE")
        for client, verb, headers in asked:
            if verb == "CreateJob":
                self._create(client, headers["name"], headers["data"])
            elif verb == "FinishJob":
                self._execute(FINISH, (headers["jobID"],))
                if "thenGet" in headers:
                    self._take(client, headers["thenGet"])
                else:
                    self._answers.append((client, "{}"))
            else:
                self._take(client, headers["name"])
        self._execute("COMMIT")
        answers, self._answers = self._answers, []
        for client, body in answers:
            client.answer(body)

    def _create(self, client: Connection, name: str, data: str) -> None:
        taker = self.waiting.popleft() if self.waiting else None
        state = "RUNNING" if taker else "QUEUED"
        job_id = self._execute(CREATE, (NOW, state, name, NOW, data)).lastrowid
        self._answers.append((client, f'{{"jobID":{job_id}}}'))
        if taker:
            self._hand_out(taker, job_id, data)

    def _take(self, client: Connection, name: str) -> None:
        found = self._execute(NEXT, (name,)).fetchone()
        if found is None:
            self.waiting.append(client)
            return
        self._execute(TAKE, found[:1])
        self._hand_out(client, *found)

    def _hand_out(self, client: Connection, job_id: int | None, data: str) -> None:
        self._answers.append((client, f'{{"job":{{"created":"{NOW}","data":{data},"jobID":{job_id}}}}}'))


async def serve(path: str, port: int) -> None:
    """Serve for ever."""
    queue = Queue(path)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(queue), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    uvloop.install()
    asyncio.run(serve(options.database, options.port))


if __name__ == "__main__":
    main()
