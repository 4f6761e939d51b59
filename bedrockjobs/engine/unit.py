"""One unit of work: whatever is done in the open transaction is done by a function of this module.

A unit that raises has done nothing: its writes are undone, and so is what it changed in memory, part by part,
each by its own ``undo``. A unit that returns, also a refusal, keeps what it did. What the database itself
could not do (a StoreError) undoes the whole transaction, elsewhere.
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
    """Do one thing whole or not at all; raises what it raises, or the StoreError that this means."""
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
        except Exception as second:  # nobody knows what is left of it: the whole transaction goes
            raise context.unit.fault(second) or StoreError(str(second)) from error
        for part, mark in zip(parts, marks, strict=True):
            part.undo(mark)
        raise
    return result


def perform(context: Context, command: Command[Any], *, careful: bool = False) -> Outcome:
    """Do a command; a refusal comes back as the error. Raises what a handler raises that is no refusal.

    Most handlers write nothing before they refuse, so that nothing has to be undone: they are done without a
    savepoint, unless ``careful``. The tests hold them to it. A command that needs a damaged row is refused
    where it is done with care, and the row is set aside.
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
