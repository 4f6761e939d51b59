"""A server of one engine on the raw protocol: what `postgresql.py` loads, as `serve` takes no PostgreSQL yet.

Both engines get the same dispatcher, service and connections; there is no reader, so commands that only look
are not served. It prints the port on which it listens, and ends with SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from pathlib import Path
from typing import Any

import uvloop

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.events import Listeners
from bedrockjobs.engine.notifier import Notifier
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.observe.stats import Stats
from bedrockjobs.protocol.connections import Connections
from bedrockjobs.protocol.listener import Listener
from bedrockjobs.server import COLLECT_AFTER
from bedrockjobs.service import Service
from bedrockjobs.store.postgresql.engine import PostgreSQLEngine
from bedrockjobs.store.sqlite import SQLiteEngine


async def serve(database: str) -> None:
    """Serve a file or a URL until SIGTERM."""
    loop, clock, settings = asyncio.get_running_loop(), SystemClock(), Settings(port=0)
    stopped: asyncio.Future[Exception | None] = loop.create_future()
    loop.add_signal_handler(signal.SIGTERM, stopped.set_result, None)
    engine: Any = (
        PostgreSQLEngine(database, clock) if "://" in database else SQLiteEngine(Path(database), settings)
    )
    notifier, workers, stats = Notifier(), WorkerRegistry(clock, clock), Stats()
    dispatcher = Dispatcher(
        engine, clock, settings, stopped.set_result, workers=workers, minutes=stats,
        listeners=Listeners([workers, stats, notifier]),
    )  # fmt: skip
    service = Service(dispatcher, None, workers, notifier, clock, settings, None)  # type: ignore[arg-type]
    listener = Listener(Connections(service, clock, settings), settings)
    dispatcher.start()
    await listener.open()
    gc.set_threshold(*COLLECT_AFTER)
    print(f"on :{listener.addresses[0][1]}", flush=True)
    failure = await stopped
    if failure is not None:
        raise failure
    listener.stop_accepting()
    await dispatcher.drain()
    engine.close()


def main() -> None:
    """Read the options and serve."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("database", help="a file, or a URL of PostgreSQL")
    uvloop.install()
    asyncio.run(serve(parser.parse_args().database))


if __name__ == "__main__":
    main()
