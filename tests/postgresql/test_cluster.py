"""The PostgreSQL of the tests: its log never blocks anything, however long it is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tests.postgresql.cluster import Node
from tests.protocol.talk import DEADLINE_S

PIPE_BYTES = 65_536
"""Capacity of an unread pipe: PostgreSQL logs 100 bytes for each killed server."""


def test_a_postgresql_that_logs_more_than_a_pipe_holds_goes_on(
    beside: Callable[[Callable[[], Any]], Future[Any]],
) -> None:
    node = Node()
    node.start()
    try:
        words = f"DO $$BEGIN RAISE LOG '%', repeat('x', {2 * PIPE_BYTES}); END$$"
        beside(lambda: node.do(words)).result(DEADLINE_S)
    finally:
        node.kill()
        node.stop()
