"""What a server demands of its PostgreSQL, and the parameters that each of its transactions has."""

from __future__ import annotations

from dataclasses import dataclass

from bedrockjobs.base.config import LOCK_WAIT_S_MAX, PG_ANSWER_S_MAX
from bedrockjobs.base.settings import Durability, Settings


@dataclass(frozen=True, slots=True)
class Terms:
    """What a server demands, and how long it waits."""

    durability: Durability = "full"
    unit_s: float = 5.0
    """Time that PostgreSQL leaves a transaction open of which it hears nothing."""
    answer_s: float = PG_ANSWER_S_MAX
    """Time in which PostgreSQL answers what is sent together; 0: whenever it does."""
    serial: bool = False
    """Whether one unit is done after the other, of all servers that demand it."""
    pooled: bool = False
    """Whether it is known that a pooler gives each transaction another connection; else it is found out."""

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """Return the terms that an operator has set."""
        return cls(
            settings.durability, settings.unit_s_max, serial=settings.isolation == "serial",
            pooled=bool(settings.database_direct),
        )  # fmt: skip

    def parameters(self, schema: str) -> dict[str, str]:
        """Return the parameters of PostgreSQL by their names.

        Statistics are always behind a queue: plans follow the indexes alone, and are made once. After a look
        at an empty queue it seems cheap to sort all jobs of a name instead of reading an index in its order.
        """
        found = {
            "search_path": f'"{schema}"',
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "enable_sort": "off",
            "jit": "off",
            "plan_cache_mode": "force_generic_plan",
            "lock_timeout": _ms(LOCK_WAIT_S_MAX),
            "statement_timeout": _ms(self.answer_s),
            "idle_in_transaction_session_timeout": _ms(self.unit_s),
        }
        if self.durability == "relaxed":
            found["synchronous_commit"] = "off"
        return found


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"
