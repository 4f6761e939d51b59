"""Encode rows of ``views.sql`` as JSON text, with the keys of the reply classes.

Stored JSON is inserted verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import EventReply, OutputLine, Reply, RunReply, ScheduleReply, TickReply

Write = Callable[[Any], str]


def _value(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else "null" if value is None else str(value)


def _stored(value: Any) -> str:
    """Return stored JSON text, or null if empty."""
    return value or "null"


def keys_of(reply: type[Reply]) -> tuple[str, ...]:
    """Return the keys of a reply, in the order of the columns of ``views.sql``."""
    return tuple(wire_name(field) for field in reply.model_fields)


def _shape(reply: type[Reply], stored: Iterable[str] = ()) -> tuple[tuple[str, Write], ...]:
    """Return the key and the encoder of each column."""
    return tuple((f'"{key}":', _stored if key in stored else _value) for key in keys_of(reply))


def _written(shape: tuple[tuple[str, Write], ...], row: Sequence[Any]) -> str:
    parts = [key + write(value) for (key, write), value in zip(shape, row, strict=True)]
    return f"{{{','.join(parts)}}}"


_RUN = _shape(RunReply, stored=("result", "progress", "output", "data"))
_LINE = _shape(OutputLine)
_SCHEDULE = _shape(ScheduleReply)
_TICK = _shape(TickReply)[:-2]  # the outcomes of runs are not in the row
_EVENT = _shape(EventReply)

REPEAT = keys_of(ScheduleReply).index("repeat")
"""The column of a schedule's repeat."""

PAUSED = keys_of(ScheduleReply).index("paused")
"""The column of a schedule's pause."""

_STOP = keys_of(RunReply).index("stop")
_WORDS = keys_of(ScheduleReply).index("words")


def run(row: Sequence[Any]) -> str:
    """Return a run, with its data if the row has it; of its stop only the signal, not who requested it."""
    shape = _RUN if len(row) == len(_RUN) else _RUN[: len(row)]
    return _written(shape, [*row[:_STOP], row[_STOP][: len("TERM")], *row[_STOP + 1 :]])


def line(row: Sequence[Any]) -> str:
    """Return a line of output."""
    return _written(_LINE, row)


def schedule(row: Sequence[Any], words: str, paused: str) -> str:
    """Return a schedule with its repeat in words, and the pattern that pauses it."""
    return _written(_SCHEDULE, [*row[:_WORDS], words, *row[_WORDS + 1 : PAUSED], paused, *row[PAUSED + 1 :]])


def tick(row: Sequence[Any], status: str, failed: int) -> str:
    """Return a row of the tick history, with the status of the last run and the number of failed ticks."""
    more = f',"status":{quoted(status)}' if status else ""
    more += f',"failed":{failed}' if failed else ""
    return f"{_written(_TICK, row)[:-1]}{more}}}"


def event(row: Sequence[Any]) -> str:
    """Return an event."""
    return _written(_EVENT, row)
