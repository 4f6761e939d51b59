"""What servers share about time: who looks after it, when nobody did, and which leases are over."""

from __future__ import annotations

from bedrockjobs.job.rows import EventRow
from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.records import PostgreSQLRecords
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.sharing import Watch

_BETWEEN = " to "


class Timekeeping:
    """The part of a unit that looks after time."""

    def __init__(
        self, transaction: Transaction, records: PostgreSQLRecords, keys: AdvisoryKeys, session_id: str
    ) -> None:
        """Speak within ``transaction`` and ``records`` for the server that has ``session_id``."""
        self._records = records
        self._session_id = session_id
        self._transaction = transaction
        self._key = keys.of("watch")

    def watch(self) -> Watch:
        """Try to be the one server that does what time asks for, until the unit ends."""
        ((found,),) = self._transaction.read((SQL["watch"], (self._key,)))
        mine, seen, away = found
        since, _, until = (away or "").partition(_BETWEEN)
        return Watch(mine, seen or "", (since, until))

    def watched(self, now: str) -> None:
        """Note that time is looked after."""
        self._transaction.write(SQL["set_meta"], "seen", now)

    def was_away(self, since: str, until: str) -> None:
        """Note when no server worked, for all servers, and give each run in progress a new lease."""
        self._transaction.write(SQL["set_meta"], "away", f"{since}{_BETWEEN}{until}")
        self._transaction.write(SQL["renew_leases"], until)

    def leases_over(self, now: str, limit: int) -> list[int]:
        """Return the runs whose lease is over."""
        (found,) = self._transaction.read((SQL["leases_over"], (now, limit)))
        return [run_id for (run_id,) in found]

    def sign_off(self, now: str) -> None:
        """Note that the server ends well. Numbers that it has drawn and not used are left out."""
        self.watched(now)
        gone, there = self._transaction.read((SQL["leave"], (self._session_id,)), (SQL["servers_there"], ()))
        self._transaction.wrote = True
        names = " ".join(name for (name,) in there)
        for (name,) in gone:
            detail = f"{len(there)} server(s) now running [{names}]"
            self._records.add_event(now, EventRow("server left", name, detail=detail))
