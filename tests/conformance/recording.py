"""An engine that permits only the interface of the store: it shows that handlers need nothing else.

Behind it is SQLite; a second engine has to offer what this one lets through, and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bedrockjobs.base.settings import Compatibility, Settings
from bedrockjobs.commands import Command
from bedrockjobs.store.base import InMemory, Unit
from bedrockjobs.store.records import Records
from bedrockjobs.store.sqlite import SQLiteEngine
from tests.conformance.engine import Engine, SQLiteQueue


def offered(protocol: type) -> frozenset[str]:
    """Return the names that a protocol has."""
    return frozenset(name for name in vars(protocol) if not name.startswith("_"))


SEAM_RECORDS = offered(Records) - offered(InMemory) - {"configure"}
"""The tables that handlers may use; the rest belongs to the engine."""


class Narrow:
    """A wrapper that exposes only the members of a protocol."""

    def __init__(self, inner: Any, names: frozenset[str], seen: Counter[str]) -> None:
        """Expose ``names``, and count each use."""
        self._inner, self._names, self._seen = inner, names, seen

    def __getattr__(self, name: str) -> Any:
        """Return a member of the protocol."""
        assert name in self._names, f"{name} is not in the seam"
        self._seen[name] += 1
        found = getattr(self._inner, name)
        return Narrow(found, SEAM_RECORDS, self._seen) if name == "records" else found


class RecordingQueue(SQLiteQueue):
    """The handlers on wrapped engine and unit, with one transaction per command."""

    def __init__(self, store: SQLiteEngine, compatibility: Compatibility) -> None:
        """Begin empty."""
        super().__init__(store, compatibility)
        self.seen: Counter[str] = Counter()
        """How often each member of the seam was used."""

    def begin(self, *commands: Command[Any]) -> Any:
        """Open a unit that exposes only the interface."""
        return Narrow(super().begin(*commands), offered(Unit), self.seen)


@contextmanager
def recording_engine(compatibility: Compatibility) -> Iterator[Engine]:
    """Open a wrapped store in memory."""
    store = SQLiteEngine(":memory:", Settings())
    yield RecordingQueue(store, compatibility)
    store.close()
