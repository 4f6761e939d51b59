"""The forms of the output: tables for people, JSON for programs, nothing that steers a terminal."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedrockjobs.base.wire import RawJSON
from bedrockjobs.cli.output import (
    as_json,
    printable,
    printable_line,
    raw_record,
    styled,
    write_many,
    write_one,
)

JOB = raw_record(
    '{"jobID":7,"state":"QUEUED","name":"foo","data":{"b":2.50,"a":[1, -0.0]},"nextRun":"2026-11-21"}'
)
OTHER = raw_record('{"jobID":12,"state":"FAILED","name":"日本語","data":{},"nextRun":"2026-11-22"}')


class Terminal(io.StringIO):
    """Looks like a terminal to whoever writes."""

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


@pytest.mark.parametrize(("width", "folded"), [("60", False), ("30", True)])
def test_short_columns_are_folded_only_where_there_is_no_room(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: str, folded: bool
) -> None:
    """And then nothing of them is lost."""
    monkeypatch.setenv("COLUMNS", width)
    record = {"status": "terminated", "started": "2026-11-21T08:00:00", "error": "y" * 90}
    with redirect_stdout(terminal):
        write_many([record], "table", list(record))
    shown = re.sub("\x1b[^m]*m", "", terminal.getvalue())
    assert ("terminated" not in shown, "2026-11-21T08:00:00" not in shown) == (folded, folded)
    assert shown.count("y") == 90
    assert sum(map(shown.count, "0123456789")) == 14


def test_a_terminal_gets_colours_and_no_lost_text(terminal: Terminal) -> None:
    with redirect_stdout(terminal):
        write_many([{**JOB, "name": "y" * 60}, OTHER], "table", ("jobID", "state", "name"))
    shown = terminal.getvalue()
    assert "\x1b[36m" in shown, "QUEUED is cyan"
    assert shown.count("y") == 60, "what is too wide is folded"
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
)  # fmt: skip
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
