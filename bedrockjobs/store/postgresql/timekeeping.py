"""What servers share about time: who looks after it, when nobody did, and which leases are over."""

from __future__ import annotations

from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.sharing import Watch

_BETWEEN = " to "


class Timekeeping:
    """The part of a unit that looks after time."""

    def __init__(self, transaction: Transaction, keys: AdvisoryKeys) -> None:
        """Speak within ``transaction``."""
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

    def leave(self, session: str) -> tuple[list[str], list[str]]:
        """Be one of the servers no more; return its name, if it was one, and those that are left."""
        gone, left = self._transaction.read((SQL["leave"], (session,)), (SQL["servers_there"], ()))
        self._transaction.wrote = True
        return [name for (name,) in gone], [name for (name,) in left]
