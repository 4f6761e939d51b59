"""Does a command: finds its handler, and undoes what one did that refused half-way."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.base.errors import CommandError
from bedrockjobs.engine import handlers
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import HANDLERS

for _module in iter_modules(handlers.__path__):
    import_module(f"{handlers.__name__}.{_module.name}")  # each says itself which commands it does

WRITES_BEFORE_REFUSING = frozenset({c.CreateJobs, c.SyncSchedules})
"""Commands of which a part may be done when another is refused: they run inside a savepoint."""


def perform(context: Context, command: c.Command[Any]) -> Answer | CommandError:
    """Do a command; a refusal comes back as the error, and nothing of the command is then done."""
    kind = type(command)
    answer: Answer
    try:
        if kind not in WRITES_BEFORE_REFUSING:
            answer = HANDLERS[kind](context, command)
            return answer
        context.tx.savepoint()
        try:
            answer = HANDLERS[kind](context, command)
        except CommandError:
            context.tx.undo()
            raise
        context.tx.release()
    except CommandError as error:
        return error
    return answer
