"""Which function does which command: each says so itself, with ``@handles(TheCommand)``.

What a handler is given first depends on where its command runs (``Command.where``): a command of the writer
gets the ``Context`` of the open transaction, one of the reader the ``Views``, any other the ``Service``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar

from bedrockjobs.commands import Command
from bedrockjobs.store.base import Plan

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Command[Any]], Handler] = {}
"""The handler of each command, once its module is imported."""

PLANS: dict[type[Command[Any]], Callable[[Any], Plan]] = {}
"""What each command of the writer is going to touch, as far as its parameters tell."""


def handles(kind: type[Command[Any]], plan: Callable[[Any], Plan] | None = None) -> Callable[[H], H]:
    """Make the function below the handler of a command, whose ``plan`` says what it is going to touch.

    Only commands of the writer have a plan. Raises ValueError where the command has a handler already.
    """

    def register(handler: H) -> H:
        if kind in HANDLERS:
            raise ValueError(f"{kind.__name__} is handled by {HANDLERS[kind].__qualname__} already")
        HANDLERS[kind] = handler
        if plan is not None:
            PLANS[kind] = plan
        return handler

    return register


def plan_of(command: Command[Any]) -> Plan:
    """Return what a command is going to touch; an engine that locks rows reads them together."""
    return PLANS[type(command)](command)


def load(package: ModuleType) -> None:
    """Import all modules of a package, each of which says itself which commands it does."""
    for found in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{found.name}")
