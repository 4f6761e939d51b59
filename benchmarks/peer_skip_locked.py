"""The least that a queue on PostgreSQL does: each client has a connection and commits each step by itself.

`postgresql.py` starts it and reads the one line of JSON it prints. It must not import anything of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

import asyncpg
import uvloop

TABLE = (
    "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, name text NOT NULL, state text NOT NULL,"
    " priority int NOT NULL, due timestamptz NOT NULL, data text NOT NULL)"
)
INDEX = "CREATE INDEX IF NOT EXISTS bare_next ON bare (name, priority DESC, due, id) WHERE state = 'queued'"
CREATE = "INSERT INTO bare (name, state, priority, due, data) VALUES ($1, 'queued', 500, now(), $2)"
TAKE = (
    "UPDATE bare SET state = 'running' WHERE id = (SELECT id FROM bare WHERE name = $1 AND state = 'queued'"
    " AND due <= now() ORDER BY priority DESC, due, id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, data"
)
FINISH = "DELETE FROM bare WHERE id = $1"
NAMES = 8


async def loop(connection: asyncpg.Connection, number: int, done: list[int]) -> None:
    """Create a job, take one, finish it, until cancelled."""
    name = f"queue/{number % NAMES}"
    while True:
        await connection.execute(CREATE, name, '{"value":1}')
        row = await connection.fetchrow(TAKE, name)
        if row is not None:
            await connection.execute(FINISH, row["id"])
            done[0] += 1


async def run(options: argparse.Namespace) -> dict[str, float]:
    """Load the server; return what was done within the measured time."""
    given = {"host": "127.0.0.1", "port": options.port, "user": "postgres", "database": "postgres"}
    connections = [await asyncpg.connect(**given) for _ in range(options.connections)]
    await connections[0].execute(TABLE)
    await connections[0].execute(INDEX)
    done = [0]
    tasks = [asyncio.create_task(loop(one, number, done)) for number, one in enumerate(connections)]
    await asyncio.sleep(options.warm)
    first, begun = done[0], time.perf_counter()
    await asyncio.sleep(options.seconds)
    rate = (done[0] - first) / (time.perf_counter() - begun)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for one in connections:
        one.terminate()
    return {"done_per_s": rate, "done": done[0]}


def main() -> None:
    """Read the options, run the load, print the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--warm", type=float, default=0.3)
    uvloop.install()
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
