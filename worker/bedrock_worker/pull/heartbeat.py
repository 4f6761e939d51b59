"""Renews the leases of the worker's runs, and receives the server's requests to stop runs.

One Heartbeat waits at the server at any time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from bedrock_worker.log import event
from bedrock_worker.options import VERSION, WorkerOptions
from bedrock_worker.pull.puller import ServerLink, pause
from bedrockjobs.base.config import HEARTBEAT_S
from bedrockjobs.base.errors import CommandError, UnknownCommand
from bedrockjobs.commands import Heartbeat
from bedrockjobs.commands.runs import HeartbeatReply

RETRY_S = 2.0
"""Seconds from a heartbeat without an answer until the next one."""

ANSWER_S = 3.0
"""Maximum seconds for an answer after the wait that the heartbeat asked for: a dead connection must not cost
a lease."""

GAP_S = 1.0
"""Minimum seconds between heartbeats, however often something changes."""


class LeasedRun(Protocol):
    """A run whose lease is renewed."""

    @property
    def leased_id(self) -> int | None:
        """Return the runID, or None if there is no lease to renew."""

    @property
    def beat_s(self) -> float:
        """Return the interval of heartbeats, in seconds, that keeps the lease."""

    def renew(self, sent_at: float) -> None:
        """Restart the lease at ``sent_at``, a time of the event loop's clock."""

    def suspend(self) -> None:
        """Stop the lease from expiring: the server does not use leases."""

    def stop(self, number: signal.Signals) -> None:
        """Signal the command of the run on the server's request."""

    def abandon_run(self) -> None:
        """Kill the command of the run and report nothing: the run is no longer ours."""


class Heartbeats:
    """The heartbeats of one worker."""

    def __init__(
        self,
        server: ServerLink,
        options: WorkerOptions,
        *,
        names: Callable[[], tuple[str, ...]],
        on_quiet: Callable[[bool], None],
        on_left: Callable[[], None] = lambda: None,
        slots: int | None = None,
        release: str = "",
    ) -> None:
        """Configure the heartbeats to a server; ``start_sending`` starts them.

        ``names`` returns the worker's name patterns; ``on_quiet`` is called with whether the server drains
        the worker, ``on_left`` when the client moves from a silent server to another. ``slots`` is the number
        of jobs that the worker runs at a time, by default its concurrency; ``release`` is the release of its
        code, if known.
        """
        self._version = f"{VERSION} {release}".strip()
        self._slots = options.concurrency if slots is None else slots
        self._client, self._server, self._options = server.client, server, options
        self._names, self._on_quiet, self._on_left = names, on_quiet, on_left
        self._runs: set[LeasedRun] = set()
        self._last_sent: object = None
        self._sent_at = float("-inf")
        self._requested_again = asyncio.Event()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._known = True
        self.quiet = False
        """True if the worker itself decided to take no more jobs."""

    def add(self, run: LeasedRun, taken_at: float) -> None:
        """Renew from now on the lease of a run, taken at ``taken_at`` of the event loop's clock."""
        self._runs.add(run)
        if self._known:
            run.renew(taken_at)
        self.send_soon()

    def discard(self, run: LeasedRun) -> None:
        """Stop renewing the lease of a run."""
        self._runs.discard(run)
        run.suspend()
        self.send_soon()

    def send_soon(self) -> None:
        """Send a heartbeat soon if there is something new to report."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + GAP_S), self._request_if_changed)

    def start_sending(self) -> None:
        """Start sending heartbeats."""
        self._task = asyncio.get_running_loop().create_task(self._beat())

    async def send_last(self) -> None:
        """Stop, and send a last heartbeat, with which the worker leaves.

        It is sent after the heartbeat in flight has ended: in the other order, the worker would seem to come
        back.
        """
        self._leaving.set()
        self._requested_again.set()
        with suppress(ConnectionError, CommandError, TimeoutError):
            # Maximum seconds for the heartbeat in flight and the last one together.
            async with asyncio.timeout(2.0):
                if self._task is not None:
                    await self._task
                await self._client.call(self._command((), leaving=True))

    async def _beat(self) -> None:
        """Send heartbeats until the worker leaves."""
        loop = asyncio.get_running_loop()
        wait = False  # the server is to answer the first heartbeat, and the first after a failure, at once
        while not self._leaving.is_set():
            self._requested_again.clear()
            runs = {run.leased_id: run for run in self._runs if run.leased_id is not None}
            self._sent_at = loop.time()
            reply = await self._exchange(runs, wait)
            wait = reply is not None
            if reply is None:
                await pause(RETRY_S if self._known else HEARTBEAT_S, self._leaving)
                continue
            for run in runs.values():
                run.renew(self._sent_at)
            self._apply_reply(reply, runs)
            await pause(self._sent_at + GAP_S - loop.time(), self._leaving)

    async def _exchange(self, runs: dict[int, LeasedRun], wait: bool) -> HeartbeatReply | None:
        """Send one heartbeat; return the answer, or None if there is no usable one."""
        wait_s = min((run.beat_s for run in runs.values()), default=float(HEARTBEAT_S))
        self._last_sent = self._state_to_report()
        command = self._command(runs, wait_s=wait_s if wait else 0.0)
        address = self._client.server
        try:
            async with asyncio.timeout((wait_s if wait else 0.0) + ANSWER_S):
                reply = await self._client.call(command, hurry=self._requested_again)
        except UnknownCommand:  # older servers have no leases
            if self._known:
                event(logging.WARNING, "no leases", reason="the server does not support Heartbeat")
            self._known = False
            for run in self._runs:
                run.suspend()
            return None
        except TimeoutError:
            self._server.down(TimeoutError(f"no answer to Heartbeat from {address} in time"))
            if self._client.leave_server(address):
                self._on_left()
            return None
        except (ConnectionError, CommandError) as error:
            self._server.down(error)
            return None
        self._server.up()
        self._known = True
        return reply

    def _command(self, run_ids: Iterable[int], *, wait_s: float = 0.0, leaving: bool = False) -> Heartbeat:
        options = self._options
        parameters: dict[str, object] = {
            "worker": options.worker,
            "runIDs": sorted(run_ids),
            "host": options.host,
            "pid": options.pid,
            "version": self._version,
            "names": list(self._names()),
            "slots": self._slots,
        }
        if self.quiet:
            parameters["quiet"] = True
        if leaving:
            parameters["leaving"] = True
        if wait_s:
            parameters |= {"connection": "wait", "timeout": int(wait_s * 1_000)}
        return Heartbeat.read(parameters)

    def _apply_reply(self, reply: HeartbeatReply, runs: dict[int, LeasedRun]) -> None:
        self._on_quiet(reply.quiet)
        for stop in reply.stop:
            run = runs.get(stop.run_id)
            if run is None:
                continue
            if stop.signal == "LOST":
                run.abandon_run()
            else:
                run.stop(signal.Signals[f"SIG{stop.signal}"])

    def _request_if_changed(self) -> None:
        """Request another heartbeat if the state differs from the last one sent."""
        self._timer = None
        if self._state_to_report() != self._last_sent:
            self._requested_again.set()

    def _state_to_report(self) -> object:
        return {run.leased_id for run in self._runs} - {None}, self.quiet, self._names()
