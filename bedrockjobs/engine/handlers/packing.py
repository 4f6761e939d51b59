"""Output that was packed takes the place of what it was made of. No client asks for it: the server does."""

from __future__ import annotations

from bedrockjobs.commands.base import Command, Empty
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.store.base import Plan
from bedrockjobs.store.chunks import Chunk


class PackOutput(Command[Empty]):
    """Put a packed chunk in the place of those that it was made of."""

    abstract = True

    chunk: Chunk


@handles(PackOutput, plan=lambda command: Plan(runs=(command.chunk.run_id,)))
def pack_output(context: Context, command: PackOutput) -> Answer:
    """Put a packed chunk in the place of those that it was made of, if they are still there."""
    context.unit.records.pack(command.chunk)
    return Answer()
