"""The worker's end of the process in which async functions share an event loop (``loop_process``).

The process is the command of a guard, so it dies with the worker and leaves nothing behind. Through a socket,
the worker sends runs and receives their output and their ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from bedrock_worker.current import PROGRESS
from bedrock_worker.functions import RAISED
from bedrock_worker.log import LOG, event, printable
from bedrock_worker.report.output import LineSplitter
from bedrock_worker.run.kernel import NEVER
from bedrock_worker.run.loop_process import BLOCKED_S, Frames, frame_of
from bedrock_worker.run.pipes import Listener
from bedrock_worker.run.process import ChildProcess
from bedrock_worker.run.watchdog_client import CLOSE_S, NeverBegan, WatchdogClient

RETIRED_MAX = 4
"""Maximum replaced processes that still have runs; while there are so many, the current one stays."""

CANCEL_S = 1.0
"""Seconds that a run gets to handle its cancellation before a kill, which ends all runs on the loop."""

FOLDER_BYTES = 8
"""Random bytes in the name of a folder, so that no other user can guess it and create it first."""


class EndedForAnother(Exception):
    """The process of a run was killed because of another run."""


class LoopRun:
    """One run on the loop, with the interface of ``ChildProcess``."""

    def __init__(self, number: int, name: str, process: LoopProcess, listener: Listener) -> None:
        self.number, self.name, self._process, self._listener = number, name, process, listener
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._lines: dict[str, LineSplitter] = {}
        self.kill_at = NEVER
        self.began = self.was_cancelled = self.was_signalled = self.folder_left = False
        self.survivors = 0
        self.result: str | None = None
        self.failure: str | None = None
        """The error of the function and its traceback, or None."""

    async def started(self) -> int:
        """Wait for the process and return its id; raises what ``ChildProcess.started`` raises."""
        return await asyncio.shield(self._process.started)

    async def wait(self) -> int:
        """Wait for the end and return the exit status.

        Raises NeverBegan if the process died before it began the run, and EndedForAnother if the process was
        killed because of another run.
        """
        return await self._ended

    @property
    def running(self) -> bool:
        """Return whether the run has not ended."""
        return not self._ended.done()

    def until(self, moment: float) -> None:
        """Set the monotonic time at which the guard kills the process, even if the worker hangs."""
        self.kill_at = moment
        self._process.renew_deadline()

    def signal(self, number: int) -> None:
        """Cancel the run. SIGKILL kills the process if the run was cancelled before, or does not end soon."""
        self.was_signalled = True
        cancelled, self.was_cancelled = self.was_cancelled, True
        if not cancelled:
            self._process.send({"cancel": self.number})
            if number == signal.SIGKILL:
                asyncio.get_running_loop().call_later(CANCEL_S, self._kill)
        elif number == signal.SIGKILL:
            self._kill()

    def release(self) -> None:
        """End the run if it is still running."""
        if self.running:
            self.signal(signal.SIGKILL)

    def _kill(self) -> None:
        if self.running:
            self._process.kill()

    def print(self, stream: str, data: bytes) -> None:
        """Pass the lines in a part of the run's output to the listener."""
        for line in self._lines.setdefault(stream, LineSplitter()).feed(data):
            self._listener(stream, line)

    def fail(self, error: str, text: str) -> None:
        """Record the error and the traceback of the function."""
        self.failure = f"{error}\n{text}" if text else error

    def end(self, outcome: int | Exception) -> None:
        """Mark the run as ended, with an exit status or with the exception that ``wait`` raises."""
        for stream, lines in self._lines.items():
            for line in lines.end():
                self._listener(stream, line)
        if self._ended.done():
            return
        if isinstance(outcome, Exception):
            self._ended.set_exception(outcome)
            self._ended.exception()  # marked as seen, since nothing may wait for it any more
        else:
            self._ended.set_result(outcome)


class LoopProcess(asyncio.Protocol):
    """One process with an event loop, and the runs in it."""

    def __init__(
        self,
        argv: Sequence[str],
        owner: LoopProcesses,
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        watchdog: WatchdogClient,
        new_privileges: bool,
    ) -> None:
        """Start the process; raises OSError if that is not possible at the moment."""
        loop = asyncio.get_running_loop()
        self._owner = owner
        self.folder = f"{tempfile.gettempdir()}/bedrock-loop-{os.urandom(FOLDER_BYTES).hex()}"
        self.runs: dict[int, LoopRun] = {}
        self.started: asyncio.Future[int] = loop.create_future()
        self._frames, self._unsent = Frames(), bytearray()
        self._transport: asyncio.Transport | None = None
        self._disconnected = loop.create_future()
        self._next = 0
        self._ready = self._killed = self.is_over = False
        self._blocking, self._blocked_at = 0, 0.0
        self._deadline = NEVER
        self._renewal: asyncio.Handle | None = None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._child = ChildProcess(
                    argv,
                    env={"TMPDIR": self.folder, **env},
                    cwd=cwd,
                    folder=self.folder,
                    data="",
                    listener=self._log_line,
                    watchdog=watchdog,
                    new_privileges=new_privileges,
                    channel=theirs,
                )
        except BaseException:
            ours.close()
            raise
        self.task = loop.create_task(self._watch(ours))

    def begin_run(
        self, name: str, function: tuple[str, str], own: Mapping[str, str], data: str, *, listener: Listener
    ) -> LoopRun:
        """Begin a run of a function, its module and name, for the job whose text is ``data``."""
        self._next += 1
        run = self.runs[self._next] = LoopRun(self._next, name, self, listener)
        self.send({"run": run.number, "function": function, "own": dict(own)}, data.encode())
        return run

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message, or keep it until the process is connected."""
        if self._transport is not None:
            self._transport.write(frame_of(head, body))
        else:
            self._unsent += frame_of(head, body)

    def renew_deadline(self) -> None:
        """Send the guard, a moment later, the time at which to kill the process: the earliest of its runs.

        One message serves all runs that renew their leases in the meantime.
        """
        if self._renewal is None and not self.is_over:
            self._renewal = asyncio.get_running_loop().call_soon(self._set_deadline)

    def _set_deadline(self) -> None:
        self._renewal = None
        deadline = min((run.kill_at for run in self.runs.values()), default=NEVER)
        if deadline != self._deadline and not self.is_over:
            self._deadline = deadline
            self._child.until(deadline)

    def kill(self) -> None:
        """Kill the process, because one of its runs does not end otherwise."""
        if not self.is_over:
            self._killed = True
            self._child.signal(signal.SIGKILL)

    def retire(self) -> None:
        """Let the process end once its runs have ended."""
        self._owner.retired.add(self)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self in self._owner.retired and not self.runs and self._transport is not None:
            if self._transport.can_write_eof() and not self._transport.is_closing():
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(CLOSE_S, self.kill)

    async def _watch(self, ours: socket.socket) -> None:
        """Follow the process from its start to its end."""
        outcome: int | Exception
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours)
            self.started.set_result(await self._child.started())
            outcome = await self._child.wait()
            with suppress(TimeoutError):  # to read what the process sent before its end
                async with asyncio.timeout(1.0):
                    await asyncio.shield(self._disconnected)
        except Exception as error:
            outcome = error
            if not self.started.done():
                self.started.set_exception(error)
                self.started.exception()  # marked as seen, since nothing may wait for it
        finally:
            self.is_over = True
            if self._transport is not None:
                self._transport.abort()
            else:
                ours.close()
            self._child.release()
            if self._child.folder_left:
                shutil.rmtree(self.folder, ignore_errors=True)
            self._owner.forget(self)
        if isinstance(outcome, int) and self.runs:
            how = signal.Signals(-outcome).name if outcome < 0 else f"exit status {outcome}"
            event(logging.ERROR, "async process ended", pid=self._child.pid, how=how, runs=len(self.runs))
        for run in [*self.runs.values()]:
            run.end(self._outcome_of(run, outcome))
        self.runs.clear()

    def _outcome_of(self, run: LoopRun, outcome: int | Exception) -> int | Exception:
        """Return how a run ended, given the ``outcome`` with which its process ended."""
        if isinstance(outcome, Exception):
            return outcome
        late = outcome == -signal.SIGKILL and asyncio.get_running_loop().time() >= self._deadline
        if run.number == self._blocking:
            run.print("err", b"[killed: it blocked the event loop, and another run had to end]\n")
        elif (self._killed or late) and not run.was_cancelled:
            run.print("err", b"[returned to the queue: another run had to be killed with the process]\n")
            return EndedForAnother()
        elif self._ready and not run.began and not run.was_cancelled:
            return NeverBegan()
        return outcome or RAISED  # also after ``os._exit(0)``, since the run did not report its end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the messages that were kept until the process was connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(bytes(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        """Handle messages of the process; kill it if it sends anything else."""
        try:
            for head, body in self._frames.feed(data):
                self._handle(head, body)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            event(logging.ERROR, "async process sends no messages", pid=self._child.pid, error=error)
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the process sends nothing more."""
        if not self._disconnected.done():
            self._disconnected.set_result(None)

    def _handle(self, head: dict[str, Any], body: bytes) -> None:
        if "stream" in head:
            if (run := self.runs.get(head["run"])) is not None:
                run.print(head["stream"] if head["stream"] in ("out", PROGRESS) else "err", body)
        elif "done" in head:
            self._end_run(head, body)
        elif "began" in head:
            if (run := self.runs.get(head["began"])) is not None:
                run.began = True
        elif "ready" in head:
            self._ready = True
        elif "blocked" in head or "unblocked" in head:
            self._note_block(head)
        elif "failed" in head:
            for run in self.runs.values():
                run.fail(head["failed"]["error"], head["failed"]["traceback"])
                run.print("err", f"{head['failed']['traceback']}\n".encode())

    def _note_block(self, head: dict[str, Any]) -> None:
        self._blocking = number = int(head.get("blocked", 0))
        run = self.runs.get(number or int(head.get("unblocked", 0)))
        name = None if run is None else run.name
        if "blocked" in head:
            self._blocked_at = asyncio.get_running_loop().time() - BLOCKED_S
            event(logging.WARNING, "event loop blocked", run=name, at=head["at"] or None)
        else:
            seconds = round(asyncio.get_running_loop().time() - self._blocked_at, 1)
            event(logging.WARNING, "event loop free", run=name, seconds=seconds)

    def _end_run(self, head: dict[str, Any], body: bytes) -> None:
        run = self.runs.pop(head["done"])
        if head["result"]:
            run.result = body.decode()
        if "error" in head:
            run.fail(head["error"], head["traceback"])
        run.end(int(head["status"]))
        self.renew_deadline()
        if head["changed"] or run.was_cancelled:
            what = "was cancelled" if run.was_cancelled else "changed its state"
            self._owner.replace(self, f"run {run.name} {what}")
        self._close_if_idle()

    def _log_line(self, stream: str, line: str) -> None:
        """Log what the process printed outside of any run."""
        LOG.info("async process pid=%d %s: %s", self._child.pid, stream, printable(line))


class LoopProcesses:
    """The process that the async functions of a worker share, and replaced ones that still have runs."""

    def __init__(self, watchdog: WatchdogClient) -> None:
        """Start no process yet: the first run does."""
        self._watchdog = watchdog
        self._current: LoopProcess | None = None
        self._processes: set[LoopProcess] = set()
        self.retired: set[LoopProcess] = set()

    def begin_run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path | None,
        new_privileges: bool,
        name: str,
        function: tuple[str, str],
        own: Mapping[str, str],
        data: str,
        listener: Listener,
    ) -> LoopRun:
        """Begin a run, if need be in a new process; raises OSError if it cannot be started at the moment."""
        if self._current is None or self._current.is_over:
            self._current = LoopProcess(
                argv, self, env=env, cwd=cwd, watchdog=self._watchdog, new_privileges=new_privileges
            )
            self._processes.add(self._current)
        return self._current.begin_run(name, function, own, data, listener=listener)

    def replace(self, process: LoopProcess, reason: str) -> None:
        """Give further runs to another process, unless ``RETIRED_MAX`` are being replaced already."""
        if process is self._current and len(self.retired) < RETIRED_MAX:
            event(logging.INFO, "async process replaced", reason=reason, runs=len(process.runs))
            self._current = None
            process.retire()

    def forget(self, process: LoopProcess) -> None:
        """Forget a process that has ended."""
        self._processes.discard(process)
        self.retired.discard(process)
        if process is self._current:
            self._current = None

    async def close(self) -> None:
        """End all processes, after ``CLOSE_S`` in which they can close what they have opened."""
        processes = [*self._processes]
        for process in processes:
            process.retire()
        if processes:
            await asyncio.wait([process.task for process in processes], timeout=2 * CLOSE_S)
        for process in processes:
            process.task.cancel()
        await asyncio.gather(*(process.task for process in processes), return_exceptions=True)
