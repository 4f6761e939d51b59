"""The runs page, filtered by name, status, worker, time and last output; and the page of one run.

The URL contains all filters. The search is bounded in time; the page says how far it got.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from bedrockjobs.base.config import LIST_MAX
from bedrockjobs.base.errors import BadArguments, Forbidden, line_of
from bedrockjobs.base.jsontext import members
from bedrockjobs.base.vocabulary import ANY_FAILURE, FAILED_STATUSES, PING_WORKER, STATUSES, statuses_of
from bedrockjobs.commands import ListRuns, QueryRun, ReadOutput
from bedrockjobs.pages.formatting import hidden_options, iso
from bedrockjobs.pages.site import (
    HEADERS,
    MATCHING_S,
    MATCHING_SLICE,
    PRESETS,
    ROWS,
    Pages,
    Site,
    cursor,
    follow_tokens,
    preset_in,
    rows_asked,
    slice_answer,
    text_in,
    time_in,
)

# The page of one run: outcome and output, with search, follow and download.
#
# The page works without scripts; scripts add following and colours.


LINES_SHOWN = 500
"""Maximum lines of output on a page."""

LINES_EXAMINED_MAX = 10_000
"""Maximum lines that a search examines; the page says how far it got."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class HighlightedLine(NamedTuple):
    """A line of output; in ``parts``, texts and matches of the search alternate, beginning with a text."""

    seq: int
    at: str
    stream: str
    parts: list[str]
    raw: str
    """The line with terminal colours; empty if it has none."""


class Log(NamedTuple):
    """A page of output: its lines, the number of the last line examined, and whether there are more."""

    lines: list[HighlightedLine]
    reached: int
    more: bool


async def run(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a run."""
    wanted = QueryRun.read({"runID": request.match_info["runID"]})
    text = await site.ask_text(wanted)
    parsed = json.loads(text)
    find = request.query.get("find", "")[:200]  # maximum length of a search text
    after_text = request.query.get("after", "")
    after = _after(after_text)
    log: Log | None
    if not site.shows_data:
        log, after = None, 0
    elif find:
        log = await _matching_lines(site, wanted.run_id, after, find)
    elif after_text:
        log = await _page(site, wanted.run_id, after, LINES_SHOWN)
    else:
        log, after = await tail(site, wanted.run_id, LINES_SHOWN)
    before, following, options = await site.views.adjacent_runs(wanted.run_id)
    return await site.show(
        request,
        "run.html",
        title=f"Run {wanted.run_id} of {parsed['name']}",
        before=before,
        following=following,
        command=_command(options),
        run=parsed,
        pinged=is_ping(parsed),
        result=members(text)["result"] if parsed.get("result") is not None else "",
        data=members(text)["data"] if parsed.get("data") is not None else "",
        progress=progress_of(parsed.get("progress")),
        log=log,
        after=after,
        earlier=max(after - LINES_SHOWN, 0) if after else None,
        find=find,
        times=request.query.get("times") == "1",
        follows=log is not None and parsed["status"] == "running" and not find and not log.more,
    )


def _command(options: str) -> str:
    """Return the job's own program, shell command or URL for a run; empty if it has none."""
    parsed = json.loads(options)
    if hidden := hidden_options(parsed):
        return hidden["url"]
    argv = parsed.get("argv")
    return shlex.join(argv) if argv else str(parsed.get("cmd") or parsed.get("url") or "")


async def output(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with the whole output as a text file, read and sent page by page."""
    wanted = QueryRun.read({"runID": request.match_info["runID"]})
    await site.read(wanted)
    if not site.shows_data:
        raise Forbidden(detail="output counts as data, which this token may not see")
    name = f"run-{wanted.run_id}.txt"
    response = web.StreamResponse(
        headers={
            **HEADERS,
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        }
    )
    await response.prepare(request)
    times = request.query.get("times") == "1"
    last = 0
    async for rows in _pieces(site, wanted.run_id, 0):
        lines_shown = []
        for seq, at, _, line in rows:
            if seq > last + 1:
                lines_shown.append(f"[{seq - last - 1} lines left out]")
            lines_shown.append(f"{at}Z {line}" if times else line)
            last = seq
        await response.write("".join(f"{line}\n" for line in lines_shown).encode(errors="replace"))
    return response


def is_ping(run: Mapping[str, Any]) -> bool:
    """Return whether a ping began a run, so that no worker has it."""
    return bool(run["worker"] == PING_WORKER and not run["pid"])


def plain(line: str) -> str:
    """Return a line without terminal control sequences."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _ANSI.sub("", line.rsplit("\r", 1)[-1]))


def _after(text: str) -> int:
    if not text:
        return 0
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise BadArguments("Malformed after", "after: expected the number of a line")
    return int(text)


def progress_of(value: Any) -> float | None:
    """Return the percentage in a stored progress value, or None."""
    shown = value.get("percent") if isinstance(value, dict) else value
    is_number = isinstance(shown, (int, float)) and not isinstance(shown, bool)
    return float(shown) if is_number and 0 <= shown <= 100 else None  # type: ignore[arg-type,operator]


async def tail(site: Site, run_id: int, count: int) -> tuple[Log, int]:
    """Return the last lines of a run, and the number of the line before them."""
    last, _ = await site.views.end_of_output(run_id)
    after = max(last - count, 0)
    return await _page(site, run_id, after, count), after


async def _page(site: Site, run_id: int, after: int, count: int) -> Log:
    page = await site.views.output(ReadOutput(run_id=run_id, after=after, limit=count + 1))
    rows = page.lines[:count]
    lines = [_line(row, [plain(row[3])]) for row in rows]
    return Log(lines, rows[-1][0] if rows else after, len(page.lines) > count)


async def _matching_lines(site: Site, run_id: int, after: int, find: str) -> Log:
    """Return the lines after a number that contain a text, ignoring case."""
    sought = re.compile(f"({re.escape(find)})", re.IGNORECASE)
    lines: list[HighlightedLine] = []
    examined, reached = 0, after
    async for rows in _pieces(site, run_id, after):
        for row in rows:
            parts = sought.split(plain(row[3]))
            examined, reached = examined + 1, row[0]
            if len(parts) > 1:
                lines.append(_line(row, parts))
            # A page has at most 200 matches; the next page continues.
            if len(lines) == 200 or examined == LINES_EXAMINED_MAX:
                return Log(lines, reached, more=True)
    return Log(lines, reached, more=False)


def _line(row: tuple[Any, ...], parts: list[str]) -> HighlightedLine:
    seq, at, stream, line = row
    coloured = len(parts) == 1 and "\x1b[" in line
    return HighlightedLine(seq, at, stream, parts, line.rsplit("\r", 1)[-1] if coloured else "")


async def _pieces(site: Site, run_id: int, after: int) -> AsyncIterator[list[tuple[Any, ...]]]:
    while True:
        page = await site.views.output(ReadOutput(run_id=run_id, after=after, limit=LIST_MAX))
        if not page.lines:
            return
        yield page.lines
        after = page.lines[-1][0]


TOKENS = {
    "name": "name",
    "status": "status",
    "worker": "worker",
    "text": "text",
    "error": "text",
    "type": "errorType",
    "since": "from",
    "until": "to",
}
"""The words before a colon in the search box, each with its query parameter."""


class RunFilters(NamedTuple):
    """The filters of the list; an empty one matches every run."""

    status: str
    name: str | None
    worker: str | None
    text: str | None
    error_type: str | None
    since: str | None
    until: str | None
    before: int | None

    def search(self) -> dict[str, Any]:
        """Return the filters as arguments of the search."""
        parameters = self._asdict()
        statuses = statuses_of(parameters.pop("status"))
        return {"pattern": parameters.pop("name"), "statuses": statuses, **parameters}

    def address(self) -> dict[str, str | None]:
        """Return the filters as query parameters, without the cursor ``before``."""
        return {
            "status": self.status,
            "name": self.name,
            "worker": self.worker,
            "text": self.text,
            "errorType": self.error_type,
            "from": iso(self.since),
            "to": iso(self.until),
        }


async def runs(site: Site, request: web.Request) -> web.StreamResponse:
    """Show a page of runs, newest first."""
    follow_tokens(request, TOKENS)
    filters = _parse_query(request, site.views.now_ms)
    limit = rows_asked(request, ROWS)
    page = await site.views.find.runs(**filters.search(), limit=limit)
    return await site.show(
        request,
        "runs.html",
        title="Runs",
        asked=filters.address(),
        statuses=STATUSES,
        any_failure=ANY_FAILURE,
        presets=PRESETS,
        preset=preset_in(request),
        failures=FAILED_STATUSES,
        begins=filters.before is None,
        found=page,
        short=len(page.runs) < limit,
        said={run.run_id: last_message(run.error, run.output) for run in page.runs},
    )


async def matching(site: Site, request: web.Request) -> web.StreamResponse:
    """Answer with a slice of the runs that match the filter."""
    filters = _parse_query(request, site.views.now_ms)
    page = await site.views.find.runs(**filters.search(), limit=MATCHING_SLICE, within_s=MATCHING_S)
    found = [(run.run_id, run.name) for run in page.runs]
    return slice_answer(found, None if page.ended else page.reached)


def _parse_query(request: web.Request, now: str) -> RunFilters:
    query = {key: value for key, value in request.query.items() if value}
    status = query.get("status", "")
    if status not in ("", ANY_FAILURE, *STATUSES):
        raise BadArguments(
            "Malformed status", f"status: expected {ANY_FAILURE} or one of {', '.join(STATUSES)}"
        )
    checked = ListRuns.read({key: query[key] for key in ("name", "worker", "errorType") if key in query})
    return RunFilters(
        status,
        checked.name,
        checked.worker,
        text_in(query),
        checked.error_type,
        time_in(query, "from", now),
        time_in(query, "to", now),
        cursor(request, "before", "a runID"),
    )


def last_message(error: str, output: str) -> str:
    """Return the last message of a run: the main line of its error, or its last line of output."""
    lines = [plain(line).strip() for line in json.loads(output)]
    message = line_of(error) or next((line for line in reversed(lines) if line), "")
    return message if len(message) <= 200 else f"{message[:200]}…"


PAGES: Pages = (
    ("/ui/runs", runs),
    ("/ui/runs/matching", matching),
    ("/ui/runs/{runID}", run),
    ("/ui/runs/{runID}/output.txt", output),
)
