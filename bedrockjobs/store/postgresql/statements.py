"""The named statements in PostgreSQL's dialect: its own ``queries.sql``, ``records.sql``, and the views."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import NAME_CHARS_MAX, PRIORITIES
from bedrockjobs.base.glob import anchored_regex
from bedrockjobs.job.limits import Limit
from bedrockjobs.store import statements

_REAL, _MOCKED = (
    "(SELECT one.jobID FROM jobs AS one WHERE one.name BETWEEN asked.name AND asked.name"  # noqa: S608
    f" AND {kind} ORDER BY one.name, one.jobID LIMIT 1)"
    for kind in ("one.lane <> 'mock'", "one.lane = 'mock'")
)
_LANES = (
    "SELECT asked.lane FROM unnest(${lanes}::text[]) AS asked (lane)"
    " WHERE asked.lane = '' OR (SELECT true FROM jobs WHERE found = asked.lane AND {queued} LIMIT 1)"
)
"""Selects the lanes of a list that have queued jobs: of the lanes that a worker may read, few are in use."""

_LIMIT = {name: place for place, name in enumerate(Limit._fields)}
_LIMITS = "json_array_elements((SELECT value::json FROM meta WHERE key = 'limits')) AS each"

_KEY_LIMIT = (
    f"(SELECT min(nullif((each->>{_LIMIT['running']})::bigint, 0)) FROM {_LIMITS}"  # noqa: S608
    f" WHERE jobs.name ~ (each->>{_LIMIT['each_key']}))"
)
"""How many jobs with one concurrency key may run at a time, by the limits that match the name of a row."""

_HAS_KEY = 'jobs.options ~ \'"concurrencyKey": *"\''

_SLOTS = (
    "coalesce(least(substring(jobs.options FROM '\"concurrencyLimit\": *([1-9][0-9]{0,4})')::bigint,"
    f" CASE WHEN {_HAS_KEY} THEN {_KEY_LIMIT} END), 1)"
)
"""How many jobs with the lock of a row may run at a time. The options are searched as text: a quote inside of
a JSON string would have a backslash and does not match."""

_WAITS = (
    "EXISTS (SELECT 1 FROM paced CROSS JOIN LATERAL ("  # noqa: S608
    f"SELECT each FROM {_LIMITS} WHERE each->>{_LIMIT['pattern']} = paced.pattern"
    f" AND jobs.name ~ (each->>{_LIMIT['each_key']}) AND paced.until > (each->>{_LIMIT['ahead_us']})::bigint"
    " + (SELECT (extract(epoch FROM ($1::text || '+00')::timestamptz) * 1000000)::bigint)) AS limits"
    f" WHERE paced.key = jobs.lock AND paced.key <> '' AND jobs.found NOT LIKE 'now%' AND {_HAS_KEY})"
)
"""True if the key of a row has to wait for its next start after $1; see ``limits.start_by_key``. It is one
lookup per row, which finds nothing if no start of the key was limited."""

_FREE = (
    "{row}.lock <> ALL ($7::text[]) AND (SELECT true FROM jobs AS holder"
    " WHERE holder.lock = {row}.lock AND holder.lock <> '' AND holder.state = 'RUNNING'"
    " OFFSET {slots} - 1 LIMIT 1) IS NULL AND NOT {waits}"
)
"""True if the lock of a row has a free slot, and its key need not wait. It is one lookup per row, as a join
might read all held locks."""

_FLOORS = ", ".join(f"floor{priority}" for priority in PRIORITIES)


def _arrays(first: int) -> str:
    """Return one list parameter per priority, numbered from ``first``."""
    return ", ".join(f"${number}::text[]" for number in range(first, first + len(PRIORITIES)))


def _next_head(place: str) -> str:
    """Return a query for the first job of the next priority of a name, or of the next name."""
    conditions = f"name = {place}.name AND priority < {place}.priority", f"name > {place}.name"
    selects = (
        f"(SELECT name, priority, nextRun, jobID FROM jobs WHERE found = {place}.lane AND {condition}"  # noqa: S608
        " AND {queued} ORDER BY name, priority DESC, nextRun, jobID LIMIT 1)"
        for condition in conditions
    )
    return f"{' UNION ALL '.join(selects)} LIMIT 1"


def _next_key(after: str) -> str:
    """Return a query for the next lock of queued jobs of names ($3) in a lane ($2) with a priority ($4)."""
    return (
        "SELECT min(one.lock) FROM unnest($3::text[]) AS names (name) CROSS JOIN LATERAL ("  # noqa: S608
        "SELECT lock FROM jobs WHERE found = $2 AND jobs.name = names.name AND priority = $4"
        f" AND lock > '' AND lock > {after} AND {{queued}} ORDER BY lock LIMIT 1) AS one"
    )


def _first_timestamp(priority: int) -> str:
    first = f"found = '' AND priority = {priority} AND nextRun >= asked.floor{priority}"
    any_name, one_name = (
        f"(SELECT nextRun FROM jobs WHERE {first} AND {which} ORDER BY nextRun, jobID LIMIT 1)"  # noqa: S608
        for which in ("{in_order}", "name = asked.name AND {queued}")
    )
    return f"CASE asked.name WHEN '' THEN {any_name} ELSE {one_name} END"


MARKS = {
    "database_now": "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')",
    "run": statements.RECORDS["run_by_id"].partition("SELECT ")[2].partition(" FROM ")[0],
    "workflow": statements.RECORDS["workflow_by_id"].partition("SELECT ")[2].partition(" FROM ")[0],
    "first:real": _REAL,
    "first:mocked": _MOCKED,
    "named": (
        f"SELECT unnest($1::bigint[]) AS jobID UNION SELECT {_REAL} FROM unnest($2::text[]) AS asked (name)"  # noqa: S608
        f" UNION SELECT {_MOCKED} FROM unnest($2::text[]) AS asked (name)"
    ),
    "open_lanes": (
        "lanes AS MATERIALIZED (SELECT lane, lane LIKE 'now%' AS always FROM ({lanes:$2}) AS used)"
    ),
    "every_lane": (
        "lanes (lane) AS (SELECT (SELECT min(found) FROM jobs WHERE {queued})"
        " UNION ALL SELECT (SELECT min(jobs.found) FROM jobs WHERE jobs.found > lanes.lane AND {queued})"
        " FROM lanes WHERE lanes.lane IS NOT NULL)"
    ),
    "paused": (
        "EXISTS (SELECT 1 FROM pauses) AND EXISTS (SELECT 1 FROM pauses WHERE name ~ pauses.regex) AS paused"
    ),
    "next_by_name": (
        "SELECT job.* FROM asked CROSS JOIN LATERAL ("
        "SELECT job.* FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL ("
        "SELECT job.* FROM lanes CROSS JOIN LATERAL (SELECT {row} FROM jobs WHERE {of_class}"
        " AND nextRun <= $1 AND nextRun >= {floor}"
        " AND jobID <> ALL ($6::bigint[]) ORDER BY nextRun, jobID LIMIT asked.wanted FOR UPDATE SKIP LOCKED"
        ") AS job WHERE lanes.always OR NOT asked.paused"
        " ORDER BY job.nextRun, job.jobID LIMIT asked.wanted) AS job"
        " WHERE class.priority = coalesce($5::bigint, class.priority) LIMIT asked.wanted) AS job"
    ),
    "next_in_open_lane": (
        "SELECT job.* FROM asked CROSS JOIN LATERAL ("
        "SELECT job.* FROM (VALUES {priorities}) AS class (priority) CROSS JOIN LATERAL ("
        "SELECT {row} FROM jobs WHERE found = '' AND name = asked.name AND priority = class.priority"
        " AND {queued} AND nextRun <= $1 AND nextRun >= {class_floor}"
        " ORDER BY nextRun, jobID LIMIT asked.wanted FOR UPDATE SKIP LOCKED"
        ") AS job WHERE class.priority = coalesce($2::bigint, class.priority) LIMIT asked.wanted"
        ") AS job WHERE NOT asked.paused"
    ),
    "next_with_lock": (
        "WITH RECURSIVE sooner AS MATERIALIZED (SELECT * FROM (SELECT {row} FROM jobs WHERE {of_class}"
        " AND nextRun < coalesce(stop.nextRun, $1 || ' ') AND {free_job}"
        " ORDER BY nextRun, jobID LIMIT asked.wanted FOR UPDATE SKIP LOCKED) AS job),"
        " near AS MATERIALIZED (SELECT * FROM sooner UNION ALL SELECT * FROM (SELECT {row} FROM jobs"
        " WHERE {of_class} AND nextRun = stop.nextRun AND jobID <= stop.jobID AND {free_job}"
        " ORDER BY nextRun, jobID LIMIT asked.wanted - (SELECT count(*) FROM sooner)"
        " FOR UPDATE SKIP LOCKED) AS job),"
        " heads AS ((SELECT lock, nextRun, jobID, {slots} AS slots, {waits} AS waits, 1 AS number FROM jobs"
        " WHERE {of_class} AND lock > ''"
        " AND stop.jobID IS NOT NULL AND (SELECT count(*) FROM near) < asked.wanted"
        " ORDER BY lock, nextRun, jobID LIMIT 1) UNION ALL SELECT next.* FROM heads CROSS JOIN LATERAL ("
        "SELECT lock, nextRun, jobID, {slots}, {waits}, heads.number + 1 FROM jobs WHERE {of_class}"
        " AND lock > '' AND lock > heads.lock AND heads.number <= $9::bigint"
        " ORDER BY lock, nextRun, jobID LIMIT 1) AS next)"
        " SELECT * FROM near"
        " UNION ALL SELECT * FROM (SELECT {row} FROM jobs WHERE jobID = ANY (ARRAY("
        "SELECT jobID FROM heads WHERE nextRun <= $1 AND (SELECT count(*) FROM heads) <= $9::bigint"
        " AND jobID <> ALL (ARRAY(SELECT jobID FROM near)) AND jobID <> ALL ($6::bigint[]) AND {free:heads}"
        " ORDER BY nextRun, jobID LIMIT asked.wanted + $8::bigint)) AND {queued}"
        " ORDER BY nextRun, jobID LIMIT asked.wanted FOR UPDATE SKIP LOCKED) AS job"
        " UNION ALL SELECT {stop} WHERE (SELECT count(*) FROM heads) > $9::bigint"
    ),
    "next_head:asked": _next_head("asked"),
    "next_key:$5": _next_key("$5"),
    "next_key:keys.lock": _next_key("keys.lock"),
    "next_head:heads": _next_head("heads"),
    "of_asked": "found = lanes.lane AND name = asked.name AND priority = asked.priority AND {queued}",
    "of_class": "found = lanes.lane AND name = asked.name AND priority = class.priority AND {queued}",
    "free_job": "jobID <> ALL ($6::bigint[]) AND {free:jobs}",
    "free:heads": (
        _FREE.replace("{row}", "heads").replace("{slots}", "heads.slots").replace("{waits}", "heads.waits")
    ),
    "floors": "SELECT " + ", ".join(f"${n}::text AS floor{p}" for n, p in enumerate(PRIORITIES, 8)),
    "floors:$2": _arrays(2),
    "floors:$5": _arrays(5),
    "floors:$7": _arrays(7),
    "floor_names": _FLOORS,
    "floor": "CASE lanes.lane WHEN '' THEN {class_floor} ELSE '' END",
    "class_floor": (
        f"CASE class.priority {' '.join(f'WHEN {p} THEN asked.floor{p}' for p in PRIORITIES)} END"
    ),
    "first_timestamps": ", ".join(map(_first_timestamp, PRIORITIES)),
    "stop": re.sub(
        r"\w+",
        lambda column: {"nextRun": "stop.nextRun", "priority": "class.priority", "runID": "stop.jobID"}.get(
            column[0], "NULL"
        ),
        f"{statements.COLUMNS}, parental",
    ),
    "highest_name": f"repeat(chr({sys.maxunicode}), {NAME_CHARS_MAX})",
    "in_order": f"{statements.QUEUED} AND length(created) >= 0",
    "plain_take": (
        "state = 'QUEUED' AND lane = '' AND runID = 0 AND options = '{}' AND memory = '{}'"
        " AND expires || retryAfter || lastRun || repeat = ''"
    ),
    "plain_end": (
        "state = 'RUNNING' AND lane = '' AND options = '{}' AND memory = '{}' AND repeat = ''"
        " AND parentJobID = 0 AND runID = 0 AND NOT parental"
    ),
    "row": f"{statements.COLUMNS}, parental",
    "open": (
        "jobID <> ALL ($6::bigint[])"
        " AND (found LIKE 'now%' OR NOT EXISTS (SELECT 1 FROM pauses WHERE jobs.name ~ pauses.regex))"
        " AND (lock = '' OR ({free:jobs}))"
    ),
    "free:jobs": (_FREE.replace("{row}", "jobs").replace("{slots}", _SLOTS).replace("{waits}", _WAITS)),
    "slots": _SLOTS,
    "waits": _WAITS,
    "lanes:$1": _LANES.replace("{lanes}", "1"),
    "lanes:$2": _LANES.replace("{lanes}", "2"),
}
"""Placeholders of ``queries.sql``, in addition to those of every statement file.

``database_now``: the clock of the database, as a timestamp with milliseconds. ``every_lane``: the lanes in
use. ``open_lanes``: lanes, and whether they are exempt from pauses. ``next_by_name``: for some names, the
next jobs without a lock, in any lane. ``next_key``: the next lock. ``next_in_open_lane``: for some names, the
next jobs in the open lane. ``next_with_lock``: the next jobs of a priority whose lock is free, by a scan or
by the first job of each lock. ``stop``: a row for the end of a scan. ``highest_name``: appended to a prefix,
sorts after all names with this prefix. ``in_order``: matches the predicate of the index ``jobsByPriority``.
``plain_take``, ``plain_end``: the job can be taken or ended in one statement (``lifecycle.QUICK_TAKE``,
``QUICK_FINISH``). ``named``: some jobs, and the first job of some names. ``open``: the queued job is not
excluded or paused, and its lock is free.
"""


def _filled(text: str) -> str:
    for mark, meaning in MARKS.items():
        text = text.replace(f"{{{mark}}}", meaning)
    return text


def numbered(text: str) -> str:
    """Return a SQLite statement with PostgreSQL parameters: ``?`` and ``?1`` become ``$1``."""
    numbers = count(1)
    return re.sub(r"\?(\d?)", lambda match: f"${match[1] or next(numbers)}", text)


QUERIES = statements.read_statements(Path(__file__).with_name("queries.sql"), _filled)
for _way in ("by_name", "with_lock", "in_order"):
    QUERIES[f"see_{_way}"] = QUERIES[f"take_{_way}"].replace(" FOR UPDATE SKIP LOCKED", "")
RECORDS = {name: numbered(text) for name, text in statements.RECORDS.items()}
RECORDS["trim_paced"] = RECORDS["trim_paced"].replace("LIMIT $3", "LIMIT $3 FOR UPDATE SKIP LOCKED")
EVENTS = frozenset({RECORDS["add_event"]})
"""Statements that are sent last in a unit, since the numbers of events must follow the order of commits."""


# The statements of views: PostgreSQL's own versions, and the others translated from SQLite.
#
# Parameters have names in SQLite and numbers here. A GLOB becomes a regular expression, made from the pattern
# when the statement runs.


_LOCKED = r"^((?:now )?(?:(?:cmd|argv|url) )?lock) ."
_LOWEST = (
    "(SELECT min((SELECT nextRun FROM jobs WHERE jobs.found = {found:<lane>} AND jobs.lane = <lane>"  # noqa: S608
    " AND jobs.name BETWEEN <name> AND <name> AND jobs.priority = column1 AND {queued}"
    " ORDER BY jobs.name, nextRun LIMIT 1))"
    f" FROM (VALUES {', '.join(f'({priority})' for priority in PRIORITIES)}) AS classes)"
)
"""The lowest nextRun of a lane and name, by one seek per priority.

The name is compared by BETWEEN: with ``=``, a second index without names also yields this order, and without
statistics PostgreSQL might choose it.
"""

_WORDS = (
    (r" INDEXED BY \w+", ""),
    (
        r"CROSS JOIN (\w+) USING \((\w+)\)",
        r"JOIN LATERAL (SELECT * FROM \1 AS one WHERE one.\2 = stretch.\2 OFFSET 0) AS \1 USING (\2)",
    ),
    (re.escape(statements.VISIBLE_ROW), "name ~ :visible_regex"),
    (r"(\w[\w.]*) GLOB :(\w+)", r"\1 ~ :\2_regex"),
    (r"(\w[\w.]*) GLOB pattern\b", r"\1 ~ pauses.regex"),
    (r":(\w+) IS NULL", r":\1::text IS NULL"),
    (r"\binstr\(", "strpos("),
    (r"\bchar\(10, 13, 32\)", r"E'\\n\\r '"),
    (r"\bchar\(", "chr("),
    (r"\bLIKE 'CRON %'", "ILIKE 'CRON %'"),
    (r"CASE WHEN json_valid\((\w+\.memory)\) THEN \1 ->> 'trigger' END", r"(members_of(\1) ->> 'trigger')"),
    (r"(\w+\.)?options ->> 'source'", r"(\1options::json ->> 'source')"),
)
"""Translations from SQLite to PostgreSQL, as regular expressions.

``OFFSET 0`` keeps the join order: a range first, then its rows one by one.
"""


_LARGE = re.compile(r"\b(data|result|bytes)\b")
"""Columns that may have megabytes, such as the data of a job or the result of a run."""


class View(NamedTuple):
    """A statement, and its parameter names in the order of their numbers."""

    sql: str
    names: list[str]
    large: bool
    """Whether a row may be large."""

    def parameters(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the parameters as a list; patterns become regular expressions where needed."""
        names_used = []
        for name in self.names:
            pattern = name.removesuffix("_regex")
            value = values[name] if pattern == name or name in values else values[pattern]
            if value is not None and pattern != name:
                value = anchored_regex(jsontext.parse(value) if pattern == "visible" else [value])
            names_used.append(value)
        return names_used


def _filled_view(text: str) -> str:
    text = re.sub(
        r"\{lowest:([\w.]+):([\w.]+)\}",
        lambda match: _LOWEST.replace("<lane>", match[1]).replace("<name>", match[2]),
        text,
    )
    return re.sub(r"\{found:([^{}]+)\}", rf"coalesce(substring(\1 FROM '{_LOCKED}'), \1)", text)


def _numbered(sql: str) -> View:
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = re.sub(r"(?<![:?]):([a-zA-Z_]\w*)", number, sql)
    return View(text, names, _LARGE.search(sql) is not None)


def translated(sql: str) -> View:
    """Translate a statement from SQLite."""
    for pattern, words in _WORDS:
        sql = re.sub(pattern, words, sql)
    return _numbered(sql)


OWN = statements.read_statements(Path(__file__).with_name("views.sql"), _filled_view)
"""The views that have a separate version for PostgreSQL."""

VIEWS: dict[str, View] = {
    name: translated(sql)
    for name, sql in {**statements.VIEWS, **statements.METRICS, **statements.QUEUES}.items()
    if name not in OWN
}
for _name, _sql in OWN.items():  # texts of `statements.MARKS` in them are SQLite's
    VIEWS[_name] = _numbered(re.sub(r" INDEXED BY \w+", "", re.sub(r"\binstr\(", "strpos(", _sql)))
