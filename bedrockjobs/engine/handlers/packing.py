"""Output that was packed takes the place of what it was made of. No client asks for it: the server does."""

from __future__ import annotations

from bedrockjobs.commands.base import Command, Empty
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.store.base import Plan
from bedrockjobs.store.chunks import Chunk


class PackOutput(Command[Empty]):
    """Put a packed chunk in the place of those that it was made of, and look for those that come next."""

    abstract = True

    run_id: int
    chunk: Chunk | None = None
    """What was packed; None where nothing was."""
    loose: list[Chunk] = []
    """Filled when it is done: what is to be packed next."""


@handles(PackOutput, plan=lambda command: Plan(runs=(command.run_id,)))
def pack_output(context: Context, command: PackOutput) -> Answer:
    """Put a packed chunk in the place of those that it was made of, if they are still there."""
    records = context.unit.records
    if command.chunk is not None:
        records.pack(command.chunk)
    command.loose[:] = records.loose(command.run_id)
    return Answer()
