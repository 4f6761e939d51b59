"""A connection that lets the event loop serve others while PostgreSQL works.

A unit runs within work that may be stopped (``base/turns.py``): there, who waits for an answer gives the turn
away until the socket can be read. Elsewhere, in a thread or a test, the call simply waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from bedrockjobs.base.turns import give_turn, may_give_turn

T = TypeVar("T")


class PatientConnection(psycopg.Connection[Any]):
    """A connection of psycopg, of which only the waiting is different."""

    def wait(self, gen: PQGen[T], *given: Any, **named: Any) -> T:
        """Do what the generator asks for until it returns; other work has its turn while it waits."""
        if not may_give_turn():
            return super().wait(gen, *given, **named)
        loop, socket = asyncio.get_running_loop(), self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                wanted = gen.send(_wait(loop, socket, wanted))
        except StopIteration as done:
            found: T = done.value
            return found


def _wait(loop: asyncio.AbstractEventLoop, socket: int, wanted: Wait) -> Ready:
    """Give the turn away until a socket can be read or written, as is wanted; return which."""
    found: list[Ready] = []

    def ready(which: Ready, go_on: Callable[[], object]) -> None:
        loop.remove_reader(socket)
        loop.remove_writer(socket)
        found.append(which)
        go_on()

    def until(go_on: Callable[[], object]) -> None:
        if wanted & Wait.R:
            loop.add_reader(socket, partial(ready, Ready.R, go_on))
        if wanted & Wait.W:
            loop.add_writer(socket, partial(ready, Ready.W, go_on))

    give_turn(until)
    return found[0]
