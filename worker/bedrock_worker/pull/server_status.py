"""Whether the server answers, and how a command is sent until it does."""

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
"""Answers in a row that a server failed at a command, in about 10 s; then it is not asked at once again."""


class ServerStatus:
    """Whether the server can be reached, and which of several answers, logged when it changes."""

    def __init__(self, address: Callable[[], object] = lambda: None) -> None:
        """Take the server to be there; ``address`` returns which one is used."""
        self._there = True
        self._address, self._last = address, address()

    def down(self, error: Exception) -> None:
        """Note that the server did not answer, or does not let this worker in."""
        if self._there:
            words = "not authorised" if isinstance(error, Forbidden) else "server away"
            event(logging.WARNING, words, error=error)
        self._there = False

    def up(self) -> None:
        """Note that the server answered."""
        if not self._there:
            event(logging.WARNING, "server back")
        self._there = True
        address = self._address()
        if address != self._last:
            event(logging.WARNING, "server changed", server=address, before=self._last)
            self._last = address


async def send_until_answered(client: AsyncClient, server: ServerStatus, command: Command[R]) -> R:
    """Send a command that may be done twice until it is answered.

    Raises what ``is_final``, and after ``FAULTS_MAX`` in a row what ``is_fault``.
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
    """Tell whether the server answers but fails at this command; it may do so for ever."""
    return isinstance(error, (ServerFault, TimedOut))


def is_final(error: Exception) -> TypeGuard[CommandError]:
    """Tell whether an error is the server's judgement of the command, so that sending it again is in vain."""
    return isinstance(error, CommandError) and not error.retryable
