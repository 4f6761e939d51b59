"""The tables beside jobs on PostgreSQL: as on SQLite, with what other servers have to be told."""

from __future__ import annotations

from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.rows import PauseRow
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.statements import RECORDS
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.records import TableRecords


class PostgreSQLRecords(TableRecords):
    """Pauses and drains are remembered between units, until their epoch changes."""

    def __init__(self, transaction: Transaction) -> None:
        """Speak within ``transaction``."""
        super().__init__(transaction, RECORDS)
        self._transaction = transaction
        self._epoch = 0

    def at_epoch(self, epoch: int) -> bool:
        """Forget pauses and drains if another server changed them; return whether one did."""
        changed = epoch != self._epoch
        self._epoch = epoch
        if changed:
            self.forget()
        return changed

    def raise_epoch(self) -> None:
        """Let all servers read pauses, drains and the crash list anew."""
        self._transaction.write(SQL["raise_epoch"])

    def put_pause(self, pause: PauseRow) -> None:
        """Pause a pattern."""
        super().put_pause(pause)
        self._transaction.write(SQL["pause_regex"], pause.pattern, anchored_regex([pause.pattern]))
        self.raise_epoch()

    def delete_pause(self, pattern: str) -> None:
        """Resume a pattern."""
        super().delete_pause(pattern)
        self.raise_epoch()

    def put_drain(self, worker: str, by: str, now: str) -> None:
        """Drain a worker."""
        super().put_drain(worker, by, now)
        self.raise_epoch()

    def delete_drain(self, worker: str) -> None:
        """Let a worker take jobs again."""
        super().delete_drain(worker)
        self.raise_epoch()
