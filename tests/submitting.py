"""Submit commands to a dispatcher without a network."""

from __future__ import annotations

import asyncio
from typing import Any

from bedrockjobs.commands import Command
from bedrockjobs.engine.dispatcher import Dispatcher
from bedrockjobs.engine.submission import Outcome


def submit(
    dispatcher: Dispatcher, command: Command[Any], *, reachable: bool = True
) -> asyncio.Future[Outcome]:
    """Submit a command; the future gets its outcome. ``reachable``: whether the client is still connected."""
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def deliver(outcome: Outcome) -> bool:
        done.set_result(outcome)
        return reachable

    dispatcher.submit(command, deliver)
    return done
