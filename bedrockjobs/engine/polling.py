"""A server looks by itself for who waits: what another server made ready may have gone unheard.

It asks for many names with one statement, so that it is cheap however many wait. It knows no SQL.
"""

from __future__ import annotations

from typing import cast

from bedrockjobs.base.wire import after_seconds
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.engine.waiting import Waiting
from bedrockjobs.store.sharing import SharedUnit

NAMES_AT_ONCE = 500
"""Names of one look, each half a second: 2,000 have their turn within two. PostgreSQL takes 1.5 ms for as
many of which nothing is queued, and 15 ms where all have jobs for later."""

PATTERNS_AT_ONCE = 16
"""Patterns, or lists of them, for which one look has a take: each costs a round trip or two."""

LATELY_S = 5
"""How long ago a job may have become due that is found whoever waits for it, by a pattern too: as long as the
unit may take that makes it (``unit_s_max``)."""


def poll(context: Context, waiting: Waiting) -> None:
    """Note for whom a job may be due: some of the names, some patterns, and all whose job came lately."""
    if not waiting.count:
        return
    names = waiting.names_in_turn(NAMES_AT_ONCE)
    lately = after_seconds(context.now_ms, -LATELY_S)
    for name in cast(SharedUnit, context.unit).due_names(names, context.now_ms, lately):
        waiting.note_name_due(name, "")
    waiting.note_some_due(PATTERNS_AT_ONCE)
