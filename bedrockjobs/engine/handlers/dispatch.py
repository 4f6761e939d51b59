"""Does a command: finds its handler, and undoes what one did that refused half-way."""

from __future__ import annotations

from typing import Any

from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands import Command
from bedrockjobs.engine import handlers
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import HANDLERS, load

load(handlers)


def perform(context: Context, command: Command[Any]) -> Answer | CommandError:
    """Do a command; a refusal comes back as the error, and nothing of the command is then done."""
    kind = type(command)
    answer: Answer
    try:
        if not kind.all_or_nothing:
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
