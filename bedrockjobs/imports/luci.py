"""Import job definitions of LUCI's scheduler (its cron service) from ``luci-scheduler.cfg``.

LUCI's cron schedules use gorhill's syntax, in UTC. Its relative schedules count from the end of a run, like a
repeat in Bedrock. A definition that LUCI would not accept is refused, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from bedrockjobs.base.config import IMPORT_TOKENS_MAX
from bedrockjobs.base.jsontext import NumberTooLong, whole_number
from bedrockjobs.imports import gorhill
from bedrockjobs.imports.imported import (
    ImportedSchedule,
    Unreadable,
    check_count,
    check_size,
    once,
    shortened,
)
from bedrockjobs.schedule import cron

# The schema of ``luci-scheduler.cfg``, and a type check of files against it.


Scalar = Literal["text", "bool", "int32", "int64", "float"]

_TRUE, _FALSE = ("true", "True", "t"), ("false", "False", "f")
_BITS = {"int32": 31, "int64": 63}


@dataclass(frozen=True)
class FieldKind:
    """The type of a field: exactly one of ``scalar``, ``names``, ``fields`` and ``anything`` is set."""

    scalar: Scalar | None = None
    names: tuple[str, ...] = ()
    """The values of the field if it is an enumeration."""
    fields: Mapping[str, FieldKind] | None = None
    """The types of the fields by name if it is a message."""
    repeated: bool = False
    anything: bool = False
    """Whether the field is a message whose fields are not checked."""


@dataclass
class Block:
    """A message whose fields match its type."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    """Values by the name of the field: a scalar or a Block, or a list of these for a repeated field."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line on which each field first occurs."""


class Mismatch(ValueError):
    """A message does not match its type; the error names the line and what was expected."""


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
"""The types of the kinds of tasks, including kinds that only old files have. The fields of Swarming and DM
tasks are not checked."""

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
    """Return a message as a Block; raises Mismatch at the first field that does not match ``kind``."""
    block = Block(line)
    for name, value, at in message:
        wanted = (kind.fields or {}).get(name)
        if wanted is None:
            if kind.anything:
                continue
            known = ", ".join(kind.fields or ())
            raise Mismatch(f"line {at}: expected one of {known}, not {shortened(name)}")
        read = _value(name, value, wanted, at)
        if wanted.repeated:
            block.values.setdefault(name, []).append(read)
        elif name in block.values:
            raise Mismatch(f"line {at}: {name}: expected it once; line {block.lines[name]} has it already")
        else:
            block.values[name] = read
        block.lines.setdefault(name, at)
    return block


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
        raise _expected(name, "a string in quotes", value, line)
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


DELAY_S_MAX = 99_999_999
"""Maximum seconds between two runs: eight digits in a repeat."""

DEFAULTS = {"job": "triggered", "trigger": "with 30s interval"}
"""The schedule of a block that has none, by the name of the block."""

_ID = re.compile(r"[0-9A-Za-z_\-. )(]{1,100}")
_REALM = re.compile(r"[a-z0-9_.\-/]{1,400}|@root|@legacy")
_INTERVAL = re.compile(r"with (\S+) interval")
_DURATION = re.compile(
    r"[-+]?(?:0|(?:(?:[0-9]{1,12}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:ns|us|µs|μs|ms|s|m|h)){1,20})"
)
_PART = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DEFAULT_TAGS = ("scheduler_invocation_id", "scheduler_job_id", "user_agent")
"""Keys of tags that LUCI sets itself, so that a file may not set them."""


class _InvalidBlock(ValueError):
    """A block is invalid; other blocks are still imported."""


def parse_luci(text: str) -> list[ImportedSchedule]:
    """Parse ``job`` and ``trigger`` blocks; raises Unreadable if the text is not a valid file."""
    fields = parse(text)
    blocks: list[tuple[str, int, Message]] = []
    for name, value, line in fields:
        if name in DEFAULTS and isinstance(value, list):
            blocks.append((name, line, value))
            check_count(blocks, f"line {line}")
            continue
        try:
            checked([MessageField(name, value, line)], CONFIG, line)
        except Mismatch as error:
            raise Unreadable(str(error)) from None
    known = {identity for _, _, value in blocks if (identity := _enabled(value))}
    return once([_block(name, line, value, known) for name, line, value in blocks])


def _enabled(fields: Message) -> str:
    """Return the id of a block, to which triggers may refer; empty if the block is disabled."""
    values = {name: value for name, value, _ in fields}
    return "" if values.get("disabled") in ("true", "True", "t", 1) else str(values.get("id", ""))


def _block(kind: str, line: int, fields: Message, known: set[str]) -> ImportedSchedule:
    identity = next((value for name, value, _ in fields if name == "id" and isinstance(value, str)), "")
    expression = next(
        (value for name, value, _ in fields if name == "schedule" and isinstance(value, str)), ""
    )
    schedule = ImportedSchedule(identity or f"line-{line}", f"line {line}", expression or DEFAULTS[kind])
    schema = (CONFIG.fields or {})[kind]
    try:
        block = checked(fields, schema, line)
        _check_names(block)
        schedule = _with_schedule(schedule, block.lines.get("schedule", line))
        _check_triggers(block, known)
        _check_policy(block)
        task, place = _task(block)
        _check_task(task, place, block)
        return _taken(schedule, block, task, place)
    except (Mismatch, _InvalidBlock) as error:
        return schedule._replace(refused=str(error), expression="", repeat_after="")


# --- LUCI's validation -------------------------------------------------------------------------------------


def _refuse(line: int, what: str, expected: str, found: object = None) -> _InvalidBlock:
    shown = "" if found is None else f", not {shortened(str(found))}"
    return _InvalidBlock(f"line {line}: {what}: expected {expected}{shown}")


def _check_names(block: Block) -> None:
    identity, realm = block.values.get("id", ""), block.values.get("realm", "")
    if not identity:
        raise _refuse(block.line, "id", "a string")
    if not _ID.fullmatch(identity):
        raise _refuse(block.lines["id"], "id", "at most 100 letters, digits, blanks and _-.()", identity)
    if realm and not _REALM.fullmatch(realm):
        expected = "lower-case letters, digits and _.-/, or @root or @legacy"
        raise _refuse(block.lines["realm"], "realm", expected, realm)


def _check_triggers(block: Block, known: set[str]) -> None:
    for name in block.values.get("triggers", ()):
        if name not in known:
            raise _refuse(block.lines["triggers"], "triggers", "jobs of this file that are enabled", name)


def _check_policy(block: Block) -> None:
    policy = block.values.get("triggering_policy")
    if policy is None:
        return
    for name in ("max_concurrent_invocations", "max_batch_size"):
        if policy.values.get(name, 0) < 0:
            raise _refuse(policy.lines[name], name, "a number of at least 0", policy.values[name])
    logarithmic = policy.values.get("kind") == "LOGARITHMIC_BATCHING"
    if logarithmic and not policy.values.get("log_base", 0) >= 1.0001:
        line = policy.lines.get("log_base", policy.line)
        raise _refuse(line, "log_base", "a number of at least 1.0001")
    timeout = policy.values.get("pending_timeout")
    if timeout is not None and (timeout.values.get("seconds", 0) < 0 or timeout.values.get("nanos", 0) < 0):
        raise _refuse(timeout.line, "pending_timeout", "a duration of at least 0")


def _task(block: Block) -> tuple[str, Block]:
    """Return the name and the block of a job's only task."""
    inside = block.values.get("task")
    tasks = [
        (name, place.values[name])
        for place in (block, *([inside] if inside is not None else []))
        for name in TASKS
        if name in place.values
    ]
    for (_, one), (name, other) in pairwise(sorted(tasks, key=lambda task: task[1].line)):
        raise _refuse(other.line, name, f"one task in a job; line {one.line} has one already")
    if not tasks:
        raise _refuse(block.line, "task", f"one of {', '.join(JOB_TASKS)}")
    return tasks[0]


def _check_task(kind: str, task: Block, block: Block) -> None:
    if kind == "url_fetch":
        _check_fetch(task)
    elif kind == "buildbucket":
        _check_build(task, block)
    elif kind == "gitiles" and not _absolute(task.values.get("repo", "")):
        raise _refuse(task.lines.get("repo", task.line), "gitiles.repo", "an absolute URL")


def _check_fetch(task: Block) -> None:
    values, lines = task.values, task.lines
    if values.get("method", "") not in ("", "GET"):
        raise _refuse(
            lines["method"], "url_fetch.method", "GET, the only method that LUCI supports", values["method"]
        )
    if not values.get("url"):
        raise _refuse(lines.get("url", task.line), "url_fetch.url", "a url")
    if not _absolute(values["url"]):
        raise _refuse(lines["url"], "url_fetch.url", "an absolute url", values["url"])
    if values.get("timeout_sec") and not 1 <= values["timeout_sec"] <= 480:
        expected = "1 to 480 seconds"
        raise _refuse(lines["timeout_sec"], "url_fetch.timeout_sec", expected, values["timeout_sec"])


def _check_build(task: Block, block: Block) -> None:
    values, lines = task.values, task.lines
    server = values.get("server", "")
    if not server or "/" in server:
        raise _refuse(lines.get("server", task.line), "buildbucket.server", "the name of a host", server)
    if not values.get("bucket") and block.values.get("realm", "") in ("", "@root", "@legacy"):
        raise _refuse(lines.get("bucket", task.line), "buildbucket.bucket", "a bucket, or a realm of the job")
    if not values.get("builder"):
        raise _refuse(lines.get("builder", task.line), "buildbucket.builder", "a builder")
    for name in ("properties", "tags"):
        for pair in values.get(name, ()):
            key, colon, _ = pair.partition(":")
            if not colon or not key:
                raise _refuse(lines[name], f"buildbucket.{name}", "key:value", pair)
            if name == "tags" and key in _DEFAULT_TAGS:
                raise _refuse(lines[name], "buildbucket.tags", "no tag that LUCI writes itself", pair)


def _absolute(url: str) -> bool:
    if _CONTROL.search(url):
        return False
    try:
        return bool(urlsplit(url).scheme)
    except ValueError:
        return False


# --- conversion --------------------------------------------------------------------------------------------


def _with_schedule(schedule: ImportedSchedule, line: int) -> ImportedSchedule:
    expression = schedule.source_text
    if expression == "triggered":
        return schedule._replace(old=cron.parse("@never"), expression="@never")
    relative = _INTERVAL.fullmatch(expression)
    if relative or expression == "continuously":
        seconds = _seconds(relative[1]) if relative else 0
        if seconds is None:
            expected = f"a duration such as 10s or 1h30m, at most {DELAY_S_MAX} s"
            raise _refuse(line, "with ... interval", expected, expression)
        if seconds != int(seconds):
            schedule = schedule.with_warning("an interval has whole seconds here")
        schedule = schedule._replace(
            repeat_after=f"FINISHED, +{max(1, round(seconds)) if seconds else 0} SECONDS"
        )
        return schedule.with_warning(
            "a run that fails ends the loop here: RetryJob with revive starts it again"
        )
    try:
        reading = gorhill.parse_gorhill(expression)
    except cron.BadSchedule as error:
        raise _InvalidBlock(f"line {line}: schedule: {error}") from None
    return schedule.with_reading(*reading)


def _seconds(text: str) -> float | None:
    """Return the seconds of a Go duration; None if it is invalid, negative or too long."""
    if not _DURATION.fullmatch(text):
        return None
    seconds: float = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return None if seconds > DELAY_S_MAX or (text.startswith("-") and seconds) else seconds


def _taken(schedule: ImportedSchedule, block: Block, task: str, task_block: Block) -> ImportedSchedule:
    if block.values.get("disabled"):
        raise _InvalidBlock(f"line {block.lines['disabled']}: it is disabled in LUCI")
    if task == "gitiles":
        raise _InvalidBlock(f"line {task_block.line}: nothing here watches a repository (gitiles)")
    if task == "noop":
        schedule = schedule._replace(options={"argv": ["true"]})
        for name in ("sleep_ms", "triggers_count"):
            if task_block.values.get(name):
                schedule = schedule.with_warning(f"noop.{name} is left out")
    elif task == "url_fetch":
        schedule = schedule._replace(options=_fetch(task_block.values))
    else:
        schedule = schedule.with_warning(
            f"a {task} task is not known here: a worker has to take jobs of this name"
        )
    for name, what in (("triggers", "starts other jobs"), ("triggering_policy", "has a triggering policy")):
        if name in block.values:
            schedule = schedule.with_warning(f"it {what} ({name}), which is left out")
    return schedule


def _fetch(values: dict[str, Any]) -> dict[str, Any]:
    timeout = values.get("timeout_sec") or 60  # the default of LUCI, and ours
    url = values["url"]
    return {"url": url if timeout == 60 else {"url": url, "timeout": timeout}}


# Protocol buffers in text format, parsed without a schema.
#
# A message is a list of fields in order, since a name may occur more than once. A value is a string, a word
# (an enumeration value or a boolean), a number or a message.


DEPTH_MAX = 32
"""Maximum depth of nested messages, since the parser is recursive; LUCI's files have four levels."""


class Word(str):
    """An unquoted value: ``true``, or the name of an enumeration value."""

    __slots__ = ()


class MessageField(NamedTuple):
    """A field of a message."""

    name: str
    value: Value
    line: int


Message = list[MessageField]
Value = str | int | float | list[MessageField]

_WORD = re.compile(
    r"""[ \t\r]*(?:(
    [:{}<>\],;]
    |\[[A-Za-z][\w./-]*\]|-?[A-Za-z_][\w.]*
    |"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*'
    |[-+]?(?:0[xX][0-9a-fA-F]+|(?:[0-9]|\.[0-9])[0-9.]*(?:[eE][-+]?[0-9]+)?[fF]?)(?![\w.])
    |(?:[ \t\r\n]|\#[^\n]*)+
    |\[
    )|.+)""",
    re.VERBOSE | re.DOTALL,
)
"""Matches a token after blanks. An invalid token matches up to the end, so that no text is scanned twice."""
_KINDS = {
    **dict.fromkeys(" \t\r\n#", "blank"),
    **dict.fromkeys(":{}<>],;", "mark"),
    **dict.fromkeys("\"'", "text"),
    **dict.fromkeys("0123456789+.", "number"),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", "word"),
    **dict.fromkeys("[-", "either"),
}
"""The kind of a token, by its first character."""
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_ESCAPES = {
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_CLOSING = {"{": "}", "<": ">"}
_DIGITS = frozenset("0123456789.")

_OCTAL = re.compile(r"[-+]?0[0-7]+")


def parse(text: str) -> Message:
    """Parse a whole text; raises Unreadable, which names the line."""
    check_size(text)
    return _TextprotoParser(text).message("", 0)


def _bytes_of(literal: str, line: int) -> bytes:
    """Return the bytes of a string literal; a numeric escape is a byte, not a character."""
    if "\\" not in literal:
        return literal[1:-1].encode("utf-8", "surrogatepass")
    parts, at = [], 1
    for escape in _ESCAPE.finditer(literal, 1, len(literal) - 1):
        parts.append(literal[at : escape.start()].encode("utf-8", "surrogatepass"))
        parts.append(_escaped(escape[1], line))
        at = escape.end()
    return b"".join([*parts, literal[at:-1].encode("utf-8", "surrogatepass")])


def _escaped(code: str, line: int) -> bytes:
    if code in _ESCAPES:
        return _ESCAPES[code].encode()
    kind, digits = (code[0], code[1:]) if code[0] in "xuU" and len(code) > 1 else ("", code)
    if kind == "" and digits[0] not in "01234567":
        raise Unreadable(f"line {line}: expected an escape such as \\n or \\x41, not {shortened(code)}")
    value = int(digits, 16 if kind else 8)
    if kind in ("u", "U"):
        if value > 0x10FFFF:
            raise Unreadable(f"line {line}: expected a character of Unicode, not {shortened(code)}")
        return chr(value).encode("utf-8", "surrogatepass")
    if value > 0xFF:
        raise Unreadable(f"line {line}: expected a byte of at most \\377, not {shortened(code)}")
    return bytes([value])


class _TextprotoParser:
    """Parses a text in one pass; keeps only the current token, since there may be very many tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = iter(_WORD.findall(text))
        self._left = IMPORT_TOKENS_MAX
        self._kind = self._word = ""
        self._line = 1
        self._next()

    def _next(self) -> None:
        """Read the next token; after the last token, that is an ``end`` token."""
        for word in self._words:
            kind = _KINDS.get(word[:1], "")
            if kind == "blank":
                self._line += word.count("\n")
                continue
            if kind == "either":
                kind = "number" if word[1:2] in _DIGITS else "word"
                kind = "mark" if word == "[" else kind
            elif not kind:
                raise self._wrong()
            if not self._left:
                raise Unreadable(f"line {self._line}: expected at most {IMPORT_TOKENS_MAX} words and marks")
            self._left -= 1
            self._kind, self._word = kind, word
            return
        self._kind, self._word = "end", ""

    def _wrong(self) -> Unreadable:
        rest = next(match[0] for match in _WORD.finditer(self._text) if not match[1])
        found = shortened(rest.lstrip(" \t\r")[:20])
        return Unreadable(f"line {self._line}: expected text-format protocol buffers, not {found}")

    def message(self, closing: str, depth: int) -> Message:
        """Parse fields up to ``closing``, or to the end of the text if ``closing`` is empty."""
        fields: Message = []
        if depth > DEPTH_MAX:
            raise self._unexpected(f"at most {DEPTH_MAX} messages inside one another")
        while self._kind != "end":
            name, line = self._word, self._line
            if name == closing:
                self._next()
                return fields
            if self._kind != "word":
                raise self._unexpected("the name of a field")
            self._next()
            colon = self._word == ":"
            if colon:
                self._next()
            if self._word == "[":
                fields += [MessageField(name, value, line) for value in self._list(depth, colon)]
            else:
                fields.append(MessageField(name, self._value(depth, colon), line))
            if self._word == "," or self._word == ";":
                self._next()
        if closing:
            raise self._unexpected(closing)
        return fields

    def _list(self, depth: int, colon: bool) -> list[Value]:
        values: list[Value] = []
        self._next()
        if self._word == "]":
            self._next()
            return values
        while True:
            values.append(self._value(depth, colon))
            if self._word == "]":
                self._next()
                return values
            if self._word != ",":
                raise self._unexpected("a comma or ]")
            self._next()

    def _value(self, depth: int, colon: bool) -> Value:
        kind, word = self._kind, self._word
        if word in _CLOSING:
            self._next()
            return self.message(_CLOSING[word], depth + 1)
        if not colon:
            raise self._unexpected(": and a value, or a message in { }")
        if kind == "number":
            number = self._number(word)
            self._next()
            return number
        if kind == "text":
            return self._texts()
        if kind == "word":
            self._next()
            return Word(word)
        raise self._unexpected("a value")

    def _texts(self) -> str:
        """Parse adjacent string literals, which are one string, and return it."""
        line, parts = self._line, []
        while self._kind == "text":
            parts.append(_bytes_of(self._word, self._line))
            self._next()
        try:
            return b"".join(parts).decode()
        except UnicodeDecodeError:
            raise Unreadable(f"line {line}: expected a string that is UTF-8") from None

    def _number(self, word: str) -> int | float:
        if len(word) <= 18 and word.isdecimal() and word[0] != "0":
            return int(word)
        try:
            return whole_number(word, 8 if _OCTAL.fullmatch(word) else 0)
        except NumberTooLong as error:
            if not word.isdecimal():  # a decimal one is a float
                raise Unreadable(f"line {self._line}: {error}") from None
        except ValueError:
            pass
        try:
            return float(word.rstrip("fF"))
        except ValueError:
            raise self._unexpected("a number") from None

    def _unexpected(self, expected: str) -> Unreadable:
        return Unreadable(f"line {self._line}: expected {expected}, not {shortened(self._word or 'the end')}")
