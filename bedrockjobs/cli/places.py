"""Databases as people name them on the command line: a file, or a URL of PostgreSQL with a schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bedrockjobs.cli.session import USAGE, Failure
from bedrockjobs.cli.settings_sources import file_alone, settings_from

if TYPE_CHECKING:
    from bedrockjobs.store.postgresql.transfer import TransferDatabase

URLS = ("postgresql://", "postgres://")

schema_option = click.option(
    "--schema",
    metavar="NAME",
    allow_from_autoenv=False,
    help="PostgreSQL's schema in which the tables are.  [BEDROCKJOBS_DATABASE_SCHEMA; default: bedrockjobs]",
)


def is_url(text: str) -> bool:
    """Tell whether a database is one on PostgreSQL."""
    return text.startswith(URLS)


def file_named(text: str | None) -> Path:
    """Return the path of a file; without a text, of the one that ``serve`` would open. Raises UsageError."""
    return settings_from({}).database_path() if text is None else file_alone(text)


def database_named(url: str, schema: str | None) -> TransferDatabase:
    """Return a database on PostgreSQL; without a schema, in the one that ``serve`` would use.

    Raises Failure where the driver is not installed, BadSettings.
    """
    try:
        from bedrockjobs.store.postgresql.transfer import TransferDatabase
    except ImportError:
        raise Failure(
            "PostgreSQL needs a driver that is not installed: pip install 'bedrockjobs[postgresql]'", USAGE
        ) from None
    return TransferDatabase(url, settings_from({}).database_schema if schema is None else schema)
