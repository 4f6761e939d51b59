"""Tracks whether the server answers, and retries commands until it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeGuard, TypeVar

from bedrock_worker.log import event
from bedrockjobs.base.errors import CommandError, Forbidden, ServerFault, TimedOut
from bedrockjobs.client import AsyncClient, backoff_s
from bedrockjobs.commands import Command, Reply

R = TypeVar("R", bound=Reply)

FAULTS_MAX = 8
"""Server errors in a row for a command, in about 10 s, after which it is no longer retried at once."""


class ServerStatus:
    """Whether the server is reachable and which address is in use; logs changes."""

    def __init__(self, address: Callable[[], object] = lambda: None) -> None:
        """Assume that the server is reachable; ``address`` returns the address in use."""
        self._there = True
        self._address, self._last = address, address()

    def down(self, error: Exception) -> None:
        """Record that the server did not answer or refused this worker."""
        if self._there:
            words = "not authorised" if isinstance(error, Forbidden) else "server away"
            event(logging.WARNING, words, error=error)
        self._there = False

    def up(self) -> None:
        """Record that the server answered."""
        if not self._there:
            event(logging.WARNING, "server back")
        self._there = True
        address = self._address()
        if address != self._last:
            event(logging.WARNING, "server changed", server=address, before=self._last)
            self._last = address


async def send_until_answered(client: AsyncClient, server: ServerStatus, command: Command[R]) -> R:
    """Send an idempotent command until it is answered.

    Raises errors that ``is_final``, and after ``FAULTS_MAX`` in a row those that ``is_fault``.
    """
    failures = faults = 0
    while True:
        try:
            reply = await client.call(command)
        except (ConnectionError, CommandError) as error:
            faults = faults + 1 if is_fault(error) else 0
            if is_final(error) or faults >= FAULTS_MAX:
                server.up()
                raise
            failures += 1
            server.down(error)
            await asyncio.sleep(backoff_s(failures))
        else:
            server.up()
            return reply


def is_fault(error: Exception) -> bool:
    """Return whether the server answers but fails at this command, possibly for ever."""
    return isinstance(error, (ServerFault, TimedOut))


def is_final(error: Exception) -> TypeGuard[CommandError]:
    """Return whether the server refused the command, so that a retry would not help."""
    return isinstance(error, CommandError) and not error.retryable
