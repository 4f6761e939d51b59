"""Lets a site's database be as `bedrockjobs restore` leaves it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import timedelta

from bedrockjobs.base.clock import timestamp
from bedrockjobs.store.schema import held_file, hold
from tests.runs.rig import Site


async def restored(site: Site, down: float = 0) -> None:
    """Stop the server, hold its database as `bedrockjobs restore` does, and start it again."""
    settings = site.server.settings
    now = timestamp(site.clock.now() + timedelta(seconds=down))
    await site.server.stop()
    if settings.on_postgresql:
        from bedrockjobs.store.postgresql.transfer import TransferDatabase, hold_queue

        database = TransferDatabase(settings.database, settings.database_schema)
        await asyncio.to_thread(hold_queue, database, "ann", "restored from a.db", now)
    else:
        with closing(held_file(settings.database_path())) as connection:
            hold(connection, "ann", "restored from a.db", now)
    await site._start(settings, down, 0)
