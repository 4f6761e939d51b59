"""Writes results as a table, JSON, JSON lines or bare names.

On a terminal a table is coloured and fitted to the width: long names and texts are cut, and the least
important columns are left out. Elsewhere, and with ``-o wide``, a table is as wide as its content. This
module knows records (values by wire name), but no commands, servers or databases.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TextIO, get_args

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock, duration_text, moment_of
from bedrockjobs.base.errors import line_of
from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.base.vocabulary import called

if TYPE_CHECKING:
    from rich.table import Table

FAR_YEAR = 9000
"""Year from which on a timestamp means never: a schedule without a next tick has the last possible date."""

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

_TIMESTAMP_IN_TEXT = re.compile(
    r"\b(since|until|at) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?)(?!\.?\d| UTC|Z)", re.ASCII
)
"""Matches a timestamp in a sentence of the server, after a word such as ``since``."""

_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?", re.ASCII)


def local_text(timestamp: str) -> str:
    """Return a timestamp in local time and in UTC: ``2026-11-23 09:00 CET (08:00 UTC)``."""
    if not timestamp:
        return ""
    moment = moment_of(timestamp)
    if moment.year >= FAR_YEAR:
        return "never"
    local = moment.astimezone()
    if not local.utcoffset():
        return f"{_day_and_time(moment)} UTC"
    utc = _time(moment) if local.date() == moment.date() else _day_and_time(moment)
    return f"{_day_and_time(local)} {local:%Z} ({utc} UTC)"


def with_local_times(sentence: str) -> str:
    """Convert the timestamps in a sentence of the server from UTC to local time."""
    return _TIMESTAMP_IN_TEXT.sub(lambda match: f"{match[1]} {_with_zone(moment_of(match[2]))}", sentence)


def _with_zone(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def is_timestamp(text: str) -> bool:
    """Return whether a text is a stored timestamp."""
    return _STAMP.fullmatch(text) is not None


def zone_now(now: datetime) -> str:
    """Return the current name of this machine's time zone: ``CET``."""
    return f"{now.astimezone():%Z}"


def moment_text(text: str, now: datetime, *, whole: bool = False) -> str:
    """Return a timestamp in local time with its relative time: ``09:00:05 (3m ago)``.

    The date is left out if it is today's, unless ``whole``; the zone is left out if it is the current one.
    """
    moment = moment_of(text)
    if moment.year >= FAR_YEAR:
        return "never"
    local, today = moment.astimezone(), now.astimezone()
    day = "" if local.date() == today.date() and not whole else f"{local:%Y-%m-%d} "
    zone = f" {local:%Z}" if local.tzname() != today.tzname() else ""
    return f"{day}{local:%H:%M:%S}{zone} ({away_text((moment - now).total_seconds())})"


def away_text(seconds: float) -> str:
    """Return a relative time in one unit: ``3m ago``, ``in 2d``, ``now``."""
    distance_s = abs(seconds)
    if distance_s < 1:
        return "now"
    size, unit = next((size, unit) for size, unit in _UNITS if distance_s >= size)
    text_ = f"{int(distance_s // size)}{unit}"
    return f"in {text_}" if seconds > 0 else f"{text_} ago"


def _time(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def _day_and_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d} {_time(moment)}"


def seconds_between(earlier: str, later: str) -> float | None:
    """Return the seconds between two timestamps; None if one is missing."""
    return (moment_of(later) - moment_of(earlier)).total_seconds() if earlier and later else None


def took_text(earlier: str, later: str) -> str:
    """Return the time between two timestamps as a duration: ``1m30s``; empty if one is missing."""
    seconds = seconds_between(earlier, later)
    if seconds is None:
        return ""
    return duration_text(max(round(seconds, 1 if seconds < 10 else 0), 0))


def countdown_text(now: str, then: str) -> str:
    """Return the time until a timestamp: ``in 1h30m``, ``due for 5s``, ``never``."""
    seconds = seconds_between(now, then)
    if seconds is None:
        return ""
    if moment_of(then).year >= FAR_YEAR:
        return "never"
    if round(seconds) <= 0:
        return "due" if round(seconds) == 0 else f"due for {rough_text(-seconds)}"
    return f"in {rough_text(seconds)}"


def rough_text(seconds: float) -> str:
    """Return a duration in its two largest units: ``2d5h``, ``1h30m``, ``12s``."""
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


Form = Literal["table", "json", "jsonl", "name"]
FORMS: tuple[Form, ...] = get_args(Form)

WIDE: Final = "wide"
"""The value of ``-o`` for a table that is not fitted to the terminal."""

_WIDE_KEY = f"{__name__}.wide"
"""Key in click's context under which is stored whether ``-o wide`` was given."""

Record = Mapping[str, Any]
"""Values by wire name. Values from a server are ``RawJSON``, so that numbers and texts are written as the
server sent them."""

NOW = "now"
"""Key of the current time, which no table shows as a relative time."""

COLUMN_GAP = "  "

SHORT_CELLS = 24
"""Maximum width in characters of a column that is never cut, unless it is in one of the sets below."""


def _keys(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


NAMES = frozenset(
    {"name", "worker", "host", "address", "to", "schedule", "by", "seen by", "seenBy", "source"}
)
"""Columns that may be cut in the middle, since names often differ only at their ends."""

TEXTS = frozenset(
    _keys(
        "error, detail, reason, lastError, what was wrong, progress, paused by, paused, repeat, names, on, "
        "roles"
    )
)
"""Columns that may be cut at the end. If the text has several lines, the line with the cause is shown."""

LEFT_OUT = _keys(
    "version, newest, type, pid, blocked, later, address, exitCode, cause, attempt, late, host, sent, "
    "tries, priority, perSecond, by, seen by, seenBy, until, roles, slots, runID, jobID, lastRun, "
    "lastSent, lastRefused, oldest of all, uniqueKey, worker, repeat, used, lastUsed, most, names"
)
"""Columns that are left out on a narrow terminal, in this order; the first column is never left out."""

TIMES = frozenset(
    _keys(
        "created, nextRun, lastRun, started, ended, scheduledFor, expires, now, at, joined, heartbeat, tick, "
        "until, lastUsed, lastSent, mutedUntil, lastRefused, revoked, pulse, next run, oldest of all"
    )
)
"""Columns with timestamps. A fitted table shows relative times; any other table shows the local and the
relative time."""

EXACT = frozenset({"tick", "until"})
"""Columns with timestamps that a fitted table shows in local time: a tick is identified by its time."""

TRANSLATED = frozenset({"state", "status", "outcome", "last status"})
"""Columns whose values a table shows in words for people; JSON keeps the protocol's values."""

STATE_COLOURS = {
    "QUEUED": "cyan",
    "RUNNING": "green",
    "RUNQUEUED": "green",
    called("PAUSED"): "yellow",
    "FAILED": "red",
    "CANCELLED": "bright_black",
    "FINISHED": "bright_black",
    "running": "green",
    "success": "cyan",
    "fail": "red",
    "timeout": "red",
    called("frozen"): "magenta",
    "terminated": "yellow",
    "killed": "yellow",
    "returned": "blue",
    "snoozed": "blue",
    "active": "green",
    "quiet": "yellow",
    "draining": "yellow",
    "drained": "bright_black",
}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SGR = re.compile(r"(\x1b\[[0-9;:]{0,64}m)")
_CONTROL_IN_JSON = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text with its control characters escaped: a job name must not control the terminal."""
    return _CONTROL.sub(_escape, text)


def number_of(count: int, word: str) -> str:
    """Return a count with its noun: ``1 job``, ``1,200 jobs``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def one_line(text: str) -> str:
    """Return the lines of a text as one line, with control characters escaped."""
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def printable_line(text: str) -> str:
    """Return a line of output with control characters escaped, except tabs and colours.

    Colours end with the line. They are removed if stdout is not a terminal that may show colours.
    """
    colours = _may_colour(sys.stdout)
    shown = [
        (part if colours else "") if _SGR.fullmatch(part) else "\t".join(map(printable, part.split("\t")))
        for part in _SGR.split(text)
    ]
    return "".join([*shown, "\x1b[0m"]) if colours and len(shown) > 1 else "".join(shown)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


def raw_record(text: str) -> dict[str, RawJSON]:
    """Parse a JSON object into a record."""
    return {key: RawJSON(value) for key, value in jsontext.members(text).items()}


def as_json(value: Any) -> str:
    """Return a value as JSON text on one line."""
    if isinstance(value, RawJSON):
        # In JSON text a line break can only occur between values, where a blank means the same.
        text = value.replace("\r", " ").replace("\n", " ")
    elif isinstance(value, Mapping):
        text = "{" + ",".join(f"{as_json(key)}:{as_json(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        text = f"[{','.join(map(as_json, value))}]"
    else:
        text = jsontext.dump(value)
    return _CONTROL_IN_JSON.sub(_escape, text)


def _indented(record: Record, margin: str = "") -> str:
    """Return a record as JSON, one key per line."""
    if not record:
        return f"{margin}{{}}"
    lines = ",\n".join(f"{margin}  {as_json(key)}: {as_json(value)}" for key, value in record.items())
    return f"{margin}{{\n{lines}\n{margin}}}"


def cell(value: Any) -> str:
    """Return a value as the text of a table cell."""
    if isinstance(value, RawJSON) and value[:1] in '"n':
        value = jsontext.parse(value)
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, RawJSON) else as_json(value)


NOT_SHOWN = "not shown to this token"
"""Shown instead of a value that the server withholds."""


def hidden_in(record: Record) -> list[str]:
    """Return the keys whose values the server left out of a record, because the token may not see data."""
    return list(jsontext.parse(record["hidden"])) if "hidden" in record else []


def with_hidden(record: Record) -> Record:
    """Return a record for people, in which values that the server left out are ``NOT_SHOWN``."""
    hidden = hidden_in(record)
    if not hidden:
        return record
    shown = {key: value for key, value in record.items() if key != "hidden"}
    return {**shown, **dict.fromkeys(hidden, NOT_SHOWN)}


def text_of(record: Record, key: str) -> str:
    """Return a value of a record as text; empty if it is missing or null."""
    value = record.get(key)
    if isinstance(value, RawJSON):
        value = jsontext.parse(value)
    return "" if value is None else value if isinstance(value, str) else as_json(value)


def heading(key: str, *, stored: bool = False, fitted: bool = False) -> str:
    """Return the heading of a column; for clock times with the zone, which is UTC if they are ``stored``."""
    if key not in TIMES or (fitted and key not in EXACT):
        return printable(key)
    return f"{printable(key)} ({'UTC' if stored else zone_now(_clock())})"


_clock: Callable[[], datetime] = SystemClock().now


@contextmanager
def times_by(clock: Callable[[], datetime]) -> Iterator[None]:
    """Show times relative to ``clock`` instead of this machine's, while the context is entered."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def _moment_cell(key: str, value: Any, *, whole: bool = False, fitted: bool = False) -> str:
    text = cell(value)
    if not is_timestamp(text):
        return text
    if fitted and key not in EXACT and key != NOW:
        return away(text).strip("()") or moment_text(text, _clock())
    shown = moment_text(text, _clock(), whole=whole)
    return shown.partition(" (")[0] if fitted or key == NOW else shown


def away(text: str) -> str:
    """Return the relative time of a timestamp in brackets; empty for any other text and for never."""
    if not is_timestamp(text) or moment_of(text).year >= FAR_YEAR:
        return ""
    return f"({away_text((moment_of(text) - _clock()).total_seconds())})"


def _cell_of(key: str, value: Any, *, fitted: bool) -> str:
    if key in TRANSLATED:
        return called(cell(value))
    if key in TIMES:
        return _moment_cell(key, value, fitted=fitted)
    return printable(line_of(text_of({key: value}, key))) if key in TEXTS else cell(value)


def _complete_cell(key: str, value: Any, *, stored: bool) -> str:
    """Return a value as a cell that is not cut; on a terminal the text keeps its line breaks."""
    if not stored and key in TRANSLATED | TIMES:
        return _cell_of(key, value, fitted=False)
    text = text_of({key: value}, key)
    return (
        "\n".join(map(printable, text.split("\n"))) if "\n" in text and sys.stdout.isatty() else cell(value)
    )


def write_one(record: Record, form: Form, sentence: str = "", *, identity: str = "jobID") -> None:
    """Write one record; as a table, write ``sentence`` if it is given, or else one line per key."""
    if form == "table" and sentence:
        click.echo(printable(sentence))
    elif form == "table":
        _write_facts([row for key, value in with_hidden(record).items() for row in _rows_of(key, value)])
    elif form == "json":
        click.echo(_indented(record))
    else:
        write_many([record], form, identity=identity)


def _rows_of(key: str, value: Any) -> list[list[str]]:
    """Return the table rows of a key: the heading and the value, and a row for each further line of text."""
    title = heading(key)
    if key in TIMES:
        return [[title, _moment_cell(key, value, whole=True)]]
    if isinstance(value, RawJSON) and value.startswith('"'):
        value = jsontext.parse(value)
    if not isinstance(value, str) or isinstance(value, RawJSON):
        return [[title, cell(value)]]
    first, *more = (called(value) if key in TRANSLATED else value).rstrip("\n").split("\n")
    return [[title, printable(first)], *(["", printable(line)] for line in more)]


def write_title(text: str) -> None:
    """Write a blank line and the title of a section."""
    click.echo(f"\n{styled(text, bold=True)}")


def write_wrapped(text: str, *starts: tuple[str, str]) -> None:
    """Write a sentence after ``starts``, which are pairs of a text and its colour.

    On a terminal the sentence is wrapped between words, and its further lines are indented by the width of
    the starts.
    """
    if not fits_terminal():
        click.echo("".join([*(styled(start, fg=colour or None) for start, colour in starts), text]))
        return
    from rich.cells import cell_len  # only a terminal pays for loading rich
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=0)
    for start, _ in starts:
        table.add_column(no_wrap=True, width=cell_len(start))
    table.add_column(overflow="fold")
    table.add_row(*(Text(start, style=colour) for start, colour in starts), Text(text))
    _draw(table, _terminal_width())


def styled(text: str, *, err: bool = False, **style: Any) -> str:
    """Return a text with a style if stdout, or with ``err`` stderr, is a terminal that may show colours."""
    return click.style(text, **style) if _may_colour(sys.stderr if err else sys.stdout) else text


def _may_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")


def write_many(
    records: Sequence[Record],
    form: Form,
    columns: Sequence[str] = (),
    none: str = "",
    *,
    identity: str = "jobID",
    stored: bool = False,
    complete: bool = False,
) -> None:
    """Write a list of records.

    A table shows ``columns``, or all keys of the first record. If the list is empty, ``none`` goes to stderr.
    Timestamps are shown in local time unless ``stored``. On a terminal a table is fitted to the width. With
    ``complete`` or ``stored`` nothing is cut: texts are wrapped, or the records are shown one below the
    other. The form ``name`` writes for each record the value of the key ``identity``, or else its first
    value.
    """
    if form == "json":
        inside = ",\n".join(_indented(record, "  ") for record in records)
        click.echo(f"[\n{inside}\n]" if records else "[]")
    elif form == "jsonl":
        for record in records:
            click.echo(as_json(record))
    elif form == "name":
        for record in filter(None, records):
            click.echo(cell(record.get(identity, next(iter(record.values())))))
    elif records or columns:
        if not records and none:
            click.echo(none, err=True)
            return
        records = list(map(with_hidden, records))
        _write_table(records, list(columns or records[0]), stored=stored, complete=complete)
    elif none:
        click.echo(none, err=True)


class Grid(NamedTuple):
    """A table as text: the keys and the titles of the columns, and the cells of each row."""

    keys: Sequence[str]
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def widths(self) -> list[int]:
        """Return the width of each column."""
        from rich.cells import cell_len  # only a table pays for loading rich

        columns = zip(self.titles, *self.rows, strict=True)
        return [max(cell_len(line) for text in column for line in text.split("\n")) for column in columns]

    def only(self, places: Sequence[int]) -> Grid:
        """Return the grid with only the columns at these indexes."""
        keys, titles, *rows = ([line[at] for at in places] for line in (self.keys, self.titles, *self.rows))
        return Grid(keys, titles, rows)


def set_wide(context: click.Context, *, wide: bool) -> None:
    """Set whether tables on a terminal are as wide as their content, until the program ends."""
    context.meta[_WIDE_KEY] = wide


def fits_terminal() -> bool:
    """Return whether tables are fitted to a terminal."""
    context = click.get_current_context(silent=True)
    return sys.stdout.isatty() and not (context and context.meta.get(_WIDE_KEY))


def _write_table(records: Sequence[Record], keys: Sequence[str], *, stored: bool, complete: bool) -> None:
    width = _terminal_width() if fits_terminal() else None
    if complete or stored:
        rows = [[_complete_cell(key, record.get(key), stored=stored) for key in keys] for record in records]
    else:
        rows = [
            [_cell_of(key, record.get(key), fitted=width is not None) for key in keys] for record in records
        ]
    narrow = width is not None and not (complete or stored)
    grid = Grid(keys, [heading(key, stored=stored, fitted=narrow) for key in keys], rows)
    if not sys.stdout.isatty():
        for line in _aligned([grid.titles, *grid.rows]):
            click.echo(line)
    elif narrow and width is not None:
        grid, left_out = fitted(grid, width)
        _draw(drawn(grid), _total(grid.widths()))
        if left_out:
            click.echo(f"Not shown: {', '.join(left_out)}. -o {WIDE} shows all columns.", err=True)
    elif width is None:
        _draw(drawn(grid), _total(grid.widths()))
    else:
        _write_complete(grid, width)


def _write_complete(grid: Grid, width: int) -> None:
    """Draw a table with wrapped texts. If that is still too wide, draw the records one below the other."""
    natural = grid.widths()
    long = [at for at, each in enumerate(natural) if each > SHORT_CELLS]
    widths = _shared(natural, long, [min(SHORT_CELLS, each) for each in natural], width)
    if _total(widths) <= width:
        _draw(drawn(grid, widths), width)
        return
    for number, row in enumerate(grid.rows):
        if number:
            click.echo()
        _write_facts(list(zip(grid.titles, row, strict=True)))


def fitted(grid: Grid, width: int) -> tuple[Grid, list[str]]:
    """Fit a grid to a width; return it, and the titles of columns with content that were left out.

    Only names and texts are cut. The first column and the state are always shown, even if they are too wide.
    """
    from rich.cells import cell_len

    natural = grid.widths()
    if _total(natural) <= width:
        return grid, []
    titles = [cell_len(title) for title in grid.titles]
    long = [at for at in range(len(natural)) if _is_long(grid.keys[at], natural[at])]
    wanted, least = list(natural), list(natural)
    for at in long:
        # Minimum width of a long column while less important columns can be left out instead.
        wanted[at] = min(natural[at], max(titles[at], 20))
        # Minimum width of a long column on the narrowest terminal.
        least[at] = min(natural[at], max(titles[at], 8))
    shown = list(range(len(natural)))
    empty = [at for at in shown[1:] if not any(row[at] for row in grid.rows)]
    seldom = [at for key in LEFT_OUT for at in shown[1:] if grid.keys[at] == key]
    other = [at for at in reversed(shown[1:]) if grid.keys[at] not in TRANSLATED]
    for some, needed in ((empty, wanted), (seldom, wanted), (other, least)):
        for at in some:
            if at in shown and _total([needed[each] for each in shown]) > width:
                shown.remove(at)
    left_out = [title for at, title in enumerate(grid.titles) if at not in shown and at not in empty]
    grid = grid.only(shown)
    long = [place for place, at in enumerate(shown) if at in long]
    widths = _shared([natural[at] for at in shown], long, [least[at] for at in shown], width)
    rows = [
        [_cut(key, text, room) for key, text, room in zip(grid.keys, row, widths, strict=True)]
        for row in grid.rows
    ]
    return grid._replace(rows=rows), left_out


def _is_long(key: str, width: int) -> bool:
    """Return whether a column may be cut."""
    return key in NAMES | TEXTS or (width > SHORT_CELLS and key not in TRANSLATED | TIMES)


def _shared(natural: Sequence[int], long: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the column widths; ``long`` columns share the space that others leave, the shortest first."""
    widths = list(natural)
    room = width - _total([0 if at in long else each for at, each in enumerate(natural)])
    rest = sum(least[at] for at in long)
    for place, at in enumerate(sorted(long, key=lambda at: natural[at])):
        rest -= least[at]
        widths[at] = max(min(natural[at], room // (len(long) - place), room - rest), least[at])
        room -= widths[at]
    return widths


def _cut(key: str, text: str, width: int) -> str:
    """Cut a text to a width with an ellipsis: a name in the middle, any other text at the end."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    end = (width - 1) // 2 if key in NAMES else 0
    # Reversed, so that the end is cut like a beginning.
    tail = set_cell_size(text[::-1], end)[::-1].lstrip() if end else ""
    return f"{set_cell_size(text, width - 1 - end).rstrip()}…{tail}"


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(COLUMN_GAP) * (len(widths) - 1)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines of text with aligned columns, however wide."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return [
        COLUMN_GAP.join(
            text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def drawn(grid: Grid, widths: Sequence[int] | None = None, **attributes: Any) -> Table:
    """Return a grid as a table of rich; with ``widths``, texts are wrapped to the given widths."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), **attributes)
    for title, width in zip(grid.titles, widths or grid.widths(), strict=True):
        table.add_column(Text(title), overflow="fold", width=width, no_wrap=widths is None)
    for row in grid.rows:
        table.add_row(
            *(Text(text, style=_style(key, text)) for key, text in zip(grid.keys, row, strict=True))
        )
    return table


def _style(key: str, text: str) -> str:
    return STATE_COLOURS.get(text, "") if key in TRANSLATED else ""


def _write_facts(rows: Sequence[Sequence[str]]) -> None:
    """Write pairs of a heading and a value, a line each; a terminal wraps long values."""
    if not sys.stdout.isatty():
        for line in _aligned(rows):
            click.echo(line)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold", no_wrap=not fits_terminal())
    for title, text in rows:
        table.add_row(Text(title), Text(text, style=_style(title, text)))
    titles, texts = Grid(("", ""), ("", ""), rows).widths()
    _draw(table, _terminal_width() if fits_terminal() else _total((titles, texts)))


def _terminal_width() -> int:
    from rich.console import Console

    return Console(file=sys.stdout).width


def _draw(table: Table, width: int) -> None:
    """Draw a table on the terminal; if it is wider than the terminal, its lines are wrapped."""
    from rich.console import Console

    Console(file=sys.stdout, width=width).print(table, crop=False)
