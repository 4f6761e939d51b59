"""A new connection: to the first host of the URL that can be written, straight or through a pooler.

A pooler in transaction mode gives each transaction another connection of PostgreSQL. Parameters then have to
be set in each transaction, and nothing stays prepared. It is known by the operator's word, by its refusal of
parameters, or by what became of them.
"""

from __future__ import annotations

import logging
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bedrockjobs.base.config import PG_CONNECT_S_MAX
from bedrockjobs.store.postgresql.patience import PatientConnection, done_beside
from bedrockjobs.store.postgresql.terms import Terms

logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it warns of is raised as well

REFUSED_BY_POOLER = "unsupported startup parameter"
"""How a pooler refuses parameters."""

PLANS = "SELECT current_setting('plan_cache_mode') = 'force_generic_plan'"


def connect(url: str, schema: str, terms: Terms) -> tuple[PatientConnection, bool]:
    """Return a connection, and whether there is a pooler in between; raises psycopg.Error.

    What takes long is done in a thread where the caller may give its turn away.
    """
    return done_beside(lambda: _connect(url, schema, terms), lambda made: made[0].close())


def _connect(url: str, schema: str, terms: Terms) -> tuple[PatientConnection, bool]:
    given = conninfo_to_dict(url)
    defaults = {
        "target_session_attrs": "read-write",
        "tcp_user_timeout": PG_CONNECT_S_MAX * 1000,
        "application_name": "bedrockjobs",
    }
    named: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
    named |= {"connect_timeout": PG_CONNECT_S_MAX, "client_encoding": "UTF8"}
    ours = " ".join(f"-c {name}={value}" for name, value in terms.parameters(schema).items())
    options = f"{given.get('options') or ''} {ours}".strip()
    pooled = terms.pooled
    if not pooled:
        try:
            connection = _opened(url, options=options, **named)
        except psycopg.OperationalError as error:
            if REFUSED_BY_POOLER not in str(error):
                raise
            pooled = True
        else:
            try:
                pooled = not connection.execute(PLANS).fetchone()[0]  # type: ignore[index]
            except psycopg.Error:
                connection.close()
                raise
            if pooled:
                connection.close()
    if pooled:
        connection = _opened(url, **named)
    connection.answer_s = terms.answer_s
    return connection, pooled


def _opened(url: str, **named: Any) -> PatientConnection:
    return PatientConnection.connect(url, autocommit=True, prepare_threshold=None, **named)
