"""Handlers without a transaction: Ping, Help, Status, and commands on the worker registry and the clock.

They receive the server instead of a Context.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Protocol

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import Clock, StandingClock, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.config import MOMENTS_PER_ADVANCE_MAX
from bedrockjobs.base.errors import BadArguments, WrongState
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Settings
from bedrockjobs.base.wire import stamped
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
    """Authenticates tokens."""

    def by_bearer(self, token: str, address: str) -> Principal:
        """Return the principal of a token; raise Unauthenticated or TooMany."""

    def identity(self, caller: Principal) -> Answer:
        """Return the reply to Authenticate."""


class Tests(Protocol):
    """Sends messages of notification rules as a test."""

    async def test(self, name: str, *, send: bool) -> MessageReply:
        """Return what a rule would send; raise NotFound, or WrongState if it could not be delivered."""


class Serving(Protocol):
    """What the handlers in this module need of the server."""

    clock: Clock
    settings: Settings
    presence: WorkerRegistry
    access: Identifies
    messenger: Tests

    def status(self) -> dict[str, Any]:
        """Return the members of the reply to Status."""

    async def next_moment(self) -> datetime | None:
        """Return when the next job or maintenance task is due, or None."""

    async def move_clock(self, moment: datetime) -> None:
        """Move a test clock; return once everything that is due by then has been done. Raise Unavailable."""


@handles(Ping)
def ping(_: Serving, __: Ping) -> Answer:
    """Reply at once."""
    return Answer()


@handles(Authenticate)
def authenticate(serving: Serving, command: Authenticate) -> Answer:
    """Return what a token permits; protocols pass the client's address themselves."""
    return serving.access.identity(serving.access.by_bearer(command.token, ""))


@handles(TestRule)
async def test_rule(serving: Serving, command: TestRule) -> Answer:
    """Return what a rule would send, and send it if the command says so."""
    return Answer(
        (await serving.messenger.test(command.name, send=command.send)).model_dump_json(by_alias=True)
    )


@handles(Help)
def show_help(_: Serving, __: Help) -> Answer:
    """Return one sentence about each command."""
    return Answer(jsontext.dump({"commands": {kind.__name__: kind.sentence() for kind in ALL}}))


@handles(Status)
def status(serving: Serving, _: Status) -> Answer:
    """Return the state of the server."""
    return Answer(jsontext.dump(serving.status()))


@handles(ListServers)
def list_servers(serving: Serving, _: ListServers) -> Answer:
    """List the live servers."""
    servers = serving.presence.servers_alive()
    return Answer(jsontext.dump({"servers": [server._asdict() for server in servers]}))


@handles(Heartbeat)
async def heartbeat(serving: Serving, command: Heartbeat, by: str = "") -> Answer:
    """Renew leases and wait for instructions; if the wait is cancelled, return the current instructions.

    ``by`` is the name of the token.
    """
    try:
        return Answer(await serving.presence.heartbeat(command, by))
    except asyncio.CancelledError:  # a heartbeat without a wait would renew runs that no worker holds
        return Answer(serving.presence.standing(command))


@handles(ListWorkers)
async def list_workers(serving: Serving, command: ListWorkers) -> Answer:
    """Return a page of the live workers."""
    return Answer(await serving.presence.listing(command.after, command.name, command.limit))


@handles(AdvanceClock)
async def advance(serving: Serving, command: AdvanceClock) -> Answer:
    """Move a test clock from one due time to the next until the target is reached."""
    clock = serving.clock
    if not isinstance(clock, StandingClock):
        raise WrongState("Not a test clock", "expected a server that was started with --test-clock")
    if command.to is not None and command.seconds is not None:
        raise BadArguments("Malformed to", "to: expected nothing together with seconds")
    await serving.move_clock(clock.now())  # another server may have moved it
    if command.to is not None:
        target = moment_of(stamped(command.to, timestamp_ms(clock.now())))
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


# Packed output replaces the chunks it was made of. The server itself sends this command.


class PackOutput(Command[Empty]):
    """Replace chunks by a packed chunk, and find the chunks to pack next."""

    abstract = True

    run_id: int
    chunk: Chunk | None = None
    """The packed chunk; None in the first command, which only finds chunks."""
    loose: list[Chunk] = []
    """Set by the handler: the chunks to pack next."""


@handles(PackOutput, plan=lambda command: AccessPlan(runs=(command.run_id,)))
def pack_output(context: Context, command: PackOutput) -> Answer:
    """Replace chunks by a packed one if they still exist, and find the chunks to pack next."""
    records = context.unit.records
    if command.chunk is not None:
        records.pack(command.chunk)
    command.loose[:] = records.loose(command.run_id)
    return Answer()
