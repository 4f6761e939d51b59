"""The shop's own database: its stock, its orders, and the outbox for jobs."""

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from bedrockjobs.outbox import table_sql

FILE = Path("shop.db")

SCHEMA = """
CREATE TABLE books (
    title TEXT PRIMARY KEY, price INTEGER NOT NULL, copies INTEGER NOT NULL CHECK (copies >= 0)
);
INSERT INTO books VALUES ('Emma', 950, 2), ('Ulysses', 1400, 1);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer TEXT NOT NULL, title TEXT NOT NULL, confirmed INTEGER NOT NULL DEFAULT 0
);
"""


def prepare() -> None:
    """Create the tables unless they exist."""
    if not FILE.exists():
        with closing(sqlite3.connect(FILE)) as database:
            database.executescript(SCHEMA + table_sql("sqlite"))


@contextmanager
def transaction() -> Generator[sqlite3.Connection]:
    """Yield a connection; commit at the end of the block, or roll back if it raises."""
    with closing(sqlite3.connect(FILE)) as database, database:
        yield database
