"""Record every change of a job's state by temporary triggers, since one commit may contain two."""

from __future__ import annotations

from bedrockjobs.job.lifecycle import GONE, arrows
from bedrockjobs.store.sqlite import SQLiteEngine

Change = tuple[str, str]
"""The state before, and the state after."""

ARROWS: set[Change] = {(before, after) for _, before, after in arrows() if before != after}
"""Every change of state that the life cycle has; an arrow back to the same state is none in the table."""

TRIGGERS = f"""
CREATE TEMP TABLE changes (before TEXT, after TEXT);
CREATE TEMP TRIGGER created AFTER INSERT ON main.jobs
    BEGIN INSERT INTO changes VALUES ('{GONE}', new.state); END;
CREATE TEMP TRIGGER changed AFTER UPDATE ON main.jobs WHEN new.state <> old.state
    BEGIN INSERT INTO changes VALUES (old.state, new.state); END;
CREATE TEMP TRIGGER deleted AFTER DELETE ON main.jobs
    BEGIN INSERT INTO changes VALUES (old.state, '{GONE}'); END;
"""


class StateChanges:
    """The changes of state in one database since this was made."""

    def __init__(self, store: SQLiteEngine) -> None:
        """Watch a database over its own connection: triggers of another would see nothing."""
        self._connection = store._db
        self._connection.executescript(TRIGGERS)

    def seen(self) -> set[Change]:
        """Return the changes so far."""
        return set(self._connection.execute("SELECT DISTINCT before, after FROM changes"))

    def strange(self) -> set[Change]:
        """Return the changes that the life cycle does not permit."""
        return self.seen() - ARROWS
