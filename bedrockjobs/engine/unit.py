"""The unit of work: each command or maintenance task is executed here, whole or not at all.

A unit that raises leaves no trace: its writes are rolled back to a savepoint, and each part undoes its
changes in memory with its own ``undo``. A unit that returns keeps its changes, even if it returns a refusal.
If the database itself fails (StoreError), the dispatcher rolls back the whole transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from bedrockjobs.base.errors import CommandError
from bedrockjobs.commands import Command
from bedrockjobs.engine import handlers
from bedrockjobs.engine.handlers.context import HANDLERS, Answer, Context, load
from bedrockjobs.engine.handlers.failing import set_aside
from bedrockjobs.store.base import RowDamaged, StoreError

T = TypeVar("T")
Outcome = Answer | CommandError

load(handlers)


def unit(context: Context, act: Callable[[], T]) -> T:
    """Call ``act`` and undo its changes if it raises; raise its error, or StoreError if the store failed."""
    parts = (context, *context.parts)
    marks = [part.mark() for part in parts]
    savepoint: object = None
    try:
        savepoint = context.unit.savepoint()
        result = act()
        context.unit.release()
    except Exception as error:
        fault = context.unit.fault(error)
        if fault is not None:
            raise fault from error
        try:
            context.unit.undo(savepoint)
        except Exception as second:  # its state is unknown, so the whole transaction must be rolled back
            raise context.unit.fault(second) or StoreError(str(second)) from error
        for part, mark in zip(parts, marks, strict=True):
            part.undo(mark)
        raise
    return result


def perform(context: Context, command: Command[Any], *, careful: bool = False) -> Outcome:
    """Execute a command and return its reply or its CommandError; raise any other error of the handler.

    Most handlers refuse before they write anything, which the tests check, so they run without a savepoint
    unless ``careful`` is set. In careful work, a command that needs a damaged row is refused and the row is
    set aside.
    """
    kind = type(command)
    outcome: Outcome
    try:
        if careful or kind.all_or_nothing:
            outcome = unit(context, partial(HANDLERS[kind], context, command))
        else:
            outcome = HANDLERS[kind](context, command)
    except CommandError as error:
        return error
    except RowDamaged as error:
        if not careful:
            raise
        return unit(context, partial(set_aside, context, error.job))
    return outcome
