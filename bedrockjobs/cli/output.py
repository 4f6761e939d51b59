"""How results are written: as a table, as JSON, as JSON lines, or as bare names.

A table is drawn and coloured on a terminal only; anywhere else it is plain aligned text, as wide as it must
be. This module knows records (wire name to value) and nothing of commands, servers or the database.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Literal, TextIO, get_args

import click

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.wire import RawJSON, moment_of
from bedrockjobs.base.words import called
from bedrockjobs.cli.time_text import FAR_YEAR, away_text, is_stamp, moment_text, zone_now

Form = Literal["table", "json", "jsonl", "name"]
FORMS: tuple[Form, ...] = get_args(Form)

Record = Mapping[str, Any]
"""Values by wire name; a value that came from a server is ``RawJSON`` and keeps its spelling."""

OUTPUT_LOST = 74
"""Exit status if the output cannot be written: EX_IOERR of sysexits.h."""

NOW = "now"
"""The key of the moment that the others are compared with: how far away it is says nothing."""

COLUMN_GAP = "  "

SHORT_CELLS = 24
"""Width up to which a column of a table is not folded while the terminal has room: that of a moment."""

TIMES = frozenset(
    {"created", "nextRun", "lastRun", "started", "ended", "scheduledFor", "expires", "now", "at", "joined",
     "heartbeat", "tick", "until", "lastUsed", "lastSent", "mutedUntil", "lastRefused", "revoked", "pulse",
     "next run", "oldest of all"}
)  # fmt: skip
"""Keys whose values are moments; a table shows them by this machine's clock, and how far away they are."""

SAID = frozenset({"state", "status", "outcome"})
"""Keys whose values a table shows in a person's words; JSON has those of the wire."""

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
_SGR_RESET = "\x1b[0m"
_CONTROL_IN_JSON = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_LOST = {errno.EBADF: "stdout is closed", errno.EPIPE: "the program that read it has ended"}


@contextmanager
def output_written() -> Iterator[None]:
    """End the program with a sentence and status 74 if its output cannot be written."""
    if sys.stdout is None:  # closed before we began: Python would drop what is written
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # not about stdout
            raise
        with suppress(OSError, ValueError):  # Python would flush once more at its end, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        words = _LOST.get(error.errno or 0) or error.strerror or str(error)
        click.echo(f"The output was lost: {words}.", err=True)
        sys.exit(OUTPUT_LOST)


def printable(text: str) -> str:
    """Return text with control characters escaped: a job's name must not steer the reader's terminal."""
    return _CONTROL.sub(_escape, text)


def printable_line(text: str) -> str:
    """Return a line of output with its control characters escaped, but for tabs and colours.

    Colours end with the line; they are taken away where stdout is no terminal that may show them.
    """
    colours = _may_colour(sys.stdout)
    shown = [
        (part if colours else "") if _SGR.fullmatch(part) else "\t".join(map(printable, part.split("\t")))
        for part in _SGR.split(text)
    ]
    return "".join([*shown, _SGR_RESET]) if colours and len(shown) > 1 else "".join(shown)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found.group()):04x}"


def raw_record(text: str) -> dict[str, RawJSON]:
    """Return the text of a JSON object as a record."""
    return {key: RawJSON(value) for key, value in jsontext.members(text).items()}


def as_json(value: Any) -> str:
    """Return a value as JSON text on one line."""
    if isinstance(value, RawJSON):
        # A line end in JSON text can only stand between values, where a blank does as well.
        text = value.replace("\r", " ").replace("\n", " ")
    elif isinstance(value, Mapping):
        text = "{" + ",".join(f"{as_json(key)}:{as_json(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, (list, tuple)):
        text = f"[{','.join(map(as_json, value))}]"
    else:
        text = jsontext.dump(value)
    return _CONTROL_IN_JSON.sub(_escape, text)


def _indented(record: Record, margin: str = "") -> str:
    """Return a record as JSON with a line for each of its keys."""
    if not record:
        return f"{margin}{{}}"
    lines = ",\n".join(f"{margin}  {as_json(key)}: {as_json(value)}" for key, value in record.items())
    return f"{margin}{{\n{lines}\n{margin}}}"


def cell(value: Any) -> str:
    """Return a value as the text of one cell of a table."""
    if isinstance(value, RawJSON) and value[:1] in '"n':
        value = jsontext.parse(value)
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, RawJSON) else as_json(value)


def text_of(record: Record, key: str) -> str:
    """Return one value of a record as text; empty where it has none."""
    value = record.get(key)
    if isinstance(value, RawJSON):
        value = jsontext.parse(value)
    return "" if value is None else value if isinstance(value, str) else as_json(value)


def heading(key: str, *, stored: bool = False) -> str:
    """Return the heading of a column; moments name their zone, UTC where they are shown as ``stored``."""
    if key not in TIMES:
        return printable(key)
    return f"{printable(key)} ({'UTC' if stored else zone_now(_clock())})"


_clock: Callable[[], datetime] = SystemClock().now


def tell_time_by(clock: Callable[[], datetime]) -> None:
    """Let tables say by this clock how far away moments are; by this machine's, if it is never called."""
    global _clock
    _clock = clock


def _moment_cell(key: str, value: Any, *, whole: bool = False) -> str:
    text = cell(value)
    if not is_stamp(text):
        return text
    shown = moment_text(text, _clock(), whole=whole)
    return shown.partition(" (")[0] if key == NOW else shown


def away(text: str) -> str:
    """Return how far away a stored stamp is, in brackets; empty where it is none, or never comes."""
    if not is_stamp(text) or moment_of(text).year >= FAR_YEAR:
        return ""
    return f"({away_text((moment_of(text) - _clock()).total_seconds())})"


def _cell_of(key: str, value: Any, *, stored: bool) -> str:
    if key in SAID:
        return called(cell(value))
    return _moment_cell(key, value) if key in TIMES and not stored else cell(value)


def write_one(record: Record, form: Form, sentence: str = "", *, identity: str = "jobID") -> None:
    """Write one record; as a table it is ``sentence``, or a line for each of its keys."""
    if form == "table" and sentence:
        click.echo(printable(sentence))
    elif form == "table":
        _table([], [row for key, value in record.items() for row in _rows_of(key, value)])
    elif form == "json":
        click.echo(_indented(record))
    else:
        write_many([record], form, identity=identity)


def _rows_of(key: str, value: Any) -> list[list[str]]:
    """Return a value beside its heading: a text of several lines takes a row for each of them."""
    title = heading(key)
    if key in TIMES:
        return [[title, _moment_cell(key, value, whole=True)]]
    if isinstance(value, RawJSON) and value.startswith('"'):
        value = jsontext.parse(value)
    if not isinstance(value, str) or isinstance(value, RawJSON):
        return [[title, cell(value)]]
    first, *more = (called(value) if key in SAID else value).rstrip("\n").split("\n")
    return [[title, printable(first)], *(["", printable(line)] for line in more)]


def write_title(text: str) -> None:
    """Write the title of a part of a page, after a blank line."""
    click.echo(f"\n{styled(text, bold=True)}")


def styled(text: str, *, err: bool = False, **style: Any) -> str:
    """Return text with colours where stdout, or with ``err`` stderr, is a terminal that may show them."""
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
) -> None:
    """Write a list of records.

    A table shows ``columns``, or all keys of the first record, and says ``none`` on stderr where the list is
    empty; moments are shown by this machine's clock unless as ``stored``. ``name`` writes the ``identity`` of
    each record, or its first value.
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
        shown = list(columns or records[0])
        rows = [[_cell_of(key, record.get(key), stored=stored) for key in shown] for record in records]
        _table([heading(key, stored=stored) for key in shown], rows)
    elif none:
        click.echo(none, err=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table below its headings; without ``columns`` the first cell of each row is its heading."""
    if sys.stdout.isatty():
        _drawn_table(columns, rows)
        return
    lines = [list(columns), *rows] if columns else list(rows)
    for line in _aligned(lines):
        click.echo(line)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells as text in columns, whatever the width of the whole."""
    from rich.cells import cell_len  # only a table pays for loading rich

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return [
        COLUMN_GAP.join(
            text + " " * (width - cell_len(text)) for text, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _drawn_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    titles = list(columns) or ["", ""]
    table = Table(
        box=box.SIMPLE_HEAD if columns else None, show_header=bool(columns), show_edge=False,
        pad_edge=False, padding=(0, 1 if columns else 2, 0, 0),
    )  # fmt: skip
    for title, whole in zip(titles, _whole_columns([titles, *rows], console.width), strict=True):
        style = "" if columns or table.columns else "bold"
        table.add_column(Text(title), overflow="fold", no_wrap=whole, style=style)
    for row in rows:
        table.add_row(*(Text(text, style=STATE_COLOURS.get(text, "")) for text in row))
    console.print(table)


def _whole_columns(lines: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Tell which columns are never folded: the short ones, where the others have room enough beside them."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    short = [each <= SHORT_CELLS for each in widths]
    taken = sum(each if is_short else SHORT_CELLS for each, is_short in zip(widths, short, strict=True))
    return short if taken + len(COLUMN_GAP) * len(widths) <= width else [False] * len(widths)
