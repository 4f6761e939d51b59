"""What the server notes about a job, in the column ``memory``: one JSON object, typed here key by key.

Users give ``options`` and never see or set what stands here, but for the last error and exit code, which
answers show. A key is written only where it differs from its default, so most jobs have ``{}``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import DECODED_ROWS_MAX

RETRY_AFTER_KEYS = ("retryAfterCount", "originalNextRun")
"""What a take writes into the data of a job with retryAfter."""


class BeforeTake(NamedTuple):
    """How a take found the job, where the row itself no longer tells; a returned job goes back to it."""

    next_run: str
    last_run: str
    data_keys: tuple[tuple[str, str], ...] = ()
    """Those of ``RETRY_AFTER_KEYS`` that its data had, with their JSON texts."""


class Memory(NamedTuple):
    """The notes about one job; the names in JSON are in ``_KEYS``."""

    error: str | None = None
    """What its last end that failed said."""
    exit_code: int | None = None
    """The exit status that its last end gave."""
    failures: int = 0
    """Failed tries since its last success, its last tick or its revival; ``retries`` limits them."""
    losses: int = 0
    """Runs that were lost since then; ``LOST_RUNS_MAX`` limits them."""
    unfit: int = 0
    """How often workers gave it back since then as their code does not suit it, up to ``UNFIT_MAX``."""
    cause: str = ""
    """Why its next or present run is not an ordinary one: retry, lost, manual, or schedule (the rest of a
    run that waited for its children)."""
    overtime: int = 0
    """How often its run was told to stop for being over its time: 1 after TERM, 2 after KILL."""
    before: BeforeTake | None = None
    """How its take found it; kept while it runs, where the row does not tell."""
    tick: str = ""
    """The tick that a schedule's nextRun or run stands for, where that is not nextRun itself."""
    trigger: str | None = None
    """Set while it waits for or does a run that somebody asked for: its own nextRun, which comes afterwards;
    empty where it has none."""
    pending: bool = False
    """Whether somebody asked for a run to follow the present one."""
    bound_to: str = ""
    """The worker that alone may take it: it was made by a tick of a schedule on all hosts."""
    removed: bool = False
    """Whether its source removed it while it ran: it is deleted at its end."""
    defined: str = ""
    """The data that its source defined it with, as JSON text; its own data may have changed since."""
    broken: bool = False
    """Whether it is FAILED because its repeat cannot be evaluated, not because a run failed."""
    cancelled: bool = False
    """Whether somebody cancelled it while it ran: its run is told to stop, and nothing tries it again."""
    failed: bool = False
    """Whether it failed for good the last time: its next end that is none is a recovery."""
    offset: int | None = None
    """Seconds east of UTC that a schedule's zone had at its tick by the rules of when that was planned; none
    in UTC, and if somebody set its nextRun."""
    formers: tuple[tuple[str, str], ...] = ()
    """Repeats that a schedule had before, the oldest first, each with the stamp up to which its ticks count.
    They are kept while the schedule still waits or runs for a tick of that time."""

    @property
    def asked_for(self) -> bool:
        """Tell whether a run that somebody asked for is over, or one is to follow."""
        return self.trigger is not None or self.pending

    def after_end(self) -> Memory:
        """Return what is still worth knowing when a run is over for good."""
        return self._replace(failures=0, losses=0, unfit=0, cause="", overtime=0, cancelled=False)

    def after_run(self, *, error: str | None = None, exit_code: int | None = None) -> Memory:
        """Return the notes when a run ends: how it was before its take is forgotten, its end is noted."""
        return self._replace(before=None, overtime=0, cancelled=False, error=error, exit_code=exit_code)


NO_MEMORY = Memory()

_KEYS = {
    "error": "error", "exit_code": "exitCode", "failures": "failures", "losses": "losses", "cause": "cause",
    "overtime": "overtime", "before": "before", "tick": "tick", "trigger": "trigger", "pending": "pending",
    "bound_to": "boundTo", "removed": "removed", "defined": "defined", "broken": "broken",
    "cancelled": "cancelled", "failed": "failed", "offset": "offset",
    "formers": "formers", "unfit": "unfit",
}  # fmt: skip
MEMORY_KEYS = frozenset(_KEYS.values())
"""All keys, as they are spelled in the column."""

_FIELDS = {key: field for field, key in _KEYS.items()}


def encode_memory(memory: Memory) -> str:
    """Return the notes as the column holds them."""
    if memory == NO_MEMORY:
        return "{}"
    parts: dict[str, str] = {}
    for field, value, default in zip(Memory._fields, memory, NO_MEMORY, strict=True):
        if value == default:
            continue
        if isinstance(value, BeforeTake):
            before = {"nextRun": jsontext.quoted(value.next_run), "lastRun": jsontext.quoted(value.last_run)}
            parts["before"] = jsontext.join({**before, **dict(value.data_keys)})
        else:
            parts[_KEYS[field]] = str(value) if field == "defined" else jsontext.dump(value)
    return jsontext.join(parts)


@lru_cache(maxsize=DECODED_ROWS_MAX)
def decode_memory(text: str) -> Memory:
    """Read the column; what is not the server's own, as a person may write, counts as not there."""
    found: dict[str, object] = {}
    try:
        parts = jsontext.members(text)
        for key, part in parts.items():
            field = _FIELDS.get(key)
            if field == "before":
                found[field] = _before(part)
            elif field == "defined":
                found[field] = part
            elif field == "formers":
                found[field] = tuple((str(repeat), str(until)) for repeat, until in jsontext.parse(part))
            elif field is not None:
                value = jsontext.parse(part)
                if isinstance(value, _TYPES[field]):
                    found[field] = value
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return NO_MEMORY
    return NO_MEMORY._replace(**found)  # type: ignore[arg-type]


_TYPES: dict[str, type] = {
    "error": str, "exit_code": int, "failures": int, "losses": int, "cause": str, "overtime": int,
    "tick": str, "trigger": str, "pending": bool, "bound_to": str, "removed": bool, "broken": bool,
    "cancelled": bool, "failed": bool, "unfit": int, "offset": int,
}  # fmt: skip


def _before(text: str) -> BeforeTake:
    parts = jsontext.members(text)
    keys = tuple((key, parts[key]) for key in RETRY_AFTER_KEYS if key in parts)
    return BeforeTake(str(jsontext.parse(parts["nextRun"])), str(jsontext.parse(parts["lastRun"])), keys)
