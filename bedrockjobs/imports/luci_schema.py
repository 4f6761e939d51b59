"""The schema of ``luci-scheduler.cfg``, and a type check of files against it.

It covers types and names; ``luci`` interprets the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bedrockjobs.imports.found import shortened
from bedrockjobs.imports.textproto import Message, Value, Word

Scalar = Literal["text", "bool", "int32", "int64", "float"]

_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")
_BITS = {"int32": 31, "int64": 63}


@dataclass(frozen=True)
class FieldKind:
    """The type of a field."""

    scalar: Scalar | None = None
    names: tuple[str, ...] = ()
    """The values of an enumeration."""
    fields: Mapping[str, FieldKind] | None = None
    """The fields of a message."""
    repeated: bool = False
    anything: bool = False
    """Whether it is a message with unknown fields."""


@dataclass
class Block:
    """A message that matches its type."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    """Values by field: a scalar, a Block, or a list of them for a repeated field."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line on which each field first occurs."""


class Mismatch(ValueError):
    """A message does not match its type; the text has the line and the expected value."""


TEXT, BOOL, INT32, INT64, FLOAT = (
    FieldKind("text"),
    FieldKind("bool"),
    FieldKind("int32"),
    FieldKind("int64"),
    FieldKind("float"),
)
TEXTS = FieldKind("text", repeated=True)
ANYTHING = FieldKind(anything=True)
_ACLS = FieldKind(
    fields={"role": FieldKind(names=("READER", "OWNER", "TRIGGERER")), "granted_to": TEXT}, repeated=True
)
_POLICY = FieldKind(
    fields={
        "kind": FieldKind(names=("UNDEFINED", "GREEDY_BATCHING", "LOGARITHMIC_BATCHING", "NEWEST_FIRST")),
        "max_concurrent_invocations": INT64,
        "max_batch_size": INT64,
        "log_base": FLOAT,
        "pending_timeout": FieldKind(fields={"seconds": INT64, "nanos": INT32}),
    }
)
_NOOP = FieldKind(fields={"sleep_ms": INT64, "triggers_count": INT64})
_FETCH = FieldKind(fields={"method": TEXT, "url": TEXT, "timeout_sec": INT32})
_BUILD = FieldKind(
    fields={"server": TEXT, "bucket": TEXT, "builder": TEXT, "properties": TEXTS, "tags": TEXTS}
)
_GITILES = FieldKind(
    fields={"repo": TEXT, "refs": TEXTS, "path_regexps": TEXTS, "path_regexps_exclude": TEXTS, "paths": TEXTS}
)
_BOTH = {
    "id": TEXT,
    "realm": TEXT,
    "schedule": TEXT,
    "disabled": BOOL,
    "acls": _ACLS,
    "acl_sets": TEXTS,
    "triggering_policy": _POLICY,
    "noop": _NOOP,
}
TASKS = {
    "noop": _NOOP,
    "url_fetch": _FETCH,
    "buildbucket": _BUILD,
    "gitiles": _GITILES,
    "swarming": ANYTHING,
    "swarming_task": ANYTHING,
    "dm": ANYTHING,
}
"""Tasks of jobs, including those of old files; Swarming and DM are known by name only."""

JOB_TASKS = {name: kind for name, kind in TASKS.items() if name != "gitiles"}

CONFIG = FieldKind(
    fields={
        "job": FieldKind(fields={**_BOTH, **JOB_TASKS, "task": FieldKind(fields=TASKS)}, repeated=True),
        "trigger": FieldKind(fields={**_BOTH, "gitiles": _GITILES, "triggers": TEXTS}, repeated=True),
        "acl_sets": FieldKind(fields={"name": TEXT, "acls": _ACLS}, repeated=True),
    }
)
"""The type of a whole file."""


def checked(message: Message, kind: FieldKind, line: int) -> Block:
    """Check a message against its type, and index its fields; raises Mismatch at the first error."""
    found = Block(line)
    for name, value, at in message:
        wanted = (kind.fields or {}).get(name)
        if wanted is None:
            if kind.anything:
                continue
            known = ", ".join(kind.fields or ())
            raise Mismatch(f"line {at}: expected one of {known}, not {shortened(name)}")
        read = _value(name, value, wanted, at)
        if wanted.repeated:
            found.values.setdefault(name, []).append(read)
        elif name in found.values:
            raise Mismatch(f"line {at}: {name}: expected it once; line {found.lines[name]} has it already")
        else:
            found.values[name] = read
        found.lines.setdefault(name, at)
    return found


def _value(name: str, value: Value, kind: FieldKind, line: int) -> Any:
    if kind.fields is not None or kind.anything:
        if isinstance(value, list):
            return checked(value, kind, line)
        raise _expected(name, "a message in { }", value, line)
    if isinstance(value, list):
        raise _expected(name, "a value", value, line)
    if kind.names:
        return _name(name, value, kind.names, line)
    if kind.scalar == "text":
        if isinstance(value, str) and not isinstance(value, Word):
            return value
        raise _expected(name, "a text in quotes", value, line)
    if kind.scalar == "bool":
        if isinstance(value, (Word, int)) and value in (0, 1, *_TRUE, *_FALSE):
            return value in (1, *_TRUE)
        raise _expected(name, "true or false", value, line)
    return _number(name, value, kind, line)


def _name(name: str, value: Value, names: tuple[str, ...], line: int) -> str:
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, Word) and value in names:
        return str(value)
    raise _expected(name, f"one of {', '.join(names)}", value, line)


def _number(name: str, value: Value, kind: FieldKind, line: int) -> int | float:
    if kind.scalar == "float" and isinstance(value, (int, float)):
        return value
    bits = _BITS.get(kind.scalar or "")
    if bits and isinstance(value, int) and -(1 << bits) <= value < 1 << bits:
        return value
    raise _expected(name, "a number" if bits is None else "a whole number", value, line)


def _expected(name: str, what: str, value: Value, line: int) -> Mismatch:
    shown = "a message" if isinstance(value, list) else shortened(str(value)[:100])
    return Mismatch(f"line {line}: {name}: expected {what}, not {shown}")
