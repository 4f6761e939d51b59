"""Output formats: tables for people, JSON for programs, and no terminal control sequences."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from cli_fake import NOW, FakeServer, run
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from bedrockjobs.base.jsontext import RawJSON
from bedrockjobs.cli import main
from bedrockjobs.cli.output import (
    Grid,
    as_json,
    fitted,
    printable,
    printable_line,
    raw_record,
    styled,
    write_many,
    write_one,
    write_wrapped,
)
from bedrockjobs.commands import CreateJob
from bedrockjobs.outbox import Outbox
from bedrockjobs.store.outbox import table_sql
from tests.conftest import Live
from tests.runs.bearer import Bearer, admin_of

JOB = raw_record(
    '{"jobID":7,"state":"QUEUED","name":"foo","data":{"b":2.50,"a":[1, -0.0]},"nextRun":"2026-11-21"}'
)
OTHER = raw_record('{"jobID":12,"state":"FAILED","name":"日本語","data":{},"nextRun":"2026-11-22"}')


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """Say yes."""
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 40 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    return Terminal()


def test_json_keeps_the_spelling_of_numbers_and_the_order_of_keys(capsys: pytest.CaptureFixture[str]) -> None:
    write_many([JOB], "json")
    out = capsys.readouterr().out
    assert '"data": {"b":2.50,"a":[1, -0.0]}' in out
    assert [list(job) for job in json.loads(out)] == [["jobID", "state", "name", "data", "nextRun"]]


def test_json_lines_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    write_many([raw_record('{"data":{\n"a":\r\n"x\\ny"}}'), OTHER], "jsonl")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"data": {"a": "x\ny"}},
        {"jobID": 12, "state": "FAILED", "name": "日本語", "data": {}, "nextRun": "2026-11-22"},
    ]


@pytest.mark.parametrize(("records", "text"), [([], "[]\n"), ([{}], "[\n  {}\n]\n")])
def test_json_of_little(
    records: list[dict[str, object]], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_many(records, "json")
    assert capsys.readouterr().out == text


def test_names_are_job_ids_or_first_values(capsys: pytest.CaptureFixture[str]) -> None:
    write_many([JOB, OTHER, {"name": "bar", "count": 2}], "name")
    write_one({"server": "localhost", "ms": 2}, "name")
    assert capsys.readouterr().out == "7\n12\nbar\nlocalhost\n"


def test_a_table_that_is_piped_is_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = {"jobID": 1, "name": "x" * 500, "nextRun": "2026-11-21"}
    write_many([long, OTHER], "table", ("jobID", "name", "nextRun"))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == f"jobID  name{' ' * 498}nextRun (UTC)"
    assert first == f"1      {'x' * 500}  2026-11-21"
    assert second == f"12     日本語{' ' * 494}  2026-11-22", "a wide character takes two columns"


def test_one_record_is_a_line_for_each_key(capsys: pytest.CaptureFixture[str]) -> None:
    write_one({"jobID": 7, "nextRun": "2026-11-21", "parent": None, "unique": True}, "table")
    assert capsys.readouterr().out.splitlines() == [
        "jobID          7",
        "nextRun (UTC)  2026-11-21",
        "parent",
        "unique         true",
    ]


def test_a_sentence_stands_for_a_record_in_tables_only(capsys: pytest.CaptureFixture[str]) -> None:
    write_one({"jobID": 7}, "table", "Created job 7.")
    write_one({"jobID": 7}, "jsonl", "Created job 7.")
    assert capsys.readouterr().out == 'Created job 7.\n{"jobID":7}\n'


def test_an_empty_list_is_said_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    write_many([], "table", ("jobID",), none="No jobs.")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "No jobs.\n")


LONG_NAME = "reports/customers/in-the-north-of-europe/monthly-invoices-of-2026-11"
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/srv/app/jobs.py", line 12, in run\n    raise ValueError(number)\n'
    "ValueError: the customer record 4711 has no address in the register of the tax office, nor elsewhere"
)
LAST_LINE = TRACEBACK.splitlines()[-1]
RUN = {
    "runID": 1234567,
    "jobID": 7654321,
    "name": LONG_NAME,
    "status": "frozen",
    "attempt": 3,
    "cause": "schedule",
    "started": "2026-11-23 11:43:00",
    "ended": "2026-11-23 11:50:30.5",
    "scheduledFor": "2026-11-23 11:43:00",
    "worker": "worker-of-the-second-rack-1",
    "host": "build-machine-01.internal.example.com",
    "exitCode": 137,
    "error": TRACEBACK,
}
JOB_SHOWN = {
    "jobID": 7654321,
    "state": "PAUSED",
    "name": LONG_NAME,
    "priority": 500,
    "nextRun": "2026-11-23 12:17:00",
    "lastRun": "2026-11-23 11:43:00",
    "repeat": "CRON TZ=Europe/Berlin 0,15,30,45 9-17 * * MON-FRI",
    "data": {},
    "uniqueKey": "customer-4711",
}
SCHEDULE = {
    "jobID": 7654321,
    "name": LONG_NAME,
    "repeat": JOB_SHOWN["repeat"],
    "nextRun": "2026-11-23 12:17:00",
    "lastRun": "2026-11-23 11:43:00",
    "lastStatus": "timeout",
    "state": "QUEUED",
    "words": "every quarter",
    "paused": LONG_NAME,
}
FAILURE = {
    "id": 1234567,
    "name": LONG_NAME,
    "at": "2026-11-23 11:43:00",
    "line": LAST_LINE,
    "error": TRACEBACK,
    "worker": "",
    "started": "",
    "seen": "",
    "seenBy": "",
}
FAILURES = {
    "fingerprint": "0123456789abcdef",
    "state": "timeout",
    "name": LONG_NAME,
    "names": 3,
    "line": LAST_LINE,
    "count": 12,
    "unseen": 9,
    "first": "2026-11-22 11:43:00",
    "last": "2026-11-23 11:43:00",
    "failures": [FAILURE],
}
QUEUE = {
    "name": LONG_NAME,
    "ready": 1234567,
    "running": 12,
    "failed": 3,
    "later": 40,
    "paused": 0,
    "blocked": 2,
    "more": False,
    "oldestReady": "2026-11-23 11:43:00",
    "age": 1020,
    "workers": 12,
    "pausedBy": LONG_NAME,
}
WORKFLOW = {
    "workflowID": 1234567,
    "name": LONG_NAME,
    "state": "FAILED",
    "created": "2026-11-23 11:43:00",
    "ended": "2026-11-23 11:50:30.5",
    "kept": "",
    "open": 120,
    "failed": 1,
}
JOB_OF_WORKFLOW = {
    "jobID": 7654321,
    "ref": "the-orders-of-the-customers-in-the-north-of-europe",
    "name": LONG_NAME,
    "state": "FAILED",
    "waits": 0,
    "onFailure": "cancel",
    "started": "2026-11-23 11:43:00",
    "ended": "2026-11-23 11:50:30.5",
    "reason": TRACEBACK,
    "after": [],
}
OF_RULE = {"lastSent": "2026-11-23 11:43:00", "lastError": TRACEBACK, "mutedUntil": "2026-11-23 12:17:00"}
ASKED: dict[tuple[str, ...], tuple[dict[str, list[dict[str, Any]]], tuple[str, ...]]] = {
    ("job", "list"): ({"ListJobs": [{"jobs": [JOB_SHOWN]}]}, ("7654321", "waiting for other jobs", "in 17m")),
    ("run", "list"): ({"ListRuns": [{"runs": [RUN]}]}, ("1234567", "lost", "17m ago", "7m30s")),
    ("failure", "list"): (
        {"ListFailures": [{"jobs": [], "runs": [FAILURES], "before": None, "runsBefore": None}] * 2},
        ("timeout", "9", "0123456789abcdef", "17m ago"),
    ),
    ("failure", "show", "0123456789abcdef"): (
        {"ListFailures": [{"jobs": [], "runs": [FAILURES], "before": None, "runsBefore": None}] * 2},
        ("run", "1234567", "17m ago"),
    ),
    ("queue", "list"): (
        {"ListQueues": [{"queues": [QUEUE]}], "ListPauses": [{"pauses": []}]},
        ("1,234,567", "12", "3", "17m"),
    ),
    ("workflow", "list"): (
        {"ListWorkflows": [{"workflows": [{**WORKFLOW, "jobs": 10_000}]}]},
        ("1234567", "FAILED", "9,880 of 10,000", "17m ago"),
    ),
    ("workflow", "show", "1234567"): (
        {"QueryWorkflow": [{**WORKFLOW, "jobs": [JOB_OF_WORKFLOW]}]},
        ("FAILED", "7m30s"),
    ),
    ("schedule", "list"): ({"ListSchedules": [{"schedules": [SCHEDULE]}]}, ("7654321", "in 17m", "timeout")),
    ("schedule", "show", "x"): (
        {
            "ListSchedules": [{"schedules": [SCHEDULE]}],
            "QueryJob": [JOB_SHOWN],
            "ListRuns": [{"runs": [RUN]}],
            "ListTicks": [
                {
                    "ticks": [
                        {
                            "tick": "2026-11-22 11:43:00",
                            "until": "2026-11-22 11:50:00",
                            "count": 8,
                            "outcome": "skipped",
                            "reason": "the run before it was still going on when the tick was due: "
                            "none is made up for",
                            "status": "success",
                            "failed": 0,
                            "late": 12,
                            "runID": 1234567,
                        }
                    ]
                }
            ],
            "ValidateSchedule": [{"next": []}],
        },
        ("1234567", "lost", "17m ago", "7m30s", "2026-11-22 11:43:00", "skipped", "success"),
    ),
    ("worker", "list"): (
        {
            "ListWorkers": [
                {
                    "workers": [
                        {
                            "name": "worker-of-the-second-rack-1",
                            "status": "draining",
                            "runIDs": [1, 2, 3],
                            "slots": 16,
                            "host": RUN["host"],
                            "pid": 1234567,
                            "names": [LONG_NAME],
                            "heartbeat": "2026-11-23 11:59:48",
                            "version": "1.2.3",
                        }
                    ]
                }
            ]
        },
        ("draining", "3", "12s ago"),
    ),
    ("server", "list"): (
        {
            "ListServers": [
                {
                    "servers": [
                        {
                            "name": "jobs-server-of-the-second-rack-1",
                            "address": "jobs-1.internal.example.com:8888",
                            "started": "2026-11-23 11:43:00",
                            "pulse": "2026-11-23 11:59:48",
                            "version": "1.2.3",
                            "workers": 144,
                            "state": "standing by",
                        }
                    ]
                }
            ]
        },
        ("17m ago", "12s ago", "144", "standing by"),
    ),
    ("notify", "list"): (
        {
            "ListRules": [
                {
                    "rules": [
                        {
                            "name": "operators-of-the-second-rack",
                            "on": ["failed", "lost", "late"],
                            "names": [LONG_NAME],
                            "to": "https://chat.internal.example.com/hooks/0123456789abcdef",
                            "sent": 120,
                            "tries": 3,
                            **OF_RULE,
                        }
                    ]
                }
            ]
        },
        ("in 17m",),
    ),
    ("token", "list"): (
        {
            "ListTokens": [
                {
                    "tokens": [
                        {
                            "name": "operators-of-the-second-rack",
                            "roles": ["operate", "work", "read"],
                            "names": [LONG_NAME],
                            "expires": "2026-11-23 12:17:00",
                            "lastUsed": "2026-11-23 11:59:48",
                            "revoked": "",
                            "by": "somebody@example.com",
                        }
                    ]
                }
            ]
        },
        ("in 17m", "12s ago"),
    ),
    ("kept", "list"): (
        {
            "ListRetention": [
                {
                    "kept": [
                        {
                            "name": LONG_NAME,
                            "kind": "runs",
                            "seconds": 2_592_000,
                            "bytes": 1_073_741_824,
                            "most": 1_000_000,
                            "count": 123_456,
                            "more": True,
                            "used": 1_073_741_000,
                            "oldest": "2026-11-23 11:43:00",
                            "by": "somebody@example.com",
                        }
                    ]
                }
            ]
        },
        ("runs", "30d", "123456+"),
    ),
    ("limit", "list"): (
        {
            "ListLimits": [
                {
                    "limits": [
                        {
                            "name": LONG_NAME,
                            "queued": 100_000,
                            "perSecond": 250,
                            "running": 16,
                            "runs": 12,
                            "refused": 1234,
                            "lastRefused": "2026-11-23 11:43:00",
                            "by": "somebody@example.com",
                        }
                    ]
                }
            ]
        },
        ("100000", "16", "12", "1234"),
    ),
    ("audit",): (
        {
            "ListAudit": [
                {
                    "entries": [
                        {
                            "seq": 1234567,
                            "at": "2026-11-23 11:43:00",
                            "by": "somebody@example.com",
                            "address": "2001:db8::1234:5678",
                            "command": "RemoveRetention",
                            "name": LONG_NAME,
                            "jobID": 0,
                            "detail": {"name": LONG_NAME},
                        }
                    ]
                }
            ]
        },
        ("1234567", "17m ago", "RemoveRetention"),
    ),
    ("events",): (
        {
            "Overview": [{"newestEvent": 1234567}],
            "Events": [
                {
                    "events": [
                        {
                            "seq": 1234567,
                            "at": "2026-11-23 11:43:00",
                            "kind": "worker joined",
                            "name": LONG_NAME,
                            "jobID": 7654321,
                            "runID": 7654322,
                            "by": "somebody@example.com",
                            "detail": TRACEBACK,
                        }
                    ]
                }
            ],
        },
        ("1234567", "17m ago", "worker joined"),
    ),
    ("top", "--once"): (
        {
            "Status": [{"version": "1.0", "started": "2026-11-23 11:43:00", "now": NOW}],
            "ListRuns": [
                {"runs": [{**RUN, "stop": "", "progress": {"percent": 40, "message": LONG_NAME}}]},
                {"runs": [RUN]},
            ],
            "ListQueues": [{"queues": [QUEUE]}],
            "ListWorkers": [{"workers": []}],
            "Overview": [{"ready": 1, "more": [], "problems": [], "next": [SCHEDULE]}],
        },
        ("1234567", "17m", "lost", "9m ago", "1,234,567", "in 17m"),
    ),
}
"""What each command that lists something is answered, and what of it every terminal must show whole."""

OUTBOX_LIST = ("outbox", "list")
"""It asks no server."""


def on_terminal(*arguments: str) -> list[str]:
    """Run the program with a terminal as stdout; return the visible lines, without colours."""
    screen = Terminal()
    with redirect_stdout(screen):
        main.main(list(arguments), prog_name="bedrockjobs", standalone_mode=False)
    return re.sub("\x1b[^m]*m", "", screen.getvalue()).splitlines()


def prepare(fake: FakeServer, command: tuple[str, ...]) -> tuple[str, ...]:
    """Prepare a fake reply; return the text that must be shown."""
    answers, whole = ASKED[command]
    for verb, bodies in answers.items():
        fake.will(verb, *bodies)
    return whole


def test_each_command_that_lists_something_is_walked() -> None:
    lists = {
        (group, name)
        for group, command in main.commands.items()
        for name in getattr(command, "commands", {})
        if name == "list"
    }
    assert lists <= {*ASKED, OUTBOX_LIST}


Order = tuple[str, str, Callable[[dict[str, Any]], Any]]
"""What the help says of an order, the member that names a row, and by what rows are sorted."""

ORDERS: dict[tuple[str, ...], Order] = {
    ("job", "list"): ("by jobID", "jobID", lambda row: row["jobID"]),
    ("run", "list"): ("newest first", "runID", lambda row: -row["runID"]),
    ("failure", "list"): ("newest first", "name", lambda row: -row["failures"][0]["id"]),
    ("queue", "list"): ("most ready jobs first", "name", lambda row: -row["ready"]),
    ("workflow", "list"): ("newest first", "workflowID", lambda row: -row["workflowID"]),
    ("schedule", "list"): ("by jobID", "name", lambda row: row["jobID"]),
    ("worker", "list"): ("by name", "name", lambda row: row["name"]),
    ("server", "list"): ("by name", "name", lambda row: row["name"]),
    ("notify", "list"): ("by name", "name", lambda row: row["name"]),
    ("token", "list"): ("by name", "name", lambda row: row["name"]),
    ("kept", "list"): ("by pattern", "name", lambda row: (row["name"] != "*", row["name"])),
    ("limit", "list"): ("by pattern", "name", lambda row: row["name"]),
    ("audit",): ("newest first", "seq", lambda row: -row["seq"]),
    ("events",): ("in the order in which they happened", "seq", lambda row: row["seq"]),
    OUTBOX_LIST: ("by id", "id", lambda row: row["id"]),
}
"""The order of each list."""


async def fill(root: Bearer, shop: Path) -> None:
    """Make three of what each list has, whose names are in another order than their numbers."""
    for many, name in enumerate(("c", "a", "b"), 1):
        await root.ok("CreateJobs", jobs=[{"name": f"job/{name}"}] * (many * 7 % 5))
        await root.ok("CreateJob", name=f"schedule/{name}", repeat="CRON 0 0 1 1 *")
        await root.ok("CreateWorkflow", name=name, jobs=[{"ref": "x", "name": "workflow/x"}])
        await root.ok("CreateJob", name=f"failing/{name}")
        taken = await root.ok("GetJob", name=f"failing/{name}", worker=name)
        failed = {"jobID": taken["jobID"], "runID": taken["runID"]}
        await root.ok("FailJob", **failed, error=f"nothing but {name}", final=True)
        await root.ok("Heartbeat", worker=name, runIDs=[])
        await root.ok("CreateToken", name=name, roles="read")
        await root.ok("SetRetention", name=f"{name}/*", runs=86_400, events=86_400)
        await root.ok("SetLimit", name=f"{name}/*", running=4)
        await root.ok("PutRule", name=name, on="lost", to="mailto:ann@example.com")
    with closing(sqlite3.connect(shop)) as connection:
        connection.executescript(table_sql("sqlite"))
        for name in ("c", "a", "b"):
            Outbox(connection).enqueue(CreateJob(name=name))
        connection.execute("UPDATE bedrockjobs_outbox SET state = 'aside', error = 'no'")
        connection.commit()


async def test_each_list_has_the_order_that_its_help_says_in_each_form(live: Live, tmp_path: Path) -> None:
    root = await admin_of(live)
    await fill(root, tmp_path / "shop.db")
    env = {"BEDROCKJOBS_SERVER": f"127.0.0.1:{live.port}", "BEDROCKJOBS_TOKEN": root.token, "TZ": "UTC"}
    for command, (words, identity, by) in ORDERS.items():
        assert words in " ".join(run(*command, "--help").stdout.split()), command
        source = ("--from", str(tmp_path / "shop.db")) if command == OUTBOX_LIST else ()
        shown = {
            form: (await asyncio.to_thread(run, *command, *source, "-o", form, env=env)).stdout
            for form in ("json", "jsonl", "name", "table")
        }
        rows = json.loads(shown["json"])
        assert rows == sorted(rows, key=by), command
        assert len(rows) >= (1 if command[0] == "server" else 3), (command, rows)
        head, *table = shown["table"].splitlines()
        column = head.index(identity)
        others = {
            "jsonl": [str(json.loads(line)[identity]) for line in shown["jsonl"].splitlines()],
            "name": shown["name"].splitlines(),
            "table": [line[column:].split()[0] for line in table],
        }
        names = [str(row[identity]) for row in rows]
        for form, found in others.items():  # there may have been one more event meanwhile
            assert [each for each in found if each in names] == [each for each in names if each in found], (
                command,
                form,
            )
            assert {*found} & {*names}, (command, form)


def test_the_order_of_each_list_is_walked() -> None:
    assert {command for command in ASKED if "list" in command} | {OUTBOX_LIST} <= {*ORDERS}


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_terminal_shows_jobs_of_an_outbox_whole(
    width: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.executescript(table_sql("sqlite"))
        Outbox(shop).enqueue(CreateJob(name=LONG_NAME, data={"a": "x" * 300}))
        shop.execute("UPDATE bedrockjobs_outbox SET state = 'aside', error = ?", (TRACEBACK,))
        shop.commit()
    lines = on_terminal(*OUTBOX_LIST, "--from", str(tmp_path / "shop.db"))
    assert [line for line in lines if cell_len(line) > width] == []
    assert any(line.split()[:1] == ["1"] for line in lines), lines


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_a_terminal_shows_ids_states_numbers_and_times_whole(
    command: tuple[str, ...],
    width: int,
    fake: FakeServer,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TZ", "UTC")
    whole = prepare(fake, command)
    lines = on_terminal(*command)
    text = "\n".join(lines)
    assert [line for line in lines if cell_len(line) > width] == []
    cells = {cell.strip() for line in lines for cell in line.split("  ")}
    assert [each for each in whole if each not in cells] == []
    assert "\\u000a" not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("how", [("-o", "wide"), ()], ids=["wide", "pipe"])
@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_a_wide_table_and_a_pipe_get_each_column_and_nothing_is_cut(
    command: tuple[str, ...],
    how: tuple[str, ...],
    fake: FakeServer,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    whole = prepare(fake, command)
    lines = on_terminal(*command, *how) if how else run(*command).stdout.splitlines()
    text = "\n".join(lines)
    assert "…" not in text
    assert "Not shown" not in text
    answered = json.dumps(ASKED[command][0])
    assert [each for each in (LONG_NAME, LAST_LINE) if each in answered and each not in text] == []
    assert "Traceback" not in text
    numbers = {each for each in whole if each.isdecimal()}
    assert numbers <= set(re.split(" {2,}|\n", text))


def test_names_lose_their_middle_and_errors_their_end(
    fake: FakeServer, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    prepare(fake, ("run", "list"))
    _, _, name, *_, error = re.split(" {2,}", on_terminal("run", "list")[2])
    begin, end = name.split("…")
    assert LONG_NAME.startswith(begin)
    assert LONG_NAME.endswith(end)
    assert len(begin) - len(end) in (0, 1)
    assert (error[-1], LAST_LINE.startswith(error[:-1])) == ("…", True)


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_a_table_fits_the_narrowest_terminal(width: int) -> None:
    keys = ("runID", "status", "name", "started", "took", "error", "version")
    row = ("1234567", "terminated", "日本語" * 9, "17m ago", "7m30s", "y" * 90, "1.0")
    grid, left_out = fitted(Grid(keys, keys, [row]), width)
    assert sum(grid.widths()) + 2 * (len(grid.keys) - 1) <= width
    assert (grid.rows[0][0], "terminated" in grid.rows[0], "version" in left_out) == ("1234567", True, True)


def test_a_short_name_leaves_a_long_text_its_least() -> None:
    keys = ("state", "name", "what was wrong")
    row = ("FAILED", "mail/receipt", "y" * 90)
    for width in range(6 + 2 + 8 + 2 + len("what was wrong"), 60):
        grid, left_out = fitted(Grid(keys, keys, [row]), width)
        assert (sum(grid.widths()) + 2 * (len(grid.keys) - 1) <= width, left_out) == (True, []), width


@given(
    st.lists(st.text(st.sampled_from("ab日é -"), max_size=40), min_size=6, max_size=6), st.integers(45, 150)
)
def test_whatever_the_content_a_fitted_table_is_no_wider_than_the_terminal(
    row: list[str], width: int
) -> None:
    keys = ("name", "status", "error", "worker", "detail", "by")
    row[1] = "running"
    grid, _ = fitted(Grid(keys, keys, [row]), width)
    assert sum(grid.widths()) + 2 * (len(grid.keys) - 1) <= width
    assert grid.rows[0][1] == "running"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_sentence_is_broken_between_words_below_its_beginning(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    sentence = "it has been paused since yesterday: the disk of the database is nearly full " * 3
    starts = ("warn ", "yellow"), ("paused   ", "")
    with redirect_stdout(terminal):
        write_wrapped(sentence.strip(), *starts)
    first, *more = re.sub("\x1b[^m]*m", "", terminal.getvalue()).splitlines()
    assert first.startswith("warn paused   it has")
    assert all(line.startswith(" " * 14) and line[14] != " " for line in more)
    assert all(len(line) <= width for line in (first, *more))
    assert " ".join([first[14:], *more]).split() == sentence.split()
    write_wrapped(sentence.strip(), *starts)
    assert capsys.readouterr().out == f"warn paused   {sentence.strip()}\n", "a pipe gets one line"


def test_what_explains_a_job_breaks_no_words(
    fake: FakeServer, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    words = "it has been paused since 2026-11-23 11:43:00 UTC: the disk of the database is nearly full"
    reasons = [{"reason": "paused", "detail": words}, {"reason": "due", "detail": words}]
    fake.will("ExplainJob", {"jobID": 7, "name": "a", "state": "QUEUED", "waitsFor": reasons})
    lines = on_terminal("job", "explain", "7")
    assert all(cell_len(line) <= 60 for line in lines)
    assert " ".join(lines).split().count("database") == len(reasons)
    assert [line[:5] for line in lines if line[:5].strip()][2:] == ["  1. ", "  2. "]


def test_a_query_loses_nothing_on_a_narrow_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts are wrapped; if it is still too wide, each record is shown on several lines."""
    monkeypatch.setenv("COLUMNS", "60")
    record = {"jobID": 1234567, "status": "terminated", "error": f"{'word ' * 30}\n{TRACEBACK}"}
    for count, header in ((1, True), (9, False)):
        more = {f"column{at}": "x" * 20 for at in range(count - 1)}
        with redirect_stdout(terminal):
            write_many([{**record, **more}] * 2, "table", stored=True)
        shown = re.sub("\x1b[^m]*m", "", terminal.getvalue())
        assert ("status" in shown.splitlines()[0], shown.count("word"), shown.count("ValueError:")) == (
            header,
            60,
            2,
        )
        assert {"1234567", "terminated"} <= set(shown.split())
        assert all(len(line) <= 60 for line in shown.splitlines())
        terminal.seek(terminal.truncate(0))


def test_a_terminal_gets_colours(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        write_many([{**JOB, "name": "FAILED"}, OTHER], "table", ("jobID", "state", "name"))
    shown = terminal.getvalue()
    assert "\x1b[36mQUEUED" in shown
    assert "\x1b[31mFAILED" in shown
    assert shown.count("\x1b[31m") == 1, "a name is no state"
    assert "日本語" in shown


def test_style_is_for_terminals(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert styled("+ a", fg="green") == "+ a", "a pipe"
    with redirect_stdout(terminal):
        assert styled("+ a", fg="green") == "\x1b[32m+ a\x1b[0m"
        assert styled("+ a", err=True, fg="green") == "+ a", "stderr is none"
        monkeypatch.setenv("NO_COLOR", "1")
        assert styled("+ a", fg="green") == "+ a"


def test_no_color_takes_the_colours_away(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(terminal):
        write_many([JOB], "table", ("jobID", "state"))
    assert "\x1b[36m" not in terminal.getvalue()
    assert "QUEUED" in terminal.getvalue()


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "name"])
def test_a_name_cannot_steer_the_terminal(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = RawJSON(json.dumps("\x1b[2J\x9b2J\u202e[red]x", ensure_ascii=False).replace("\\u009b", "\x9b"))
    write_many([{"name": hostile}], form, ("name",))  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert not set("\x1b\x9b\u202e") & set(out)
    assert "[red]x" in out


@pytest.mark.parametrize(
    ("line", "shown", "plain"),
    [
        ("\x1b[1;31mred\x1b[0m, not", "\x1b[1;31mred\x1b[0m, not\x1b[0m", "red, not"),
        ("\x1b[38:2::1:2:3ma\tb", "\x1b[38:2::1:2:3ma\tb\x1b[0m", "a\tb"),
        ("\x1b[2J\x1b[m", "\\u001b[2J\x1b[m\x1b[0m", "\\u001b[2J"),
        ("\x1b[?1049h\x1b]0;x\x07\rover", "\\u001b[?1049h\\u001b]0;x\\u0007\\u000dover", None),
        (f"\x1b[{'1' * 65}m", f"\\u001b[{'1' * 65}m", None),
        ("\x1b[31\x1b[31m", "\\u001b[31\x1b[31m\x1b[0m", "\\u001b[31"),
        ("\x9b31mx", "\\u009b31mx", None),
        ("", "", None),
    ],
    ids=["colour", "other-colour", "clears", "modes-and-title", "endless", "nested", "one-byte", "empty"],
)
def test_a_line_of_output_keeps_its_colours_on_a_terminal_and_nothing_else(
    line: str, shown: str, plain: str | None, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = shown if plain is None else plain
    assert printable_line(line) == plain, "a pipe"
    with redirect_stdout(terminal):
        assert printable_line(line) == shown
        monkeypatch.setenv("NO_COLOR", "1")
        assert printable_line(line) == plain


@given(st.text(st.one_of(st.sampled_from("\x1b\x9b[0;13m]J\r\t\x07"), st.characters())))
def test_no_line_of_output_steers_the_terminal(text: str) -> None:
    with redirect_stdout(Terminal()):
        left = re.sub("\x1b\\[[0-9;:]*m", "", printable_line(text))
    assert not any((each < " " and each != "\t") or "\x7f" <= each <= "\x9f" for each in left)


@given(st.text())
def test_escaped_text_has_no_control_characters_and_the_json_stays_the_same(text: str) -> None:
    assert not any(character < " " or "\x7f" <= character <= "\x9f" for character in printable(text))
    assert json.loads(as_json(text)) == text
    assert json.loads(as_json({text: [text]})) == {text: [text]}
