"""bedrockjobs: a durable job queue and scheduler on SQLite or PostgreSQL.

The public names: the clients, one class per command and its reply, the errors, and EMPTIED, which resets an
option. They are loaded at first use, so that importing the package is cheap.
"""

# ruff: noqa: F403 - what type checkers see is found by __getattr__
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bedrockjobs.base.errors import *
    from bedrockjobs.client import *
    from bedrockjobs.commands import *

_HOMES = ("bedrockjobs.base.errors", "bedrockjobs.commands", "bedrockjobs.client")
"""Modules that define public names, the cheapest to import first."""


_VALUES = {"EMPTIED": "bedrockjobs.commands.options"}
"""Public names that are not classes, and their modules."""


def _classes(home: str) -> dict[str, type]:
    """Return the public classes of a module."""
    found = vars(import_module(home))
    public = found.get("__all__", found)
    return {
        name: value
        for name, value in found.items()
        if name in public and isinstance(value, type) and value.__module__.startswith("bedrockjobs.")
    }


if not TYPE_CHECKING:  # hides __getattr__ from type checkers, so that they reject unknown names

    def __getattr__(name: str) -> Any:
        """Load a public name at first use."""
        if name == "__all__":
            return sorted({*_VALUES, *(name for home in _HOMES for name in _classes(home))})
        if name in _VALUES:
            globals()[name] = getattr(import_module(_VALUES[name]), name)
            return globals()[name]
        if not name.startswith("_"):
            for home in _HOMES:
                found = _classes(home).get(name)
                if found is not None:
                    globals()[name] = found
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """List the public names."""
        return sorted({*globals(), *__getattr__("__all__")})
