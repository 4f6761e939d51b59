"""Token commands executed directly on the database, for users who have lost all tokens."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, cast

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError
from bedrockjobs.base.principal import Permission, Principal
from bedrockjobs.commands import Command
from bedrockjobs.engine.handlers.context import Answer, Context, plan_of
from bedrockjobs.engine.row_access import perform_for
from bedrockjobs.engine.workers import NoWorkers
from bedrockjobs.store.base import Unit
from bedrockjobs.store.offline import unit_of

ADDRESS = "database"
"""The client address that the audit log shows for these commands."""

_CALLER = Principal(Permission("", "admin"), ADDRESS)


def do_on_file(path: Path, command: Command[Any]) -> Answer:
    """Execute a token command on a SQLite file; raises CommandError and the errors of ``unit_of``."""
    moment: datetime = SystemClock().now()
    with unit_of(path, moment) as unit:
        return _done(Context(cast(Unit, unit), "document", NoWorkers()), command)


def do_on_postgresql(url: str, schema: str, command: Command[Any]) -> Answer:
    """Execute a token command on PostgreSQL; raises CommandError, StoreError, SchemaError."""
    from bedrockjobs.store.postgresql.engine import PostgreSQLEngine  # it needs the driver

    engine = PostgreSQLEngine(url, SystemClock(), name=schema)
    try:
        answer = _done(Context(engine.begin([plan_of(command)]), "document", NoWorkers()), command)
        engine.commit()
        engine.confirm()
    finally:
        engine.close()
    return answer


def _done(context: Context, command: Command[Any]) -> Answer:
    outcome = perform_for(_CALLER, context, command)
    if isinstance(outcome, CommandError):
        raise outcome
    return outcome
