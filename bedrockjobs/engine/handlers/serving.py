"""What the server answers by itself: Ping, Help and Status at once, and what its memory of the workers and
its clock are asked for. These handlers are given the server instead of a transaction.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Protocol

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, StandingClock
from bedrockjobs.base.config import MOMENTS_PER_ADVANCE_MAX
from bedrockjobs.base.errors import BadArguments, WrongState
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import moment_of, stamped, timestamp
from bedrockjobs.commands import (
    ALL,
    AdvanceClock,
    Authenticate,
    Heartbeat,
    Help,
    ListServers,
    ListWorkers,
    MessageReply,
    Ping,
    Status,
    TestRule,
)
from bedrockjobs.commands.base import Command, Empty
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.workers import WorkerRegistry
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.chunks import Chunk


class Identifies(Protocol):
    """What knows tokens."""

    def by_bearer(self, token: str, address: str) -> Principal:
        """Return whose token this is; raises Unauthenticated and TooMany."""

    def identity(self, caller: Principal) -> Answer:
        """Return what somebody is told of their token."""


class Tests(Protocol):
    """What sends messages."""

    async def test(self, name: str, *, send: bool) -> MessageReply:
        """Return what a rule would send; raises NotFound, and WrongState where it did not arrive."""


class Serving(Protocol):
    """What these handlers need of the server."""

    clock: Clock
    settings: Settings
    presence: WorkerRegistry
    access: Identifies
    messenger: Tests

    def status(self) -> dict[str, Any]:
        """Return what Status shows."""

    async def next_moment(self) -> datetime | None:
        """Return when time asks for something next, None where for nothing."""

    async def move_clock(self, moment: datetime) -> None:
        """Move a test clock; return once all that time asks for then is done. Raises Unavailable."""


@handles(Ping)
def ping(_: Serving, __: Ping) -> Answer:
    """Answer at once."""
    return Answer()


@handles(Authenticate)
def authenticate(serving: Serving, command: Authenticate) -> Answer:
    """Tell what a token allows; the protocols ask for themselves, as they know where it comes from."""
    return serving.access.identity(serving.access.by_bearer(command.token, ""))


@handles(TestRule)
async def test_rule(serving: Serving, command: TestRule) -> Answer:
    """Tell what a rule would send, and send it where asked to."""
    return Answer(
        (await serving.messenger.test(command.name, send=command.send)).model_dump_json(by_alias=True)
    )


@handles(Help)
def tell(_: Serving, __: Help) -> Answer:
    """Tell what each command does."""
    return Answer(jsontext.dump({"commands": {kind.__name__: kind.sentence() for kind in ALL}}))


@handles(Status)
def status(serving: Serving, _: Status) -> Answer:
    """Tell what the server is and how it is."""
    return Answer(jsontext.dump(serving.status()))


@handles(ListServers)
def list_servers(serving: Serving, _: ListServers) -> Answer:
    """List the servers that are alive."""
    servers = serving.presence.servers_alive()
    return Answer(jsontext.dump({"servers": [server._asdict() for server in servers]}))


@handles(Heartbeat)
async def heartbeat(serving: Serving, command: Heartbeat, by: str = "") -> Answer:
    """Keep runs alive; one whose wait is ended is told how things stand. ``by`` is the name of the token."""
    try:
        return Answer(await serving.presence.heartbeat(command, by))
    except asyncio.CancelledError:  # done again without a wait, it would renew what nobody holds
        return Answer(serving.presence.standing(command))


@handles(ListWorkers)
async def list_workers(serving: Serving, command: ListWorkers) -> Answer:
    """List the workers that are alive, page by page."""
    return Answer(await serving.presence.listing(command.after, command.name, command.limit))


@handles(AdvanceClock)
async def advance(serving: Serving, command: AdvanceClock) -> Answer:
    """Move a test clock from one moment that counts to the next."""
    clock = serving.clock
    if not isinstance(clock, StandingClock):
        raise WrongState("Not a test clock", "expected a server that was started with --test-clock")
    if command.to is not None and command.seconds is not None:
        raise BadArguments("Malformed to", "to: expected nothing together with seconds")
    await serving.move_clock(clock.now())  # another server may have moved it
    if command.to is not None:
        target = moment_of(stamped(command.to))
    elif command.seconds is not None:
        target = clock.now() + timedelta(seconds=command.seconds)
    else:
        target = await serving.next_moment() or clock.now()
    for _ in range(MOMENTS_PER_ADVANCE_MAX):
        if clock.now() >= target:
            break
        found = await serving.next_moment()
        await serving.move_clock(target if found is None else min(found, target))
    else:
        await serving.move_clock(target)
    return Answer(jsontext.dump({"now": timestamp(clock.now())}))


# Output that was packed takes the place of what it was made of. No client asks for it: the server does.


class PackOutput(Command[Empty]):
    """Put a packed chunk in the place of those that it was made of, and look for those that come next."""

    abstract = True

    run_id: int
    chunk: Chunk | None = None
    """What was packed; None where nothing was."""
    loose: list[Chunk] = []
    """Filled when it is done: what is to be packed next."""


@handles(PackOutput, plan=lambda command: AccessPlan(runs=(command.run_id,)))
def pack_output(context: Context, command: PackOutput) -> Answer:
    """Put a packed chunk in the place of those that it was made of, if they are still there."""
    records = context.unit.records
    if command.chunk is not None:
        records.pack(command.chunk)
    command.loose[:] = records.loose(command.run_id)
    return Answer()
