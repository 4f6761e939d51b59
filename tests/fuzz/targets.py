"""The fuzzing targets: each parser of external text, its permitted errors, and the words of its language.

A target raises only if it finds a fault. Inputs are bytes; for readers of text they are decoded, with
invalid UTF-8 replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from bedrockjobs import definitions
from bedrockjobs.base import glob, jsontext
from bedrockjobs.imports import luci
from bedrockjobs.imports.imported import Unreadable
from bedrockjobs.schedule import cron
from bedrockjobs.schedule import repeat as repeats
from tests.fuzz import gates, live, strangers

SIZE_MAX = 65_536
"""Bytes of an input: enough to reveal more than linear work."""

NAME_CHARS = 255
"""Characters of a job's name: patterns are longer, names are not."""

AFTER = datetime(2026, 10, 24, 23, 59, 59, tzinfo=UTC)
"""Just before a night in which Berlin's clock is put back."""


class Target(NamedTuple):
    """One reader."""

    name: str
    read: Callable[[bytes], None]
    words: list[bytes]
    ms_per_kib: float = gates.MS_PER_KIB
    size_max: int = SIZE_MAX
    start_ms: float = gates.START_MS


def _expect(words: str, right: bool) -> None:
    if not right:
        raise AssertionError(f"a refusal in other words: {words[:200]}")


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def read_json(data: bytes) -> None:
    """Read a JSON text; split, join, and merge an object with itself."""
    text = _text(data)
    try:
        value = jsontext.parse(text)
    except ValueError:
        return
    if isinstance(value, list):
        assert len(jsontext.elements(text)) == len(value)
    if not isinstance(value, dict):
        return
    parts = jsontext.members(text)
    assert list(parts) == list(dict.fromkeys(parts))
    assert jsontext.parse(jsontext.join(parts)) == value
    try:
        merged = jsontext.Merging().patched(text, text)
    except ValueError as refused:
        _expect(str(refused), "merged" in str(refused))
        return
    assert jsontext.parse(merged) is not None


def read_cron(data: bytes) -> None:
    """Read a schedule; a valid one has a description and increasing ticks."""
    try:
        zone, expression = cron.split_zone(_text(data))
        schedule = cron.parse(expression)
    except cron.BadSchedule as refused:
        _expect(str(refused), len(str(refused)) < 1_000)
        return
    assert cron.describe(expression)
    at: datetime | None = AFTER
    for _ in range(3):
        before = at
        at = cron.next_tick(expression, before, zone) if before is not None else None
        assert at is None or before is None or at > before
    berlin = cron.next_tick(expression, AFTER, "Europe/Berlin")
    assert berlin is None or berlin > AFTER
    assert schedule.years or berlin is None


def read_repeat(data: bytes) -> None:
    """Read a repeat of either kind; its next run is a date or none."""
    text = _text(data)
    for compatibility in ("document", "current"):
        try:
            found = repeats.next_run(
                text,
                scheduled="2026-10-24 12:00:00",
                started="2026-10-24 12:30:00",
                finished="2026-10-24 23:59:59",
                compatibility=compatibility,
            )
        except ValueError as refused:
            _expect(repeats.complaint(refused), repeats.complaint(refused).startswith("repeat: "))
            continue
        assert found is None or len(found) >= 19
    try:
        repeats.parse_retry_after(text)
    except ValueError:
        return


def read_pattern(data: bytes) -> None:
    """Match a name with a pattern; the first line end separates them."""
    name, _, pattern = _text(data).partition("\n")
    pattern = pattern[:8_192]  # no command takes a longer one
    matches = glob.glob(name[:NAME_CHARS], pattern)
    if glob.is_plain(pattern):
        assert matches == (name[:NAME_CHARS] == pattern)
    if matches:
        assert name.startswith(glob.literal_prefix(pattern))


def _definitions(form: definitions.Format) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        try:
            found = definitions.read(_text(data), form, "file")
        except definitions.BadDefinitions as refused:
            _expect(str(refused), str(refused).startswith("file:"))
            return
        for one in found.schedules:
            json.dumps(one.given)

    return read


def read_textproto(data: bytes) -> None:
    """Read LUCI's configuration."""
    try:
        found = luci.parse_luci(_text(data))
    except Unreadable:
        return
    for one in found:
        assert one.name
        assert one.refused or one.repeat


_CRON = [
    *(b"*", b"?", b"L", b"LW", b"15W", b"5L", b"5#2", b"/", b"-", b",", b" ", b"\t", b"MON", b"7-mon"),
    *(b"@daily", b"@never", b"5m", b"2199", b"1970", b"*/7", b"TZ=Europe/Berlin ", b"CRON "),
    *(b'{"hour": "1"}', b'{"start_date": "2030-01-01", "week": "1"}', b"last fri", b'"day":', b'"jitter": 5'),
]
_REPEAT = [*_CRON, b"FINISHED, ", b"SCHEDULED", b"+1 MONTH", b"START OF HOUR", b"WEEKDAY 0", b"HOURLY"]
_PATTERNS = [b"*", b"?", b"[", b"]", b"^", b"-", b"[a-z]", b"*a", b"[^", b"\n"]
_JSON = [b"{", b"}", b"[", b"]", b":", b",", b'"', b'"a":', b"null", b"\\u0000", b"\\ud83d", b"\\"]
_DEFINED = [*_JSON, b"schedules", b"name", b"schedule", b"zone", b"paused", b"data", b"argv", b"source", b"'"]
_TOML = [*_DEFINED, b"=", b"[[", b"]]", b".", b'"""']
_YAML = [*_DEFINED, b"&a ", b"*a", b"- ", b"? ", b"<<: *a", b"!!", b"|", b">", b"  ", b"---"]
_PROTO = [b"job {", b"}", b"<", b">", b"id: ", b'schedule: "', b"url_fetch {", b"#", b"[", b"]", b"\\n"]

TARGETS = {
    target.name: target
    for target in (
        # Three bytes are a request, and each is answered, in 12 us with the client's work.
        Target("raw", live.read_raw, live.RAW_WORDS, ms_per_kib=7.0, size_max=16_384),
        Target("http", live.read_http, live.HTTP_WORDS),
        Target("stranger", live.read_stranger, live.STRANGER_WORDS, ms_per_kib=7.0, size_max=16_384),
        Target("token", strangers.read_token, strangers.TOKEN_WORDS),
        Target("proxy", strangers.read_proxy, strangers.PROXY_WORDS),
        Target("certificate", strangers.read_certificate, strangers.CERTIFICATE_WORDS),
        # Objects are merged in Python: many small ones in each other take it 1.4 ms for each KiB.
        Target("json", read_json, _JSON, ms_per_kib=2.5),
        Target("cron", read_cron, _CRON),
        Target("repeat", read_repeat, _REPEAT),
        Target("patterns", read_pattern, _PATTERNS),
        Target("definitions-json", _definitions("json"), _DEFINED),
        # tomllib is written in Python: a list of digits takes it 1.4 ms for each KiB.
        Target("definitions-toml", _definitions("toml"), _TOML, ms_per_kib=2.5),
        # ruamel.yaml is too: keys without a value take it 31 ms for each KiB.
        Target("definitions-yaml", _definitions("yaml"), _YAML, ms_per_kib=60.0, size_max=4_096),
        Target("textproto", read_textproto, _PROTO, ms_per_kib=2.0),  # a job may be 9 bytes: 1 ms, in Python
    )
}
