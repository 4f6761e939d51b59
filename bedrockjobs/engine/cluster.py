"""Cluster membership: a server's exchanges and notifications with the other servers of its database.

In an exchange, a server writes its changes to the database and reads the state of all servers. Connection
problems never block clients: a failed exchange is retried a second later, and the fallback poll finds what a
lost notification would have reported.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from bedrockjobs.base.background import resolve
from bedrockjobs.base.clock import moment_of
from bedrockjobs.engine.events import (
    EVENTS,
    EventLogged,
    LeftReady,
    Notifier,
    OutputChanged,
    RunEnded,
    RunForgotten,
    RunStopped,
    TokensChanged,
    output_topic,
)
from bedrockjobs.engine.workers import SharedWorkers
from bedrockjobs.store.base import PeerLink, StoreError

log = logging.getLogger(__name__)

EXCHANGE_EVERY_S = 1.0
"""Seconds between exchanges of worker and server state; a notification reports stopped runs sooner."""

NOTIFICATIONS_MERGED_S = 0.002
"""Seconds for which notifications are collected into one, since a notification for each commit would cost
more than it gains."""

LEAVE_S_MAX = 1.5
"""Maximum seconds a stopping server takes to send its last changes, which normally takes milliseconds."""

NOTIFICATION_CHARS_MAX = 7_900
"""Maximum length of a notification (ASCII), as PostgreSQL passes less than 8,000 bytes. Instead of a longer
notification an empty one is sent, which means that anything may have changed."""

Due = Mapping[str, str] | None
"""Names, each with the nextRun of a job left queued; None: any job may be due."""


class ClusterMember:
    """The membership of one server in its cluster."""

    def __init__(
        self,
        peers: PeerLink,
        workers: SharedWorkers,
        notifier: Notifier,
        on_due: Callable[[Due], object],
        on_change: Callable[[], object],
        on_inbox: Callable[[], object] = lambda: None,
    ) -> None:
        """Exchange state over ``peers``, update ``workers`` and wake the subscribers of ``notifier``.

        ``on_due`` is called with jobs that may be due, ``on_change`` when another server moved the test clock
        or changed tokens or logins, ``on_inbox`` when an application may have put jobs into the inbox.
        """
        self._peers = peers
        self._workers = workers
        self._notifier = notifier
        self._on_due, self._on_change, self._on_inbox = on_due, on_change, on_inbox
        self._pulse: asyncio.Task[None] | None = None
        self._exchange_soon = asyncio.Event()
        self._exchanged: asyncio.Future[None] | None = None
        self._notifying: asyncio.Task[None] | None = None
        self._due: dict[str, str] = {}
        self._anybody = self._events = self._runs = self._clock = self._access = False
        self._output: set[int] = set()
        self._left = False
        peers.on_notification = self._on_notification
        workers.exchange_soon = self._exchange_soon.set
        workers.add_runs = self._await_exchange

    async def join(self, name: str, version: str) -> None:
        """Join the cluster; raise NameTaken or StoreError."""
        await self._peers.connect(version)
        await self._exchange()
        self._workers.joined(name)
        self._pulse = asyncio.ensure_future(self._live_servers())

    def serves_at(self, address: str) -> None:
        """Publish the address at which this server listens."""
        self._peers.address, self._peers.state = address, "serving"
        self._exchange_soon.set()

    async def leave_cluster(self) -> None:
        """Send the last changes, in an exchange that records that the server has left."""
        if self._left:
            return
        self._left = True
        self._peers.state = "stopping"
        self._exchange_soon.set()
        telling = asyncio.ensure_future(self._send_last_changes())
        if not (await asyncio.wait({telling}, timeout=LEAVE_S_MAX))[0]:
            log.warning("the other servers could not be notified that this one stops")
        await self._peers.close()
        if self._exchanged is not None:
            resolve(self._exchanged)

    async def _send_last_changes(self) -> None:
        for task in (self._pulse, self._notifying):
            if task is not None:
                await task
        await self._attempted_at()

    # --- exchanges ---------------------------------------------------------------------------------------

    async def _live_servers(self) -> None:
        while not self._left:
            with suppress(TimeoutError):
                async with asyncio.timeout(EXCHANGE_EVERY_S):
                    await self._exchange_soon.wait()
            self._exchange_soon.clear()
            waiting, self._exchanged = self._exchanged, None
            done = await self._attempted_at()
            if waiting is not None:
                resolve(waiting)
            if not (done or self._left):
                self._on_due(None)  # notifications may have been lost meanwhile
                await asyncio.sleep(EXCHANGE_EVERY_S)

    async def _attempted_at(self) -> bool:
        """Perform an exchange; return True if it succeeded."""
        try:
            await self._exchange()
        except StoreError as error:
            log.warning("the other servers cannot be reached: %s", error)
            return False
        except Exception:  # whatever it is, this server must not count as gone because of it
            log.exception("an exchange with the other servers failed")
            return False
        return True

    async def _exchange(self) -> None:
        changes = self._workers.changes_to_send()
        try:
            state = await self._peers.exchange(changes)
        except Exception:
            self._workers.resend_changes(changes)
            raise
        known = {server.name for server in self._workers.servers}
        self._workers.apply_exchange(state)
        if state.inbox:
            self._on_inbox()  # its notification was lost
        if state.lost:
            self._on_due(None)  # a lost server may have failed before it could notify the others
        if {server.name for server in state.servers} - known:
            self._left_ready(LeftReady([], anybody=True))  # the new server has missed earlier notifications

    async def _await_exchange(self) -> None:
        """Wait for an exchange that begins after this call."""
        if self._left:
            return
        if self._exchanged is None:
            self._exchanged = asyncio.get_running_loop().create_future()
        self._exchange_soon.set()
        await asyncio.shield(self._exchanged)

    async def move_clock(self, moment: str) -> str:
        """Move the test clock of all servers forward, never back; return its time. Raise StoreError."""
        shown = await self._peers.move_clock(moment)
        self._notify_soon(clock=True)
        return shown

    # --- notifications to other servers ------------------------------------------------------------------

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {
            LeftReady: self._left_ready,
            EventLogged: lambda _: self._notify_soon(events=True),
            OutputChanged: self._output_changed,
            RunEnded: self._run_over,
            RunForgotten: self._run_over,
            RunStopped: lambda _: self._notify_soon(runs=True),
            TokensChanged: self._access_changed,
        }

    def _left_ready(self, event: LeftReady) -> None:
        if event.jobs or event.anybody:
            for name, next_run in event.jobs:
                self._due[name] = min(next_run, self._due.get(name, next_run))
            self._anybody = self._anybody or event.anybody
            self._notify_soon()

    def _output_changed(self, event: OutputChanged) -> None:
        self._output.add(event.run_id)
        self._notify_soon()

    def _run_over(self, event: RunEnded | RunForgotten) -> None:
        self._output.add(event.run_id)
        self._notify_soon(runs=True)

    def _access_changed(self, event: TokensChanged) -> None:
        if not event.elsewhere:
            self._notify_soon(access=True)

    def _notify_soon(
        self, *, events: bool = False, runs: bool = False, clock: bool = False, access: bool = False
    ) -> None:
        """Send a notification soon if there are other servers."""
        if self._left or len(self._workers.servers) <= 1:
            self._due, self._anybody, self._output = {}, False, set()
            return
        self._events = self._events or events
        self._runs = self._runs or runs
        self._clock = self._clock or clock
        self._access = self._access or access
        if self._notifying is None or self._notifying.done():
            self._notifying = asyncio.ensure_future(self._send_notification())

    async def _send_notification(self) -> None:
        while (
            self._due
            or self._anybody
            or self._events
            or self._runs
            or self._clock
            or self._access
            or self._output
        ):
            await asyncio.sleep(NOTIFICATIONS_MERGED_S)
            text = self._text()
            try:
                await self._peers.publish(text)
            except StoreError as error:
                log.warning("a notification to the other servers was lost: %s", error)

    def _text(self) -> str:
        """Return the pending notification and clear it."""
        due, output = None if self._anybody else self._due, sorted(self._output)
        flags = {"events": self._events, "runs": self._runs, "clock": self._clock, "access": self._access}
        found = {"due": due, "output": output, **flags}
        self._due, self._output = {}, set()
        self._anybody = self._events = self._runs = self._clock = self._access = False
        text = json.dumps({key: value for key, value in found.items() if value or value is None})
        return text if len(text) <= NOTIFICATION_CHARS_MAX else ""

    # --- notifications from other servers ----------------------------------------------------------------

    def _on_notification(self, text: str) -> None:
        """Act on a notification from another server; an empty one means that anything may have changed.

        An invalid notification counts as empty, since any database role may send one.
        """
        notification = _parse_notification(text)
        if notification is None:
            self._on_due(None)
            self._notifier.notify_all()
            self._exchange_soon.set()
            self._on_change()
            self._on_inbox()
            return
        if "due" in notification:
            self._on_due(notification["due"])
        for run_id in notification.get("output", ()):
            self._notifier.notify(output_topic(run_id))
        if notification.get("events"):
            self._notifier.notify(EVENTS)
        if notification.get("runs"):
            self._exchange_soon.set()
        if notification.get("inbox"):
            self._on_inbox()
        if notification.get("clock") or notification.get("access"):
            self._on_change()


def _parse_notification(text: str) -> dict[str, Any] | None:
    """Return the parsed notification, or None if it is empty or invalid."""
    try:
        notification = json.loads(text) if text else None
        if not isinstance(notification, dict):
            return None
        due = notification.get("due")
        if due is not None:
            for next_run in due.values():
                moment_of(next_run)
        if not all(type(run_id) is int for run_id in notification.get("output", ())):
            return None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return notification
