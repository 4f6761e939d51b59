"""The SQL function ``create_job``, with which an application creates jobs in a transaction of its own.

It checks what SQL can check, draws the jobID and writes a row of the table ``inbox``, with the rights of the
tables' owner. A role that may execute it needs no other right.
"""

from __future__ import annotations

from pathlib import Path

from bedrockjobs.base.config import DATA_BYTES_MAX, KEY_CHARS_MAX, NAME_CHARS_MAX, PRIORITIES
from bedrockjobs.commands import JobSpec
from bedrockjobs.store.postgresql import schema as schemas
from bedrockjobs.store.postgresql.session import DatabaseSession

SIGNATURE = "create_job(text, jsonb, jsonb)"

OPTIONS = tuple(sorted(name for name in JobSpec.wire_names.values() if name not in ("name", "data")))
"""The keys that the parameter ``options`` may have: the attributes of CreateJob except name and data."""

_SHORT = r"(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?"
_UNITS = "(second|minute|hour|day)s?"
_DURATION = (
    rf"^\s*(\+ ?\d{{1,9}} {_UNITS}|{_SHORT}(\d{{1,9}}(\.0*)?s?)?)\s*$",
    "a duration like 90s, 5m, 1h30m or +90 SECONDS, or a number of seconds",
)
_WHOLE = (r"^(\d{1,18}(\.0*)?)?$", "a whole number")
_BOOLEAN = (r"^(true|false|1|0|)$", "true or false")
_PRIORITY = (
    f"^({'|'.join(map(str, sorted(PRIORITIES)))}|)$",
    f"one of {', '.join(map(str, sorted(PRIORITIES)))}",
)
_KEY = (rf"^.{{1,{KEY_CHARS_MAX}}}$", f"1 to {KEY_CHARS_MAX} characters")


def _one_of(*words: str) -> tuple[str, str]:
    return f"^({'|'.join(words)}|)$", f"one of {', '.join(words)}"


CHECKED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            *("runTimeout", "grace", "lease", "backoff", "maxBackoff", "expireAfter", "pingGrace", "maxLate"),
            *("jitter", "keep"),
        ),
        _DURATION,
    ),
    **dict.fromkeys(
        ("retries", "keepSuccess", "keepFail", "outputLines", "concurrencyLimit", "parentJobID"), _WHOLE
    ),
    **dict.fromkeys(("unique", "overwrite", "mockRequest"), _BOOLEAN),
    **dict.fromkeys(("jobPriority", "priority"), _PRIORITY),
    **dict.fromkeys(("uniqueKey", "idempotencyKey"), _KEY),
    "onLost": _one_of("retry", "fail"),
    "onChildFailure": _one_of("continue", "fail"),
    "catchup": _one_of("once", "skip", "all"),
    "overlap": _one_of("skip", "queue"),
    "onConflict": _one_of("ignore", "replace", "reject"),
    "hosts": _one_of("all"),
    "expect": _one_of("ping"),
}
"""By option, a regular expression for its text, and what is expected in words; a server checks all other
options."""

_OFFSET = (
    rf"^\s*(([+-] ?)?(\d{{1,9}} {_UNITS}|(?=.*[a-z]){_SHORT}(\d{{1,9}}(\.\d{{1,6}})?s)?)"
    r"|[+-] ?\d{1,9}(\.\d{1,6})?)\s*$"
)
_DATE = r"^\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?\s*(Z|[+-]\d\d(:?\d\d)?)?)?$"

_DATE_WORDS = (
    "a date like 2026-11-21 03:29:56 (UTC) or ISO 8601 with a zone, or a time from now like +5 MINUTES"
)


def text(schema: str) -> str:
    """Return the statement that creates the function in a schema, or replaces an older version."""
    schemas.check_name(schema)
    known = ",\n            ".join(
        f"('{name}', '{pattern}', '{expected}')"
        for name, (pattern, expected) in ((name, CHECKED.get(name, ("", ""))) for name in OPTIONS)
    )
    values = {
        "schema": schema,
        "name_max": str(NAME_CHARS_MAX),
        "data_max": str(DATA_BYTES_MAX),
        "known": known,
        "names": ", ".join(OPTIONS),
        "offset": _OFFSET,
        "date": _DATE,
        "date_words": _DATE_WORDS,
    }
    made = Path(__file__).with_name("create_job.sql").read_text()
    for mark, value in values.items():
        made = made.replace(f"<{mark}>", value)
    return made


def install(session: DatabaseSession, schema: str) -> bool:
    """Create or replace the function in the open transaction; return whether it is new.

    No other role may execute a new function until that is granted. A replaced function keeps its grants.
    """
    ((there_is,),) = session.run_statements([("SELECT to_regprocedure($1) IS NOT NULL", (SIGNATURE,))])[0]
    session.script(text(schema))
    if not there_is:
        session.script(f"REVOKE ALL ON FUNCTION {SIGNATURE} FROM PUBLIC")
        session.script(f'GRANT USAGE ON SCHEMA "{schema}" TO PUBLIC')
    return not there_is
