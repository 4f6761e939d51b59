"""bedrockjobs: a durable job queue and scheduler on SQLite or PostgreSQL.

The public names are the clients, one class for each command and each reply, the errors, and EMPTIED, the
value that resets an option. Each name is loaded at its first use, so that importing the package is cheap.
"""

# ruff: noqa: F403 - only type checkers see the imports below; at run time __getattr__ finds the names
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bedrockjobs.base.errors import *
    from bedrockjobs.client import *
    from bedrockjobs.commands import *

_HOMES = ("bedrockjobs.base.errors", "bedrockjobs.commands", "bedrockjobs.client")
"""Modules whose classes are public, in the order in which a name is looked up: the cheapest to import comes
first."""


_VALUES = {"EMPTIED": "bedrockjobs.commands.options"}
"""Public names that are not classes, each with the module that defines it."""


def _class(home: str, name: str) -> type | None:
    """Return the class ``name`` if the module ``home`` or a module below it declares it; otherwise None."""
    value = getattr(import_module(home), name, None)
    return value if isinstance(value, type) and value.__module__.startswith(home) else None


def _all() -> list[str]:
    names = {name for home in _HOMES for name in getattr(import_module(home), "__all__", ())}
    names |= set(vars(import_module(_HOMES[0])))
    return sorted({*_VALUES, *(name for name in names if any(_class(home, name) for home in _HOMES))})


if not TYPE_CHECKING:  # hides __getattr__ from type checkers, so that they reject unknown names

    def __getattr__(name: str) -> Any:
        """Load a public name at first use."""
        if name == "__all__":
            return _all()
        found = None if name not in _VALUES else getattr(import_module(_VALUES[name]), name)
        if found is None and not name.startswith("_"):
            found = next(filter(None, (_class(home, name) for home in _HOMES)), None)
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """List the public names."""
        return sorted({*globals(), *__getattr__("__all__")})
