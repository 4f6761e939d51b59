"""``reference/settings.md``: ``Settings``, and the constants of ``config.py``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

from bedrockjobs.base import config
from bedrockjobs.base.clock import days_text
from bedrockjobs.base.settings import CERTIFICATES, RELOADABLE, Settings, is_duration
from bedrockjobs.cli.settings_sources import option_name, variable_name
from docs.generator import NOTE
from docs.generator.markdown import code, size, table

_INTRO = """\
# Settings and limits

## Settings

Each setting is an option of `bedrockjobs serve`, an environment variable, and a key of the table `[server]`
in a settings file (`--config FILE`, `BEDROCKJOBS_CONFIG`): the option without leading dashes and with `_`
for `-`. Options take precedence over variables, variables over the file, the file over defaults: see
[how to configure](../how-to/configure.md). Times are texts such as `90s`, `5m`, `1h30m`, or numbers of
seconds. Settings with a ↻ are read again on HUP; others need a restart."""

_CONSTANTS = """\
## Fixed limits

The same on every server. A command that exceeds one is refused with its name. All others are in
[their own table](../../bedrockjobs/base/README.md), and the reason for each in
[config.py](../../bedrockjobs/base/config.py)."""

_OF_REQUESTS = frozenset(
    re.findall(
        r"\w+",
        """
        NAME_CHARS_MAX PATTERN_CHARS_MAX PATTERNS_MAX GLOB_CHARS_MAX GLOB_STARS_MAX NAMES_AT_ONCE
        NAMES_QUEUED_MAX REPEAT_CHARS_MAX REPEAT_MODIFIERS_MAX DATA_BYTES_MAX JSON_DEPTH_MAX MERGE_BYTES_MAX
        JSON_CONTAINERS_MAX JSON_HUGE_NUMBERS_MAX JSON_VALUES_MAX FORM_FIELDS_MAX CHUNKS_MAX ESCAPES_MAX
        OTHER_ESCAPES_MAX JOBS_PER_CREATE_MAX JOBS_PER_GET_MAX DATA_CHARS_PER_COMMAND_MAX DELAY_S_MAX
        ANSWER_BYTES_MAX LOST_RUNS_MAX WAIT_MS_MAX ERROR_CHARS_MAX WORKER_CHARS_MAX WORKERS_MAX
        HOSTS_PER_CALLER_MAX QUERY_CHARS_MAX QUERY_MEMORY_BYTES_MAX CRASH_PATTERNS_MAX TOKEN_SHARE
        DURATION_S_MAX RETRIES_MAX ARGV_MAX TAGS_MAX TAG_CHARS_MAX JOB_ID_MAX WHOLE_MAX NOTE_CHARS_MAX
        HISTORY_MAX OUTPUT_TAIL_MAX OUTPUT_LINES_PER_APPEND_MAX OUTPUT_LINE_CHARS_MAX KEY_CHARS_MAX
        IF_MATCH_CHARS_MAX EVENTS_KEPT_MAX RUNS_KEPT_MAX TICK_ROWS_MAX CATCHUP_MAX
        RUNS_PER_HEARTBEAT_MAX PAUSES_MAX REASON_CHARS_MAX LIST_MAX SCHEDULES_PER_SYNC_MAX
        WORKFLOW_JOBS_MAX WORKFLOW_EDGES_MAX REF_CHARS_MAX BEFORE_BYTES_MAX SEEN_MAX SEEN_AT_ONCE_MAX
        RUNS_DELETED_AT_ONCE_MAX DELETED_TEXT_CHARS_MAX SEARCH_S_MAX SCHEDULE_FILE_CHARS_MAX
        IMPORT_TOKENS_MAX CRONKEN_EVENT_CHARS_MAX LIMITS_MAX QUEUED_LIMIT_MAX RUNNING_LIMIT_MAX
        STARTS_MAX STARTS_S_MAX STARTS_PER_S_MAX PER_SECOND_MAX KEPT_BYTES_MAX RUN_OUTPUT_BYTES_MIN
        EVENTS_KEPT_S_MIN
        """,
    )
)
"""Constants that a user meets; the others bound the work of the server itself."""

_UNITS = {"chars": "characters", "bytes": "bytes", "ms": "ms", "s": "s"}


def page() -> str:
    """Return the page."""
    settings = table(
        ("option", "variable", "default", "allowed", "meaning"),
        (
            (
                code(option_name(name)),
                code(variable_name(name)),
                _default(name, field.default),
                _allowed(name, field),
                f"{field.description}{' ↻' if name in RELOADABLE | CERTIFICATES else ''}",
            )
            for name, field in Settings.model_fields.items()
        ),
    )
    return "\n\n".join([NOTE, _INTRO, settings, _CONSTANTS, _constants(of_requests=True)]) + "\n"


def own_limits() -> str:
    """Return the table of constants that bound the work of the server itself."""
    return _constants(of_requests=False)


def _constants(*, of_requests: bool) -> str:
    found = [*constants_of_config()]
    if unknown := _OF_REQUESTS - {name for name, _, _ in found}:
        raise ValueError(f"expected constants of config.py, got {', '.join(sorted(unknown))}")
    return table(
        ("constant", "value", "meaning"),
        (
            (code(name), _value(name, value), _meaning(reason))
            for name, value, reason in found
            if (name in _OF_REQUESTS) == of_requests
        ),
    )


def constants_of_config() -> Iterator[tuple[str, Any, str]]:
    """Yield name, value and reason of every constant: its reason is the string below it."""
    body = ast.parse(Path(config.__file__).read_text()).body
    for statement, reason in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name = statement.targets[0].id
        if name.isupper() and isinstance(reason, ast.Expr) and isinstance(reason.value, ast.Constant):
            yield name, getattr(config, name), " ".join(str(reason.value.value).split())


def _meaning(reason: str) -> str:
    """Return what a constant limits, without the reason for its value."""
    found = re.match(r"(?:`[^`]*`|[^`])+?(?=[.;:](?: |$))", reason.replace("``", "`"))
    return f"{found[0]}." if found else reason


def _default(name: str, default: Any) -> str:
    if is_duration(name):
        return days_text(default)
    if "bytes" in name:
        return size(default)
    return code(str(default).lower() if isinstance(default, bool) else str(default))


def _allowed(name: str, field: Any) -> str:
    if choices := get_args(field.annotation):
        return " · ".join(code(str(choice)) for choice in choices)
    words = []
    for limit in field.metadata:
        for attribute, word in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below")):
            if hasattr(limit, attribute):
                value = getattr(limit, attribute)
                words.append(f"{word} {days_text(value) if is_duration(name) else f'{value:,}'}")
    return " ".join(words)


def _value(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if "BYTES" in name:
        return size(value)
    if "_PER_S_" in name:
        return f"{value:,} per second"
    for part in name.lower().split("_"):
        if part in _UNITS:
            return f"{value:,} {_UNITS[part]}"
    return f"{value:,}" if name != "DEFAULT_PORT" else str(value)
