"""Limits for one input: CPU time and memory by its size, and no error but the expected refusals.

Time is CPU time of the thread, so that other work on the machine does not count; what exceeds the gate is
measured again, relative to this machine's present speed, before it counts as a finding. It knows no
targets and makes no inputs.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from tests.pace import slowness

START_MS = 25.0
"""CPU time that any input may take: what a busy machine makes of a millisecond, and of a cold cache."""

MS_PER_KIB = 1.0
"""CPU time for each KiB of an input: a body of 1 MiB may occupy the loop for at most a second."""

START_BYTES = 8 << 20
"""Memory that any input may need while it is read: caches that fill, and buffers of sockets."""

BYTES_PER_BYTE = 96
"""Memory for each byte of an input: a list of empty objects takes a third of it."""

TRIES = 8
"""Measurements, of which the shortest counts, before an input is called too slow."""

FAR_BEYOND = 10
"""Times the gate beyond which nothing is measured again."""

OURS = ("/bedrockjobs/", "/bedrock_worker/")


class Readable(Protocol):
    """The interface of a measured target."""

    name: str
    ms_per_kib: float
    start_ms: float

    def read(self, data: bytes) -> None:
        """Read one input; raises if something unexpected happens."""


class Finding(NamedTuple):
    """An input that exceeded a limit or raised an unexpected error."""

    target: str
    what: str
    data: bytes

    def __str__(self) -> str:
        """Return a one-line summary."""
        shown = repr(self.data[:80]) + ("…" if len(self.data) > 80 else "")
        return f"{self.target}: {self.what}; {len(self.data)} bytes: {shown}"


class Cost(NamedTuple):
    """The cost of an input."""

    ms: float
    allowed_ms: float


class Meter:
    """Measures one target."""

    def __init__(self, target: Readable) -> None:
        """Measure ``target``; its caches are emptied before each measurement."""
        self._target = target
        self._caches = list(_caches())

    def warm_up(self, data: bytes) -> None:
        """Read an input, and so load all that is loaded when it is needed first."""
        self._fault_of(data)

    def check(self, data: bytes) -> tuple[Cost, Finding | None]:
        """Read an input once, or again if it took too long; return its cost, and the fault if any."""
        cost = Cost(0.0, self._target.start_ms + self._target.ms_per_kib * len(data) / 1024)
        for _ in range(TRIES):
            taken, fault = self._timed(data)
            if fault is not None:
                return Cost(taken, cost.allowed_ms), self._finding(fault, data)
            cost = Cost(min(taken, cost.ms or taken), cost.allowed_ms)
            if cost.ms > cost.allowed_ms:
                cost = Cost(min(cost.ms, taken / slowness()), cost.allowed_ms)
            if cost.ms <= cost.allowed_ms:
                return cost, None
            if cost.ms > FAR_BEYOND * cost.allowed_ms:
                break
        return cost, self._finding(f"{cost.ms:.0f} ms of CPU, allowed are {cost.allowed_ms:.0f}", data)

    def memory(self, data: bytes) -> tuple[int, Finding | None]:
        """Read an input once more; return the memory it needed, and the fault if any."""
        self._forget()
        tracemalloc.start()
        try:
            self._fault_of(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        allowed = START_BYTES + BYTES_PER_BYTE * len(data)
        if peak <= allowed:
            return peak, None
        return peak, self._finding(f"{peak >> 10} KiB of memory, allowed are {allowed >> 10}", data)

    def lines(self, data: bytes) -> set[tuple[CodeType, int]]:
        """Read an input once more; return the lines of our code that it reached."""
        self._forget()
        with _traced() as reached:
            self._fault_of(data)
        return reached

    def _timed(self, data: bytes) -> tuple[float, str | None]:
        self._forget()
        gc.disable()
        try:
            began = time.thread_time()
            fault = self._fault_of(data)
            return (time.thread_time() - began) * 1000, fault
        finally:
            gc.enable()

    def _fault_of(self, data: bytes) -> str | None:
        try:
            self._target.read(data)
        except Exception as error:
            where = error.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = f" at {where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
            return f"{type(error).__name__}: {str(error)[:200]}{line}"
        return None

    def _finding(self, what: str, data: bytes) -> Finding:
        return Finding(self._target.name, what, data)

    def _forget(self) -> None:
        for clear in self._caches:
            clear()


def _caches() -> Iterator[Callable[[], None]]:
    """Yield functions that empty our caches: a repeated input must not be cheap."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "bedrockjobs":
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)) and not isinstance(value, type):
                    yield clear


@contextmanager
def _traced() -> Iterator[set[tuple[CodeType, int]]]:
    reached: set[tuple[CodeType, int]] = set()
    known: dict[CodeType, bool] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached.add((frame.f_code, frame.f_lineno))
        return line

    def call(frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        if code not in known:
            known[code] = any(part in code.co_filename for part in OURS) and "/tests/" not in code.co_filename
        return line if known[code] else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield reached
    finally:
        sys.settrace(before)
