"""Looks at each row that is moved: whether it is whole, and whether the other engine can hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

from bedrockjobs.store.moved import MoveError
from bedrockjobs.store.tables import Row, Table

COMPLAINTS_MAX = 20
"""Rows of which it is said what is wrong with them; further ones are counted."""

ZERO = "\0"
"""The one character that PostgreSQL cannot hold in a text."""

REPLACED = "\ufffd"
"""What stands for it, as where a server on PostgreSQL is sent one."""


class Rules(NamedTuple):
    """What is to be moved although something is wrong with it."""

    keep_damaged: bool = False
    """Jobs whose data is not what was stored: they stay so, and are set aside where they are taken."""
    replace_zeros: bool = False
    """Texts with the character 0 beside the jobs, most likely output: it is replaced."""


class BadRows(MoveError):
    """Rows that cannot be moved as they are."""

    def __init__(self, complaints: list[str], count: int) -> None:
        """Hold the first complaints, and how many there are in all."""
        super().__init__(
            f"{count} rows cannot be moved as they are, and nothing was moved. --keep-damaged takes damaged"
            f" jobs along, --replace-zeros puts {REPLACED} in place of the character 0 beside the jobs."
        )
        self.complaints = complaints
        self.count = count


class Inspector:
    """Lets sound rows through and remembers what is wrong with the others."""

    def __init__(self, rules: Rules) -> None:
        """Judge by some rules."""
        self._rules = rules
        self._complaints: list[str] = []
        self._count = 0

    def sound(self, table: Table, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows that can be moved, in the form in which they can."""
        texts = itemgetter(*table.texts)
        damaged = _judge_of_data(table) if table.name == "jobs" and not self._rules.keep_damaged else None
        for row in rows:
            if damaged is not None and damaged(row):
                self._complain(table, row, "the data is not what was stored, by its checksum")
            elif ZERO in "".join(texts(row)):
                if table.name == "jobs" or not self._rules.replace_zeros:
                    self._complain(table, row, f"{self._with_zero(table, row)} has the character 0")
                else:
                    yield tuple(
                        value.replace(ZERO, REPLACED) if isinstance(value, str) else value for value in row
                    )
            else:
                yield row

    def _with_zero(self, table: Table, row: Row) -> str:
        return next(table.columns[at] for at in table.texts if ZERO in row[at])

    def _complain(self, table: Table, row: Row, words: str) -> None:
        self._count += 1
        if len(self._complaints) < COMPLAINTS_MAX:
            self._complaints.append(f"{table.key_of(row)}: {words}")

    def end(self) -> None:
        """Raise BadRows if a row could not be let through."""
        if self._count:
            raise BadRows(self._complaints, self._count)


def _judge_of_data(table: Table) -> Callable[[Row], bool]:
    """Return what tells of a job whether its data is not what was stored."""
    data, checksum = table.columns.index("data"), table.columns.index("checksum")
    return lambda row: row[checksum] is not None and crc32(row[data].encode()) != row[checksum]
