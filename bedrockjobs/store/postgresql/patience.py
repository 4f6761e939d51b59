"""Waiting that lets the event loop serve others: for an answer of PostgreSQL, a connection, a moment.

A unit runs within work that may be stopped (``base/turns.py``): there, who waits gives the turn away.
Elsewhere, in a thread or a test, the call simply waits. Nothing waits without a limit.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from bedrockjobs.base.config import PG_ANSWER_S_MAX
from bedrockjobs.base.turns import give_turn, may_give_turn

T = TypeVar("T")


class PatientConnection(psycopg.Connection[Any]):
    """A connection of psycopg, of which only the waiting is different."""

    answer_s: float = PG_ANSWER_S_MAX
    """Time in which something is heard; 0: whenever it is."""

    def wait(self, gen: PQGen[T], *given: Any, **named: Any) -> T:
        """Do what the generator asks for until it returns; other work has its turn while it waits.

        The connection is closed where nothing is heard for ``answer_s``; raises OperationalError.
        """
        until_ready = _give_turn_until_ready if may_give_turn() else _wait_until_ready
        fileno = self.pgconn.socket
        try:
            wanted = next(gen)
            while True:
                ready = until_ready(fileno, wanted, self.answer_s or None)
                if not ready:
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.answer_s} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            found: T = done.value
            return found


def _wait_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Wait until a socket can be read or written; return which, NONE where it takes too long."""
    poll = select.poll()
    poll.register(
        fileno, (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0)
    )
    found = poll.poll(limit_s and limit_s * 1000)
    if not found:
        return Ready.NONE
    ((_, events),) = found
    readable = Ready.R if events & ~select.POLLOUT else Ready.NONE  # a hang-up is found out by reading
    return Ready(readable | (Ready.W if events & select.POLLOUT else Ready.NONE))


def _give_turn_until_ready(fileno: int, wanted: Wait, limit_s: float | None) -> Ready:
    """Give the turn away until then; return the same."""
    loop = asyncio.get_running_loop()
    found: list[Ready] = []

    def until(go_on: Callable[[], object]) -> None:
        def ready(which: Ready) -> None:
            if late is not None:
                late.cancel()
            loop.remove_reader(fileno)
            loop.remove_writer(fileno)
            found.append(which)
            go_on()

        late = None if limit_s is None else loop.call_later(limit_s, ready, Ready.NONE)
        if wanted & Wait.R:
            loop.add_reader(fileno, partial(ready, Ready.R))
        if wanted & Wait.W:
            loop.add_writer(fileno, partial(ready, Ready.W))

    give_turn(until)
    return found[0]


@contextmanager
def heard_within(connection: psycopg.AsyncConnection[Any], seconds: float) -> Iterator[None]:
    """Break a connection of the loop that has not answered in time; raises TimeoutError then.

    Who waits is not cancelled: psycopg would tell that over the network, and wait for ten seconds more.
    """
    late = False

    def break_off() -> None:
        nonlocal late
        late = True
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    timer = asyncio.get_running_loop().call_later(seconds, break_off)
    try:
        yield
    except psycopg.Error as error:
        if late:
            raise TimeoutError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()


def done_beside(work: Callable[[], T], drop: Callable[[T], object]) -> T:
    """Do work that keeps its thread in one of its own, and give the turn away until it is done.

    Returns its result, or raises what it raises. Where no turn can be given away, it is done here. A result
    that nobody waits for any more, as the loop has ended, is given to ``drop``.
    """
    if not may_give_turn():
        return work()
    loop = asyncio.get_running_loop()
    done: Future[T] = Future()

    def until(go_on: Callable[[], object]) -> None:
        def do() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
            try:
                loop.call_soon_threadsafe(go_on)
            except RuntimeError:  # the loop has ended meanwhile
                if done.exception() is None:
                    drop(done.result())

        threading.Thread(target=do, name="connect", daemon=True).start()

    give_turn(until)
    return done.result()


def pause(seconds: float) -> None:
    """Let some time pass, and give the turn away meanwhile."""
    if may_give_turn():
        loop = asyncio.get_running_loop()
        give_turn(partial(loop.call_later, seconds))
    else:
        threading.Event().wait(seconds)
