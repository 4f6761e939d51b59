"""Tells who waits for something that it may be there now: new output of a run, a new event.

A notification says nothing of what happened: whoever gets it reads again. It knows no commands and no tables,
and is used on the event loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from bedrockjobs.engine.events import Noted, OutputChanged, RunEnded, RunForgotten

Topic = tuple[str, int]
"""What is waited for: ``("output", runID)``, or ``EVENTS``."""

EVENTS: Topic = ("events", 0)
"""What changes with a commit that added events."""


def output_topic(run_id: int) -> Topic:
    """Return what changes with a commit that added output to a run, or ended it."""
    return ("output", run_id)


class Subscription:
    """One listener to a topic; it gets every notification from the moment it is entered as a context."""

    def __init__(self, notifier: Notifier, topic: Topic) -> None:
        """Prepare to listen; made by ``Notifier.listen``."""
        self._notifier = notifier
        self._topic = topic
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        """Begin to listen: before what is waited for is read, so that none is missed in between."""
        self._notifier.admit(self._topic, self._woken)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no longer."""
        self._notifier.dismiss(self._topic, self._woken)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a notification that was not told of yet; return False where the time is over.

        It also returns False, and at once, when the server drains.
        """
        if self._notifier.ended or timeout_s <= 0:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return not self._notifier.ended


class Notifier:
    """All subscriptions of a server; a topic takes memory while somebody listens to it."""

    def __init__(self) -> None:
        """Begin without listeners."""
        self._listening: dict[Topic, set[asyncio.Event]] = {}
        self.ended = False
        """Whether the server drains, so that nobody waits any more."""

    def __len__(self) -> int:
        """Return how many topics are listened to."""
        return len(self._listening)

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what it wakes for each event that it hears of."""
        return {
            Noted: lambda _: self.notify(EVENTS),
            OutputChanged: self._output,
            RunEnded: self._output,
            RunForgotten: self._output,
        }

    def _output(self, event: OutputChanged | RunEnded | RunForgotten) -> None:
        self.notify(output_topic(event.run_id))

    def notify(self, topic: Topic) -> None:
        """Wake everybody who listens to a topic; after the commit that made something of it."""
        for woken in self._listening.get(topic, ()):
            woken.set()

    def notify_all(self) -> None:
        """Wake everybody who listens to anything: something may have gone unheard."""
        for topic in list(self._listening):
            self.notify(topic)

    def listen(self, topic: Topic) -> Subscription:
        """Return a subscription to be entered as a context, then read, then waited for."""
        return Subscription(self, topic)

    async def wait(self, topic: Topic, timeout_s: float) -> bool:
        """Wait for the next notification from now on; return False where there was none in time."""
        with self.listen(topic) as subscription:
            return await subscription.wait(timeout_s)

    def end(self) -> None:
        """Wake everybody, and let nobody wait from now on: the server drains."""
        self.ended = True
        for listening in self._listening.values():
            for woken in listening:
                woken.set()

    def admit(self, topic: Topic, woken: asyncio.Event) -> None:
        """Set ``woken`` with each notification of a topic; for ``Subscription``."""
        self._listening.setdefault(topic, set()).add(woken)

    def dismiss(self, topic: Topic, woken: asyncio.Event) -> None:
        """Leave ``woken`` alone; the last listener frees the topic."""
        listening = self._listening[topic]
        listening.discard(woken)
        if not listening:
            del self._listening[topic]
