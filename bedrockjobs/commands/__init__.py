"""Every command of the protocol: the classes of all modules in this package, found at import.

A new class in any module here is a new command; no list has to be edited. The names of the modules, replies
included, can be imported from here and from ``bedrockjobs``. A new *module* needs a line below for type
checkers.
"""

# ruff: noqa: F403, F405 - names are discovered instead of listed
from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, get_args

from bedrockjobs.base.errors import UnknownCommand
from bedrockjobs.base.wire import Wire
from bedrockjobs.commands.base import Command as Command
from bedrockjobs.commands.base import Group, defined

if TYPE_CHECKING:
    from bedrockjobs.commands.access import *
    from bedrockjobs.commands.base import Empty as Empty
    from bedrockjobs.commands.base import Parameters as Parameters
    from bedrockjobs.commands.base import Reply as Reply
    from bedrockjobs.commands.control import *
    from bedrockjobs.commands.create import *
    from bedrockjobs.commands.jobs import *
    from bedrockjobs.commands.limits import *
    from bedrockjobs.commands.options import *
    from bedrockjobs.commands.overview import *
    from bedrockjobs.commands.rules import *
    from bedrockjobs.commands.runs import *
    from bedrockjobs.commands.schedules import *
    from bedrockjobs.commands.server import *
    from bedrockjobs.commands.take import *
    from bedrockjobs.commands.workflows import *


def _declared() -> dict[str, type[Wire]]:
    """Import all modules of this package; return the classes that they declare, by name."""
    modules = [import_module(f"{__name__}.{info.name}") for info in iter_modules(__path__)]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Wire) and value.__module__ == module.__name__
        if name.isidentifier() and not name.startswith("_")
    }


_DECLARED = _declared()
globals().update(_DECLARED)
if not TYPE_CHECKING:  # for type checkers everything imported above is public
    __all__ = ["ALL", "COMMANDS", "command_named", "complete", *_DECLARED]

ALL: tuple[type[Command[Any]], ...] = tuple(
    sorted(
        defined(), key=lambda command_class: (get_args(Group).index(command_class.group), command_class.order)
    )
)
"""The commands in the order of display."""

COMMANDS: dict[str, type[Command[Any]]] = {command_class.__name__: command_class for command_class in ALL}
if len(COMMANDS) < len(ALL):
    raise TypeError(f"two commands have one name: {sorted(command_class.__name__ for command_class in ALL)}")

_BY_LOWER_NAME = {name.lower(): command_class for name, command_class in COMMANDS.items()}


@cache
def complete() -> None:
    """Build the validators of all commands and replies now instead of at first use."""
    for command_class in ALL:
        command_class.model_rebuild()
        command_class.reply.model_rebuild()


def command_named(verb: str) -> type[Command[Any]]:
    """Return the command for a raw verb in any case; raises UnknownCommand."""
    command_class = _BY_LOWER_NAME.get(verb.lower())
    if command_class is None:
        raise UnknownCommand(detail="Help lists the commands")
    return command_class
