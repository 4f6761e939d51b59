"""``python -P -m bedrock_worker.run.loop_process MODULE [FOLDER]``: runs async functions on one event loop.

Handle 3 is the socket to the worker (``loop_client``), which sends runs and cancellations and receives the
output, progress and end of each run. Context variables tell which run prints. The process ends when the
worker has closed its end of the socket and the last run has ended.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from bedrock_worker import functions
from bedrock_worker.current import PROGRESS, CurrentRun, Job, run_in_place
from bedrock_worker.functions import DONE, RAISED, look_in
from bedrock_worker.run import kernel, run_function
from bedrock_worker.run.process_state import ProcessState, flushed, is_closed
from bedrockjobs.base.config import DATA_BYTES_MAX
from bedrockjobs.base.run_variables import RunVariables, run_variables

CHANNEL = 3
"""The handle of the socket to the worker."""

PART_BYTES_MAX = 65_536
"""Maximum bytes of an incomplete line that are kept until its end is printed; then they are sent."""

CHECK_S = 0.25
"""Seconds between checks of the loop while there are runs."""

BLOCKED_S = 1.0
"""Seconds after which a run that blocks the loop is reported: all other runs stand still meanwhile."""

Message = tuple[dict[str, Any], bytes]
"""A JSON object (the head), and the bytes that follow it (the body)."""

_SIZES = struct.Struct(">II")


def frame_of(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the bytes of a message: the sizes of head and body, then both."""
    text = json.dumps(head).encode()
    return _SIZES.pack(len(text), len(body)) + text + body


class Frames:
    """Splits a stream of bytes into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add bytes and yield the complete messages; raises ValueError if the bytes are no messages."""
        self._data += data
        while len(self._data) >= _SIZES.size:
            first, second = _SIZES.unpack_from(self._data)
            if max(first, second) > 2 * DATA_BYTES_MAX:
                raise ValueError("a message is too long")
            middle, end = _SIZES.size + first, _SIZES.size + first + second
            if len(self._data) < end:
                break
            head = json.loads(self._data[_SIZES.size : middle].decode())
            body = bytes(self._data[middle:end])
            del self._data[:end]
            yield head, body


class Run:
    """One run, and what is reported at its end."""

    def __init__(self, number: int, channel: Channel, text: str, variables: dict[str, str]) -> None:
        """Prepare a run of the job with this ``text``, with its own environment ``variables``."""
        self.number, self._channel = number, channel
        self.variables = RunVariables(variables)
        self.text = text
        self.current = CurrentRun(self._read_job, self._report_progress)
        self.task: asyncio.Task[int] | None = None
        self.cancelled = self.over = False
        self.result = b""
        self.error: dict[str, str] = {}
        self._parts = {"out": bytearray(), "err": bytearray()}
        self._lock = threading.RLock()

    def _read_job(self) -> Job:
        return run_function.job_of(json.loads(self.text))

    def _report_progress(self, line: str) -> None:
        self._channel.send({"run": self.number, "stream": PROGRESS}, line.encode(errors="replace"))

    def keep(self, text: str) -> None:
        """Keep the result for the report; raises ValueError if the server would refuse its size."""
        result = text.encode()
        if len(result) > DATA_BYTES_MAX:
            raise ValueError(f"the result is larger than {DATA_BYTES_MAX} bytes")
        self.result = result

    def leave(self, error: str, text: str) -> None:
        """Keep the error and its traceback for the report."""
        self.error = {"error": error, "traceback": text}

    def write(self, stream: str, data: bytes) -> None:
        """Send what the run prints: whole lines immediately, an incomplete line once it is complete."""
        with self._lock:
            part = self._parts[stream]
            part += data
            end = len(part) if len(part) > PART_BYTES_MAX else part.rfind(b"\n") + 1
            if end:
                self._channel.send({"run": self.number, "stream": stream}, bytes(part[:end]))
                del part[:end]

    def flush(self) -> None:
        """Send the rest of what the run printed."""
        with self._lock:
            self.over = True
            for stream, part in self._parts.items():
                if part:
                    self._channel.send({"run": self.number, "stream": stream}, bytes(part))
                    part.clear()


_run: ContextVar[Run | None] = ContextVar("run on the loop", default=None)


class Channel:
    """The socket to the worker. Threads share it; sending blocks, so that a crash loses nothing printed."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._lock = threading.RLock()

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message. Errors are ignored: if the worker is gone, the guard kills this process."""
        with self._lock, suppress(OSError):
            self.socket.sendall(frame_of(head, body))


class _Output(io.RawIOBase):
    """A standard stream: sends what a run prints to the worker, and writes all else to its handle."""

    def __init__(self, handle: int, stream: str) -> None:
        self._handle, self._stream = handle, stream

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._handle

    def write(self, data: Any, /) -> int:
        written = bytes(data)
        run = _run.get()
        if run is not None and not run.over:
            run.write(self._stream, written)
        else:
            kernel.write_all(self._handle, written)
        return len(written)


def _stream(handle: int, name: str) -> io.TextIOWrapper:
    raw: Any = _Output(handle, name)  # unbuffered, as with ``python -u``
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def main(arguments: Sequence[str]) -> int:
    """Import a module and run its async functions until the worker closes its end of the socket."""
    module, *folders = arguments
    os.set_inheritable(CHANNEL, False)
    channel = Channel(socket.socket(fileno=CHANNEL))
    sys.stdout, sys.stderr = _stream(1, "out"), _stream(2, "err")
    # Without another reference, a module that replaces the streams would close their buffers.
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    for folder in folders:
        look_in(folder)
    try:
        importlib.import_module(module)
    except Exception as error:
        text = run_function.traceback_of(error)
        channel.send({"failed": {"error": run_function.last_line(error), "traceback": text}})
        return RAISED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not is_closed(stream):
            stream.reconfigure(write_through=True)  # so that two runs never share a buffer
    run_function.prepare(module)
    asyncio.run(_Loop(channel).serve())
    return DONE


class _Loop:
    """The runs of this process."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._frames = channel, Frames()
        self._runs: dict[int, Run] = {}
        self._owners: WeakKeyDictionary[asyncio.Task[Any], Run] = WeakKeyDictionary()
        self._closing = False
        self._done = asyncio.Event()

    async def serve(self) -> None:
        """Perform runs until the worker has closed its end of the socket and the last run has ended."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(self._make_task)
        self._lifespans = _Lifespans()
        self._watch = _Watch(loop, self._channel, self._owners)
        self._channel.send({"ready": True})
        loop.add_reader(self._channel.socket, self._read)
        await self._done.wait()
        await self._lifespans.close()

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:
        """Make a task and record its run: before Python 3.12, a task does not show its context."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        run = _run.get() if context is None else context.get(_run)
        if run is not None:
            self._owners[task] = run
        return task

    def _read(self) -> None:
        try:
            data = self._channel.socket.recv(65_536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for head, body in self._frames.feed(data):
            if "cancel" in head:
                self._cancel(head["cancel"])
            else:
                self._start(head, body.decode())
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel.socket)
            self._closing = True
            self._end_if_idle()

    def _start(self, head: dict[str, Any], text: str) -> None:
        run = Run(head["run"], self._channel, text, head["own"])
        if not self._runs:
            self._watch.resume()
        self._runs[run.number] = run
        context = copy_context()
        context.run(_run.set, run)
        context.run(run_variables.set, run.variables)
        work = self._perform(run, *head["function"])
        run.task = asyncio.get_running_loop().create_task(work, context=context)
        run.task.add_done_callback(partial(self._ended, run), context=context)

    def _cancel(self, number: int) -> None:
        run = self._runs.get(number)
        if run is not None and run.task is not None:
            run.cancelled = True
            run.task.cancel()

    async def _perform(self, run: Run, module: str, name: str) -> int:
        """Perform a run and return its exit status."""
        with run_in_place(run.current):
            try:
                self._channel.send({"began": run.number})
                await self._lifespans.opened()
                declared = run_function.declaration(module, name)
                function = getattr(sys.modules[module], name)
                job = None if declared.expression is not None else run.current.job
                data = await run_function.awaited_for_job(declared, function, job)
                return run_function.store_result(data, DONE, run.keep)
            except SystemExit as error:  # it would end the loop
                return _status_of(error)
            except asyncio.CancelledError as error:
                if run.cancelled:
                    raise
                return self._failed(run, error, module, name)
            except Exception as error:
                return self._failed(run, error, module, name)

    @staticmethod
    def _failed(run: Run, error: BaseException, module: str, name: str) -> int:
        return run_function.failed(error, run_function.rules_of(module, name), run.keep, run.leave)

    def _ended(self, run: Run, task: asyncio.Task[int]) -> None:
        """Report the end of a run, and whether the run changed the state of the process."""
        if task.cancelled():
            status = -signal.SIGTERM
        elif (error := task.exception()) is not None:
            status = RAISED
            run.leave(run_function.last_line(error), run_function.traceback_of(error))
        else:
            status = task.result()
        whole = flushed()
        if not whole and status == DONE:
            status = run_function.NOT_FLUSHED
        run.flush()
        if run.variables.client is not None:
            run.variables.client.close()
        same = whole and self._lifespans.state_is_same()
        end = {"done": run.number, "status": status, "result": bool(run.result), "changed": not same}
        self._channel.send({**end, **run.error}, run.result)
        del self._runs[run.number]
        if not self._runs:
            self._watch.pause()
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._closing and not self._runs:
            self._done.set()


def _status_of(error: SystemExit) -> int:
    """Return the exit status with which Python would end after this exception."""
    if error.code is None:
        return DONE
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return RAISED


class _Lifespans:
    """The lifespans of this process. One task opens and closes them all."""

    def __init__(self) -> None:
        self._context = copy_context()
        self._end = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._state: tuple[ProcessState, tuple[Any, ...]] | None = None
        """The process state after the lifespans were opened, with which each run's end is compared."""

    async def opened(self) -> None:
        """Wait until all lifespans are open, trying again if that failed before. Raises what they raise."""
        if self._state is not None:
            return
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._ready = loop.create_future()
            self._task = loop.create_task(self._hold_open(self._ready), context=self._context)
        assert self._ready is not None
        await asyncio.shield(self._ready)

    async def _hold_open(self, ready: asyncio.Future[None]) -> None:
        try:
            async with functions.all_lifespans():
                self._state = ProcessState(threads=False), _surroundings()
                ready.set_result(None)
                await self._end.wait()
        except Exception as error:
            if ready.done():
                traceback.print_exc()
            else:
                ready.set_exception(error)

    def state_is_same(self) -> bool:
        """Return whether the process state is as it was before the first run."""
        if self._state is None:
            return True
        state, surroundings = self._state
        with suppress(Exception):  # for example, the folder was removed
            return state.same() and _surroundings() == surroundings
        return False

    async def close(self) -> None:
        """Close the lifespans."""
        self._end.set()
        if self._task is not None:
            await asyncio.wait([self._task])


def _surroundings() -> tuple[Any, ...]:
    """Return the folder, the environment and the folder of temporary files, which all runs share."""
    temporary = None
    with suppress(OSError):  # no temporary folder can be written to
        temporary = tempfile.gettempdir()
    return Path.cwd(), dict(os.environb), temporary


class _Watch:
    """A thread that reports runs which block the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: Channel,
        owners: WeakKeyDictionary[asyncio.Task[Any], Run],
    ) -> None:
        self._loop, self._channel, self._owners = loop, channel, owners
        self._main = threading.get_ident()
        self._busy, self._pause = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def resume(self) -> None:
        """Check the loop from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._check, name="event loop watch", daemon=True)
            self._thread.start()
        self._busy.set()

    def pause(self) -> None:
        """Stop checking while there is no run."""
        self._busy.clear()

    def _check(self) -> None:
        while self._busy.wait():
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # the loop is closed
                return
            if answered.wait(CHECK_S):
                self._pause.wait(CHECK_S)
                continue
            while not answered.is_set():
                task = asyncio.current_task(self._loop)
                if not answered.wait(BLOCKED_S - CHECK_S) and task is asyncio.current_task(self._loop):
                    run = self._owners.get(task) if task is not None else None
                    number = 0 if run is None else run.number
                    self._channel.send({"blocked": number, "at": self._place()})
                    answered.wait()
                    self._channel.send({"unblocked": number})

    def _place(self) -> str:
        """Return the line of the module or of a library that blocks the loop."""
        frame: FrameType | None = sys._current_frames().get(self._main)
        innermost = found = frame
        while found is not None and run_function.is_of_python_or_ours(found.f_code.co_filename):
            found = found.f_back
        shown = found or innermost
        return "" if shown is None else f"{shown.f_code.co_filename}:{shown.f_lineno}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
