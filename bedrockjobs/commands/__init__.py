"""Every command of the protocol: the classes of all modules in this package, imported at first use.

A new class in any module here is a new command; no list has to be edited. All classes of the modules, replies
included, can be imported from this package and from ``bedrockjobs``. Only a new *module* needs a line below,
for type checkers.
"""

# ruff: noqa: F403, F405 - names are discovered instead of listed
from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pkgutil import get_data, iter_modules
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

    ALL: tuple[type[Command[Any]], ...]
    """The commands in the order of display."""

    COMMANDS: dict[str, type[Command[Any]]]
    """The commands by name."""


_FIRST = ("take", "runs")
"""Modules whose commands are displayed first within their group. Commands of the other modules follow, in
alphabetical order of the modules."""


@cache
def _homes() -> dict[str, str]:
    """Return the module of each class of this package, found by searching the source text of the modules.

    Importing all modules takes a third of a second, and most programs use only a few.
    """
    found: dict[str, str] = {}
    modules = [info.name for info in iter_modules(__path__)]
    for home in (*_FIRST, *(name for name in modules if name not in _FIRST)):
        text = get_data(__name__, f"{home}.py") or b""
        found |= {name.decode(): home for name in re.findall(rb"^ *class ([A-Za-z]\w*)", text, re.M)}
    return found


def _declared(name: str) -> type[Wire] | None:
    """Import the class of this name if this package declares one that is sent between client and server."""
    home = _homes().get(name)
    value = None if home is None else getattr(import_module(f"{__name__}.{home}"), name, None)
    return value if isinstance(value, type) and issubclass(value, Wire) else None


@cache
def _all() -> tuple[type[Command[Any]], ...]:
    """Import all modules of this package; return the commands in the order of display."""
    places = {name: place for place, name in enumerate(_homes()) if _declared(name)}
    groups = get_args(Group)
    ours = [each for each in defined() if each.__module__.startswith(f"{__name__}.")]
    return tuple(sorted(ours, key=lambda each: (groups.index(each.group), each.order, places[each.__name__])))


@cache
def _by_name() -> dict[str, type[Command[Any]]]:
    found = {command_class.__name__: command_class for command_class in _all()}
    if len(found) < len(_all()):
        raise TypeError(f"two commands have one name: {sorted(each.__name__ for each in _all())}")
    return found


@cache
def _by_lower_name() -> dict[str, type[Command[Any]]]:
    return {name.lower(): command_class for name, command_class in _by_name().items()}


if not TYPE_CHECKING:  # hides __getattr__ from type checkers, so that they reject unknown names

    def __getattr__(name: str) -> Any:
        """Load a class, or a value such as ``ALL`` that needs all classes, at first use."""
        if name == "__all__":
            _all()
            return ["ALL", "COMMANDS", "command_named", "complete", *filter(_declared, _homes())]
        found = _all() if name == "ALL" else _by_name() if name == "COMMANDS" else _declared(name)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found


@cache
def complete() -> None:
    """Build the validators of all commands and replies now instead of at first use."""
    for command_class in _all():
        command_class.model_rebuild()
        command_class.reply.model_rebuild()


def command_named(verb: str) -> type[Command[Any]]:
    """Return the command class for a verb of the raw protocol, in any case; raises UnknownCommand."""
    command_class = _by_lower_name().get(verb.lower())
    if command_class is None:
        raise UnknownCommand(detail="Help lists the commands")
    return command_class
