"""Formatting for templates: states, timestamps, durations, numbers and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from bedrockjobs.base.clock import duration_text, moment_of, span
from bedrockjobs.base.errors import line_of, split_frames
from bedrockjobs.base.jsontext import dump
from bedrockjobs.base.vocabulary import called
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands.options import OPTIONS, Duration, JobOptions
from bedrockjobs.job.eligibility import HOLD_PATTERN

SHAPES = {
    "QUEUED": ("ring", "plain"),
    "RUNNING": ("play", "active"),
    "RUNQUEUED": ("play", "active"),
    "PAUSED": ("bars", "warn"),
    "waiting": ("bars", "plain"),
    "FINISHED": ("disc", "good"),
    "FAILED": ("cross", "bad"),
    "CANCELLED": ("dash", "plain"),
    "running": ("play", "active"),
    "success": ("disc", "good"),
    "fail": ("cross", "bad"),
    "timeout": ("glass", "bad"),
    "frozen": ("gem", "bad"),
    "terminated": ("box", "plain"),
    "killed": ("box", "bad"),
    "returned": ("ring", "plain"),
    "snoozed": ("glass", "plain"),
    "fired": ("disc", "good"),
    "caught up": ("fast", "plain"),
    "late": ("ring", "warn"),
    "skipped": ("dash", "plain"),
    "missed": ("gem", "bad"),
    "active": ("disc", "good"),
    "quiet": ("bars", "warn"),
    "draining": ("glass", "plain"),
    "drained": ("dash", "plain"),
    "revoked": ("dash", "plain"),
    "muted": ("bars", "warn"),
    "not delivered": ("warning", "bad"),
    "paused": ("bars", "warn"),
    "failed": ("cross", "bad"),
    "new": ("ring", "warn"),
    "growing": ("fast", "bad"),
    "came back": ("ring", "bad"),
    "retried": ("ring", "plain"),
    "recovered": ("disc", "good"),
    "workflow failed": ("cross", "bad"),
    "workflow finished": ("disc", "good"),
    "lost": ("gem", "bad"),
    "expired": ("dash", "plain"),
    "cancelled": ("dash", "plain"),
    "deleted": ("dash", "plain"),
    "triggered": ("play", "active"),
    "handed back": ("ring", "plain"),
    "resumed": ("disc", "good"),
    "worker joined": ("disc", "good"),
    "worker left": ("dash", "plain"),
    "server started": ("disc", "active"),
    "server joined": ("disc", "active"),
    "server left": ("dash", "plain"),
    "starting": ("ring", "plain"),
    "serving": ("disc", "good"),
    "stopping": ("glass", "plain"),
    "silent": ("cross", "bad"),
    "problem": ("warning", "bad"),
    "no worker": ("warning", "bad"),
    "notice": ("warning", "warn"),
    "well": ("disc", "good"),
    "ready": ("play", "active"),
    "later": ("ring", "plain"),
    "blocked": ("bars", "warn"),
    "mocked": ("dash", "plain"),
}
"""Shape and tone of each state: a shape, so that colour is never the only sign. Only states that need
attention are red or amber."""

DURATIONS = frozenset(
    wire_name(name) for name, field in JobOptions.model_fields.items() if field.annotation == Duration | None
)
"""The options of jobs that are durations; replies have them in seconds."""

NAME_STATES = ("QUEUED", "RUNNING", "RUNQUEUED", "PAUSED", "FINISHED", "FAILED", "CANCELLED")
"""The states of a job in display order."""

JSON_SHOWN_CHARS = 20_000
"""Maximum characters of JSON that is shown as a tree: longer texts would make pages of megabytes."""

_STAMP = re.compile(
    r"(?:(?<=\bsince )|(?<=\buntil )|(?<=\bat ))"
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?!\.?\d| UTC|Z)",
    re.ASCII,
)
"""Finds timestamps in sentences of the server, and rarely in texts that people wrote."""


class Spelled(str):
    """A JSON number in its original spelling."""

    __slots__ = ()


def iso(timestamp: str | None) -> str | None:
    """Return a timestamp in ISO format: 2026-11-21T03:29:56Z; None for None."""
    return None if timestamp is None else timestamp.replace(" ", "T") + "Z"


def moments(sentence: str) -> list[str]:
    """Split a sentence into texts and timestamps, which alternate; the first part is a text."""
    return _STAMP.split(sentence)


def runs_only_if_triggered(timestamp: str) -> bool:
    """Return whether a job with this ``nextRun`` runs only when triggered: its year is 9999."""
    return timestamp >= "9999"


def range_text(typed: str) -> str:
    """Return a range of time like ``15m`` as it is displayed, in its own unit: 15 min, 24 h."""
    return f"{typed[:-1]} {'min' if typed[-1:] == 'm' else typed[-1:]}"


def lasted(start: str, end: str) -> str:
    """Return the time between two timestamps; empty if either is empty."""
    if not start or not end:
        return ""
    return span(max((moment_of(end) - moment_of(start)).total_seconds(), 0))


def number(value: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,}"


SPARK_STEP, SPARK_HEIGHT = 4, 20
"""Width of a bar of a sparkline with the gap after it, and height of the highest bar, in SVG units."""


def spark(counts: Sequence[int]) -> str:
    """Return the bars of a sparkline as the ``d`` of an SVG path; a bar of few is still 2 units high."""
    most = max(counts)
    heights = [max(round(SPARK_HEIGHT * count / most, 1), 2) if count else 0 for count in counts]
    return "".join(
        f"M{place * SPARK_STEP} {SPARK_HEIGHT}v-{height:g}h{SPARK_STEP - 1}V{SPARK_HEIGHT}"
        for place, height in enumerate(heights)
        if height
    )


def spark_text(hours: Sequence[int]) -> str:
    """Return the sum of hourly counts, the last of which is now, and the hour that has most, in words."""
    total, most = sum(hours), max(hours)
    ago = hours[::-1].index(most)
    when = f"{ago} to {ago + 1} h ago" if ago else "in the last hour"
    most_text = when if most == total else f"most {when}: {most:,}"
    return f"{total:,} in {len(hours)} h, {most_text}"


def option_text(name: str, value: Any) -> str:
    """Return a job option as it would be typed: a duration with units, other values as JSON."""
    if isinstance(value, str):
        return value
    return duration_text(value) if name in DURATIONS and isinstance(value, int) else dump(value)


NOT_SHOWN = "not shown to this token"
"""What is shown in place of data that the token may not see."""


def hidden_options(job: Mapping[str, Any]) -> dict[str, str]:
    """Return ``NOT_SHOWN`` for each option of a job that is hidden from the token."""
    return {name: NOT_SHOWN for name in job.get("hidden") or () if name in OPTIONS}


def counted(count: tuple[int, bool]) -> str:
    """Return a count (value, whether there are more) as text: 10,000+ if there are more."""
    value, more = count
    return f"{value:,}{'+' if more else ''}"


def shape(state: str) -> tuple[str, str]:
    """Return the shape and the tone of a state."""
    return SHAPES.get(state, ("ring", "plain"))


def tree(text: str) -> Any:
    """Parse JSON, with numbers as Spelled; None if the text is too long or invalid."""
    if len(text) > JSON_SHOWN_CHARS:
        return None
    try:
        return json.loads(text, parse_float=Spelled, parse_int=Spelled)
    except ValueError:
        return None


def kind(value: Any) -> str:
    """Return the kind of a parsed value: object, array, string, number or word."""
    kinds: dict[type[Any], str] = {dict: "object", list: "array", str: "string", Spelled: "number"}
    return kinds.get(type(value), "word")


def quoted(value: Any) -> str:
    """Return a value that ``tree`` parsed as JSON again."""
    return str(value) if isinstance(value, Spelled) else json.dumps(value, ensure_ascii=False)


def breakable(name: str) -> Markup:
    """Return a name with optional line breaks after its separators; a long name loses its middle.

    It is the style sheet that cuts the name: in the page, the whole name can still be found and copied.
    """
    if len(name) > 44:  # for narrow tables
        begin, end = name[:-12], name[-12:]
        whole = Markup('<span class="cut" title="{}"><span>{}</span><span>{}</span></span>')
        return whole.format(name, begin, end)
    escaped = str(Markup.escape(name))
    for mark in ("/", ".", "_", ":"):
        escaped = escaped.replace(mark, f"{mark}<wbr>")
    return Markup(escaped)  # noqa: S704  escaped above


def shown(word: str) -> str:
    """Return the display name of a state, a status or an outcome, in lower case, as all pages have it."""
    return called(word).lower()


FILTERS: dict[str, Callable[..., Any]] = {
    "iso": iso,
    "moments": moments,
    "span": span,
    "range": range_text,
    "number": number,
    "counted": counted,
    "spark": spark,
    "spark_text": spark_text,
    "shape": shape,
    "called": shown,
    "tree": tree,
    "kind": kind,
    "quoted": quoted,
    "breakable": breakable,
}
GLOBALS: dict[str, Any] = {
    "hold_pattern": HOLD_PATTERN,
    "by_hand": runs_only_if_triggered,
    "lasted": lasted,
    "line_of": line_of,
    "split_frames": split_frames,
    "states": NAME_STATES,
    "spark_step": SPARK_STEP,
    "spark_height": SPARK_HEIGHT,
}
